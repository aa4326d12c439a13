"""Input files of the commands: options of their layout, and reading them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robustmf.cli.errors import reading_input
from robustmf.cli.output import print_note

if TYPE_CHECKING:
    from robustmf.data.observed import Observed
    from robustmf.io import Layout

_DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "space": " "}
_PANEL = "Layout of the file (detected and printed unless given)"

Data = Annotated[
    Path,
    typer.Argument(
        help="CSV, TSV, '::'-separated (also .gz), Parquet, SciPy .npz or Matrix Market .mtx."
    ),
]


def _layout_option(*names: str, help: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL)


Row = Annotated[
    str | None, _layout_option("--row", help="Column of row ids (users): name or position from 0.")
]
Col = Annotated[
    str | None,
    _layout_option("--col", help="Column of column ids (items): name or position from 0."),
]
Value = Annotated[
    str | None,
    _layout_option("--value", help="Column of values (ratings): name or position from 0."),
]
Delimiter = Annotated[
    str | None,
    _layout_option(
        "--delimiter", help="Field separator: tab, comma, semicolon, bar, space, '::', …"
    ),
]
Header = Annotated[
    bool | None,
    _layout_option("--header/--no-header", help="Whether the first line contains column names."),
]
TextIds = Annotated[
    bool | None,
    _layout_option("--text-ids/--integer-ids", help="Whether ids are strings or integers."),
]
Duplicates = Annotated[
    str,
    _layout_option(
        "--duplicates", help="Repeated entries of a row and a column: error, last or mean."
    ),
]


@dataclass(frozen=True)
class PairOptions:
    """Options for the layout of a file of pairs of a row and a column."""

    row: Row = None
    col: Col = None
    delimiter: Delimiter = None
    header: Header = None

    def arguments(self) -> dict[str, Any]:
        """The options as arguments of the library's readers."""
        return {
            "row": _name_or_position(self.row),
            "col": _name_or_position(self.col),
            "delimiter": _delimiter(self.delimiter),
            "header": self.header,
        }


@dataclass(frozen=True)
class FileOptions:
    """Options for the layout of a file of entries."""

    row: Row = None
    col: Col = None
    value: Value = None
    delimiter: Delimiter = None
    header: Header = None
    text_ids: TextIds = None
    duplicates: Duplicates = "error"

    def arguments(self) -> dict[str, Any]:
        """The options as arguments of ``guess_layout``."""
        return {
            "row": _name_or_position(self.row),
            "col": _name_or_position(self.col),
            "value": _name_or_position(self.value),
            "delimiter": _delimiter(self.delimiter),
            "header": self.header,
            "text_ids": self.text_ids,
        }


@dataclass(frozen=True)
class InputFile:
    """The entries of a file and its layout.

    Attributes
    ----------
    path : Path
        The file.
    entries : Observed
        Its entries.
    layout : Layout or None
        The layout of a text file.
    columns : tuple of str or None
        The names of the columns of rows, columns and values in a Parquet file.
    """

    path: Path
    entries: Observed
    layout: Layout | None
    columns: tuple[str, str, str] | None

    @property
    def description(self) -> str:
        """The layout as text."""
        if self.layout is not None:
            return str(self.layout)
        if self.columns is not None:
            return "Parquet; row={}, col={}, value={}".format(*self.columns)
        return "a matrix: rows and columns are numbered from 0"

    @property
    def names(self) -> tuple[str, str, str]:
        """Names of rows, columns and values in the file."""
        if self.columns is not None:
            return self.columns
        if self.layout is not None and self.layout.names:
            names = self.layout.names
            return names[self.layout.row], names[self.layout.col], names[self.layout.value]
        return "row", "column", "value"


def read_entries(path: Path, options: FileOptions) -> InputFile:
    """Read a file and print its layout and size to standard error."""
    from robustmf.io import Source, guess_layout, read_ratings  # noqa: PLC0415 - fast --help

    if options.duplicates not in ("error", "last", "mean"):
        raise typer.BadParameter(
            f"must be error, last or mean, got {options.duplicates!r}", param_hint="--duplicates"
        )
    arguments = options.arguments()
    layout = None
    columns = None
    with reading_input():
        if path.suffix.lower() == ".parquet":
            from robustmf.io.reading.parquet import parquet_columns  # noqa: PLC0415 - optional

            names = (arguments["row"], arguments["col"], arguments["value"])
            columns = parquet_columns(Source(path), *names)
            entries = read_ratings(
                path,
                row=columns[0],
                col=columns[1],
                value=columns[2],
                duplicates=options.duplicates,  # type: ignore[arg-type]
            )
        elif _is_matrix(path):
            entries = read_ratings(path)
        else:
            layout = guess_layout(path, **arguments)
            entries = read_ratings(path, layout, duplicates=options.duplicates)  # type: ignore[arg-type]
    file = InputFile(path, entries, layout, columns)
    m, n = entries.shape
    values = entries.rows.values
    print_note(f"{path}: {file.description}")
    print_note(
        f"{m:,} rows x {n:,} columns, {entries.n_entries:,} entries"
        f" ({100 * entries.n_entries / (m * n):.3g} % observed),"
        f" values {values.min():g} to {values.max():g}"
    )
    return file


def _is_matrix(path: Path) -> bool:
    return path.suffix.lower() in (".npz", ".mtx") or path.name.lower().endswith(".mtx.gz")


def _delimiter(text: str | None) -> str | None:
    return None if text is None else _DELIMITERS.get(text, text)


def _name_or_position(text: str | None) -> str | int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else text
