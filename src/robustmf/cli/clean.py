"""``robustmf clean``: write a file without its bad entries, or with predictions instead."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from robustmf.cli.config import Config
from robustmf.cli.fit_options import Bias, ModelOptions, Rank, make_model
from robustmf.cli.input import Data, FileOptions, InputFile, read_entries
from robustmf.cli.options import with_option_groups
from robustmf.cli.output import Json, print_json, print_note, require_writable

if TYPE_CHECKING:
    from robustmf.estimator import RobustMF
    from robustmf.io.reading.filtered_copy import Changes


@with_option_groups
def clean(
    data: Data,
    *,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Write the cleaned data, in the format of the file."),
    ],
    replace: Annotated[
        bool,
        typer.Option(
            "--replace/--remove",
            help="Write predictions in the place of bad entries, or leave these out: their lines"
            " are omitted, the cells of a wide file become empty.",
        ),
    ] = False,
    fill: Annotated[
        bool, typer.Option("--fill", help="Fill the gaps of a wide file with predictions.")
    ] = False,
    at_most: Annotated[
        float,
        typer.Option(
            "--at-most",
            help="Threshold of the scores: about this fraction of the clean entries is also"
            " changed.",
        ),
    ] = 0.001,
    attacks: Annotated[
        bool,
        typer.Option(
            "--attacks",
            help="Combine the score of an entry with those of its row and column (fake profiles).",
        ),
    ] = False,
    rank: Rank = "auto",
    bias: Bias = None,
    model: ModelOptions,
    file: FileOptions,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Write a file without its bad entries, or with predictions instead.

    Everything else in the file stays as it is. 'robustmf audit' lists what is bad, and why. In
    Python RobustMF(random_state=0).fit(table).clean(table) changes the same entries, and also makes
    them missing unless replace=True.

    For example:

        robustmf clean ratings.csv -o cleaned.csv

        robustmf clean sensors.csv -o complete.csv --replace --fill

        robustmf clean ratings.csv -o cleaned.csv --at-most 0.0001 --attacks
    """
    from robustmf.io.reading.filtered_copy import (  # noqa: PLC0415 - fast --help
        copy_with_changes,
        require_same_format,
    )

    require_writable(output, inputs=[data])
    require_same_format(data, output)
    found = read_entries(data, file)
    if fill and not found.is_wide:
        raise typer.BadParameter(
            "needs a wide file (see --wide): in a file with a line per entry gaps have no line",
            param_hint="--fill",
        )
    estimator = make_model(rank, bias, model).fit(found.entries)
    if rank == "auto":
        print_note(f"rank {estimator.rank_}, found; --rank sets it")
    bad, gaps = _changes(estimator, found, at_most, attacks, replace, fill)
    changes = _merged(bad, gaps)
    copy_with_changes(data, found.layout, found.columns, found.entries, changes, output)
    n_bad = len(bad.positions)
    n_gaps = len(gaps.positions)
    n_entries = found.entries.n_entries
    print_note(
        f"{n_bad:,} of {n_entries:,} entries {'replaced' if replace else 'removed'}"
        f" ({100 * n_bad / n_entries:.2g} %)"
        + (f", {n_gaps:,} gaps filled" if fill else "")
        + f": {output}"
    )
    if as_json:
        print_json(
            {
                "entries": n_entries,
                "replaced" if replace else "removed": n_bad,
                "filled": n_gaps,
                "rank": estimator.rank_,
                "rank_found": rank == "auto",
                "output": str(output),
            }
        )


def _changes(
    estimator: RobustMF, found: InputFile, at_most: float, attacks: bool, replace: bool, fill: bool
) -> tuple[Changes, Changes]:
    """Return the changes of bad entries and those of gaps."""
    import numpy as np  # noqa: PLC0415 - fast --help

    from robustmf.io.reading.filtered_copy import Changes  # noqa: PLC0415 - as above

    entries = found.entries
    rows = entries.rows
    n = entries.shape[1]
    cleaned, mask = estimator.clean(entries, at_most=at_most, attacks=attacks, replace=True)
    values = cleaned.rows.values[mask] if replace else np.full(int(mask.sum()), np.nan)
    bad = Changes.of(rows.group_of_entry()[mask], rows.indices[mask], values, n)
    if not fill:
        nothing: Any = np.empty(0, np.int64)
        return bad, Changes(nothing, np.empty(0))
    cells = entries.to_dense()
    filled = estimator.impute(cells)
    i, j = np.nonzero(np.isnan(cells) & ~np.isnan(filled))
    return bad, Changes.of(i, j, filled[i, j], n)


def _merged(one: Changes, other: Changes) -> Changes:
    """Return the changes of both."""
    import numpy as np  # noqa: PLC0415 - fast --help

    positions = np.concatenate([one.positions, other.positions])
    order = np.argsort(positions)
    return type(one)(positions[order], np.concatenate([one.values, other.values])[order])
