"""Jester, ratings of jokes.

Goldberg, Roeder, Gupta and Perkins, "Eigentaste", Information Retrieval 4(2), 2001.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from robustmf.data.observed import Observed
from robustmf.datasets.catalog import JESTER
from robustmf.datasets.finding import find_files, require_file
from robustmf.datasets.rating_set import RatingSet
from robustmf.io.reading.source import Source

_JOKES = 100

#: The value of missing ratings.
_UNRATED = 99.0


def load_jester(
    part: int = 1, folder: str | Path | None = None, *, download: bool = True
) -> RatingSet:
    """Load Jester data set 1: users by 100 jokes, ratings from -10 to 10, including 0.

    Parameters
    ----------
    part : {1, 2, 3}, default=1
        Which of the three files, with 24,983, 23,500 and 24,938 users.
    folder : path, optional
        Folder that contains ``jester`` with ``jester-data-1.xls`` (or ``jester-data-1.csv``,
        exported from it), or the downloaded archive; by default the folder named by
        ``ROBUSTMF_DATA``, then the cache.
    download : bool, default=True
        Whether a missing file may be downloaded; its checksum is verified, and it is stored in the
        folder or the cache.

    Returns
    -------
    ratings : RatingSet
        The ratings.

    Notes
    -----
    The official files are Excel files, which need the extra ``data`` (xlrd). Users and jokes are
    numbered from 1.
    """
    if part not in (1, 2, 3):
        raise ValueError(f"part must be 1, 2 or 3, got part={part!r}")
    saved = find_files(JESTER, (f"jester-data-{part}.csv",), folder)
    source = (
        saved[0]
        if saved
        else require_file(JESTER, f"jester-data-{part}.xls", folder, download, archive=part - 1)
    )
    rows = [_parsed(source, number, fields) for number, fields in _lines(source)]
    if not rows:
        raise source.fault("the file is empty; expected one user per line")
    matrix = Observed.from_dense(np.array(rows))
    users = range(1, matrix.shape[0] + 1)
    ratings = Observed(matrix.rows, matrix.shape, users, range(1, _JOKES + 1))
    return RatingSet(ratings, JESTER.name, str(source), (-10, 10))


def _lines(source: Source) -> Iterator[tuple[int, list[str]]]:
    """Yield number and fields of each line of a CSV or Excel file."""
    if Path(source.member or source.path).suffix == ".csv":
        reader = csv.reader(source.text())
        yield from ((reader.line_num, fields) for fields in reader if any(fields))
        return
    try:
        import xlrd  # noqa: PLC0415 - optional
    except ImportError:
        raise ImportError(
            f"{source} is an Excel file: pip install 'robustmf[data]', or export it to"
            f" {source.path.stem}.csv"
        ) from None
    with source.open() as stream:
        try:
            sheet = xlrd.open_workbook(file_contents=stream.read()).sheet_by_index(0)
        except xlrd.XLRDError as error:
            raise source.fault(f"not an Excel file ({error}); download it again") from None
    for k in range(sheet.nrows):
        yield k + 1, [str(cell) for cell in sheet.row_values(k)]


def _parsed(source: Source, number: int, fields: list[str]) -> list[float]:
    """Return the ratings of a user, NaN if missing; the first field is their number."""
    try:
        count, *values = (float(field) for field in fields)
    except ValueError:
        raise source.fault(
            f"expected numbers, got {','.join(fields)[:60]!r}; correct or remove the line", number
        ) from None
    if len(values) != _JOKES:
        raise source.fault(
            f"expected {_JOKES + 1} numbers, got {len(values) + 1}; correct or remove the line",
            number,
        )
    rated = [value for value in values if value != _UNRATED]
    if not all(-10 <= value <= 10 for value in rated) or len(rated) != count:
        raise source.fault(
            f"expected {count:g} ratings from -10 to 10, got {len(rated)} from"
            f" {min(rated, default=0)} to {max(rated, default=0)}",
            number,
        )
    return [np.nan if value == _UNRATED else value for value in values]
