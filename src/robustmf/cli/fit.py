"""``robustmf fit``: fit a model to a file of entries."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robustmf.cli import cluster
from robustmf.cli.config import Config
from robustmf.cli.errors import INTERRUPTED
from robustmf.cli.fit_options import (
    Bias,
    Checkpoint,
    ModelOptions,
    Rank,
    SolverOptions,
    make_model,
)
from robustmf.cli.input import Data, FileOptions, read_entries
from robustmf.cli.options import with_option_groups
from robustmf.cli.output import (
    Json,
    print_json,
    print_note,
    print_table,
    require_writable,
)

if TYPE_CHECKING:
    from robustmf.estimator import RobustMF


@with_option_groups
def fit(
    data: Data,
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Save the model, e.g. to model.rmf.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write an HTML page, e.g. fit.html."),
    ] = None,
    tracks: Annotated[
        bool,
        typer.Option(
            "--tracks",
            help="Rows are x and y of points in frames (rank 4): show the points in 3-D.",
        ),
    ] = False,
    rank: Rank = "auto",
    bias: Bias = None,
    model: ModelOptions,
    solver: SolverOptions,
    checkpoint: Checkpoint = None,
    file: FileOptions,
    scheduler: cluster.Scheduler = None,
    local_workers: cluster.LocalWorkers = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Factorize a file of ratings or measurements and save the model.

    For example:

        robustmf fit ratings.csv -o model.rmf

        robustmf fit ratings.csv --rank 3 --bias --validation-fraction 0.1 --report fit.html

        robustmf fit ratings.csv --row userId --col movieId --value rating --config robustmf.toml

        robustmf fit ratings.parquet --rank 3 --local-workers 2 -o clustered.rmf
    """
    from robustmf.report.summary import summary  # noqa: PLC0415 - fast --help

    require_writable(output, report, checkpoint, inputs=[data])
    if report is None and tracks:
        raise typer.BadParameter(
            "needs --report, the page that shows the points", param_hint="--tracks"
        )
    estimator = make_model(rank, bias, model, solver)
    if cluster.is_requested(scheduler, local_workers):
        if report is not None:
            raise typer.BadParameter(
                "needs the entries in this process; omit it with --scheduler or --local-workers",
                param_hint="--report",
            )
        triplets = cluster.as_triplets(data, file)
        layout = "Parquet"
        with cluster.connected(scheduler, local_workers) as client:
            started = time.perf_counter()
            estimator.fit(triplets, client=client, checkpoint=checkpoint)
            seconds = time.perf_counter() - started
        n_entries = int(estimator.model_.entries["row_counts"].sum())
    else:
        found = read_entries(data, file)
        layout = found.description
        n_entries = found.entries.n_entries
        started = time.perf_counter()
        estimator.fit(found.entries, checkpoint=checkpoint)
        seconds = time.perf_counter() - started
    if output is not None:
        estimator.set_params(verbose=0)  # the progress bar of this terminal is no setting
        estimator.save(output)
        print_note(f"Model: {output}")
    if report is not None:
        estimator.report(report, title=f"Fit of {data.name}", tracks=tracks)
        print_note(f"Report: {report.resolve()}")
    if output is None and report is None:
        print_note("No output: -o model.rmf saves the model, --report fit.html writes a page")
    if as_json:
        document = _document(estimator, data, layout, n_entries)
        document["seconds"] = seconds
        document["model"] = None if output is None else str(output)
        document["report"] = None if report is None else str(report)
        print_json(document)
    else:
        rows = [*summary(estimator).items(), ("seconds", f"{seconds:.2f}")]
        print_table("Fitted model", ("property", "value"), rows)
    if estimator.stop_reason_ == "interrupted":
        resume = "" if checkpoint is None else f"; the same command resumes from {checkpoint}"
        print_note(f"Interrupted{resume}")
        raise typer.Exit(INTERRUPTED)


def _document(model: RobustMF, path: Path, layout: str, n_entries: int) -> dict[str, Any]:
    """Return the JSON document that describes a fit."""
    best = model.best_iteration_
    history = model.history_
    return {
        "data": {
            "path": str(path),
            "layout": layout,
            "rows": len(model.row_factors_),
            "columns": len(model.column_factors_),
            "entries": n_entries,
        },
        "settings": {
            "rank": model.rank_,
            "rank_found": model.rank == "auto",
            "loss": model.loss,
            "theta": model.theta_,
            "reg": model.reg_,
            "bias": model.has_bias_,
            "seed": model.random_state,
        },
        "solver": model.solver_,
        "iterations": model.n_iter_,
        "converged": bool(model.converged_),
        "stop_reason": model.stop_reason_,
        "objective": history["objective"][best],
        "validation_error": history["validation"][best] if "validation" in history else None,
    }
