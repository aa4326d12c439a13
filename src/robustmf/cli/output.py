"""Output of the commands: results to standard output or files, notes to standard error."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from robustmf.report.names import csv_text, plain

#: Characters that JSON need not escape, but that control a terminal or the direction of text, or
#: cannot be encoded.
_NOT_PRINTED = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document to standard output.")]


def print_note(text: str) -> None:
    """Print a note to standard error."""
    typer.secho(plain(text), err=True, dim=True)


def is_terminal(stream: Any) -> bool:
    """Whether this is a terminal; a standard stream that is closed is None."""
    return stream is not None and bool(stream.isatty())


def working(phase: str) -> AbstractContextManager[Any]:
    """Show a phase and its elapsed time while it lasts, if standard error is a terminal."""
    if not is_terminal(sys.stderr):
        return nullcontext()
    from robustmf.solvers.progress import PhaseBar  # noqa: PLC0415 - fast --help

    return PhaseBar("robustmf", phase)


def require_writable(*paths: Path | None, inputs: Sequence[Path | None] = ()) -> None:
    """Raise an error for output files that cannot be written or are inputs, before any work."""
    read = {path.resolve() for path in inputs if path is not None}
    for path in paths:
        if path is not None and path.resolve() in read:
            raise typer.BadParameter(f"{path} is also an input file; write to another file")
        if path is not None and path.is_dir():
            raise typer.BadParameter(f"{path} is a folder; give the name of a file")
        if path is not None and not path.resolve().parent.is_dir():
            raise typer.BadParameter(
                f"the folder of {path} does not exist; make it first: mkdir -p '{path.parent}'"
            )


def print_json(document: Any) -> None:
    """Print a document; ids without a JSON type become strings, non-finite numbers null."""
    text = json.dumps(_plain(document), ensure_ascii=False, default=str, allow_nan=False)
    print(_NOT_PRINTED.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def _plain(value: Any) -> Any:
    """Return a value with JSON types only."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()
    return None if isinstance(value, float) and value - value != 0 else value


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table to standard output."""
    from rich.console import Console  # noqa: PLC0415 - fast --help
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(title=title, title_justify="left", title_style="bold")
    for name in header:
        table.add_column(Text(plain(name)), overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    Console().print(table)


def write_columns(columns: Mapping[str, Sequence[Any]], path: Path | None) -> None:
    """Write columns as Parquet, TSV or CSV by the file extension; as CSV to standard output."""
    if path is not None and path.suffix.lower() == ".parquet":
        import pyarrow as pa  # noqa: PLC0415 - optional

        write_parquet(
            pa.table({name: pa.array(list(values)) for name, values in columns.items()}), path
        )
        return
    from robustmf.io.csv_records import csv_records  # noqa: PLC0415 - fast --help

    delimiter = "\t" if path is not None and path.suffix.lower() == ".tsv" else ","
    rows = zip(*(map(_field, values) for values in columns.values()), strict=True)
    lines = csv_records([list(columns), *rows], delimiter)
    write_text("".join(f"{line}\n" for line in lines), path)


def write_parquet(table: Any, path: Path) -> None:
    """Write an Arrow table; a previous file is replaced atomically."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - optional

    from robustmf.io.atomic import replacing  # noqa: PLC0415 - fast --help

    with replacing(path) as file:
        pq.write_table(table, file)


def _field(value: Any) -> Any:
    """Return a value as it is written to text files: floats with seven digits."""
    if isinstance(value, str):
        return csv_text(value)
    return f"{value:.7g}" if isinstance(value, float) or hasattr(value, "dtype") else value


def write_text(text: str, path: Path | None) -> None:
    """Write text to a file, atomically, or to standard output, escaped if it is a terminal."""
    if path is not None:
        from robustmf.io.atomic import write_atomically  # noqa: PLC0415 - fast --help

        write_atomically(path, text.encode("utf-8", "surrogateescape"))
    elif sys.stdout is None:
        raise OSError("standard output is closed; write to a file with --output")
    else:
        sys.stdout.write(plain(text, keep="\n\t") if is_terminal(sys.stdout) else text)
