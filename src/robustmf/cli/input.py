"""Input files of the commands: options of their layout, and reading them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robustmf.cli.errors import reading_input
from robustmf.cli.output import print_note, working

if TYPE_CHECKING:
    from robustmf.data.observed import Observed
    from robustmf.data.table_form import ColumnNames
    from robustmf.io import Layout, WideLayout

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

Wide = Annotated[
    bool | None,
    _layout_option(
        "--wide/--long",
        help="Whether a line has a field for every column, or a row id, a column id and a value.",
    ),
]
Missing = Annotated[
    str | None,
    _layout_option(
        "--missing",
        help="Numbers that stand for missing values, e.g. 99 or -9,-99; empty fields and NA"
        " always do.",
    ),
]
Omit = Annotated[
    str | None,
    _layout_option(
        "--omit",
        help="Columns of a wide file that are not part of the table: names or positions from 0,"
        " separated by commas; '' for none.",
    ),
]
Decimal = Annotated[
    str | None,
    _layout_option("--decimal", help="Decimal mark of numbers: point or comma."),
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
    wide: Wide = None
    missing: Missing = None
    omit: Omit = None
    decimal: Decimal = None

    def arguments(self) -> dict[str, Any]:
        """The options as arguments of ``guess_layout``."""
        return {
            "row": _name_or_position(self.row),
            "col": _name_or_position(self.col),
            "value": _name_or_position(self.value),
            "delimiter": _delimiter(self.delimiter),
            "header": self.header,
            "text_ids": self.text_ids,
            "wide": self.wide,
            "missing": _numbers(self.missing),
            "omit": _columns(self.omit),
            "decimal": _decimal_mark(self.decimal),
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
    layout : Layout, WideLayout or None
        The layout of a text file.
    columns : ColumnNames or None
        The columns of a Parquet file: of rows, columns and values, or of rows if it is wide.
    is_wide : bool
        Whether a line has a field for every column of the matrix.
    """

    path: Path
    entries: Observed
    layout: Layout | WideLayout | None
    columns: ColumnNames | None
    is_wide: bool

    @property
    def description(self) -> str:
        """The layout as text."""
        return _description(self.layout, self.columns)

    @property
    def names(self) -> tuple[str, str, str]:
        """Names of rows, columns and values in the file."""
        if self.columns is not None and self.columns.are_long:
            return tuple(self.columns)
        from robustmf.io import Layout  # noqa: PLC0415 - fast --help

        layout = self.layout
        if isinstance(layout, Layout) and layout.names:
            return layout.names[layout.row], layout.names[layout.col], layout.names[layout.value]
        return "row", "column", "value"


def read_entries(path: Path, options: FileOptions) -> InputFile:
    """Read a file and print its layout and size to standard error."""
    from robustmf.data.statistics import suspected_codes  # noqa: PLC0415 - fast --help
    from robustmf.data.table_form import ColumnNames  # noqa: PLC0415 - as above
    from robustmf.io import (  # noqa: PLC0415 - as above
        Source,
        WideLayout,
        guess_layout,
        read_ratings,
    )

    if options.duplicates not in ("error", "last", "mean"):
        raise typer.BadParameter(
            f"must be error, last or mean, got {options.duplicates!r}", param_hint="--duplicates"
        )
    arguments = options.arguments()
    layout: Layout | WideLayout | None = None
    columns = None
    is_wide: bool | None = False
    with reading_input():
        if path.suffix.lower() == ".parquet":
            from robustmf.io.reading.parquet import (  # noqa: PLC0415 - optional
                parquet_columns,
                parquet_is_wide,
            )

            names = ColumnNames(arguments["row"], arguments["col"], arguments["value"])
            is_wide = options.wide
            if is_wide is None:
                is_wide = parquet_is_wide(Source(path), names.col, names.value)
            columns = names if is_wide else ColumnNames(*parquet_columns(Source(path), *names))
        elif not _is_matrix(path):
            layout = guess_layout(path, **arguments)
            is_wide = isinstance(layout, WideLayout)
    if path.exists():  # otherwise reading it is the error
        _print_layout(path, _description(layout, columns), options, layout, is_wide=bool(is_wide))
    with reading_input(), working(f"reading {path.name}"):
        if columns is not None:
            entries = read_ratings(
                path,
                row=columns.row,
                col=columns.col,
                value=columns.value,
                duplicates=options.duplicates,  # type: ignore[arg-type]
                wide=is_wide,
                missing=arguments["missing"],
                omit=arguments["omit"],
                decimal=arguments["decimal"],
            )
        elif layout is None:
            entries = read_ratings(path, omit=arguments["omit"], decimal=arguments["decimal"])
        else:
            duplicates: Any = options.duplicates  # checked above: one of three texts
            entries = read_ratings(path, layout, duplicates=duplicates)
    file = InputFile(path, entries, layout, columns, bool(is_wide))
    m, n = entries.shape
    values = entries.rows.values
    observed = 100 * entries.n_entries / (m * n)
    share = f"{100 - observed:.3g} % missing" if file.is_wide else f"{observed:.3g} % observed"
    print_note(
        f"{m:,} rows x {n:,} columns, {entries.n_entries:,} entries"
        f" ({share}), values {values.min():g} to {values.max():g}"
    )
    for code in suspected_codes(values):
        print_note(
            f"{code:g} occurs {int((values == code).sum()):,} times, far from all other values:"
            f" if it stands for missing values, give --missing {code:g}"
        )
    return file


