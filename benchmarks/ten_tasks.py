"""The ten tasks of docs/background/ten-tasks.md on simulated tables; prints what came back.

python -m benchmarks.ten_tasks [seed]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import spearmanr

from robustmf import RobustMF, load
from robustmf.exceptions import RobustMFWarning
from robustmf.selection import RobustMFCV

HOURS, STATIONS = 480, 30
WRONG_HOURS = (100, 333)
STUCK = (slice(200, 230), 11)
COLUMNS = {"row": "user", "col": "item", "value": "stars"}


@dataclass(frozen=True)
class Sensors:
    """Readings, their truth, and which observed cells are gross errors or in order."""

    table: pd.DataFrame
    truth: NDArray[np.float64]
    errors: NDArray[np.bool_]
    clean: NDArray[np.bool_]


def make_sensors(rng: np.random.Generator) -> Sensors:
    """480 hours of 30 stations: gaps, gross errors, two hours of noise, one station stuck."""
    t = np.arange(HOURS)
    walk = np.cumsum(rng.normal(size=HOURS)) / 8
    day = 2 * np.pi * t / 24
    rhythms = np.column_stack([np.ones(HOURS), np.sin(day), np.cos(day), walk])
    mixing = [[8], [0], [0], [1]] + rng.normal(size=(4, STATIONS)) * [[2], [2], [1], [0.5]]
    truth = rhythms @ mixing
    cells = truth + 0.3 * rng.normal(size=truth.shape)
    errors = rng.random(truth.shape) < 0.02
    signs = rng.choice([-1, 1], errors.sum())
    cells[errors] += signs * rng.uniform(4, 20, errors.sum())
    for hour in WRONG_HOURS:
        cells[hour] = rng.normal(8, 12, STATIONS)
    cells[STUCK] = cells[STUCK[0].start, STUCK[1]]
    missing = rng.random(truth.shape) < 0.24
    missing[300:340, 5] = True
    cells[missing] = np.nan
    in_order = ~missing
    in_order[list(WRONG_HOURS)] = False
    in_order[STUCK] = False
    times = pd.date_range("2026-03-01", periods=HOURS, freq="h", name="hour")
    names = [f"st{k:02}" for k in range(STATIONS)]
    table = pd.DataFrame(cells.round(2), times, names)
    return Sensors(table, truth, errors & in_order, in_order & ~errors)


def sensor_tasks(rng: np.random.Generator, folder: Path) -> Iterator[tuple[str, Any]]:
    """Tasks 1, 2, 5, 6, 7, 8 and 10."""
    sensors = make_sensors(rng)
    table = sensors.table
    others = np.ones(HOURS, bool)
    others[list(WRONG_HOURS)] = False
    model = RobustMF(random_state=0).fit(table)
    gaps = table.isna().to_numpy() & others[:, None]

    def rmse(found: pd.DataFrame, cells: Any) -> float:
        return float(np.sqrt(np.mean((found.to_numpy() - sensors.truth)[cells] ** 2)))

    yield "1 rank, biases, noise", (model.rank_, model.has_bias_, round(model.noise_, 3))
    yield "1 error in gaps", rmse(model.impute(table), gaps)
    yield "1 by medians", rmse(table.fillna(table.median()), gaps)
    yield "1 warning", model.failed_checks_
    bad = (model.outlier_scores() < 0.001).to_numpy()
    wrong = bad[list(WRONG_HOURS)].sum(), table.notna().iloc[list(WRONG_HOURS)].to_numpy().sum()
    yield "2 flagged", int(bad.sum())
    yield "2 errors found", f"{(bad & sensors.errors).sum()} of {sensors.errors.sum()}"
    yield "2 flagged in the wrong hours", "{} of {}".format(*wrong)
    yield "2 share of clean cells", float(bad[sensors.clean].mean())
    yield "2 lowest row scores", model.row_scores().nsmallest(3).to_dict()
    yield "2 lowest column scores", model.column_scores().nsmallest(2).to_dict()
    search = RobustMFCV(rank=[2, 3, 4, 5, 6, "auto"], cv=3, random_state=0).fit(table)
    ranks = [setting["rank"] for setting in search.cv_results_["params"]]
    errors = (-search.cv_results_["mean_test_score"]).round(2).tolist()
    yield "5 errors by rank", dict(zip(ranks, errors, strict=True))
    held_out = (rng.random(table.shape) < 0.1) & table.notna().to_numpy()
    for name, settings in (("default", {}), ("l2", {"loss": "l2"})):
        fitted = RobustMF(random_state=0, **settings).fit(table.mask(held_out))
        cells = [fitted.predict([hour] * STATIONS, table.columns) for hour in table.index]
        predicted = pd.DataFrame(np.array(cells))
        error = np.abs(predicted.to_numpy() - table.to_numpy())[held_out].mean()
        yield (
            f"6 {name}: error on held-out values, against the truth",
            (error, rmse(predicted, others)),
        )
    page = model.report(folder / "sensors.html", title="My 30 stations")
    yield "7 size of the page, MB", page.stat().st_size / 1e6
    model.save(folder / "sensors.rmf")
    again = load(folder / "sensors.rmf")
    yield (
        "8 the same answers",
        (
            again.outlier_scores().equals(model.outlier_scores())
            and again.clean(table).data.equals(model.clean(table).data)
            and str(again.audit()) == str(model.audit())
        ),
    )
    hour = model.row_scores().idxmin()
    yield "10 flagged in the worst hour", int(bad[table.index.get_loc(hour)].sum())
    yield "10 values in the worst hour", int(table.loc[hour].notna().sum())


def file_task(rng: np.random.Generator, folder: Path) -> Iterator[tuple[str, Any]]:
    """Task 3: a wide file in which 99 is missing, with 99 gross errors."""
    cells = 20 + 3 * rng.normal(size=(200, 2)) @ rng.normal(size=(2, 25))
    cells += 0.2 * rng.normal(size=cells.shape)
    missing = rng.random(cells.shape) < 0.12
    errors = rng.permutation(np.flatnonzero(~missing))[:99]
    cells.flat[errors] += rng.choice([-35, 40], 99)
    cells = np.where(missing, 99, cells.round(2))
    source = folder / "wide99.csv"
    pd.DataFrame(cells).add_prefix("v").to_csv(source, index=False)

    def run(*options: str) -> NDArray[np.float64]:
        out = folder / "out.csv"
        command = [sys.executable, "-m", "robustmf", "clean", source, "--missing", "99", "-o", out]
        subprocess.run([*command, *options], check=True, capture_output=True)
        return pd.read_csv(out).to_numpy()

    removed = (run() == 99) & ~missing
    yield "3 removed", f"{removed.sum()} of {(~missing).sum()}"
    yield "3 of the wrong ones", int(removed.flat[errors].sum())
    complete = run("--replace", "--fill")
    yield "3 complete", bool(np.isfinite(complete).all() and not (complete == 99).any())


def rating_tasks(rng: np.random.Generator) -> Iterator[tuple[str, Any]]:
    """Tasks 4 and 9: ratings of 80 items by 300 users, the first of whom is new."""
    from distributed import Client  # noqa: PLC0415 - an extra

    taste = (0.5 * rng.normal(size=(300, 2))) @ (0.5 * rng.normal(size=(2, 80)))
    biases = 0.4 * rng.normal(size=(300, 1)) + 0.5 * rng.normal(size=80)
    truth = np.clip(3.4 + biases + taste, 0.5, 5)
    stars = np.clip(np.rint(2 * (truth + 0.25 * rng.normal(size=truth.shape))) / 2, 0.5, 5)
    users, items = np.nonzero(rng.random(truth.shape) < 0.348)
    ratings = pd.DataFrame({"user": users, "item": items, "stars": stars[users, items]})
    ratings["user"] = "u" + ratings["user"].astype(str).str.zfill(3)
    ratings["item"] = "i" + ratings["item"].astype(str).str.zfill(2)
    reversed_ = rng.random(len(ratings)) < 0.02
    ratings.loc[reversed_, "stars"] = 5.5 - ratings["stars"][reversed_]
    is_new = ratings["user"] == "u000"
    given = ratings[is_new].head(15).set_index("item")["stars"]
    settings = {"bounds": (0.5, 5), "random_state": 0}
    model = RobustMF(**settings).fit(ratings[~is_new], **COLUMNS)
    names, scores = model.recommend(ratings=given, n=80 - len(given))
    expected = truth[0, [int(name[1:]) for name in names]]
    best = set(names[np.argsort(-expected)[:5]])
    yield "4 of five recommended items among the five best", len(best & set(names[:5]))
    yield f"4 rank correlation over {len(names)} items", float(spearmanr(scores, expected)[0])
    here = RobustMF(rank=4, bias=True, **settings).fit(ratings, **COLUMNS)
    with Client(n_workers=2, threads_per_worker=1) as client:
        there = RobustMF(rank=4, bias=True, **settings).fit(ratings, **COLUMNS, client=client)
    pairs = ratings["user"], ratings["item"]
    difference = np.abs(here.predict(*pairs) - there.predict(*pairs))
    yield "9 difference of predictions, median and largest", (difference.median(), difference.max())


def main() -> None:
    """Print the results of all tasks."""
    rng = np.random.default_rng(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    warnings.simplefilter("ignore", RobustMFWarning)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for tasks in (sensor_tasks(rng, folder), file_task(rng, folder), rating_tasks(rng)):
            for task, result in tasks:
                print(f"{task}: {result}", flush=True)


if __name__ == "__main__":
    main()
