"""Files of entries as the verbs take them: the options, and reading with the guessed layout said aloud."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robustmf.cli.failures import reading
from robustmf.cli.output import say

if TYPE_CHECKING:
    from robustmf.data.observed import Observed
    from robustmf.io.reading import Layout

_DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "space": " "}
_PANEL = "How the file is laid out (guessed and said, where not given)"

Data = Annotated[
    Path,
    typer.Argument(
        help="CSV, TSV, '::'-separated (also .gz), Parquet, SciPy .npz or Matrix Market .mtx."
    ),
]
Row = Annotated[
    str | None,
    typer.Option(
        "--row", help="Column of row ids (users): name, or position from 0.", rich_help_panel=_PANEL
    ),
]
Col = Annotated[
    str | None,
    typer.Option(
        "--col",
        help="Column of column ids (items): name, or position from 0.",
        rich_help_panel=_PANEL,
    ),
]
Value = Annotated[
    str | None,
    typer.Option(
        "--value",
        help="Column of values (ratings): name, or position from 0.",
        rich_help_panel=_PANEL,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        help="Between fields: tab, comma, semicolon, bar, space, '::', …",
        rich_help_panel=_PANEL,
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header", help="Whether the first line names columns.", rich_help_panel=_PANEL
    ),
]
TextIds = Annotated[
    bool | None,
    typer.Option(
        "--text-ids/--integer-ids", help="Whether ids are text or integers.", rich_help_panel=_PANEL
    ),
]
Duplicates = Annotated[
    str,
    typer.Option(
        "--duplicates",
        help="Several values at one place: error, last or mean.",
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True)
class Asked:
    """What the command line says about the layout of a file."""

    row: str | None = None
    col: str | None = None
    value: str | None = None
    delimiter: str | None = None
    header: bool | None = None
    text_ids: bool | None = None
    duplicates: str = "error"

    def pair(self) -> dict[str, Any]:
        """The part that concerns ids."""
        delimiter = (
            None if self.delimiter is None else _DELIMITERS.get(self.delimiter, self.delimiter)
        )
        return {
            "row": _column(self.row),
            "col": _column(self.col),
            "delimiter": delimiter,
            "header": self.header,
        }


@dataclass(frozen=True)
class Input:
    """The entries of a file, and how it is laid out: the layout of text, or the names of a Parquet file's columns."""

    path: Path
    entries: Observed
    layout: Layout | None
    columns: tuple[str, str, str] | None

    @property
    def described(self) -> str:
        """The layout in words."""
        if self.layout is not None:
            return str(self.layout)
        return (
            "Parquet; row={}, col={}, value={}".format(*self.columns)
            if self.columns
            else "a matrix: rows and columns numbered from 0"
        )

    @property
    def names(self) -> tuple[str, str, str]:
        """What the file calls row, column and value."""
        if self.columns:
            return self.columns
        if self.layout is not None and self.layout.names:
            return (
                self.layout.names[self.layout.row],
                self.layout.names[self.layout.col],
                self.layout.names[self.layout.value],
            )
        return "row", "column", "value"


def read_input(path: Path, asked: Asked) -> Input:
    """Read a file, and say on standard error what it was taken for."""
    from robustmf.io.reading import Source, guess_layout, read_ratings  # noqa: PLC0415 - so that --help is quick

    if asked.duplicates not in ("error", "last", "mean"):
        raise typer.BadParameter(
            f"must be error, last or mean, got {asked.duplicates!r}", param_hint="--duplicates"
        )
    guessing = {**asked.pair(), "value": _column(asked.value), "text_ids": asked.text_ids}
    layout, columns = None, None
    with reading():
        if path.suffix.lower() == ".parquet":
            from robustmf.io.reading.parquet import parquet_columns  # noqa: PLC0415 - as above

            columns = parquet_columns(
                Source(path), guessing["row"], guessing["col"], guessing["value"]
            )
            names = dict(zip(("row", "col", "value"), columns, strict=True))
            entries = read_ratings(path, **names, duplicates=asked.duplicates)  # type: ignore[arg-type]
        elif _is_matrix(path):
            entries = read_ratings(path)
        else:
            layout = guess_layout(path, **guessing)
            entries = read_ratings(path, layout, duplicates=asked.duplicates)  # type: ignore[arg-type]
    found = Input(path, entries, layout, columns)
    m, n = entries.shape
    values = entries.rows.values
    say(f"{path}: {found.described}")
    say(
        f"{m:,} rows x {n:,} columns, {entries.n_entries:,} entries ({100 * entries.n_entries / (m * n):.3g} % observed), "
        f"values {values.min():g} to {values.max():g}"
    )
    return found


def _is_matrix(path: Path) -> bool:
    return path.suffix.lower() in (".npz", ".mtx") or path.name.lower().endswith(".mtx.gz")


def _column(given: str | None) -> str | int | None:
    return int(given) if given is not None and given.isascii() and given.isdecimal() else given
