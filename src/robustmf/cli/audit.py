"""``robustmf audit``: a file of entries in, what is suspicious in it out; and the file without that."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robustmf.cli import input as given
from robustmf.cli import settings
from robustmf.cli.config import Config
from robustmf.cli.output import (
    Json,
    print_json,
    print_table,
    require_folder,
    require_plots,
    say,
    write_columns,
)
from robustmf.report.names import short

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from robustmf.data.observed import Observed
    from robustmf.outliers.audit import Audit, SuspectGroup

#: Without --rank: at most so many factors, and so many entries for each parameter.
_MOST_FACTORS, _ENTRIES_EACH = 5, 4


def audit(
    data: given.Data,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write all that is suspicious, with reasons: CSV, TSV or Parquet by the ending.",
        ),
    ] = None,
    clean: Annotated[
        Path | None,
        typer.Option("--clean", help="Write the data without the bad entries, else unchanged."),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Show so many of each.")] = 10,
    at_most: Annotated[
        float,
        typer.Option(
            "--at-most",
            help="Limit for scores: this share of the good entries is listed and removed, too.",
        ),
    ] = 0.001,
    attacks: Annotated[
        bool,
        typer.Option(
            "--attacks",
            help="For --clean: hold against an entry what speaks against its whole row or column (fake profiles).",
        ),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write a page to look at, e.g. audit.html (extra 'plot')."),
    ] = None,
    rank: Annotated[
        int | None,
        typer.Option(
            "--rank",
            "-r",
            min=1,
            help="Number of factors; up to 5 by the size of the data.",
            rich_help_panel=settings._PANEL,
        ),
    ] = None,
    loss: settings.Loss = "welsch",
    theta: settings.Theta = "auto",
    reg: settings.Reg = "auto",
    bias: settings.Bias = True,
    seed: settings.Seed = 0,
    threads: settings.Threads = None,
    row: given.Row = None,
    col: given.Col = None,
    value: given.Value = None,
    delimiter: given.Delimiter = None,
    header: given.Header = None,
    text_ids: given.TextIds = None,
    duplicates: given.Duplicates = "error",
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Find the bad entries, rows and columns of a file, and write it without them.

    A score is the share of good entries (honest rows, honest columns) that would look as bad or worse: small is suspicious.

    For example:

        robustmf audit ratings.csv

        robustmf audit ratings.csv -o suspicious.csv --clean cleaned.csv

        robustmf audit ratings.csv --at-most 0.0001 --json
    """
    require_folder(output, clean, report)
    if clean is not None:
        from robustmf.io.reading.filtered_copy import copy_without_entries, require_same_format  # noqa: PLC0415 - so that --help is quick

        require_same_format(data, clean)
    if report is not None:
        require_plots()
    found = given.read_input(
        data, given.Asked(row, col, value, delimiter, header, text_ids, duplicates)
    )
    if rank is None:
        rank = _rank(found.entries.shape, found.entries.n_entries)
        say(f"rank {rank}, by the size of the data; --rank sets it")
    started = time.perf_counter()
    model = settings.make_model(
        rank, loss=loss, theta=theta, reg=reg, bias=bias, seed=seed, threads=threads
    ).fit(found.entries)
    listed = model.audit(top=found.entries.n_entries, at_most=at_most)
    seconds = time.perf_counter() - started
    if output is not None:
        write_columns(_columns(listed), output)
        say(
            f"{len(listed.entries):,} entries, {len(listed.rows):,} rows, {len(listed.columns):,} columns listed: {output}"
        )
    removed = 0
    if clean is not None:
        marked = (
            model.outlier_scores(attacks=True) <= at_most
            if attacks
            else _marked(found.entries, listed)
        )
        removed = copy_without_entries(data, found.layout, found.columns, found.entries, marked, clean)
        say(
            f"{removed:,} of {found.entries.n_entries:,} entries left out ({100 * removed / found.entries.n_entries:.2g} %): {clean}"
        )
    if report is not None:
        model.report(report, title=f"Audit of {data.name}", at_most=at_most)
        say(f"Page to open: {report.resolve()}")
    if as_json:
        shown = {
            "entries": [asdict(one) for one in listed.entries[:top]],
            "rows": [asdict(one) for one in listed.rows[:top]],
            "columns": [asdict(one) for one in listed.columns[:top]],
        }
        counts = {f"suspicious_{name}": len(getattr(listed, name)) for name in shown}
        print_json(
            {
                "good_share": listed.clean_share,
                **counts,
                "removed": removed,
                "rank": rank,
                "seconds": seconds,
                **shown,
            }
        )
    else:
        _show(listed, found.names, top, at_most)


def _rank(shape: tuple[int, int], n_entries: int) -> int:
    afforded = n_entries // (_ENTRIES_EACH * sum(shape))
    return max(1, min(_MOST_FACTORS, afforded, min(shape) - 1))


def _marked(entries: Observed, listed: Audit) -> NDArray[np.bool_]:
    """Which entries, in row order, are listed."""
    import numpy as np  # noqa: PLC0415 - so that --help is quick

    (m, n), rows = entries.shape, entries.rows
    row, column = (
        {key: k for k, key in enumerate(ids)}
        for ids in (entries.row_ids or range(m), entries.column_ids or range(n))
    )
    bad = np.array([row[one.row] * n + column[one.column] for one in listed.entries], np.int64)
    return np.isin(rows.group_of_entry().astype(np.int64) * n + rows.indices, bad)


def _columns(listed: Audit) -> dict[str, list[Any]]:
    """Entries, rows and columns in one table; what a line does not have is empty."""
    lines: list[tuple[Any, ...]] = [
        ("entry", e.row, e.column, e.value, e.expected, 1, e.score, e.reason)
        for e in listed.entries
    ]
    lines += [
        ("row", one.id, None, None, None, one.entries, one.score, one.reason) for one in listed.rows
    ]
    lines += [
        ("column", None, one.id, None, None, one.entries, one.score, one.reason)
        for one in listed.columns
    ]
    names = ("kind", "row", "column", "value", "expected", "entries", "score", "reason")
    return {name: [line[k] for line in lines] for k, name in enumerate(names)}


def _show(listed: Audit, names: tuple[str, str, str], top: int, at_most: float) -> None:
    share = 100 * (1 - listed.clean_share)
    counts = f"{len(listed.entries):,} entries, {len(listed.rows):,} rows and {len(listed.columns):,} columns have a score up to {at_most:g}"
    typer.echo(f"About {share:.1f} % of the entries do not fit their rows and columns. {counts}.")
    row, column, value = names
    entries = [
        (
            short(e.row),
            short(e.column),
            f"{e.value:.4g}",
            f"{e.expected:.3g}",
            f"{e.score:.1g}",
            e.reason,
        )
        for e in listed.entries[:top]
    ]
    if entries:
        print_table(
            "Most suspicious entries", (row, column, value, "expected", "score", "why"), entries
        )
    for title, name, lines in (("rows", row, listed.rows), ("columns", column, listed.columns)):
        if lines:
            print_table(
                f"Most suspicious {title}",
                (name, "entries", "score", "why"),
                map(_line, lines[:top]),
            )


def _line(one: SuspectGroup) -> tuple[str, str, str, str]:
    return short(one.id), f"{one.entries:,}", f"{one.score:.1g}", one.reason
