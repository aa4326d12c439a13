"""Writing of delimited text."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast


def csv_records(rows: Iterable[Sequence[Any]], delimiter: str = ",") -> list[str]:
    """Each row as a record of a text file, without its line ending.

    Fields with line breaks of any kind are quoted. Some versions of Python quote those of the line
    ending only, so that other programs, and :mod:`csv` itself, would read the rest of such a field
    as another record.
    """
    ending = "\r\n"
    lines: list[str] = []
    file = cast("Any", SimpleNamespace(write=lines.append))
    csv.writer(file, delimiter=delimiter, lineterminator=ending).writerows(rows)
    return [line.removesuffix(ending) for line in lines]
