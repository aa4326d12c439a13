"""What the report is made of: sections with tables and charts, and their Markdown."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field

from benchmarks.measure import markdown

#: A person can tell this many curves of one panel apart.
MOST_CURVES = 7


@dataclass(frozen=True)
class Cell:
    """A number or text in a table; ``best`` cells are printed in bold."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class TableBlock:
    """A table with a note below it."""

    header: list[str]
    rows: list[list[Cell]]
    note: str = ""


@dataclass(frozen=True)
class Series:
    """One curve of a chart, with a band where ``low`` and ``high`` are given.

    ``style`` numbers its colour and line style, so that a method has the same ones in all charts.
    """

    name: str
    x: list[float]
    y: list[float]
    low: list[float] | None = None
    high: list[float] | None = None
    style: int = 0


@dataclass(frozen=True)
class Chart:
    """At most seven curves over a common axis; ``name`` is that of its file."""

    name: str
    caption: str
    x_title: str
    y_title: str
    series: list[Series]
    log_x: bool = False
    log_y: bool = False

    def __post_init__(self) -> None:
        if len(self.series) > MOST_CURVES:
            raise ValueError(f"{self.name} has {len(self.series)} curves, more than {MOST_CURVES}")

    def digest(self) -> str:
        """A checksum of what is drawn, by which a file is compared with the records."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Section:
    """A table or figure of the paper beside ours, with an introduction."""

    name: str
    title: str
    lead: str
    blocks: list[TableBlock | Chart] = field(default_factory=list)

    def markdown(self, figures: str) -> str:
        """The section; charts are linked as files in the folder ``figures``."""
        parts = [f"## {self.title}", self.lead]
        for block in self.blocks:
            if isinstance(block, TableBlock):
                rows = [[_bold(cell) for cell in row] for row in block.rows]
                parts += [markdown("", block.header, rows).rstrip("\n"), block.note]
            else:
                parts.append(f"![{block.caption}]({figures}/{block.name}.svg)")
        return "\n\n".join(part for part in parts if part) + "\n"


def _bold(cell: Cell) -> str:
    return f"**{cell.text}**" if cell.best and cell.text else cell.text
