"""``robustmf demo``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from robustmf.cli.demo_problem import run_demo, track_demo
from robustmf.cli.output import require_plots
from robustmf.report import demo_page
from robustmf.report.fitted import fit_record


def demo(
    size: Annotated[
        int, typer.Option(help="Rows and columns of the matrix.", min=50, max=5000)
    ] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the data; the start has its own.")] = 0,
    page: Annotated[
        Path | None, typer.Option(help="Write a page to look at (needs the extra 'plot').")
    ] = None,
) -> None:
    """Recover a matrix with 5 % gross outliers, and say how well it went.

    Examples:
        robustmf demo

        robustmf demo --size 200 --seed 7 --page demo.html
    """
    if page is not None:
        require_plots()
    console = Console()
    console.print(
        "[bold]Robust matrix factorization[/bold] on the paper's synthetic problem (first run compiles the kernels)"
    )
    interactive = console.is_terminal

    def announce(title: str) -> None:
        if not interactive:
            console.print(f"fitting {title} …")

    record = run_demo(size, seed, progress=interactive, announce=announce, describe=fit_record)
    console.print(demo_page.lead(record), highlight=False)
    table = Table(*demo_page.HEADER, box=SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for line in demo_page.rows(record):
        table.add_row(*line)
    console.print(table)
    tracks = track_demo(seed, describe=partial(fit_record, tracks=True))
    console.print(demo_page.tracks_lead(tracks), highlight=False)
    if page is not None:
        demo_page.write(record, tracks, page)
        console.print(f"Page to open: {page.resolve()}", soft_wrap=True)
