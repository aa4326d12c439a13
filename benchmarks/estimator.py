"""The estimator in use: rows that arrive in batches against one fit, and answers per second."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.measure import announce, column, grouped, markdown, quickest, timed
from benchmarks.problems import long_tailed
from robustmf.data.observed import Compressed, Observed
from robustmf.datasets import make_synthetic
from robustmf.estimator import RobustMF

SMALL = {"seeds": 1, "repeats": 1, "n_users": 2_000}
BATCHES = 5

#: Rows, columns, share observed (None: the paper's) and share of outliers.
PROBLEMS = (
    (250, 250, None, 0.05),
    (500, 500, None, 0.05),
    (1000, 1000, None, 0.05),
    (400, 150, 0.4, 0.05),
    (400, 150, 0.4, 0.2),
)


def run(seeds: int = 8, repeats: int = 3, n_users: int = 20_000) -> dict[str, Any]:
    """Every problem with every seed; then the rates of answers."""
    record: dict[str, Any] = {"arrival": []}
    for m, n, observed, outliers in PROBLEMS:
        announce(f"{m} × {n}, {outliers:.0%} outliers")
        record["arrival"] += [arrival((m, n), observed, outliers, seed) for seed in range(seeds)]
    announce("answers")
    return {**record, "answers": answers(repeats, n_users)}


def arrival(
    shape: tuple[int, int], observed: float | None, outliers: float, seed: int
) -> dict[str, Any]:
    """RMSE after the last of five batches beside that of one fit, and CPU seconds of each."""
    data = make_synthetic(*shape, observed=observed, outliers=outliers, random_state=seed)
    whole = RobustMF(5, random_state=0)
    fit_seconds, _ = timed(lambda: whole.fit(data.train), time.process_time)
    model = RobustMF(5, random_state=0)
    batch_seconds = []
    for low, high in pairwise(np.linspace(0, shape[0], BATCHES + 1).astype(int)):
        batch = row_range(data.train, low, high)
        seconds, _ = timed(partial(model.partial_fit, batch), time.process_time)
        batch_seconds.append(seconds)
    rmse, single = (data.test_rmse(m.row_factors_, m.column_factors_) for m in (model, whole))
    return {
        "shape": list(shape),
        "outliers": outliers,
        "seed": seed,
        "rmse": rmse,
        "rmse_of_one_fit": single,
        "batch_seconds": batch_seconds,
        "fit_seconds": fit_seconds,
    }


def row_range(observed: Observed, low: int, high: int) -> Observed:
    """Rows ``low`` to ``high`` as a matrix."""
    rows = observed.rows
    begin, end = rows.pointers[[low, high]]
    pointers = rows.pointers[low : high + 1] - begin
    part = Compressed(pointers, rows.indices[begin:end], rows.values[begin:end])
    return Observed(part, (high - low, observed.shape[1]))


def answers(repeats: int, n_users: int) -> dict[str, float]:
    """Answers per second, the best of a few turns: 5,000 items, 100 entries per user, rank 10."""
    observed = long_tailed(n_users, 5_000, 100 * n_users)
    rows = observed.rows
    users = [f"u{k}" for k in range(n_users)]
    items = [f"i{k}" for k in range(5_000)]
    model = RobustMF(10, bias=True, random_state=0, init="ridge", tol=1e-2).fit(
        Observed(rows, observed.shape, users, items)
    )
    pairs = [users[k] for k in rows.group_of_entry()], [items[k] for k in rows.indices]
    new_rows = Observed(rows, observed.shape)
    works: dict[str, tuple[Callable[[], Any], int]] = {
        "users recommended to": (lambda: model.recommend(users[:5_000]), min(n_users, 5_000)),
        "items compared with all": (lambda: model.similar_items(items[:1_000]), 1_000),
        "pairs predicted by id": (lambda: model.predict(*pairs), observed.n_entries),
        "rows folded in (100 entries each)": (lambda: model.transform(new_rows), n_users),
    }
    return {name: count / quickest(work, repeats) for name, (work, count) in works.items()}


def table(results: dict[str, Any]) -> str:
    """Batches against one fit; rates."""
    runs = [{**run, "problem": " × ".join(map(str, run["shape"]))} for run in results["arrival"]]
    rows = []
    for (problem, outliers), own in grouped(runs, "problem", "outliers").items():
        ratios = column(own, "rmse") / column(own, "rmse_of_one_fit")
        batches = np.median(column(own, "batch_seconds"), axis=0)
        seconds = (batches[0], batches[-1], np.median(column(own, "fit_seconds")))
        figures = [f"{ratio:.4f}" for ratio in (ratios.min(), np.median(ratios), ratios.max())]
        rows.append([problem, f"{outliers:.0%}", *figures, *(f"{s:.3f}" for s in seconds)])
    header = [
        "problem",
        "outliers",
        "RMSE relative to one fit: least",
        "median",
        "largest",
        "CPU seconds: first batch",
        "last batch",
        "one fit",
    ]
    rates = [[what, f"{rate:,.0f}"] for what, rate in results["answers"].items()]
    return "\n".join(
        [
            markdown(f"Rows in {BATCHES} batches (`partial_fit`) against one fit", header, rows),
            markdown("Answers, 20,000 × 5,000 at rank 10", ["operation", "per second"], rates),
        ]
    )
