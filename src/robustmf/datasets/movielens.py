"""MovieLens ratings.

Harper and Konstan, "The MovieLens datasets", ACM TiiS 5(4), 2015.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from robustmf.data.observed import Compressed, Observed
from robustmf.datasets.catalog import MOVIELENS
from robustmf.datasets.finding import find_files, require_file
from robustmf.datasets.rating_set import RatingSet, titles_by_id
from robustmf.io.reading.layout import Layout
from robustmf.io.reading.ratings import read_ratings


@dataclass(frozen=True)
class _Format:
    """Format of the files of a data set."""

    layout: Layout
    bounds: tuple[float, float]
    titles: str
    delimiter: str
    encoding: str = "utf-8"
    quoted: bool = False


def _layout(delimiter: str, names: tuple[str, ...] = ()) -> Layout:
    return Layout(delimiter, names, 0, 1, 2, 4, (False, False))


_FORMATS = {
    "100k": _Format(_layout("\t"), (1, 5), "u.item", "|", "latin-1"),
    "1m": _Format(_layout("::"), (1, 5), "movies.dat", "::", "latin-1"),
    "10m": _Format(_layout("::"), (0.5, 5), "movies.dat", "::"),
    "latest-small": _Format(
        _layout(",", ("userId", "movieId", "rating", "timestamp")),
        (0.5, 5),
        "movies.csv",
        ",",
        quoted=True,
    ),
}


def load_movielens(
    name: str = "latest-small",
    folder: str | Path | None = None,
    *,
    paper_filter: bool = False,
    download: bool = True,
    dtype: str = "float64",
) -> RatingSet:
    """Load MovieLens ratings: users by movies, in stars.

    Parameters
    ----------
    name : {"100k", "1m", "10m", "latest-small"}, default="latest-small"
        Which data set.
    folder : path, optional
        Folder that contains the folder of the data set (``ml-100k``, ``ml-1m``, ``ml-10M100K``,
        ``ml-latest-small``) or the downloaded archive; by default the folder named by
        ``ROBUSTMF_DATA``, then the cache.
    paper_filter : bool, default=False
        For "1m": only the 3,449 movies that the authors of the paper kept, those whose ratings add
        up to more than 10.
    download : bool, default=True
        Whether a missing data set may be downloaded; its checksum is verified, and it is stored in
        the folder or the cache.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the ratings.

    Returns
    -------
    ratings : RatingSet
        Ratings and titles.
    """
    if name not in MOVIELENS:
        raise ValueError(f"name must be one of {sorted(MOVIELENS)}, got name={name!r}")
    if paper_filter and name != "1m":
        raise ValueError(
            f"paper_filter needs name='1m'; the paper did not filter other data, got name={name!r}"
        )
    data = MOVIELENS[name]
    file_format = _FORMATS[name]
    source = require_file(data, data.files[0], folder, download)
    ratings = read_ratings(source, file_format.layout, dtype=dtype)
    if paper_filter:
        ratings = _with_columns(
            ratings, np.bincount(ratings.rows.indices, ratings.rows.values, ratings.shape[1]) > 10
        )
    found = RatingSet(ratings, data.name, str(source), file_format.bounds)
    listed = find_files(data, (file_format.titles,), folder)
    if not listed:
        return found
    titles = titles_by_id(
        listed[0], file_format.delimiter, file_format.encoding, quoted=file_format.quoted
    )
    return replace(found, titles=tuple(titles.get(item, "") for item in ratings.column_ids or ()))


def _with_columns(
    ratings: Observed, kept: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
) -> Observed:
    """Return the ratings of the columns to keep."""
    rows = ratings.select(kept[ratings.rows.indices]).rows
    new_index = (np.cumsum(kept) - 1).astype(np.int32)
    ids = [
        one for one, keep in zip(ratings.column_ids or range(len(kept)), kept, strict=True) if keep
    ]
    return Observed(
        Compressed(rows.pointers, new_index[rows.indices], rows.values),
        (ratings.shape[0], len(ids)),
        ratings.row_ids,
        ids,
    )
