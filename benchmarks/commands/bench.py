"""``robustmf bench``: measurements as commands, with records."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import accuracy as accuracy_experiment
from benchmarks import (
    audit_speed,
    baselines_speed,
    dinosaur_tracks,
    estimator_use,
    irls_speed,
    mm_speed,
)
from benchmarks import calibration as calibration_experiment
from benchmarks import defaults as defaults_experiment
from benchmarks import detection as detection_experiment
from benchmarks import growth as growth_experiment
from benchmarks import loading as loading_experiment
from benchmarks import peers as peers_experiment
from benchmarks.report import growth_page
from robustmf.backends.dask import require_dask
from robustmf.backends.registry import get_backend

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Measure accuracy, speed and memory; compare ratios inside one run.",
)

Tables = list[tuple[str, list[list[str]]]]
Announce = Callable[[str], None]
Record = Annotated[Path | None, typer.Option(help="Also write the record as JSON.")]
Scale = Annotated[
    float,
    typer.Option(
        help="Share of the full size: below 1 to try the command; its figures then mean little.",
        min=1e-6,
        max=1,
    ),
]


def _show(console: Console, tables: Tables) -> None:
    for title, lines in tables:
        table = Table(*lines[0], title=title, title_justify="left")
        for line in lines[1:]:
            table.add_row(*line)
        console.print(table)


def _keep(console: Console, record: Path | None, found: Any) -> None:
    if record is not None:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(found, indent=1) + "\n")
        console.print(f"Record: {record}")


def _measured(
    record: Path | None, run: Callable[[Announce], Any], tables: Callable[[Any], Tables]
) -> Any:
    """Measure, show the tables, keep the record."""
    console = Console()
    found = run(lambda text: console.print(text, style="dim"))
    _show(console, tables(found))
    _keep(console, record, found)
    return found


@app.command()
def mm(
    size: Annotated[int, typer.Option(help="Rows and columns of the problem.")] = 1000,
    scale: Scale = 1.0,
    record: Record = None,
) -> None:
    """The paper's algorithm: inner solvers to equal accuracy, nanoseconds an entry of a pass, growth, memory at scale."""
    _measured(
        record, lambda announce: mm_speed.run(size, scale, announce=announce), mm_speed.tables
    )


@app.command()
def baselines(scale: Scale = 1.0, record: Record = None) -> None:
    """Seconds of every comparison system on a million entries of MovieLens-1M's shape, with its defaults."""
    _measured(
        record,
        lambda announce: baselines_speed.run(scale, announce=announce),
        baselines_speed.tables,
    )


@app.command()
def irls(scale: Scale = 1.0, record: Record = None) -> None:
    """The half-step at several ranks beside a plain kernel, threads, fold-in, start-up, irls against mm, cmfrec where installed."""
    _measured(record, lambda announce: irls_speed.run(scale, announce=announce), irls_speed.tables)


@app.command()
def estimator(
    seeds: Annotated[int, typer.Option(help="Data sets for each problem.")] = 8,
    record: Record = None,
) -> None:
    """Rows that arrive in batches against one fit; recommendations, predictions by id and fold-ins a second."""
    _measured(
        record, lambda announce: estimator_use.run(seeds, announce=announce), estimator_use.tables
    )


@app.command()
def peers(scale: Scale = 1.0, record: Record = None) -> None:
    """Seconds and RMSE beside LIBMF's l1 and cmfrec's exact ALS (extra 'bench'), at m = 1000 and at MovieLens-1M's size."""
    _measured(
        record,
        lambda announce: peers_experiment.run(scale, announce=announce),
        lambda found: [
            (
                "noise 0.1, 5 % outliers of ±5; CPU seconds of whole fits, one thread",
                peers_experiment.table(found),
            )
        ],
    )


