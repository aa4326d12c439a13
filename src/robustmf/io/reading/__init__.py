"""Readers of ratings: delimited text, Parquet, npz of SciPy, Matrix Market."""

from robustmf.exceptions import MalformedFileError
from robustmf.io.reading.layout import Layout, guess_layout
from robustmf.io.reading.ratings import read_ratings
from robustmf.io.reading.source import Source
from robustmf.io.reading.wide import WideLayout

__all__ = ["Layout", "MalformedFileError", "Source", "WideLayout", "guess_layout", "read_ratings"]
