"""``robustmf recommend``: the best columns for rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from robustmf.cli.config import Config
from robustmf.cli.errors import reading_input
from robustmf.cli.output import Json, print_json, print_note, require_writable, write_columns
from robustmf.cli.predict import Model, load_model


def recommend(
    model: Model,
    users: Annotated[
        str | None, typer.Option("--users", help="Row ids, separated by commas: 7,12,31.")
    ] = None,
    users_from: Annotated[
        Path | None,
        typer.Option("--users-from", help="File with one row id per line (may contain commas)."),
    ] = None,
    all_users: Annotated[bool, typer.Option("--all", help="All rows of the model.")] = False,
    number: Annotated[
        int, typer.Option("--number", "-n", min=1, help="Number of recommendations per row.")
    ] = 10,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="Include columns in which the row has an entry.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="CSV, TSV or Parquet by the file extension; CSV on standard output by default.",
        ),
    ] = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Recommend the best columns (items) for rows (users).

    For example:

        robustmf recommend model.rmf --users 7,12 -n 5

        robustmf recommend model.rmf --all -n 10 -o recommended.csv
    """
    require_writable(output, inputs=[model, users_from])
    if sum((users is not None, users_from is not None, all_users)) != 1:
        raise typer.BadParameter(
            "give exactly one of --users 7,12, --users-from FILE and --all", param_hint="--users"
        )
    fitted = load_model(model)
    ids = fitted.row_ids_
    rows: list[Any]
    if all_users:
        rows = list(range(len(fitted.row_factors_)) if ids is None else ids)
    else:
        # each id once, in the order given
        rows = list(dict.fromkeys(_parsed_id(text, ids) for text in _texts(users, users_from)))
    items, scores = fitted.recommend(rows, number, exclude_seen=not include_seen)
    records = [
        (row, position, item, score)
        for row, row_items, row_scores in zip(rows, items.tolist(), scores.tolist(), strict=True)
        for position, (item, score) in enumerate(zip(row_items, row_scores, strict=True), 1)
        if score == score  # NaN: fewer columns than requested are left
    ]
    names = ("user", "position", "item", "prediction")
    if as_json:
        print_json([dict(zip(names, record, strict=True)) for record in records])
    if output is not None or not as_json:
        columns = {name: [record[k] for record in records] for k, name in enumerate(names)}
        write_columns(columns, output)
    if output is not None:
        print_note(f"{len(records):,} recommendations for {len(rows):,} rows: {output}")


def _texts(users: str | None, users_from: Path | None) -> list[str]:
    """Return the ids as given on the command line or in the file."""
    if users_from is None:
        return [one.strip() for one in str(users).split(",") if one.strip()]
    with reading_input():
        return [line for line in users_from.read_text(encoding="utf-8-sig").splitlines() if line]


def _parsed_id(text: str, ids: Any) -> Any:
    """Return an id of the type that the model has: integer or string."""
    if ids is not None and not isinstance(ids[0], int):
        return text
    try:
        return int(text)
    except ValueError:
        expected = (
            "the ids of this model are integers"
            if ids is not None
            else "this model has no ids: give row indices from 0"
        )
        raise typer.BadParameter(
            f"{text!r} is not an integer; {expected}", param_hint="--users"
        ) from None
