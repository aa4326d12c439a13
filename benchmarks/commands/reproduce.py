"""``robustmf reproduce``: make the runs behind the paper's tables and figures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from benchmarks.reproduction import registry
from benchmarks.reproduction.records import Records
from benchmarks.reproduction.running import DONE, FAILED, NO_DATA, missing, run_missing

RECORDS = Path("records")


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"Tables and figures: {', '.join(registry.NAMES)}.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Fewer seeds and smaller sizes: minutes instead of hours."),
    ] = False,
    jobs: Annotated[int, typer.Option(help="Processes, one thread each.", min=1)] = os.cpu_count()
    or 1,
    records: Annotated[
        Path, typer.Option(help="Folder of the records; finished runs in it are not made again.")
    ] = RECORDS,
) -> None:
    """Make the runs behind tables and figures; one record each, kept as soon as the run ends.

    Stop it at any time and start it again: it goes on where it was. `robustmf report` turns the records into tables and figures.

    Examples:
        robustmf reproduce figure1 && robustmf report

        robustmf reproduce figure1 --quick --jobs 1 --records quick
    """
    console = Console(stderr=True)
    chosen = registry.NAMES if everything else tuple(names or ())
    if not chosen:
        raise typer.BadParameter(f"name at least one of {', '.join(registry.NAMES)}, or say --all")
    try:
        runs = [run for name in chosen for run in registry.experiment(name).runs(quick)]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    store = Records(records)
    waiting = missing(runs, store)
    console.print(f"{len(runs)} runs, {len(runs) - len(waiting)} already recorded in {records}")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("runs", total=len(waiting))

        def announce(made: int, total: int, record: dict[str, Any]) -> None:
            bar.update(task, completed=made, description=record["key"][:40])
            if not console.is_terminal:
                console.print(
                    f"{made}/{total} {record['key']}: {record['status']}, {record['took']:.1f} s",
                    highlight=False,
                )

        made = run_missing(runs, store, jobs, announce)
    _conclude(console, made)


def _conclude(console: Console, made: list[dict[str, Any]]) -> None:
    """What could not be made, once each; a failure ends with exit code 1."""
    for why in dict.fromkeys(record["why"] for record in made if record["status"] == NO_DATA):
        console.print(f"Not found: {why}", highlight=False)
    failed = [record for record in made if record["status"] == FAILED]
    for record in failed:
        console.print(f"Failed: {record['key']}: {record['why']}", style="red", highlight=False)
    console.print(
        f"{sum(record['status'] == DONE for record in made)} runs made; 'robustmf report' shows them"
    )
    if failed:
        raise typer.Exit(1)
