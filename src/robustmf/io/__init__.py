"""Files: readers of tables of entries, models, checkpoints."""

from robustmf.exceptions import MalformedFileError
from robustmf.io.reading import Layout, Source, WideLayout, guess_layout, read_ratings

__all__ = ["Layout", "MalformedFileError", "Source", "WideLayout", "guess_layout", "read_ratings"]
