"""Gradient descent on both factors at once with an adaptive step size (AltMinLs)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.losses import L2
from robustmf.solvers.base import small_change
from robustmf.solvers.objective import Objective

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class JointGradientOptions:
    """Constants of the step size rule, as in AltMinLs (quanmingyao/FaNCL)."""

    #: Number of step sizes tried per iteration.
    max_trials: int = 20
    #: Factor of the inverse step size s after an accepted step.
    after_success: float = 0.99
    #: Factor of the inverse step size s after a rejected step.
    after_failure: float = 2.0


_OPTIONS = JointGradientOptions()


class JointGradient:
    """(U, V) ← (U, V) − gradient/s, where s is adapted such that the objective decreases."""

    def __init__(self, operations: CPUOperations) -> None:
        self._operations = operations
        self._objective = Objective(L2(), 0.0)
        self._iterations = 0
        self._stuck = False

    @property
    def factors(self) -> tuple[Array, Array]:
        """(U, V)."""
        return self._factors

    def begin(self, U: Array, V: Array) -> float:
        """Set the initial point and return the objective there."""
        self._s = float(np.linalg.norm(U) + np.linalg.norm(V)) or 1.0
        return self._accept(U, V, self._operations.residuals(U, V))

    def _accept(self, U: Array, V: Array, residual: Array) -> float:
        """Make (U, V) the current point and return the objective there."""
        self._factors = (U, V)
        self._residual = residual
        self._value = self._objective.value(residual, U, V)
        return self._value

    def step(self) -> float:
        """Take a step that decreases the objective; keep the point if none does."""
        self._iterations += 1
        U, V = self._factors
        to_U, to_V = self._operations.products(self._residual, U, V)
        for _ in range(_OPTIONS.max_trials):
            length = U.dtype.type(1 / self._s)
            new = (U + length * to_U, V + length * to_V)
            residual = self._operations.residuals(*new)
            if self._objective.value(residual, *new) < self._value:
                self._s *= _OPTIONS.after_success
                return self._accept(*new, residual)
            self._s *= _OPTIONS.after_failure
        self._stuck = True
        return self._value

    def convergence_reason(self, before: float, objective: float, tol: float) -> str | None:
        """Test whether the objective is small, hardly decreases, or no step decreases it."""
        if self._stuck:
            return f"{_OPTIONS.max_trials} halvings of the step do not lower the objective"
        if objective < tol:
            return f"the objective is below tol={tol:g}"
        if self._iterations <= 5 * self.factors[0].shape[1]:
            return None
        return small_change(before, objective, tol)

    def report(self) -> dict[str, float]:
        """Return the step size."""
        return {"step": 1 / self._s}