@app.command()
def netflix(
    entries: Annotated[float, typer.Option(help="Entries to make.")] = 1e8,
    sweeps: Annotated[
        int, typer.Option(help="Sweeps of irls after as many of the ridge start.")
    ] = 15,
    record: Record = None,
) -> None:
    """480,189 × 17,770 with 100 million long-tailed entries at rank 10, in a process of its own: seconds and peak memory."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "benchmarks.netflix_scale",
        str(entries),
        str(sweeps),
    ]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    console = Console()
    shown = [
        ["what", "figure"],
        *([name.replace("_", " "), f"{value:.4g}"] for name, value in found.items()),
    ]
    _show(console, [("Netflix's shape", shown)])
    _keep(console, record, found)


@app.command()
def gpu(
    entries: Annotated[
        float, typer.Option(help="Entries of the problem of Netflix's shape.")
    ] = 1e8,
    movielens: Annotated[
        float, typer.Option(help="Entries of the problem of MovieLens-10M's shape, for mm.")
    ] = 1e7,
    record: Record = None,
) -> None:
    """One GPU (extra 'gpu'): half-steps beside their bounds, whole fits, mm, fold-in, recommendation, and the CPU's results."""
    get_backend("cuda").check_available()
    from benchmarks import gpu_speed  # noqa: PLC0415 - imports torch

    console = Console()
    found = gpu_speed.run(
        lambda text: console.print(text, style="dim"), int(entries), int(movielens)
    )
    _show(console, gpu_speed.tables(found))
    _keep(console, record, found)


@app.command()
def cluster(
    entries: Annotated[
        float, typer.Option(help="Entries for the comparison with the plain solver.")
    ] = 2e7,
    small: Annotated[
        float, typer.Option(help="Entries for the table over workers and blocks.")
    ] = 2e6,
    workers: Annotated[int, typer.Option(help="Most workers.", min=1, max=4)] = 4,
    turns: Annotated[int, typer.Option(help="Turns of the comparison.", min=1)] = 4,
    record: Record = None,
) -> None:
    """Worker processes on this machine (extra 'dask'): seconds and bytes of a sweep, the model's bytes, the plain solver beside it."""
    require_dask()
    from benchmarks import cluster_scale  # noqa: PLC0415 - imports Dask

    _measured(
        record,
        lambda announce: cluster_scale.run(int(entries), int(small), announce, workers, turns),
        cluster_scale.tables,
    )


@app.command()
def growth(
    page: Annotated[
        Path | None, typer.Option(help="Also draw it (needs the extra 'plot').")
    ] = None,
    scale: Scale = 1.0,
    record: Record = None,
) -> None:
    """A sweep of irls against the number of entries, the rank and the threads."""
    found = _measured(
        record,
        lambda announce: growth_experiment.run(scale, announce=announce),
        growth_experiment.tables,
    )
    if page is not None:
        growth_page.write(found, page)
        Console().print(f"Page to open: {page.resolve()}", soft_wrap=True)


@app.command()
def loading(
    entries: Annotated[float, typer.Option(help="Ratings in the CSV and the Parquet file.")] = 1e7,
    netflix_entries: Annotated[
        float, typer.Option(help="Ratings in files of Netflix's form.")
    ] = 2e7,
    record: Record = None,
) -> None:
    """Ratings from CSV, Parquet and Netflix's files to the structure that fits are made on: seconds and peak memory."""
    _measured(
        record,
        lambda announce: loading_experiment.run(
            int(entries), int(netflix_entries), announce=announce
        ),
        loading_experiment.tables,
    )


@app.command()
def audit(
    entries: Annotated[float, typer.Option(help="Ratings in the file.")] = 1e6,
    runs: Annotated[int, typer.Option(help="Runs of each command.", min=1)] = 3,
    record: Record = None,
) -> None:
    """'robustmf audit' of a CSV of ratings, in processes of its own: seconds from the prompt to the prompt."""
    _measured(
        record,
        lambda announce: audit_speed.run(int(entries), runs, announce=announce),
        lambda found: [(f"{found['entries']:,} ratings", audit_speed.table(found))],
    )


@app.command()
def dinosaur(
    seeds: Annotated[int, typer.Option(help="Random starts for each data set.")] = 10,
    first_seed: Annotated[int, typer.Option(help="First seed.")] = 0,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with dinosaur/viff.xy; else the one ROBUSTMF_DATA names."),
    ] = None,
    record: Record = None,
) -> None:
    """Dinosaur tracks D1, D2, D3 with the l1 loss from random starts: mean absolute error in pixels."""
    console = Console()
    found = dinosaur_tracks.run(seeds, first_seed, data)
    _show(console, [("Dinosaur, l1 loss, rank 4", dinosaur_tracks.summary(found))])
    _keep(console, record, found)


