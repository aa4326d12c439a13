"""``robustmf audit``: list the suspicious entries, rows and columns of a file."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robustmf.cli.config import Config
from robustmf.cli.fit_options import Bias, ModelOptions, Rank, make_model
from robustmf.cli.input import Data, FileOptions, read_entries
from robustmf.cli.options import with_option_groups
from robustmf.cli.output import (
    Json,
    print_json,
    print_note,
    print_table,
    require_writable,
    write_columns,
)
from robustmf.report.names import short

if TYPE_CHECKING:
    from robustmf.outliers.audit import Audit


@with_option_groups
def audit(
    data: Data,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write all suspicious entries, rows and columns with reasons: CSV, TSV or"
            " Parquet by the file extension.",
        ),
    ] = None,
    top: Annotated[
        int, typer.Option("--top", min=1, help="Number of entries, rows and columns to show.")
    ] = 10,
    at_most: Annotated[
        float,
        typer.Option(
            "--at-most",
            help="Threshold of the scores: about this fraction of the clean entries is also"
            " listed.",
        ),
    ] = 0.001,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write an HTML page, e.g. audit.html."),
    ] = None,
    rank: Rank = "auto",
    bias: Bias = None,
    model: ModelOptions,
    file: FileOptions,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Detect bad entries, rows and columns of a file.

    A score is the fraction of clean entries (rows, columns) that would look as bad or worse: a
    small score is suspicious.

    For example:

        robustmf audit ratings.csv

        robustmf audit ratings.csv -o suspicious.csv

        robustmf audit ratings.csv --at-most 0.0001 --json
    """
    require_writable(output, report, inputs=[data])
    found = read_entries(data, file)
    entries = found.entries
    started = time.perf_counter()
    estimator = make_model(rank, bias, model).fit(entries)
    suspects = estimator.audit(top=entries.n_entries, at_most=at_most)
    seconds = time.perf_counter() - started
    if rank == "auto":
        print_note(f"rank {estimator.rank_}, found; --rank sets it")
    if output is not None:
        write_columns(_table(suspects), output)
        print_note(
            f"{len(suspects.entries):,} entries, {len(suspects.rows):,} rows,"
            f" {len(suspects.columns):,} columns listed: {output}"
        )
    if report is not None:
        estimator.report(report, title=f"Audit of {data.name}", at_most=at_most)
        print_note(f"Report: {report.resolve()}")
    if as_json:
        print_json(
            {
                "clean_share": suspects.clean_share,
                "suspicious_entries": len(suspects.entries),
                "suspicious_rows": len(suspects.rows),
                "suspicious_columns": len(suspects.columns),
                "rank": estimator.rank_,
                "rank_found": rank == "auto",
                "seconds": seconds,
                "entries": [asdict(one) for one in suspects.entries[:top]],
                "rows": [asdict(one) for one in suspects.rows[:top]],
                "columns": [asdict(one) for one in suspects.columns[:top]],
            }
        )
    else:
        _print_suspects(suspects, found.names, top, at_most, entries.n_entries)


def _table(suspects: Audit) -> dict[str, list[Any]]:
    """Return suspicious entries, rows and columns as one table; inapplicable cells are empty."""
    records: list[tuple[Any, ...]] = [
        ("entry", e.row, e.column, e.value, e.expected, 1, e.score, e.reason)
        for e in suspects.entries
    ]
    records += [
        ("row", one.id, None, None, None, one.entries, one.score, one.reason)
        for one in suspects.rows
    ]
    records += [
        ("column", None, one.id, None, None, one.entries, one.score, one.reason)
        for one in suspects.columns
    ]
    names = ("kind", "row", "column", "value", "expected", "entries", "score", "reason")
    return {name: [record[k] for record in records] for k, name in enumerate(names)}


def _print_suspects(
    suspects: Audit, names: tuple[str, str, str], top: int, at_most: float, n_entries: int
) -> None:
    """Print the most suspicious entries, rows and columns as tables."""
    from robustmf.outliers.audit import share_of_outliers  # noqa: PLC0415 - fast --help

    typer.echo(
        share_of_outliers(suspects.clean_share)
        + f" {len(suspects.entries):,} entries, {len(suspects.rows):,} rows and"
        f" {len(suspects.columns):,} columns have a score of at most {at_most:g};"
        f" about {at_most * n_entries:,.0f} entries would have without any outlier."
    )
    row, column, value = names
    if suspects.entries:
        print_table(
            "Most suspicious entries",
            (row, column, value, "expected", "score", "reason"),
            [
                (
                    short(e.row),
                    short(e.column),
                    f"{e.value:.4g}",
                    f"{e.expected:.3g}",
                    f"{e.score:.1g}",
                    e.reason,
                )
                for e in suspects.entries[:top]
            ],
        )
    for kind, name, listed in (
        ("rows", row, suspects.rows),
        ("columns", column, suspects.columns),
    ):
        if listed:
            print_table(
                f"Most suspicious {kind}",
                (name, "entries", "score", "reason"),
                [
                    (short(one.id), f"{one.entries:,}", f"{one.score:.1g}", one.reason)
                    for one in listed[:top]
                ],
            )
