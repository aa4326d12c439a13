"""The oracle of synthetic problems: least squares on the entries known to be clean."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.datasets.synthetic import Synthetic
from robustmf.kernels.team import Team
from robustmf.losses import L2

Array = NDArray[np.floating[Any]]

#: Alternating sweeps; from the true factors far fewer would do.
_SWEEPS = 50


def oracle_factors(data: Synthetic, reg: float, n_jobs: int | None = None) -> tuple[Array, Array]:
    """Factors of ridge least squares on the training entries that are not outliers.

    The sweeps begin at the true factors, so the result is the error that no method without that
    knowledge can be expected to undercut.
    """
    with Team(n_jobs) as team:
        operations = CPUOperations(data.train.select(~data.train_outliers), team)
        transposed = operations.transposed
        U = data.row_factors.astype(data.train.dtype)
        V = data.column_factors.astype(data.train.dtype)
        for _ in range(_SWEEPS):
            operations.half_step(L2(), reg, U, V)
            transposed.half_step(L2(), reg, V, U)
    return U, V
