"""Seconds of every comparison system on a problem of MovieLens-1M's size, with its defaults."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.sizes import part, side
from robustmf.baselines import GRASTA, OMDL, RMC, RP, AltGrad, AltImpute, ScaledASD
from robustmf.data.observed import Observed
from robustmf.estimator import RMFNL, RobustMF

_SHAPE, _ENTRIES, _RANK = (6040, 3449), 1_000_000, 10
_NOISE, _OUTLIERS, _MAGNITUDE = 0.3, 0.05, 10.0


def ratings_like(scale: float = 1.0, seed: int = 0) -> tuple[Observed, Callable[[Any], float]]:
    """Long-tailed rows and columns, rank 10, noise, 5 % outliers; and the RMSE of a fitted model against the clean values elsewhere."""
    rng = np.random.default_rng(seed)
    (m, n), entries = (side(k, scale) for k in _SHAPE), part(_ENTRIES, scale)
    U, V = rng.standard_normal((m, _RANK)), rng.standard_normal((n, _RANK))
    places = np.zeros(0, np.int64)
    while len(places) < entries:
        i, j = (
            (m * rng.random(entries) ** 1.5).astype(np.int64),
            (n * rng.random(entries) ** 2).astype(np.int64),
        )
        places = np.unique(np.concatenate([places, i * n + j]))
    i, j = np.divmod(np.sort(rng.choice(places, entries, replace=False)), n)
    values = np.einsum("tq,tq->t", U[i], V[j]) + _NOISE * rng.standard_normal(entries)
    hit = rng.random(entries) < _OUTLIERS
    values[hit] += _MAGNITUDE * rng.choice([-1.0, 1.0], int(hit.sum()))
    test_i, test_j = rng.integers(0, m, 100_000), rng.integers(0, n, 100_000)
    truth = np.einsum("tq,tq->t", U[test_i], V[test_j])

    def rmse(model: Any) -> float:
        return float(np.sqrt(np.mean(np.square(model.predict(test_i, test_j) - truth))))

    return Observed.from_indices(i, j, values, (m, n)), rmse


def methods() -> dict[str, Any]:
    """Every method with its defaults; RMF-MM would need 20 million numbers an array and hours."""
    settings: dict[str, Any] = {"random_state": 0}
    return {
        "AltGrad": AltGrad(_RANK, **settings),
        "RP": RP(_RANK, **settings),
        "ScaledASD": ScaledASD(_RANK, **settings),
        "AltImpute": AltImpute(_RANK, **settings),
        "OMDL": OMDL(_RANK, **settings),
        "GRASTA": GRASTA(_RANK, **settings),
        "RMC": RMC(_RANK, **settings),
        "RMFNL (mm, LSP)": RMFNL(_RANK, **settings),
        "RobustMF (irls, Welsch)": RobustMF(_RANK, **settings),
    }


def lines(observed: Observed, rmse: Callable[[Any], float]) -> Iterator[dict[str, Any]]:
    """One line a method: seconds, iterations, RMSE against the clean values."""
    small = observed.select(np.arange(observed.n_entries) % (observed.n_entries // 10_000 + 1) == 0)
    for name, method in methods().items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            method.fit(small)  # compiles
            started = time.perf_counter()
            method.fit(observed)
            seconds = time.perf_counter() - started
        yield {
            "method": name,
            "seconds": seconds,
            "iterations": method.n_iter_,
            "rmse": rmse(method),
            "ended": method.stop_reason_,
        }


def run(scale: float, announce: Callable[[str], None]) -> dict[str, Any]:
    """The whole record."""
    observed, rmse = ratings_like(scale)
    found = []
    for line in lines(observed, rmse):
        announce(f"{line['method']}: {line['seconds']:.1f} s")
        found.append(line)
    return {
        "shape": observed.shape,
        "entries": observed.n_entries,
        "rank": _RANK,
        "noise": _NOISE,
        "outliers": _OUTLIERS,
        "lines": found,
    }


def tables(record: dict[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """The record as titled tables of text."""
    m, n = record["shape"]
    head = ["method", "seconds", "iterations", "RMSE, clean values"]
    body = [
        [x["method"], f"{x['seconds']:.1f}", str(x["iterations"]), f"{x['rmse']:.3f}"]
        for x in record["lines"]
    ]
    return [
        (
            f"{m} x {n}, {record['entries']:,} entries, rank {record['rank']}, 5 % outliers, defaults",
            [head, *body],
        )
    ]
