"""``robustmf demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from robustmf.cli.output import require_plots
from robustmf.experiments.demo import run_demo
from robustmf.report import demo_page
from robustmf.report.fitted import fit_record


def demo(
    size: Annotated[int, typer.Option(help="Rows and columns of the matrix.", min=50, max=5000)] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the data; the start has its own.")] = 0,
    page: Annotated[Path | None, typer.Option(help="Write a page to look at (needs the extra 'plot').")] = None,
) -> None:
    """Recover a matrix with 5 % gross outliers, and say how well it went.

    Examples:
        robustmf demo

        robustmf demo --size 200 --seed 7 --page demo.html
    """
    if page is not None:
        require_plots()
    console = Console()
    console.print("[bold]Robust matrix factorization[/bold] on the paper's synthetic problem (first run compiles the kernels)")
    interactive = console.is_terminal
    record = run_demo(
        size, seed, progress=True, announce=lambda title: None if interactive else console.print(f"fitting {title} …"), describe=fit_record
    )
    console.print(demo_page.lead(record), highlight=False)
    table = Table(*demo_page.HEADER)
    for column in table.columns[1:]:
        column.justify = "right"
    for line in demo_page.rows(record):
        table.add_row(*line)
    console.print(table)
    if page is not None:
        demo_page.write(record, page)
        console.print(f"Page to open: {page.resolve()}", soft_wrap=True)
