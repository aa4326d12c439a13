"""Factors for new rows, the columns held: robust regression row by row, with the model's own loss."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.losses import L1, L2, Loss, rounded
from robustmf.operations import Operations

Array = NDArray[np.floating[Any]]

#: Sweeps of least squares, of the convex l1 loss, and of the loss itself.
_SWEEPS = (1, 8, 12)

#: Width of the rounded tip of a kinked loss, in units of the typical value.
_ROUNDING = 1e-3


def fold_in(operations: Operations, loss: Loss, reg: float | Array, V: Array, shifts: Array | None = None) -> Array:
    """U minimising the objective with V held (and a shift for each column), by reweighted least squares.

    The rows start from l1 regression, which is convex; so a row's bad entries are already known when a loss that can be
    fooled by its start takes over.
    """
    observed = operations.observed
    tip = _ROUNDING * (float(np.median(np.abs(observed.rows.values))) or 1.0)
    U = operations.array(np.zeros((observed.shape[0], V.shape[1]), V.dtype))
    for stage, sweeps in zip((L2(), rounded(L1(), tip), rounded(loss, tip)), _SWEEPS, strict=True):
        for _ in range(sweeps):
            operations.half_step(stage, reg, U, V, shifts=shifts)
    return U
