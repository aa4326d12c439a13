"""The Netflix Prize ratings.

Bennett and Lanning, "The Netflix Prize", KDD Cup 2007.
"""

from __future__ import annotations

from pathlib import Path

from robustmf.datasets.catalog import NETFLIX
from robustmf.datasets.finding import find_files, how_to_get
from robustmf.datasets.rating_set import RatingSet, titles_by_id
from robustmf.io.reading.grouped import GroupedForm, read_grouped

_FORMAT = GroupedForm(":", ",", (1, 5))


def load_netflix(folder: str | Path | None = None, *, dtype: str = "float32") -> RatingSet:
    """Load Netflix ratings: users by movies, 1 to 5 stars; 100 million ratings need 3 GB.

    Parameters
    ----------
    folder : path, optional
        Folder that contains ``netflix`` with the four files ``combined_data_1.txt`` …
        ``combined_data_4.txt``, or with one file per movie, ``mv_0000001.txt`` … (also in
        ``training_set``); by default the folder named by ``ROBUSTMF_DATA``, then the cache. Titles
        are read from ``movie_titles.csv`` or ``.txt`` in the same folder.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the ratings; float32 represents small integers exactly.

    Returns
    -------
    ratings : RatingSet
        Ratings and titles.
    """
    sources = find_files(NETFLIX, NETFLIX.files, folder)
    if not sources:
        raise FileNotFoundError(
            how_to_get(NETFLIX, "combined_data_1.txt … combined_data_4.txt", folder)
        )
    ratings = read_grouped(sources, _FORMAT, dtype)
    titles = None
    if listed := find_files(NETFLIX, ("movie_titles.csv", "movie_titles.txt"), folder):
        # a line is number,year,title; the title may contain commas
        by_id = titles_by_id(listed[0], ",", "latin-1", title_field=2)
        titles = tuple(by_id.get(movie, "") for movie in ratings.column_ids or ())
    return RatingSet(ratings, NETFLIX.name, str(sources[0]), (1, 5), titles)
