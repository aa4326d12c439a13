"""The result of a loader of ratings."""

from __future__ import annotations

import csv
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from robustmf.data.observed import Observed
from robustmf.io.reading.source import Source


@dataclass(frozen=True)
class RatingSet:
    """Ratings with their metadata.

    Attributes
    ----------
    ratings : Observed
        Users by items, with ids.
    name : str
        Name of the data set.
    source : str
        The file from which they were read; the first one of several.
    bounds : tuple of float
        Lowest and highest rating possible.
    titles : tuple of str, optional
        Title of every item, in the order of the columns; "" if unknown.
    """

    ratings: Observed
    name: str
    source: str
    bounds: tuple[float, float]
    titles: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        values = self.ratings.rows.values
        low = float(values.min())
        high = float(values.max())
        if low < self.bounds[0] or high > self.bounds[1]:
            raise ValueError(
                f"{self.source}: ratings range from {low} to {high}, but those of {self.name} from"
                f" {self.bounds[0]} to {self.bounds[1]}"
            )


def titles_by_id(
    source: Source,
    delimiter: str,
    encoding: str,
    *,
    title_field: int = 1,
    quoted: bool = False,
) -> dict[Hashable, str]:
    """Return titles by item id.

    Parameters
    ----------
    source : Source
        File whose first field is the id.
    delimiter : str
        Field separator.
    encoding : str
        Encoding of the file.
    title_field : {1, 2}, default=1
        Position of the title.
    quoted : bool, default=False
        Whether the file is CSV with a header. Otherwise the third field is the rest of the line.
    """
    titles: dict[Hashable, str] = {}
    for number, fields in _fields(source, delimiter, encoding, quoted):
        if len(fields) <= title_field or not fields[0].strip().isdecimal():
            raise source.fault(
                f"expected the number and the title of an item, got"
                f" {delimiter.join(fields)[:60]!r}; correct or remove the line",
                number,
            )
        titles[int(fields[0])] = fields[title_field]
    return titles


def _fields(
    source: Source, delimiter: str, encoding: str, quoted: bool
) -> Iterator[tuple[int, list[str]]]:
    """Yield number and fields of each line that is not empty."""
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