def _description(layout: Layout | WideLayout | None, columns: ColumnNames | None) -> str:
    """A layout as text: that of a text file, the columns of a Parquet file, or of a matrix."""
    if layout is not None:
        return str(layout)
    if columns is not None and columns.are_long:
        return "Parquet; row={}, col={}, value={}".format(*columns)
    if columns is not None:
        rows = "the labels" if columns.row is None else columns.row
        return f"Parquet; wide, row={rows}"
    return "a matrix: rows and columns are numbered from 0"


def _print_layout(
    path: Path,
    description: str,
    options: FileOptions,
    layout: Layout | WideLayout | None = None,
    *,
    is_wide: bool = False,
) -> None:
    """Print how a file is read, before it is, and the options that correct what was guessed."""
    from robustmf.io import Layout, WideLayout  # noqa: PLC0415 - fast --help

    print_note(f"{path}: {description}")
    if is_wide and options.wide is None:
        print_note("Read as a wide table, a field per column; --long if a line is one entry")
    if isinstance(layout, WideLayout) and layout.omitted and options.omit is None:
        print_note(
            "Field 1 is the number of the values of its line, not a value; --omit '' if it is one"
        )
    if is_wide and layout is not None and not layout.names and options.header is None:
        print_note("Read without a header; --header if the first line names the columns")
    is_guessed = options.wide is None and options.col is None and options.value is None
    if isinstance(layout, Layout) and is_guessed and not layout.has_known_names:
        print_note("Read as a line per entry; --wide if a line has a field for every column")


def _numbers(text: str | None) -> tuple[float, ...]:
    """The numbers of a list separated by commas."""
    try:
        return () if text is None else tuple(float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"must be numbers separated by commas, such as 99 or -9,-99, got {text!r}",
            param_hint="--missing",
        ) from None


def _columns(text: str | None) -> tuple[str | int, ...] | None:
    """The names or positions of a list separated by commas."""
    if text is None:
        return None
    return tuple(_name_or_position(part.strip()) for part in text.split(",") if part.strip())


def _decimal_mark(text: str | None) -> str | None:
    marks = {"point": ".", ".": ".", "comma": ",", ",": ","}
    if text is not None and text not in marks:
        raise typer.BadParameter(f"must be point or comma, got {text!r}", param_hint="--decimal")
    return None if text is None else marks[text]


def _is_matrix(path: Path) -> bool:
    return path.suffix.lower() in (".npz", ".mtx") or path.name.lower().endswith(".mtx.gz")


def _delimiter(text: str | None) -> str | None:
    return None if text is None else _DELIMITERS.get(text, text)


def _name_or_position(text: str | None) -> Any:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else text
