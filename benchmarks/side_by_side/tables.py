"""The tables of the tasks: ratings in long form, and sensors in wide form with bad cells."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

RANK = 2


@dataclass(frozen=True)
class Tables:
    """What a user has: tables, a file, a folder for results, and what only the author knows.

    Attributes
    ----------
    ratings : DataFrame
        Columns user, item, rating (1 … 5). A tenth of the users give 5 to item "i0" and 1 to all
        others they rate.
    train, held_out : DataFrame
        A split of the ratings.
    sensors : DataFrame
        120 hours × 15 sensors, rank 2 with noise; a tenth is missing, 4 % of the others are wrong.
    path, folder : Path
        File with the sensors, and a folder to write to.
    truth, bad : array
        Sensors without noise, and which cells are wrong.
    new_user : dict
        Ratings of a user who is not in the table.
    """

    ratings: Any
    train: Any
    held_out: Any
    sensors: Any
    path: Path
    folder: Path
    truth: Any
    bad: Any
    new_user: dict[str, float]


def make_tables(folder: Path) -> Tables:
    """Make the tables, the same for every library."""
    rng = np.random.default_rng(0)
    taste = 3.3 + 0.4 * rng.normal(size=(200, 1)) + 0.5 * rng.normal(size=60)
    taste += 0.6 * rng.normal(size=(200, RANK)) @ rng.normal(size=(RANK, 60))
    stars = np.clip(np.rint(taste + 0.5 * rng.normal(size=taste.shape)), 1, 5)
    stars[180:] = 1
    stars[180:, 0] = 5
    i, j = np.nonzero(rng.random(stars.shape) < 0.3)
    ratings = pd.DataFrame(
        {"user": [f"u{k}" for k in i], "item": [f"i{k}" for k in j], "rating": stars[i, j]}
    ).sample(frac=1, random_state=0, ignore_index=True)

    truth = 20 + 5 * rng.normal(size=(120, RANK)) @ rng.normal(size=(RANK, 15))
    cells = truth + 0.5 * rng.normal(size=truth.shape)
    part = rng.random(truth.shape)
    bad = part < 0.04
    cells[bad] += rng.choice([-40, 40], size=int(bad.sum()))
    cells[part > 0.9] = np.nan
    hours = pd.date_range("2026-01-01", periods=120, freq="h", name="time")
    sensors = pd.DataFrame(cells.round(3), index=hours, columns=[f"s{k}" for k in range(15)])
    path = folder / "sensors.csv"
    sensors.to_csv(path)
    return Tables(
        ratings=ratings,
        train=ratings.iloc[: len(ratings) * 9 // 10],
        held_out=ratings.iloc[len(ratings) * 9 // 10 :],
        sensors=sensors,
        path=path,
        folder=folder,
        truth=truth,
        bad=bad,
        new_user={"i1": 5.0, "i2": 1.0, "i3": 4.0, "i4": 2.0, "i5": 5.0},
    )
