"""What a loader of ratings returns."""

from __future__ import annotations

import csv
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from robustmf.data.observed import Observed
from robustmf.io.reading.source import Source


@dataclass(frozen=True)
class RatingSet:
    """Ratings and what belongs to them.

    Attributes
    ----------
    ratings : Observed
        Users by items, with their ids.
    name : str
        The data set.
    source : str
        The file they were read from (the first, where there are several).
    bounds : tuple of float
        Lowest and highest rating possible.
    titles : tuple of str, optional
        Title of every item, in the order of the columns; "" where the set has none for it.
    """

    ratings: Observed
    name: str
    source: str
    bounds: tuple[float, float]
    titles: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        values = self.ratings.rows.values
        low, high = float(values.min()), float(values.max())
        if low < self.bounds[0] or high > self.bounds[1]:
            raise ValueError(
                f"{self.source}: ratings go from {low} to {high}, but {self.name} has {self.bounds[0]} to {self.bounds[1]}"
            )


def titles_by_id(
    source: Source, delimiter: str, encoding: str, *, place: int = 1, quoted: bool = False
) -> dict[Hashable, str]:
    """Title by item id, from lines whose first field is the id and whose field at ``place`` (1 or 2) the title.

    ``quoted`` files are CSV with a header; in others the third field is the rest of the line.
    """
    titles: dict[Hashable, str] = {}
    for number, fields in _fields(source, delimiter, encoding, quoted):
        if len(fields) <= place or not fields[0].strip().isdecimal():
            raise source.fault(
                f"expected an item's number and title, got {delimiter.join(fields)[:60]!r}; correct or remove the line",
                number,
            )
        titles[int(fields[0])] = fields[place]
    return titles


def _fields(
    source: Source, delimiter: str, encoding: str, quoted: bool
) -> Iterator[tuple[int, list[str]]]:
    """Number and fields of the lines that are not empty."""
    if quoted:
        reader = csv.reader(source.text(encoding))
        next(reader, None)
        yield from ((reader.line_num, fields) for fields in reader if fields)
    else:
        lines = enumerate(source.text(encoding), 1)
        yield from (
            (number, line.rstrip("\r\n").split(delimiter, 2))
            for number, line in lines
            if line.strip()
        )
