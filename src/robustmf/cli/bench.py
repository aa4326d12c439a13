"""``robustmf bench``: measurements as commands, with records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from robustmf.experiments import mm_speed

app = typer.Typer(no_args_is_help=True, help="Measure speed and memory; compare ratios inside one run.")


@app.command()
def mm(
    size: Annotated[int, typer.Option(help="Rows and columns of the problem.")] = 1000,
    record: Annotated[Path | None, typer.Option(help="Also write the record as JSON.")] = None,
) -> None:
    """The paper's algorithm: inner solvers to equal accuracy, nanoseconds an entry of a pass, growth, memory at scale."""
    console = Console()
    found = mm_speed.run(size, announce=lambda text: console.print(text, style="dim"))
    for title, lines in mm_speed.tables(found):
        table = Table(*lines[0], title=title, title_justify="left")
        for line in lines[1:]:
            table.add_row(*line)
        console.print(table)
    if record is not None:
        record.write_text(json.dumps(found, indent=1) + "\n")
        console.print(f"Record: {record}")
