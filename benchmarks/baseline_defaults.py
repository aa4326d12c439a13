"""Prints the validation errors by which the defaults of the comparison systems were chosen (docs/design/baselines.md)."""

from __future__ import annotations

import warnings

import numpy as np

from robustmf.baselines import GRASTA, OMDL, RMC, RP, AltGrad, AltImpute, ScaledASD
from robustmf.baselines.spectral import noise_scale
from robustmf.datasets import make_synthetic

RANK, SEEDS = 5, (100, 101)

GRIDS = {
    "AltGrad reg / noise scale": lambda value, unit: AltGrad(
        RANK, reg=value * unit, random_state=0
    ),
    "AltImpute reg / noise scale": lambda value, unit: AltImpute(
        RANK, reg=value * unit, random_state=0
    ),
    "AltImpute tol": lambda value, unit: AltImpute(RANK, tol=value, random_state=0),
    "OMDL alpha": lambda value, unit: OMDL(RANK, alpha=value, random_state=0),
    "OMDL learning_rate": lambda value, unit: OMDL(RANK, learning_rate=value, random_state=0),
    "GRASTA max_iter": lambda value, unit: GRASTA(RANK, max_iter=value, random_state=0),
    "RMC inner_max_iter": lambda value, unit: RMC(RANK, inner_max_iter=value),
    "RP tol": lambda value, unit: RP(RANK, tol=value),
    "ScaledASD rate": lambda value, unit: ScaledASD(RANK, rate=value),
}
VALUES = {
    "AltGrad reg / noise scale": (0.05, 0.1, 0.15, 0.2),
    "AltImpute reg / noise scale": (0.05, 0.1, 0.15, 0.2),
    "AltImpute tol": (1e-5, 1e-6, 1e-7, 1e-8),
    "OMDL alpha": (0.02, 0.05, 0.1, 0.2),
    "OMDL learning_rate": (0.75, 0.85, 0.95, 1.0),
    "GRASTA max_iter": (10, 20, 40),
    "RMC inner_max_iter": (40, 150, 500),
    "RP tol": (1e-3, 1e-4, 1e-5),
    "ScaledASD rate": (1e-3, 1e-4),
}


def main() -> None:
    """RMSE on validation entries (with their outliers) and on clean unobserved ones, for every value of every grid."""
    warnings.simplefilter("ignore")
    for m in (500, 1000):
        for seed in SEEDS:
            data = make_synthetic(m, rank=RANK, random_state=seed)
            unit = noise_scale(data.train, RANK, np.random.default_rng(0))
            rows = data.validation.rows
            print(
                f"m = {m}, data seed {seed}, noise scale {unit:.1f}: value: validation RMSE, clean RMSE"
            )
            for name, make in GRIDS.items():
                cells = []
                for value in VALUES[name]:
                    model = make(value, unit).fit(data.train)
                    error = np.sqrt(
                        np.mean(
                            (model.predict(rows.group_of_entry(), rows.indices) - rows.values) ** 2
                        )
                    )
                    cells.append(
                        f"{value:g}: {error:.3f}, {data.test_rmse(model.row_factors_, model.column_factors_):.3f}"
                    )
                print(f"  {name:28s}" + "   ".join(cells))


if __name__ == "__main__":
    main()
