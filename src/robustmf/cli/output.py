"""What the verbs write: results to standard output or files, everything else to standard error."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from robustmf.cli.failures import NotInstalled

Json = Annotated[bool, typer.Option("--json", help="Standard output is one JSON document.")]


def say(text: str) -> None:
    """A note on standard error."""
    typer.secho(text, err=True, dim=True)


def require_folder(*paths: Path | None) -> None:
    """Refuse files that could not be written, before any work is done."""
    for path in paths:
        if path is not None and path.is_dir():
            raise typer.BadParameter(f"{path} is a folder; name a file")
        if path is not None and not path.resolve().parent.is_dir():
            raise typer.BadParameter(
                f"the folder of {path} does not exist; make it first: mkdir -p '{path.parent}'"
            )


def require_plots() -> None:
    """Refuse a page that could not be drawn."""
    if importlib.util.find_spec("plotly") is None:
        raise NotInstalled("a page needs Plotly: pip install 'robustmf[plot]'")


def print_json(document: Any) -> None:
    """Ids that JSON has no kind for (dates, …) come as text, numbers that it has none for as null."""
    print(json.dumps(_plain(document), ensure_ascii=False, default=str, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()
    return None if isinstance(value, float) and value - value != 0 else value


def print_table(title: str, header: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    """A table for people, on standard output; numbers on the right."""
    from rich.console import Console  # noqa: PLC0415 - only where a table is shown
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(title=title, title_justify="left", title_style="bold")
    for name in header:
        table.add_column(name, overflow="fold")
    for line in lines:
        table.add_row(*map(Text, line))
    Console().print(table)


def write_columns(columns: Mapping[str, Sequence[Any]], path: Path | None) -> None:
    """Columns as Parquet, TSV or CSV by the ending of the path; as CSV on standard output where there is none."""
    if path is not None and path.suffix.lower() == ".parquet":
        import pyarrow as pa  # noqa: PLC0415 - only those who write Parquet pay for it
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        pq.write_table(
            pa.table({name: pa.array(list(values)) for name, values in columns.items()}), path
        )
        return
    text = io.StringIO()
    writer = csv.writer(
        text,
        delimiter="\t" if path is not None and path.suffix.lower() == ".tsv" else ",",
        lineterminator="\n",
    )
    writer.writerow(columns)
    writer.writerows(zip(*(map(_field, values) for values in columns.values()), strict=True))
    write_text(text.getvalue(), path)


def _field(value: Any) -> Any:
    return f"{value:.7g}" if isinstance(value, float) or hasattr(value, "dtype") else value


def write_text(text: str, path: Path | None) -> None:
    """Text to a file, or to standard output."""
    if path is None:
        sys.stdout.write(text)
    else:
        path.write_text(text, encoding="utf-8", newline="")
