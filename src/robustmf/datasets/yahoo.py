"""Yahoo! Music ratings.

Dror, Koenigstein, Koren and Weimer, "The Yahoo! Music dataset and KDD-Cup '11".
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from robustmf.datasets.catalog import YAHOO
from robustmf.datasets.finding import find_files, how_to_get
from robustmf.datasets.rating_set import RatingSet
from robustmf.io.reading.grouped import GroupedForm, read_grouped
from robustmf.io.reading.layout import Layout
from robustmf.io.reading.ratings import read_ratings

_GROUPED = GroupedForm("|", "\t", (0, 100))


def load_yahoo(
    folder: str | Path | None = None, *, files: str | None = None, dtype: str = "float32"
) -> RatingSet:
    """Load Yahoo! Music ratings: users by items.

    Parameters
    ----------
    folder : path, optional
        Folder that contains ``yahoo``; by default the folder named by ``ROBUSTMF_DATA``, then the
        cache.
    files : str, optional
        Name of the file; by default ``trainIdx2.txt`` (KDD Cup 2011, track 2, as in the paper),
        ``trainIdx1.txt``, or the only ``.txt`` file. There are two formats: that of the KDD Cup, a
        line ``user|count`` followed by lines ``item<tab>score``, 0 to 100; and lines
        ``user<tab>item<tab>rating``, 1 to 5.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the ratings.

    Returns
    -------
    ratings : RatingSet
        The ratings.
    """
    sources = find_files(YAHOO, YAHOO.files if files is None else (files,), folder)
    if not sources:
        raise FileNotFoundError(how_to_get(YAHOO, files or YAHOO.files[0], folder))
    if len(sources) > 1:
        names = ", ".join(source.path.name for source in sources[:6])
        raise ValueError(
            f"{sources[0].path.parent} contains several files of ratings ({names}); choose one with"
            " files="
        )
    source = sources[0]
    first = next(islice(source.text(), 1), "")
    if "|" in first:
        return RatingSet(
            read_grouped(sources, _GROUPED, dtype).transposed, YAHOO.name, str(source), (0, 100)
        )
    layout = Layout("\t", (), 0, 1, 2, len(first.split("\t")), (False, False))
    return RatingSet(read_ratings(source, layout, dtype=dtype), YAHOO.name, str(source), (1, 5))
