"""Jester, ratings of jokes: Goldberg, Roeder, Gupta and Perkins, "Eigentaste", Information Retrieval 4(2), 2001."""

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

_JOKES, _UNRATED = 100, 99.0


def load_jester(
    part: int = 1, folder: str | Path | None = None, *, download: bool = True
) -> RatingSet:
    """Jester data set 1, users by 100 jokes, from -10 to 10; a rating of 0 is a rating.

    Parameters
    ----------
    part : {1, 2, 3}
        Which of its three files: 24,983 users, 23,500 and 24,938.
    folder : path, optional
        Folder that holds ``jester`` with ``jester-data-1.xls`` (or saved from it ``jester-data-1.csv``), or the archive as downloaded;
        by default the one that ``ROBUSTMF_DATA`` names, then the cache.
    download : bool
        Whether what is not there may be downloaded (checked against its checksum, kept in the folder or the cache).

    Notes
    -----
    The official files are Excel's; reading them needs the extra ``data`` (xlrd). Rows and jokes are numbered from 1.
    """
    if part not in (1, 2, 3):
        raise ValueError(f"part must be 1, 2 or 3, got part={part!r}")
    saved = find_files(JESTER, (f"jester-data-{part}.csv",), folder)
    source = (
        saved[0]
        if saved
        else require_file(JESTER, f"jester-data-{part}.xls", folder, download, archive=part - 1)
    )
    rows = [_ratings(source, number, fields) for number, fields in _lines(source)]
    if not rows:
        raise source.fault("the file is empty; expected a user a line")
    made = Observed.from_dense(np.array(rows))
    ratings = Observed(made.rows, made.shape, range(1, made.shape[0] + 1), range(1, _JOKES + 1))
    return RatingSet(ratings, JESTER.name, str(source), (-10, 10))


def _lines(source: Source) -> Iterator[tuple[int, list[str]]]:
    if Path(source.member or source.path).suffix == ".csv":
        reader = csv.reader(source.text())
        yield from ((reader.line_num, fields) for fields in reader if any(fields))
        return
    try:
        import xlrd  # noqa: PLC0415 - an extra, for this file alone
    except ImportError:
        raise ImportError(
            f"{source} is an Excel file: pip install 'robustmf[data]', or save it as {source.path.stem}.csv"
        ) from None
    with source.open() as stream:
        try:
            sheet = xlrd.open_workbook(file_contents=stream.read()).sheet_by_index(0)
        except xlrd.XLRDError as error:
            raise source.fault(f"not an Excel file ({error}); download it again") from None
    for k in range(sheet.nrows):
        yield k + 1, [str(cell) for cell in sheet.row_values(k)]


def _ratings(source: Source, number: int, fields: list[str]) -> list[float]:
    """The ratings of a user, NaN where there is none; the line begins with their number."""
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
            f"announces {count:g} ratings from -10 to 10, but has {len(rated)}, {min(rated, default=0)} to {max(rated, default=0)}",
            number,
        )
    return [np.nan if value == _UNRATED else value for value in values]
