"""A problem of Netflix's shape, made here: 480,189 × 17,770 with 100 million entries, long tails on both sides."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from numpy.typing import NDArray

from robustmf.data.observed import Observed
from robustmf.estimator import RobustMF

SHAPE, RANK, NOISE, OUTLIERS = (480_189, 17_770), 10, 0.3, 0.05
_ROWS_AT_ONCE = 4000


def make_entries(
    total: int, seed: int = 0
) -> tuple[
    NDArray[np.int32],
    NDArray[np.int32],
    NDArray[np.float32],
    NDArray[np.float32],
    NDArray[np.float32],
]:
    """Distinct places, about ``total`` of them; values of rank 10 with noise 0.3 and 5 % outliers of ±5; and the true factors."""
    m, n = SHAPE
    rng = np.random.default_rng(seed)
    U, V = (0.5 * rng.standard_normal((k, RANK), dtype=np.float32) for k in SHAPE)
    activity, popularity = (
        np.exp(1.3 * rng.standard_normal(m)),
        np.cumsum(np.exp(1.5 * rng.standard_normal(n))),
    )
    popularity /= popularity[-1]
    # a draw that hits a place a second time is dropped; so draw a little more
    wanted = np.minimum(1.3 * total * activity / activity.sum(), 0.25 * n)
    i, j = np.empty(total, np.int32), np.empty(total, np.int32)
    filled = 0
    for low in range(0, m, _ROWS_AT_ONCE):
        counts = rng.poisson(wanted[low : low + _ROWS_AT_ONCE])
        rows = np.repeat(np.arange(low, low + len(counts), dtype=np.int64), counts)
        columns = np.minimum(np.searchsorted(popularity, rng.random(len(rows))), n - 1)
        places = np.unique(rows * n + columns)
        left = min(
            len(places),
            total - filled,
            int(np.ceil(1.02 * total * (low + len(counts)) / m)) - filled,
        )
        places = np.sort(rng.choice(places, left, replace=False)) if left < len(places) else places
        i[filled : filled + len(places)], j[filled : filled + len(places)] = np.divmod(places, n)
        filled += len(places)
    i, j = i[:filled], j[:filled]
    values = np.empty(filled, np.float32)
    for low in range(0, filled, 4_000_000):
        part = slice(low, min(low + 4_000_000, filled))
        values[part] = np.einsum("tq,tq->t", U[i[part]], V[j[part]]) + NOISE * rng.standard_normal(
            part.stop - low, dtype=np.float32
        )
        bad = rng.random(part.stop - low) < OUTLIERS
        values[part][bad] += rng.choice(np.array([-5, 5], np.float32), int(bad.sum()))
    return i, j, values, U, V


def main(total: int, sweeps: int) -> None:
    """Make, compress, fit; print a record as JSON. Meant for a process of its own, so that the peak is this fit's."""
    i, j, values, U, V = make_entries(total)
    made = _peak()
    started = time.perf_counter()
    observed = Observed.from_indices(i, j, values, SHAPE)
    del i, j, values
    observed.columns  # noqa: B018 - made when first used
    structures = time.perf_counter() - started
    model = RobustMF(
        RANK, theta=1.0, reg=1.0, init="ridge", max_iter=sweeps, tol=1e-12, random_state=0
    )
    started = time.perf_counter()
    model.fit(observed)
    seconds = time.perf_counter() - started
    rng = np.random.default_rng(5)
    some = slice(None, None, max(1, observed.n_entries // 500_000))
    rows, columns = observed.rows.group_of_entry()[some], observed.rows.indices[some]
    columns = rng.permutation(columns)
    clean = np.einsum("tq,tq->t", U[rows], V[columns])
    record = {
        "entries": observed.n_entries,
        "sweeps": sweeps,
        "structures_seconds": structures,
        "fit_seconds": seconds,
        "sweep_seconds": float(np.median(np.diff(model.history_["seconds"]))),
        "peak_gigabytes": _peak(),
        "peak_before_gigabytes": made,
        "estimate_gigabytes": model.memory_estimate(observed, source_bytes=12) / 1e9,
        "rmse_against_clean": float(np.sqrt(np.mean((model.predict(rows, columns) - clean) ** 2))),
        "clean_standard_deviation": float(clean.std()),
    }
    print(json.dumps(record))


def _peak() -> float:
    import resource  # noqa: PLC0415 - not on Windows, where the other measurements shall run

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


if __name__ == "__main__":
    main(int(float(sys.argv[1])), int(sys.argv[2]))