def _runs(
    plan: list[accuracy_experiment.Run], within: float, jobs: int, record: Path | None
) -> None:
    console = Console()
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("fits", total=len(plan))
        found = accuracy_experiment.run_all(
            plan, jobs, lambda done, _: bar.update(task, completed=done)
        )
    _show(
        console,
        [
            (
                "RMSE / RMSE of the oracle; CPU seconds of a fit",
                accuracy_experiment.summary(found, within),
            )
        ],
    )
    _keep(console, record, found)


@app.command()
def accuracy(
    data_seeds: Annotated[int, typer.Option(help="Data sets of each size.")] = 20,
    starts: Annotated[int, typer.Option(help="Random starts for each.")] = 5,
    first_seed: Annotated[int, typer.Option(help="First data seed.")] = 10_000,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 2,
    record: Record = None,
) -> None:
    """The paper's problem at m = 250, 500, 1000: how often RobustMF's defaults come within 1.05× of the oracle."""
    _runs(accuracy_experiment.accuracy_plan(data_seeds, starts, first_seed), 1.05, jobs, record)


@app.command()
def breakdown(
    runs: Annotated[int, typer.Option(help="Runs of RobustMF for each share and magnitude.")] = 100,
    peer_runs: Annotated[
        int, typer.Option(help="Runs of l1, RMFNL and LIBMF (where installed).")
    ] = 20,
    first_seed: Annotated[int, typer.Option(help="First data seed.")] = 20_000,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 2,
    record: Record = None,
) -> None:
    """How many outliers it takes: 5 to 35 % of the entries off by ±5 and ±50, at m = 500."""
    peers = ["RMFNL l1", "RMFNL lsp"] + (["LIBMF l1"] if importlib.util.find_spec("libmf") else [])
    _runs(accuracy_experiment.breakdown_plan(runs, peer_runs, peers, first_seed), 1.1, jobs, record)


@app.command()
def detection(
    seeds: Annotated[int, typer.Option(help="Attacks of each kind.")] = 3,
    first_seed: Annotated[
        int, typer.Option(help="First seed; the evidence was designed on seed 0.")
    ] = 100,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with ml-latest-small; else the one ROBUSTMF_DATA names."),
    ] = None,
    record: Record = None,
) -> None:
    """Planted love/hate and shilling attacks on MovieLens latest-small: entries, users and items found, beside least squares and PCA."""
    _measured(
        record,
        lambda announce: detection_experiment.run(seeds, first_seed, data, announce=announce),
        lambda found: [
            ("Attacks found, means over the seeds", detection_experiment.summary(found))
        ],
    )


@app.command()
def calibration(
    seeds: Annotated[int, typer.Option(help="Data sets of each kind.")] = 5,
    first_seed: Annotated[int, typer.Option(help="First data seed.")] = 40_000,
    record: Record = None,
) -> None:
    """Whether entry scores raise as many false alarms, and intervals cover as many good values, as they say; on synthetic truth."""
    _measured(
        record,
        lambda announce: calibration_experiment.run(seeds, first_seed, announce=announce),
        calibration_experiment.tables,
    )


@app.command()
def defaults(
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with dinosaur and ml-latest-small; else the one ROBUSTMF_DATA names."
        ),
    ] = None,
    first_seed: Annotated[int, typer.Option(help="First seed of data and splits.")] = 70_000,
    only: Annotated[
        str,
        typer.Option(
            help="Only the problems with this in their name, as 'noise 0.1' or 'Dinosaur'."
        ),
    ] = "",
    record: Record = None,
) -> None:
    """RobustMF(rank).fit(X) against the best setting that a search told the test error finds: synthetic data, Dinosaur, MovieLens."""
    _measured(
        record,
        lambda announce: defaults_experiment.run(data, first_seed, only, announce=announce),
        lambda found: [
            (
                "Test errors of the defaults and of the best setting found",
                defaults_experiment.summary(found),
            )
        ],
    )
