"""Factors for new rows, the columns held: robust regression row by row, with the model's own loss."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.losses import L1, L2, Loss, Rounded
from robustmf.objective import Objective
from robustmf.operations import Operations

Array = NDArray[np.floating[Any]]

#: Sweeps of least squares, of the convex l1 loss, and of the loss itself.
_SWEEPS = (1, 10, 30)

#: Width of the rounded tip of a kinked loss, in units of the typical value.
_ROUNDING = 1e-3


def fold_in(operations: Operations, objective: Objective, V: Array) -> Array:
    """U minimising the objective with V held, by reweighted least squares.

    The rows start from l1 regression, which is convex; so a row's bad entries are already known when a loss that can be
    fooled by its start takes over.
    """
    observed = operations.observed
    tip = _ROUNDING * (float(np.median(np.abs(observed.rows.values))) or 1.0)
    U = np.zeros((observed.shape[0], V.shape[1]), V.dtype)
    gentle = Rounded(theta=1.0, base=L1(), rounding=tip)
    for loss, sweeps in zip((L2(), gentle, _rounded(objective.loss, tip)), _SWEEPS, strict=True):
        for _ in range(sweeps):
            operations.half_step(loss, objective.reg, U, V)
    return U


def _rounded(loss: Loss, tip: float) -> Loss:
    """A loss with finite weights: a kinked one gets its tip rounded."""
    return Rounded(theta=loss.theta, base=loss, rounding=tip / loss.theta) if loss.concave else loss
