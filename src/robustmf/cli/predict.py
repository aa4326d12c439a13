"""``robustmf predict``: a model and pairs in, the pairs with predictions out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robustmf.cli import input as given
from robustmf.cli.config import Config
from robustmf.cli.failures import reading
from robustmf.cli.output import Json, print_json, require_folder, say, write_text

if TYPE_CHECKING:
    from robustmf.estimator import RobustMF
    from robustmf.io.reading.pairs import Known, Pairs

Model = Annotated[Path, typer.Argument(help="What 'robustmf fit -o' kept.")]


def predict(
    model: Model,
    pairs: Annotated[
        Path,
        typer.Argument(
            help="Text (CSV, TSV, …) or Parquet with a row id and a column id a line; further columns stay."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write here instead of to standard output."),
    ] = None,
    held_out: Annotated[
        Path | None,
        typer.Option(
            "--held-out",
            help="Entries that the model was not fitted to; adds 'lower' and 'upper', an interval.",
        ),
    ] = None,
    level: Annotated[
        float, typer.Option("--level", help="Share of good values that lie in their interval.")
    ] = 0.9,
    row: given.Row = None,
    col: given.Col = None,
    delimiter: given.Delimiter = None,
    header: given.Header = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Predict the values at pairs of a row and a column.

    The file comes back with one more column, 'prediction'. A row or column that the model does not know is predicted by the
    biases of the other, or by the median.

    For example:

        robustmf predict model.rmf pairs.csv -o predicted.csv

        robustmf predict model.rmf pairs.csv --held-out heldout.csv --level 0.9
    """
    require_folder(output)
    fitted, asked = load_model(model), given.Asked(row, col, None, delimiter, header)
    found = _read(fitted, pairs, asked)
    added: dict[str, list[float | None]] = {
        "prediction": fitted.predict(found.rows, found.cols).tolist() if found.rows else []
    }
    if held_out is not None:
        added |= _intervals(fitted, found, held_out, level)
    if as_json:
        columns = {"row": found.rows, "column": found.cols, **added}
        print_json(
            [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]
        )
    if found.table is not None and output is not None and output.suffix.lower() == ".parquet":
        import pyarrow.parquet as pq  # noqa: PLC0415 - only those who write Parquet pay for it

        pq.write_table(found.table_with(added), output)
    elif found.table is not None and not as_json:
        raise typer.BadParameter(
            "must be a .parquet file, as the pairs are one (or take --json)", param_hint="--output"
        )
    elif output is not None or not as_json:
        write_text(found.text_with(added), output)
    if output is not None:
        say(f"{len(found.rows):,} predictions: {output}")


def load_model(path: Path) -> RobustMF:
    """The model in a file."""
    from robustmf.estimator import load  # noqa: PLC0415 - so that --help is quick

    with reading():
        return load(path)


def _known(model: RobustMF) -> tuple[Known, Known]:
    """The ids of rows and columns; numbers, where the model has none."""
    from robustmf.io.reading.pairs import Known  # noqa: PLC0415 - as above

    sides = ((model.row_ids_, model.row_factors_), (model.column_ids_, model.column_factors_))
    rows, cols = (
        Known(range(len(U)), True) if ids is None else Known(set(ids), isinstance(ids[0], int))
        for ids, U in sides
    )
    return rows, cols


def _read(model: RobustMF, path: Path, asked: given.Asked) -> Pairs:
    from robustmf.io.reading.pairs import read_pairs  # noqa: PLC0415 - as above

    known = _known(model)
    with reading():
        found = read_pairs(path, known, **asked.pair())
        for name, ids, side in (("row", found.rows, known[0]), ("column", found.cols, known[1])):
            unknown = sum(one not in side.ids for one in ids)
            if unknown and isinstance(side.ids, range):
                wrong = next(one for one in ids if one not in side.ids)
                raise ValueError(
                    f"{path}: {name} {wrong} does not exist; the model has {name}s 0 to {len(side.ids) - 1}"
                )
            if unknown:
                say(f"{unknown:,} of {len(ids):,} pairs have a {name} that the model does not know")
    say(f"{path}: {found.layout}")
    return found


def _intervals(
    model: RobustMF, pairs: Pairs, held_out: Path, level: float
) -> dict[str, list[float | None]]:
    from robustmf.intervals import ConformalIntervals  # noqa: PLC0415 - as above

    if not 0 < level < 1:
        raise typer.BadParameter(f"must lie between 0 and 1, got {level}", param_hint="--level")
    entries = given.read_input(held_out, given.Asked()).entries
    with reading():
        intervals = ConformalIntervals(model, entries)
    lower: list[float | None] = [None] * len(pairs.rows)
    upper = list(lower)
    rows, cols = (known.ids for known in _known(model))
    places = [
        k
        for k, (row, col) in enumerate(zip(pairs.rows, pairs.cols, strict=True))
        if row in rows and col in cols
    ]
    if places:
        ends = intervals.predict(
            [pairs.rows[k] for k in places], [pairs.cols[k] for k in places], level
        )
        for k, low, high in zip(places, ends.lower.tolist(), ends.upper.tolist(), strict=True):
            lower[k], upper[k] = low, high
    return {"lower": lower, "upper": upper}
