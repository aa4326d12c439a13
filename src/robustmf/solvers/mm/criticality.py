"""Criticality of a point: the norm of the smallest element of the Clarke subdifferential of H.

At (U, V) the subdifferential is the set of all (λU − XV, λV − XᵀU) with x_t = φ'(|e_t|)·sign(e_t)
where e_t ≠ 0, and any |x_t| ≤ φ'(0) where e_t = 0. In floating point no residual is exactly 0, so
residuals below a small width count as 0. The smallest element over those free x_t is a
box-constrained least-squares problem of the same form as the surrogate's dual.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.data.sampling import strided
from robustmf.kernels.reductions import squared_norm
from robustmf.solvers.mm.acceleration import accelerated
from robustmf.solvers.mm.apg import SparseSteps
from robustmf.solvers.mm.surrogate import BoxDual
from robustmf.solvers.objective import Objective

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class CriticalityOptions:
    """Constants of the measure.

    Attributes
    ----------
    zero_width : float
        Residuals below this count as zero, in units of the residuals that are not zero.
    exact_width : float
        The same in units of the scale of the values, where the fit is exact to that precision.
    rounding_errors : float
        Residuals below this number of rounding errors of the values count as zero, too.
    sample : int
        The approximate number of entries from which these units are estimated.
    max_iter : int
        The largest number of steps of the minimization over the subdifferential.
    tol : float
        It stops when its objective changes by less than this share of its initial value.
    """

    zero_width: float = 1e-4
    exact_width: float = 1e-7
    rounding_errors: float = 16
    sample: int = 1_000_000
    max_iter: int = 2000
    tol: float = 1e-10


OPTIONS = CriticalityOptions()


def _zero_width(operations: EntryOperations, U: Array, V: Array, residual: Array) -> float:
    """The size below which a residual counts as zero, in the unit of the data.

    It is small relative to the residuals that are not zero, whatever the offset and the scale of
    the values. At most as many residuals as the model has free parameters are zero at a critical
    point, so the others are represented by the median of those above this share.
    """
    sizes = np.abs(np.asarray(strided(residual, OPTIONS.sample)))
    values: Array = np.asarray(strided(operations.observed.rows.values, OPTIONS.sample))
    exact = OPTIONS.exact_width * float(np.median(np.abs(values - np.median(values))))
    unit = float(np.finfo(values.dtype).eps) * float(np.median(np.abs(values)))
    rounding = OPTIONS.rounding_errors * unit
    free_parameters = U.shape[1] * (len(U) + len(V) - U.shape[1])
    share = min(1.0, free_parameters / len(residual))
    typical = float(np.quantile(sizes, 0.5 * (1 + share)))
    width = OPTIONS.zero_width * typical if typical > exact else exact
    return max(width, rounding)


def criticality(
    operations: EntryOperations,
    objective: Objective,
    U: Array,
    V: Array,
    residual: Array,
    dual_point: Array | None = None,
    polish: bool = True,
) -> float:
    """Norm of the smallest element of the Clarke subdifferential at (U, V).

    Parameters
    ----------
    residual : array over the entries
        M − UVᵀ.
    dual_point : array over the entries, optional
        A good estimate of x at the zero residuals, such as the dual point of the last inner solve.
    polish : bool, default=True
        Minimize over x at the zero residuals. Otherwise the dual point is used as it is, which
        gives an upper bound at the cost of one pass.
    """
    slopes = objective.loss.derivative(residual).astype(residual.dtype, copy=False)
    x = slopes * np.sign(residual)
    free = (np.abs(residual) <= _zero_width(operations, U, V, residual)) & objective.loss.concave
    x[free] = 0 if dual_point is None else np.clip(dual_point[free], -slopes[free], slopes[free])
    if polish and free.any():
        x[free] = _smallest(operations, objective, U, V, x, free, slopes)
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
    """The free x_t that minimize ‖λU − XV‖² + ‖λV − XᵀU‖², the others held fixed."""
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
    initial = before = problem.value(steps.x, steps.products)
    for k, value in enumerate(accelerated(steps), start=1):
        if k >= OPTIONS.max_iter or abs(before - value) <= OPTIONS.tol * initial:
            break
        before = value
    return steps.x
