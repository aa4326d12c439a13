"""Steepest descent on one factor, then on the other, each with the exact step.

The objective ½ Σ e² + λ/2 (‖U‖² + ‖V‖²) is quadratic in each factor. With G = EV − λU, a direction D and d = DVᵀ at the entries, the
step that minimises it along D is t = ⟨D, G⟩ / (‖d‖² + λ‖D‖²).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.losses import L2
from robustmf.solvers.objective import Objective

Array = NDArray[np.floating[Any]]

#: The residual is updated along with the factors, and computed anew this often against drift.
_REFRESH = 100


class AlternatingDescent:
    """One step moves U, then V. ``scaled``: the direction is G(VᵀV)⁻¹, steepest in the metric of the other factor."""

    def __init__(self, operations: CPUOperations, reg: float, scaled: bool) -> None:
        self._operations, self._objective, self._scaled = operations, Objective(L2(), reg), scaled
        self.iterations = 0

    @property
    def factors(self) -> tuple[Array, Array]:
        """(U, V)."""
        return self._factors

    @property
    def residual(self) -> Array:
        """E at the entries."""
        return self._residual

    def begin(self, U: Array, V: Array) -> float:
        """Start at (U, V)."""
        self._factors = (U, V)
        self._residual = self._operations.residuals(U, V)
        return self._objective.value(self._residual, U, V)

    def step(self) -> float:
        """U, then V."""
        self.iterations += 1
        U, V = self._factors
        U = self._descended(U, V, False)
        V = self._descended(V, U, True)
        self._factors = (U, V)
        if self.iterations % _REFRESH == 0:
            self._residual = self._operations.residuals(U, V)
        return self._objective.value(self._residual, U, V)

    def _descended(self, own: Array, other: Array, is_column: bool) -> Array:
        operations, reg = self._operations, self._objective.reg
        if is_column:
            descent = operations.column_products(self._residual, other) - own.dtype.type(reg) * own
        else:
            descent = operations.row_products(self._residual, other) - own.dtype.type(reg) * own
        direction = _scaled_by_gram(descent, other) if self._scaled else descent
        change = (
            operations.sampled_product(other, direction)
            if is_column
            else operations.sampled_product(direction, other)
        )
        curvature = _dot(change, change) + reg * _dot(direction, direction)
        if not curvature > 0:
            return own
        step = own.dtype.type(_dot(direction, descent) / curvature)
        self._residual = self._residual - step * change
        return np.asarray(own + step * direction)


def _dot(A: Array, B: Array) -> float:
    return float(np.sum(np.multiply(A, B, dtype=np.float64)))


def _scaled_by_gram(G: Array, V: Array) -> Array:
    """G(VᵀV)⁻¹; directions that V does not have are left out."""
    gram = np.asarray(V.T @ V, np.float64)
    return np.asarray(G @ np.linalg.pinv(gram, hermitian=True).astype(G.dtype))
