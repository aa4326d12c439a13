"""The best one could hope for on synthetic data: least squares that knows which entries are outliers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import Operations
from robustmf.datasets import Synthetic
from robustmf.kernels.team import Team
from robustmf.losses import L2

Array = NDArray[np.floating[Any]]

_SWEEPS = 50


def oracle_factors(data: Synthetic, reg: float, n_jobs: int | None = None) -> tuple[Array, Array]:
    """Ridge least squares on the training entries without the outliers, started at the truth."""
    with Team(n_jobs) as team:
        operations = Operations(data.train.select(~data.train_outliers), team)
        transposed = operations.transposed
        U, V = (A.astype(data.train.dtype) for A in (data.row_factors, data.column_factors))
        for _ in range(_SWEEPS):
            operations.half_step(L2(), reg, U, V)
            transposed.half_step(L2(), reg, V, U)
    return U, V
