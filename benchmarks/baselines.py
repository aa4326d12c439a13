"""Seconds of every comparison system on a million entries in the shape of MovieLens-1M."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measure import announce, markdown, part, side, timed
from benchmarks.problems import pair_products
from robustmf.baselines import GRASTA, OMDL, RMC, RP, AltGrad, AltImpute, ScaledASD
from robustmf.data.observed import Observed
from robustmf.estimator import RMFNL, RobustMF

SMALL = {"scale": 0.001}
SHAPE = (6040, 3449)
ENTRIES = 1_000_000
RANK = 10
NOISE = 0.3
OUTLIERS = 0.05
MAGNITUDE = 10.0

#: Every method with its defaults; RMF-MM would take hours.
METHODS = {
    "AltGrad": AltGrad,
    "RP": RP,
    "ScaledASD": ScaledASD,
    "AltImpute": AltImpute,
    "OMDL": OMDL,
    "GRASTA": GRASTA,
    "RMC": RMC,
    "RMFNL (mm, LSP)": RMFNL,
    "RobustMF (irls, Welsch)": RobustMF,
}


def rating_entries(scale: float, seed: int = 0) -> tuple[Observed, Callable[[Any], float]]:
    """Long-tailed entries of rank 10 with outliers, and the RMSE of a model on clean values."""
    rng = np.random.default_rng(seed)
    m, n = (side(size, scale) for size in SHAPE)
    entries = part(ENTRIES, scale)
    U = rng.standard_normal((m, RANK))
    V = rng.standard_normal((n, RANK))
    positions = np.zeros(0, np.int64)
    while len(positions) < entries:
        i = (m * rng.random(entries) ** 1.5).astype(np.int64)
        j = (n * rng.random(entries) ** 2).astype(np.int64)
        positions = np.unique(np.concatenate([positions, i * n + j]))
    i, j = np.divmod(np.sort(rng.choice(positions, entries, replace=False)), n)
    values = pair_products(U, V, i, j) + NOISE * rng.standard_normal(entries)
    hit = rng.random(entries) < OUTLIERS
    values[hit] += MAGNITUDE * rng.choice([-1.0, 1.0], int(hit.sum()))
    pairs = rng.integers(0, m, 100_000), rng.integers(0, n, 100_000)
    truth = pair_products(U, V, *pairs)

    def rmse(model: Any) -> float:
        return float(np.sqrt(np.mean(np.square(model.predict(*pairs) - truth))))

    return Observed.from_indices(i, j, values, (m, n)), rmse


def run(scale: float = 1.0) -> dict[str, Any]:
    """One record per method."""
    observed, rmse = rating_entries(scale)
    small = observed.select(np.arange(observed.n_entries) % (observed.n_entries // 10_000 + 1) == 0)
    found = []
    for name, method in METHODS.items():
        model: Any = method(RANK, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(small)  # compiles
            seconds, _ = timed(lambda model=model: model.fit(observed))  # type: ignore[misc]
        announce(f"{name}: {seconds:.1f} s")
        found.append(
            {
                "method": name,
                "seconds": seconds,
                "iterations": model.n_iter_,
                "rmse": rmse(model),
                "stop_reason": model.stop_reason_,
            }
        )
    size = {"shape": observed.shape, "entries": observed.n_entries, "rank": RANK}
    return {**size, "noise": NOISE, "outliers": OUTLIERS, "methods": found}


def table(results: dict[str, Any]) -> str:
    """One row per method."""
    m, n = results["shape"]
    rows = [
        [x["method"], f"{x['seconds']:.1f}", x["iterations"], f"{x['rmse']:.3f}"]
        for x in results["methods"]
    ]
    title = (
        f"{m} × {n}, {results['entries']:,} entries, rank {results['rank']}, 5 % outliers, defaults"
    )
    return markdown(title, ["method", "seconds", "iterations", "RMSE on clean values"], rows)
