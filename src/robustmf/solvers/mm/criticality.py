"""How far a point is from critical: the norm of the smallest element of the Clarke subdifferential of H.

At (U, V) the subdifferential is the set of all (λU − XV, λV − XᵀU) with x_t = φ'(|e_t|)·sign(e_t) where e_t ≠ 0, and any
|x_t| ≤ φ'(0) where e_t = 0. In floating point no residual is exactly 0, so |e_t| ≤ kink counts as 0; the smallest element over
those free x_t is a box-constrained least-squares problem of the same form as the surrogate's dual.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.kernels.reductions import squared_norm
from robustmf.solvers.mm.acceleration import accelerated
from robustmf.solvers.mm.apg import SparseSteps
from robustmf.solvers.mm.surrogate import BoxDual
from robustmf.solvers.objective import Objective

Array = NDArray[np.floating[Any]]

#: Residuals below this share of the typical size of a value lie at the kink.
KINK_SHARE = 1e-5

_MOST_STEPS = 2000
_SETTLED = 1e-10


def kink_width(operations: EntryOperations) -> float:
    """The default width of the kink, in the unit of the data."""
    return KINK_SHARE * float(np.median(np.abs(operations.observed.rows.values)))


def criticality(
    operations: EntryOperations,
    objective: Objective,
    U: Array,
    V: Array,
    residual: Array,
    witness: Array | None = None,
    polish: bool = True,
) -> float:
    """Norm of the smallest element of the Clarke subdifferential at (U, V).

    Parameters
    ----------
    residual : array over the entries, M − UVᵀ
    witness : array over the entries, optional
        A good guess of x at the kinks, such as the dual point of the last inner solve.
    polish : bool
        Minimise over x at the kinks (else take the witness as it is, which gives an upper bound at the cost of one pass).
    """
    slopes = objective.loss.derivative(residual).astype(residual.dtype, copy=False)
    x = slopes * np.sign(residual)
    kinked = (np.abs(residual) <= kink_width(operations)) & objective.loss.concave
    x[kinked] = 0 if witness is None else np.clip(witness[kinked], -slopes[kinked], slopes[kinked])
    if polish and kinked.any():
        x[kinked] = _smallest(operations, objective, U, V, x, kinked, slopes)
    XV, XtU = operations.products(x, U, V)
    reg = residual.dtype.type(objective.reg)
    return float(np.sqrt(squared_norm(reg * U - XV) + squared_norm(reg * V - XtU)))


def _smallest(
    operations: EntryOperations,
    objective: Objective,
    U: Array,
    V: Array,
    x: Array,
    free: NDArray[np.bool_],
    slopes: Array,
) -> Array:
    """The free x_t that make ‖λU − XV‖² + ‖λV − XᵀU‖² smallest, the others held."""
    held = np.where(free, 0, x).astype(x.dtype)
    XV, XtU = operations.products(held, U, V)
    reg = x.dtype.type(objective.reg)
    problem = BoxDual(
        operations=operations.on(operations.observed.select(free)),
        factors=(U, V),
        residual=np.zeros_like(x[free]),
        weights=slopes[free],
        pulls=(reg * U - XV, reg * V - XtU),
        inverses=(np.ones_like(U[:, 0]), np.ones_like(V[:, 0])),
    )
    steps = SparseSteps(problem, x[free])
    start = before = problem.value(steps.x, steps.products)
    for k, value in enumerate(accelerated(steps), start=1):
        if k >= _MOST_STEPS or abs(before - value) <= _SETTLED * start:
            break
        before = value
    return steps.x
