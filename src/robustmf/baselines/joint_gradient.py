"""One gradient step on both factors at once, with a step length that adapts (AltMinLs)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.losses import L2
from robustmf.solvers.base import small_change
from robustmf.solvers.objective import Objective

Array = NDArray[np.floating[Any]]

_TRIALS, _BOLDER, _SHORTER = 20, 0.99, 2.0


class JointGradient:
    """(U, V) − gradient/s; s falls a little after a step that lowers the objective, and doubles until there is one."""

    def __init__(self, operations: CPUOperations) -> None:
        self._operations, self._objective = operations, Objective(L2(), 0.0)
        self._iterations, self._stuck = 0, False

    @property
    def factors(self) -> tuple[Array, Array]:
        """(U, V)."""
        return self._factors

    def begin(self, U: Array, V: Array) -> float:
        """Start at (U, V)."""
        self._s = float(np.linalg.norm(U) + np.linalg.norm(V)) or 1.0
        return self._at(U, V, self._operations.residuals(U, V))

    def _at(self, U: Array, V: Array, residual: Array) -> float:
        self._factors, self._residual = (U, V), residual
        self._value = self._objective.value(residual, U, V)
        return self._value

    def step(self) -> float:
        """A step that lowers the objective, or none."""
        self._iterations += 1
        U, V = self._factors
        to_U, to_V = self._operations.products(self._residual, U, V)
        for _ in range(_TRIALS):
            length = U.dtype.type(1 / self._s)
            new = (U + length * to_U, V + length * to_V)
            residual = self._operations.residuals(*new)
            if self._objective.value(residual, *new) < self._value:
                self._s *= _BOLDER
                return self._at(*new, residual)
            self._s *= _SHORTER
        self._stuck = True
        return self._value

    def settled(self, before: float, objective: float, tol: float) -> str | None:
        """The objective hardly falls, is zero, or no step lowers it."""
        if self._stuck:
            return f"{_TRIALS} halvings of the step do not lower the objective"
        if objective < tol:
            return f"the objective is below tol={tol:g}"
        return (
            small_change(before, objective, tol)
            if self._iterations > 5 * self.factors[0].shape[1]
            else None
        )

    def report(self) -> dict[str, float]:
        """The step length."""
        return {"step": 1 / self._s}
