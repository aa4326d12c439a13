"""``robustmf predict``: add predictions to a file of pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robustmf.cli.config import Config
from robustmf.cli.errors import reading_input
from robustmf.cli.input import FileOptions, PairOptions, read_entries
from robustmf.cli.options import with_option_groups
from robustmf.cli.output import (
    Json,
    print_json,
    print_note,
    require_writable,
    write_parquet,
    write_text,
)

if TYPE_CHECKING:
    from robustmf.estimator import RobustMF
    from robustmf.io.reading.pairs import Known, Pairs

Model = Annotated[Path, typer.Argument(help="Model file saved by 'robustmf fit -o'.")]


@with_option_groups
def predict(
    model: Model,
    pairs: Annotated[
        Path,
        typer.Argument(
            help="Text (CSV, TSV, …) or Parquet file with a row id and a column id per line;"
            " further columns are kept."
        ),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Output file; standard output by default."),
    ] = None,
    held_out: Annotated[
        Path | None,
        typer.Option(
            "--held-out",
            help="Entries that were not used in the fit; adds prediction intervals, the columns"
            " 'lower' and 'upper'.",
        ),
    ] = None,
    level: Annotated[
        float, typer.Option("--level", help="Coverage of the prediction intervals.")
    ] = 0.9,
    file: PairOptions,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Predict the values at pairs of a row and a column.

    The column 'prediction' is added to the file. If the row or the column is unknown to the
    model, the prediction consists of the bias of the other one, or is the median.

    For example:

        robustmf predict model.rmf pairs.csv -o predicted.csv

        robustmf predict model.rmf pairs.csv --held-out heldout.csv --level 0.9
    """
    require_writable(output, inputs=[model, pairs, held_out])
    fitted = load_model(model)
    found = _read_pairs(fitted, pairs, file)
    added: dict[str, list[float | None]] = {
        "prediction": fitted.predict(found.rows, found.cols).tolist() if found.rows else []
    }
    if held_out is not None:
        added |= _intervals(fitted, found, held_out, level)
    if as_json:
        columns = {"row": found.rows, "column": found.cols, **added}
        records = zip(*columns.values(), strict=True)
        print_json([dict(zip(columns, record, strict=True)) for record in records])
    if found.table is not None and output is not None and output.suffix.lower() == ".parquet":
        write_parquet(found.table_with(added), output)
    elif found.table is not None and not as_json:
        raise typer.BadParameter(
            "must be a .parquet file, as the file of pairs is (or use --json)",
            param_hint="--output",
        )
    elif output is not None or not as_json:
        write_text(found.text_with(added), output)
    if output is not None:
        print_note(f"{len(found.rows):,} predictions: {output}")


def load_model(path: Path) -> RobustMF:
    """Load a model file."""
    from robustmf.estimator import load  # noqa: PLC0415 - fast --help

    with reading_input():
        return load(path)


def _known_ids(model: RobustMF) -> tuple[Known, Known]:
    """Return the ids of rows and columns; indices if the model has no ids."""
    from robustmf.io.reading.pairs import Known  # noqa: PLC0415 - fast --help

    sides = ((model.row_ids_, model.row_factors_), (model.column_ids_, model.column_factors_))
    rows, columns = (
        Known(range(len(factors)), True)
        if ids is None
        else Known(set(ids), isinstance(ids[0], int))
        for ids, factors in sides
    )
    return rows, columns


def _read_pairs(model: RobustMF, path: Path, options: PairOptions) -> Pairs:
    """Read the pairs; unknown indices are an error."""
    from robustmf.io.reading.pairs import read_pairs  # noqa: PLC0415 - fast --help

    known = _known_ids(model)
    with reading_input():
        found = read_pairs(path, known, **options.arguments())
        for name, ids, side in (("row", found.rows, known[0]), ("column", found.cols, known[1])):
            wrong = [one for one in ids if one not in side.ids]
            if wrong and isinstance(side.ids, range):
                raise ValueError(
                    f"{path}: {name} {wrong[0]} does not exist; the model has {name}s 0 to"
                    f" {len(side.ids) - 1}"
                )
    print_note(f"{path}: {found.layout}")
    return found


def _intervals(
    model: RobustMF, pairs: Pairs, held_out: Path, level: float
) -> dict[str, list[float | None]]:
    """Return prediction intervals, which are missing for unknown ids."""
    from robustmf.intervals import ConformalIntervals  # noqa: PLC0415 - fast --help

    if not 0 < level < 1:
        raise typer.BadParameter(f"must lie between 0 and 1, got {level}", param_hint="--level")
    entries = read_entries(held_out, FileOptions()).entries
    with reading_input():
        intervals = ConformalIntervals(model, entries)
    lower: list[float | None] = [None] * len(pairs.rows)
    upper: list[float | None] = [None] * len(pairs.rows)
    rows, columns = (known.ids for known in _known_ids(model))
    positions = [
        k
        for k, (row, column) in enumerate(zip(pairs.rows, pairs.cols, strict=True))
        if row in rows and column in columns
    ]
    if positions:
        found = intervals.predict(
            [pairs.rows[k] for k in positions], [pairs.cols[k] for k in positions], level
        )
        bounds = zip(found.lower.tolist(), found.upper.tolist(), strict=True)
        for k, (low, high) in zip(positions, bounds, strict=True):
            lower[k] = low
            upper[k] = high
    return {"lower": lower, "upper": upper}
