"""RMFNL: majorization–minimization with the convex surrogate.

Yao & Kwok (2018), Algorithm 1, corrected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations, SolverMemory
from robustmf.exceptions import NumericalError
from robustmf.losses import Loss, loss_names, make_loss
from robustmf.solvers.base import require_same_layout, small_change
from robustmf.solvers.mm import MM, Increment, make_inner
from robustmf.solvers.mm.criticality import criticality
from robustmf.solvers.mm.surrogate import Surrogate
from robustmf.solvers.objective import Objective

Array = NDArray[np.floating[Any]]


#: Residuals, weights, four arrays of the dual and two for the criticality; the loss is evaluated in
#: float64.
MM_MEMORY = SolverMemory(entry_arrays=8, float64_entry_arrays=3, factor_arrays=12, dual_pass=True)


def require_concave(loss: Loss, parameter: str = "solver='mm'") -> None:
    """Refuse, by name, a loss that the MM surrogate does not majorize.

    ``parameter`` is what requires the loss to be concave.
    """
    if not loss.concave:
        concave = [name for name in loss_names() if make_loss(name).concave]
        raise ValueError(
            f"{parameter} needs a loss that is concave in |residual| "
            f"({', '.join(concave)}); loss={loss.name!r} is not. "
            f"Choose one of these, or another value of {parameter.partition('=')[0]}."
        )


@dataclass(frozen=True)
class Certificate:
    """The result of an inner solve besides its increments.

    Attributes
    ----------
    dual_point : array over the entries
        The dual point, a subgradient of the loss at every entry.
    gap : float
        The duality gap.
    iterations : int
        The number of steps.
    """

    dual_point: Array
    gap: float
    iterations: int


class MMSolver:
    """Each step minimizes the surrogate at the current point and adds the increments.

    Parameters
    ----------
    operations : EntryOperations
    objective : Objective
        Its loss must be concave in |residual|.
    options : MM
    """

    def __init__(self, operations: EntryOperations, objective: Objective, options: MM) -> None:
        require_concave(objective.loss)
        self._operations = operations
        self._objective = objective
        self._options = options
        self._inner = make_inner(options)
        self._last: Certificate | None = None

    def convergence_reason(self, before: float, objective: float, tol: float) -> str | None:
        """Converged when the objective hardly changes."""
        return small_change(before, objective, tol)

    @property
    def factors(self) -> tuple[Array, Array]:
        """(U, V)."""
        return self._factors

    @property
    def augmented_factors(self) -> tuple[Array, Array]:
        """(U, V): the model has no biases."""
        return self._factors

    def begin(self, U: Array, V: Array) -> float:
        """Start at (U, V)."""
        self._factors = (U, V)
        self._residual = self._operations.residuals(U, V)
        self._value = self._objective.value(self._residual, U, V)
        return self._value

    def state(self) -> dict[str, Any]:
        """The point, the certificate of the last inner solve, and the state of the inner solver."""
        last = None if self._last is None else dict(vars(self._last))
        return {
            "factors": self._factors,
            "value": self._value,
            "last": last,
            "inner": self._inner.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a :meth:`state`."""
        self._factors = require_same_layout(state["factors"], self._factors)
        self._value = state["value"]
        self._residual = self._operations.residuals(*self._factors)
        last = state["last"]
        if last is not None:
            (dual_point,) = require_same_layout((last["dual_point"],), (self._residual,))
            self._last = Certificate(dual_point, last["gap"], last["iterations"])
            self._inner.restore(state["inner"], dual_point)

    def step(self) -> float:
        """One MM iteration: H(new) ≤ F(increments) < F(0) = H(old), or no change."""
        U, V = self._factors
        surrogate = Surrogate(self._operations, self._objective, U, V, self._residual)
        found = self._inner.solve(surrogate, self._options)
        self._require_possible(surrogate.at_zero, found)
        if found.dU.shape != U.shape or found.dV.shape != V.shape:  # NumPy would broadcast
            raise NumericalError(
                f"increments of shapes {found.dU.shape} and {found.dV.shape} do not belong to "
                f"factors of shapes {U.shape} and {V.shape}"
            )
        self._last = Certificate(found.dual_point, found.gap, found.iterations)
        if not found.value < surrogate.at_zero:
            return self._value
        new = (U + found.dU, V + found.dV)
        residual = self._operations.residuals(*new)
        value = self._objective.value(residual, *new)
        if not value <= self._value:
            self._require_rounding(value, found)
            return self._value
        self._factors = new
        self._residual = residual
        self._value = value
        return value

    def _require_rounding(self, value: float, found: Increment) -> None:
        """An increase is possible only where the decrease is below the rounding error."""
        if not value - self._value <= self._rounding_error():
            raise NumericalError(
                f"MM step raised the objective from {self._value!r} to {value!r} though the "
                f"surrogate fell to {found.value!r}; the loss may not be concave and increasing in "
                "|residual|, as it claims"
            )

    def _require_possible(self, at_zero: float, found: Increment) -> None:
        """Refuse a lower bound F − gap on the surrogate's minimum above F(0): a sum is wrong."""
        lower = found.value - found.gap
        if lower - at_zero > self._rounding_error():
            raise NumericalError(
                "the duality gap of an inner solve is impossible: it proves that the surrogate is "
                f"at least {lower!r}, but its value without increments is {at_zero!r}; "
                "an arithmetic operation has returned a wrong result"
            )

    def _rounding_error(self) -> float:
        """A bound on the rounding error of the objective."""
        unit = float(np.finfo(self._residual.dtype).eps)
        size = float(np.abs(self._operations.observed.rows.values).sum(dtype=np.float64))
        return 100 * unit * (abs(self._value) + size)

    @property
    def dual_point(self) -> Array | None:
        """The dual point of the last inner solve."""
        return None if self._last is None else self._last.dual_point

    def report(self) -> dict[str, float]:
        """Gap and steps of the inner solve, and an upper bound on the criticality."""
        bound = criticality(
            self._operations,
            self._objective,
            *self.factors,
            self._residual,
            self.dual_point,
            polish=False,
        )
        if self._last is None:
            return {"criticality": bound, "gap": float("nan"), "inner_iterations": 0}
        return {
            "criticality": bound,
            "gap": self._last.gap,
            "inner_iterations": self._last.iterations,
        }

    def criticality(self) -> float:
        """The norm of the smallest element of the Clarke subdifferential at the current point."""
        return criticality(
            self._operations, self._objective, *self.factors, self._residual, self.dual_point
        )
