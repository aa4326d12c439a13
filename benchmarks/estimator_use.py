"""The estimator in use: rows that arrive in batches against one fit, and answers a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.irls_speed import long_tailed
from robustmf.data.observed import Compressed, Observed
from robustmf.datasets import make_synthetic
from robustmf.estimator import RobustMF

_BATCHES = 5
_REPEATS = 3

#: (rows, columns, share observed (None: the paper's), share of outliers) of the problems whose rows arrive.
PROBLEMS = (
    (250, 250, None, 0.05),
    (500, 500, None, 0.05),
    (1000, 1000, None, 0.05),
    (400, 150, 0.4, 0.05),
    (400, 150, 0.4, 0.2),
)


def some_rows(observed: Observed, low: int, high: int) -> Observed:
    """Rows ``low`` to ``high`` as a matrix of their own."""
    rows, (start, stop) = observed.rows, observed.rows.pointers[[low, high]]
    part = Compressed(
        rows.pointers[low : high + 1] - start, rows.indices[start:stop], rows.values[start:stop]
    )
    return Observed(part, (high - low, observed.shape[1]))


def arrival(
    shape: tuple[int, int], observed: float | None, outliers: float, seed: int
) -> dict[str, Any]:
    """RMSE after the last of five batches beside that of one fit, and the CPU seconds of each."""
    data = make_synthetic(*shape, observed=observed, outliers=outliers, random_state=seed)
    started = time.process_time()
    whole = RobustMF(5, random_state=0).fit(data.train)
    fit_seconds, batch_seconds = time.process_time() - started, []
    model = RobustMF(5, random_state=0)
    for low, high in pairwise(np.linspace(0, shape[0], _BATCHES + 1).astype(int)):
        started = time.process_time()
        model.partial_fit(some_rows(data.train, low, high))
        batch_seconds.append(time.process_time() - started)
    errors = [data.test_rmse(m.row_factors_, m.column_factors_) for m in (model, whole)]
    return {
        "shape": shape, "outliers": outliers, "seed": seed, "rmse": errors[0], "rmse_of_one_fit": errors[1],
        "batch_seconds": batch_seconds, "fit_seconds": fit_seconds,
    }  # fmt: skip


def answers() -> dict[str, float]:
    """Answers a second, the best of a few turns: 20,000 × 5,000 with two million entries, rank 10."""
    observed = long_tailed(20_000, 5_000, 2_000_000)
    rows = observed.rows
    users, items = [f"u{k}" for k in range(20_000)], [f"i{k}" for k in range(5_000)]
    model = RobustMF(10, bias=True, random_state=0, init="ridge", tol=1e-2).fit(
        Observed(rows, observed.shape, users, items)
    )
    i, j = rows.group_of_entry(), rows.indices
    pairs = [users[k] for k in i], [items[k] for k in j]
    asked: dict[str, tuple[Callable[[], Any], int]] = {
        "users recommended to": (lambda: model.recommend(users[:5_000]), 5_000),
        "items compared with all": (lambda: model.similar_items(items[:1_000]), 1_000),
        "pairs predicted by id": (lambda: model.predict(*pairs), observed.n_entries),
        "rows folded in (100 entries each)": (
            lambda: model.transform(Observed(rows, observed.shape)),
            20_000,
        ),
    }
    found = {}
    for what, (ask, count) in asked.items():
        seconds = []
        for _ in range(_REPEATS):
            started = time.perf_counter()
            ask()
            seconds.append(time.perf_counter() - started)
        found[what] = count / min(seconds)
    return found


def run(seeds: int, announce: Callable[[str], None]) -> dict[str, Any]:
    """All of it."""
    record: dict[str, Any] = {"arrival": []}
    for m, n, observed, outliers in PROBLEMS:
        announce(f"{m} × {n}, {outliers:.0%} outliers")
        record["arrival"] += [arrival((m, n), observed, outliers, seed) for seed in range(seeds)]
    announce("answers")
    return record | {"answers": answers()}


def tables(record: dict[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """The record as tables of text."""
    lines = [
        [
            "problem",
            "outliers",
            "RMSE / one fit's, least",
            "median",
            "largest",
            "CPU seconds: first batch",
            "last batch",
            "one fit",
        ]
    ]
    kinds = {(*run["shape"], run["outliers"]) for run in record["arrival"]}
    for m, n, outliers in sorted(kinds):
        runs = [
            run for run in record["arrival"] if (*run["shape"], run["outliers"]) == (m, n, outliers)
        ]
        ratios = [run["rmse"] / run["rmse_of_one_fit"] for run in runs]
        seconds = [np.median([run["batch_seconds"][k] for run in runs]) for k in (0, -1)] + [
            np.median([r["fit_seconds"] for r in runs])
        ]
        lines.append(
            [
                f"{m} × {n}",
                f"{outliers:.0%}",
                *(f"{f(ratios):.4f}" for f in (min, np.median, max)),
                *(f"{s:.3f}" for s in seconds),
            ]
        )
    rates = [
        ["what", "a second"],
        *([what, f"{rate:,.0f}"] for what, rate in record["answers"].items()),
    ]
    return [
        (f"rows in {_BATCHES} batches against one fit", lines),
        ("answers, 20,000 × 5,000 at rank 10", rates),
    ]
