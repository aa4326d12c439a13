"""``robustmf recommend``: a model in, the best columns for rows out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from robustmf.cli.config import Config
from robustmf.cli.failures import reading
from robustmf.cli.output import Json, print_json, require_folder, say, write_columns
from robustmf.cli.predict import Model, load_model


def recommend(
    model: Model,
    users: Annotated[
        str | None, typer.Option("--users", help="Row ids, with commas between: 7,12,31.")
    ] = None,
    users_from: Annotated[
        Path | None,
        typer.Option("--users-from", help="File with a row id a line (ids may hold commas)."),
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="All rows of the fit.")] = False,
    number: Annotated[
        int, typer.Option("--number", "-n", min=1, help="Recommendations for each.")
    ] = 10,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="Also columns that the row has an entry for.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="CSV, TSV or Parquet by its ending; else CSV on standard output."
        ),
    ] = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """The best columns (items) for rows (users).

    For example:

        robustmf recommend model.rmf --users 7,12 -n 5

        robustmf recommend model.rmf --all -n 10 -o recommended.csv
    """
    require_folder(output)
    if sum((users is not None, users_from is not None, everyone)) != 1:
        raise typer.BadParameter(
            "say for whom with one of --users 7,12, --users-from FILE and --all",
            param_hint="--users",
        )
    fitted = load_model(model)
    ids = fitted.row_ids_
    if everyone:
        asked: list[Any] = list(range(len(fitted.row_factors_)) if ids is None else ids)
    else:
        asked = list(
            dict.fromkeys(_id(text, ids) for text in _named(users, users_from))
        )  # each once, however often named
    known = set(
        asked if ids is None else ids
    )  # numbers that do not exist are refused by the model itself
    unknown = sum(one not in known for one in asked)
    if unknown and fitted.has_bias_:
        say(
            f"{unknown:,} of {len(asked):,} rows are not known to the model: they get the columns with the highest biases"
        )
    items, scores = fitted.recommend(asked, number, exclude_seen=not include_seen)
    lines = [
        (user, place, item, score)
        for user, own, theirs in zip(asked, items.tolist(), scores.tolist(), strict=True)
        for place, (item, score) in enumerate(zip(own, theirs, strict=True), 1)
        if score == score  # fewer columns than asked for are left: the rest is NaN
    ]
    names = ("user", "place", "item", "prediction")
    if as_json:
        print_json([dict(zip(names, line, strict=True)) for line in lines])
    if output is not None or not as_json:
        write_columns({name: [line[k] for line in lines] for k, name in enumerate(names)}, output)
    if output is not None:
        say(f"{len(lines):,} recommendations for {len(asked):,} rows: {output}")


def _named(users: str | None, users_from: Path | None) -> list[str]:
    if users_from is None:
        return [one.strip() for one in str(users).split(",") if one.strip()]
    with reading():
        return [line for line in users_from.read_text(encoding="utf-8-sig").splitlines() if line]


def _id(text: str, ids: Any) -> Any:
    """An id as the fit has them: integers or text."""
    if ids is not None and not isinstance(ids[0], int):
        return text
    try:
        return int(text)
    except ValueError:
        what = (
            "ids are integers in this model"
            if ids is not None
            else "this model has no ids: give row numbers from 0"
        )
        raise typer.BadParameter(f"{text!r} is not one; {what}", param_hint="--users") from None
