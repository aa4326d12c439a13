"""``robustmf fit``: a file of entries in, a model out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from robustmf.cli import cluster, settings
from robustmf.cli import input as given
from robustmf.cli.config import Config
from robustmf.cli.failures import INTERRUPTED
from robustmf.cli.output import Json, print_json, print_table, require_folder, require_plots, say


def fit(
    data: given.Data,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Keep the model here, e.g. model.rmf.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write a page to look at, e.g. fit.html (extra 'plot')."),
    ] = None,
    tracks: Annotated[
        bool,
        typer.Option(
            "--tracks",
            help="Rows are x and y of points in frames (rank 4): show the points in 3-D on the page.",
        ),
    ] = False,
    rank: settings.Rank = 10,
    loss: settings.Loss = "welsch",
    theta: settings.Theta = "auto",
    reg: settings.Reg = "auto",
    bias: settings.Bias = None,
    solver: settings.Solver = "auto",
    validation_fraction: settings.ValidationFraction = None,
    bounds: settings.Bounds = None,
    max_iter: settings.MaxIter = 300,
    tol: settings.Tol = 1e-4,
    seed: settings.Seed = 0,
    checkpoint: settings.Checkpoint = None,
    threads: settings.Threads = None,
    device: settings.Device = "cpu",
    row: given.Row = None,
    col: given.Col = None,
    value: given.Value = None,
    delimiter: given.Delimiter = None,
    header: given.Header = None,
    text_ids: given.TextIds = None,
    duplicates: given.Duplicates = "error",
    scheduler: cluster.Scheduler = None,
    local_workers: cluster.LocalWorkers = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Factorize a file of ratings or measurements, and keep the model.

    For example:

        robustmf fit ratings.csv --rank 3 --bias -o model.rmf

        robustmf fit ratings.csv --rank 3 --bias --validation-fraction 0.1 --report fit.html

        robustmf fit ratings.csv --row userId --col movieId --value rating --config robustmf.toml --json

        robustmf fit ratings.parquet --local-workers 2 -o clustered.rmf
    """
    from robustmf.report.summary import summary  # noqa: PLC0415 - so that --help is quick

    require_folder(output, report, checkpoint)
    if report is not None:
        require_plots()
    elif tracks:
        raise typer.BadParameter(
            "needs --report, the page to show the points on", param_hint="--tracks"
        )
    model = settings.make_model(
        rank, loss=loss, theta=theta, reg=reg, bias=bias, solver=solver, validation_fraction=validation_fraction, bounds=bounds,
        max_iter=max_iter, tol=tol, seed=seed, threads=threads, device=device,
    )  # fmt: skip
    asked = given.Asked(row, col, value, delimiter, header, text_ids, duplicates)
    if cluster.is_asked_for(scheduler, local_workers):
        if report is not None:
            raise typer.BadParameter(
                "needs the entries here; leave it out with --scheduler or --local-workers",
                param_hint="--report",
            )
        triplets, layout = cluster.as_triplets(data, asked), "Parquet"
        with cluster.connected(scheduler, local_workers) as client:
            started = time.perf_counter()
            model.fit(triplets, client=client, checkpoint=checkpoint)
            seconds = time.perf_counter() - started
    else:
        found = given.read_input(data, asked)
        layout = found.described
        started = time.perf_counter()
        model.fit(found.entries, checkpoint=checkpoint)
        seconds = time.perf_counter() - started
    if output is not None:
        model.save(output)
        say(f"Model: {output}")
    if report is not None:
        model.report(report, title=f"Fit of {data.name}", tracks=tracks)
        say(f"Page to open: {report.resolve()}")
    if output is None and report is None:
        say("Nothing was kept: -o model.rmf keeps the model, --report fit.html writes a page")
    if as_json:
        print_json(
            {
                "data": {
                    "path": str(data),
                    "layout": layout,
                    "rows": len(model.row_factors_),
                    "columns": len(model.column_factors_),
                    "entries": model.model_.n_entries_initialized,
                },
                "settings": {
                    "rank": rank,
                    "loss": loss,
                    "theta": model.theta_,
                    "reg": model.reg_,
                    "bias": model.has_bias_,
                    "seed": seed,
                },
                "solver": model.solver_,
                "iterations": model.n_iter_,
                "converged": bool(model.converged_),
                "stop_reason": model.stop_reason_,
                "objective": model.history_["objective"][model.best_iteration_],
                "validation_error": model.history_.get(
                    "validation", [None] * (model.best_iteration_ + 1)
                )[model.best_iteration_],
                "seconds": seconds,
                "model": None if output is None else str(output),
                "report": None if report is None else str(report),
            }
        )
    else:
        print_table(
            "Fitted", ("what", "found"), [*summary(model).items(), ("seconds", f"{seconds:.2f}")]
        )
    if model.stop_reason_ == "interrupted":
        say(
            "Interrupted"
            + ("" if checkpoint is None else f"; the same command goes on from {checkpoint}")
        )
        raise typer.Exit(INTERRUPTED)
