"""Validation errors by which the defaults of the comparison systems were chosen."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measure import announce, column, grouped, markdown
from robustmf.baselines import GRASTA, OMDL, RMC, RP, AltGrad, AltImpute, ScaledASD
from robustmf.baselines.spectral import noise_scale
from robustmf.datasets import make_synthetic
from robustmf.metrics import rmse

SMALL = {"seeds": 1, "sizes": "60"}
RANK = 5

#: Parameter, its values, and the estimator for a value and the noise scale of the data.
GRIDS: dict[str, tuple[tuple[float, ...], Callable[[Any, float], Any]]] = {
    "AltGrad reg / noise scale": (
        (0.05, 0.1, 0.15, 0.2),
        lambda value, unit: AltGrad(RANK, reg=value * unit, random_state=0),
    ),
    "AltImpute reg / noise scale": (
        (0.05, 0.1, 0.15, 0.2),
        lambda value, unit: AltImpute(RANK, reg=value * unit, random_state=0),
    ),
    "AltImpute tol": (
        (1e-5, 1e-6, 1e-7, 1e-8),
        lambda value, unit: AltImpute(RANK, tol=value, random_state=0),
    ),
    "OMDL alpha": (
        (0.02, 0.05, 0.1, 0.2),
        lambda value, unit: OMDL(RANK, alpha=value, random_state=0),
    ),
    "OMDL learning_rate": (
        (0.75, 0.85, 0.95, 1.0),
        lambda value, unit: OMDL(RANK, learning_rate=value, random_state=0),
    ),
    "GRASTA max_iter": (
        (10, 20, 40),
        lambda value, unit: GRASTA(RANK, max_iter=value, random_state=0),
    ),
    "RMC inner_max_iter": ((40, 150, 500), lambda value, unit: RMC(RANK, inner_max_iter=value)),
    "RP tol": ((1e-3, 1e-4, 1e-5), lambda value, unit: RP(RANK, tol=value)),
    "ScaledASD rate": ((1e-3, 1e-4), lambda value, unit: ScaledASD(RANK, rate=value)),
}


def run(sizes: str = "500,1000", seeds: int = 2, first_seed: int = 100) -> list[dict[str, Any]]:
    """RMSE on validation entries (with outliers) and on clean entries, for every value."""
    records = []
    for m in map(int, sizes.split(",")):
        for seed in range(first_seed, first_seed + seeds):
            announce(f"m = {m}, seed {seed}")
            data = make_synthetic(m, rank=RANK, random_state=seed)
            unit = noise_scale(data.train, RANK, np.random.default_rng(0))
            rows = data.validation.rows
            for parameter, (values, make) in GRIDS.items():
                for value in values:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        model = make(value, unit).fit(data.train)
                    predicted = model.predict(rows.group_of_entry(), rows.indices)
                    records.append(
                        {
                            "m": m,
                            "seed": seed,
                            "parameter": parameter,
                            "value": value,
                            "validation": rmse(rows.values, predicted),
                            "clean": data.test_rmse(model.row_factors_, model.column_factors_),
                        }
                    )
    return records


def table(results: list[dict[str, Any]]) -> str:
    """One row per parameter and value: means over the seeds at each size."""
    sizes = list(dict.fromkeys(record["m"] for record in results))
    groups = grouped(results, "parameter", "value", "m")
    rows = []
    for parameter, value in grouped(results, "parameter", "value"):
        means = [
            f"{column(groups[parameter, value, m], kind).mean():.3f}"
            for m in sizes
            for kind in ("validation", "clean")
        ]
        rows.append([parameter, f"{value:g}", *means])
    header = [f"m = {m}: {kind}" for m in sizes for kind in ("validation RMSE", "clean RMSE")]
    return markdown("", ["parameter", "value", *header], rows)
