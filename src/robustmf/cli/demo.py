"""``robustmf demo``: a synthetic problem and feature tracks, with a comparison of methods."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from robustmf.cli.demo_records import synthetic_record, tracks_record
from robustmf.report import demo_page


def demo(
    size: Annotated[
        int, typer.Option(help="Number of rows and of columns.", min=50, max=5000)
    ] = 500,
    seed: Annotated[
        int, typer.Option(help="Seed of the data; the initialization has a separate one.")
    ] = 0,
    page: Annotated[Path | None, typer.Option(help="Write an HTML page with plots.")] = None,
) -> None:
    """Recover a low-rank matrix from data with 5 % gross outliers.

    Examples:
        robustmf demo

        robustmf demo --size 200 --seed 7 --page demo.html
    """
    console = Console()
    console.print(
        "[bold]Robust matrix factorization[/bold] of the paper's synthetic problem"
        " (the first run compiles the kernels)"
    )
    interactive = console.is_terminal

    def announce(title: str) -> None:
        if not interactive:
            console.print(f"fitting {title} …")

    record = synthetic_record(size, seed, progress=interactive, announce=announce)
    console.print(demo_page.synthetic_summary(record), highlight=False)
    table = Table(*demo_page.HEADER, box=SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in demo_page.table_rows(record):
        table.add_row(*row)
    console.print(table)
    tracks = tracks_record(seed)
    console.print(demo_page.tracks_summary(tracks), highlight=False)
    if page is not None:
        demo_page.write(record, tracks, page)
        console.print(f"Report: {page.resolve()}", soft_wrap=True)
