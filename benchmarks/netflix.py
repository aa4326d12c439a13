"""A fit of 480,189 × 17,770 with 100 million long-tailed entries at rank 10: seconds and memory.

The data are drawn in the shape of Netflix. The fit runs in a separate process, so that the peak of
memory is its own.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.measure import figures, in_new_process, peak_gigabytes, timed
from benchmarks.problems import NETFLIX_RANK, NETFLIX_SHAPE, netflix_entries, pair_products
from robustmf.data.observed import Observed
from robustmf.estimator import RobustMF

SMALL = {"entries": 100_000, "sweeps": 2}


def run(entries: int = 100_000_000, sweeps: int = 15) -> dict[str, Any]:
    """``sweeps`` of the ridge initialization, then as many of irls."""
    return in_new_process(measure, entries, sweeps)


def measure(total: int, sweeps: int) -> dict[str, Any]:
    """Draw the entries, build the structures, fit."""
    i, j, values, U, V = netflix_entries(total)
    before = peak_gigabytes()

    started = time.perf_counter()
    observed = Observed.from_indices(i, j, values, NETFLIX_SHAPE)
    observed.columns  # noqa: B018 - built when first used
    structures_seconds = time.perf_counter() - started
    del i, j, values
    model = RobustMF(
        NETFLIX_RANK, theta=1.0, reg=1.0, init="ridge", max_iter=sweeps, tol=1e-12, random_state=0
    )
    fit_seconds, _ = timed(lambda: model.fit(observed))
    some = slice(None, None, max(1, observed.n_entries // 500_000))
    rows = observed.rows.group_of_entry()[some]
    columns = np.random.default_rng(5).permutation(observed.rows.indices[some])
    clean = pair_products(U, V, rows, columns)
    return {
        "entries": observed.n_entries,
        "sweeps": sweeps,
        "structures_seconds": structures_seconds,
        "fit_seconds": fit_seconds,
        "sweep_seconds": float(np.median(np.diff(model.history_["seconds"]))),
        "peak_gigabytes": peak_gigabytes(),
        "peak_before_gigabytes": before,
        "estimate_gigabytes": model.memory_estimate(observed, source_bytes=12) / 1e9,
        "rmse_against_clean": float(np.sqrt(np.mean((model.predict(rows, columns) - clean) ** 2))),
        "clean_standard_deviation": float(clean.std()),
    }


def table(results: dict[str, Any]) -> str:
    """One row per figure."""
    return figures("", results)
