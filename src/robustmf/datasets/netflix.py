"""The Netflix Prize ratings: Bennett and Lanning, "The Netflix Prize", KDD Cup 2007."""

from __future__ import annotations

from pathlib import Path

from robustmf.datasets.catalog import NETFLIX
from robustmf.datasets.finding import find_files, how_to_get
from robustmf.datasets.rating_set import RatingSet, titles_by_id
from robustmf.io.reading.grouped import GroupedForm, read_grouped

_FORM = GroupedForm(":", ",", (1, 5))


def load_netflix(folder: str | Path | None = None, *, dtype: str = "float32") -> RatingSet:
    """Netflix ratings, users by movies, 1 to 5 stars; 100 million within 3 GB.

    Parameters
    ----------
    folder : path, optional
        Folder that holds ``netflix`` with the four files ``combined_data_1.txt`` … ``combined_data_4.txt``, or with one file a movie,
        ``mv_0000001.txt`` … (also in ``training_set``); by default the one that ``ROBUSTMF_DATA`` names, then the cache. With
        ``movie_titles.csv`` or ``.txt`` beside them, there are titles.
    dtype : {"float32", "float64"}
        Precision of the ratings; small integers lose nothing in float32.
    """
    sources = find_files(NETFLIX, NETFLIX.files, folder)
    if not sources:
        raise FileNotFoundError(
            how_to_get(NETFLIX, "combined_data_1.txt … combined_data_4.txt", folder)
        )
    ratings = read_grouped(sources, _FORM, dtype)
    titles = None
    if listed := find_files(NETFLIX, ("movie_titles.csv", "movie_titles.txt"), folder):
        # a line is number,year,title; the title may have commas
        by_id = titles_by_id(listed[0], ",", "latin-1", place=2)
        titles = tuple(by_id.get(movie, "") for movie in ratings.column_ids or ())
    return RatingSet(ratings, NETFLIX.name, str(sources[0]), (1, 5), titles)
