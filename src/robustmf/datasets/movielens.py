"""MovieLens, by GroupLens Research: Harper and Konstan, "The MovieLens datasets", ACM TiiS 5(4), 2015."""

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
class _Form:
    """How the files of a set look."""

    layout: Layout
    bounds: tuple[float, float]
    titles: str
    delimiter: str
    encoding: str = "utf-8"
    quoted: bool = False


def _layout(delimiter: str, names: tuple[str, ...] = ()) -> Layout:
    return Layout(delimiter, names, 0, 1, 2, 4, (False, False))


_FORMS = {
    "100k": _Form(_layout("\t"), (1, 5), "u.item", "|", "latin-1"),
    "1m": _Form(_layout("::"), (1, 5), "movies.dat", "::", "latin-1"),
    "10m": _Form(_layout("::"), (0.5, 5), "movies.dat", "::"),
    "latest-small": _Form(
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
    """MovieLens ratings, users by movies, in stars.

    Parameters
    ----------
    name : {"100k", "1m", "10m", "latest-small"}
        Which set.
    folder : path, optional
        Folder that holds the set's own folder (``ml-100k``, ``ml-1m``, ``ml-10M100K``, ``ml-latest-small``) or its archive as
        downloaded; by default the one that ``ROBUSTMF_DATA`` names, then the cache.
    paper_filter : bool
        For "1m": only the 3,449 movies that the paper's authors kept, those whose ratings add up to more than 10.
    download : bool
        Whether a set that is not there may be downloaded (checked against its checksum, kept in the folder or the cache).
    dtype : {"float64", "float32"}
        Precision of the ratings.
    """
    if name not in MOVIELENS:
        raise ValueError(f"name must be one of {sorted(MOVIELENS)}, got name={name!r}")
    if paper_filter and name != "1m":
        raise ValueError(
            f"paper_filter is for name='1m'; the paper took the other sets whole, got name={name!r}"
        )
    data, form = MOVIELENS[name], _FORMS[name]
    source = require_file(data, data.files[0], folder, download)
    ratings = read_ratings(source, form.layout, dtype=dtype)
    if paper_filter:
        ratings = _with_columns(
            ratings, np.bincount(ratings.rows.indices, ratings.rows.values, ratings.shape[1]) > 10
        )
    found = RatingSet(ratings, data.name, str(source), form.bounds)
    listed = find_files(data, (form.titles,), folder)
    if not listed:
        return found
    titles = titles_by_id(listed[0], form.delimiter, form.encoding, quoted=form.quoted)
    return replace(found, titles=tuple(titles.get(item, "") for item in ratings.column_ids or ()))


def _with_columns(
    ratings: Observed, kept: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
) -> Observed:
    """Only these columns, numbered anew."""
    rows = ratings.select(kept[ratings.rows.indices]).rows
    number = (np.cumsum(kept) - 1).astype(np.int32)
    ids = [
        one for one, keep in zip(ratings.column_ids or range(len(kept)), kept, strict=True) if keep
    ]
    return Observed(
        Compressed(rows.pointers, number[rows.indices], rows.values),
        (ratings.shape[0], len(ids)),
        ratings.row_ids,
        ids,
    )
