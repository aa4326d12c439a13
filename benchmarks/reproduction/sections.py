"""What a report is made of: sections with tables and charts, whatever they are written as."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cell:
    """A number or a word in a table; ``best`` ones stand out."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class TableBlock:
    """A table with a sentence below it."""

    header: list[str]
    rows: list[list[Cell]]
    note: str = ""


@dataclass(frozen=True)
class Series:
    """One curve of a chart."""

    name: str
    x: list[float]
    y: list[float]


@dataclass(frozen=True)
class Chart:
    """Curves over a common axis. ``name`` is what its file is called."""

    name: str
    caption: str
    x_title: str
    y_title: str
    series: list[Series]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Section:
    """A table or figure of the paper beside ours, and what is to be said of it."""

    name: str
    title: str
    lead: str
    blocks: list[TableBlock | Chart] = field(default_factory=list)
