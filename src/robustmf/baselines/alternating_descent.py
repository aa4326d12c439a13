"""Alternating steepest descent on the two factors with exact step sizes.

The objective ½ Σ e² + λ/2 (‖U‖² + ‖V‖²) is quadratic in each factor. With the negative gradient
G = EV − λU, a direction D and the entries d of DVᵀ, the minimizer along D is
t = ⟨D, G⟩ / (‖d‖² + λ‖D‖²).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.losses import L2
from robustmf.solvers.objective import Objective

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class DescentOptions:
    """Constants of the method.

    Attributes
    ----------
    refresh_interval : int
        Number of iterations after which the residuals, which are updated together with the factors,
        are recomputed to limit the accumulation of rounding errors.
    """

    refresh_interval: int = 100


OPTIONS = DescentOptions()


class AlternatingDescent:
    """One step updates U, then V. The caller owns the stopping rule.

    Parameters
    ----------
    operations : CPUOperations
        Operations on the observed entries.
    reg : float
        λ ≥ 0.
    scaled : bool
        If true, the direction is G(VᵀV)⁻¹, the steepest descent in the metric of the other
        factor's Gram matrix; otherwise it is G.
    """

    def __init__(self, operations: CPUOperations, reg: float, scaled: bool) -> None:
        self._operations = operations
        self._objective = Objective(L2(), reg)
        self._scaled = scaled
        self.iterations = 0

    def begin(self, U: Array, V: Array) -> float:
        """Set the initial point and return the objective there."""
        self.factors = (U, V)
        self._residual = self._operations.residuals(U, V)
        return self._objective.value(self._residual, U, V)

    def step(self) -> float:
        """Update U, then V, and return the objective."""
        self.iterations += 1
        U, V = self.factors
        U = self._updated(U, V, is_column=False)
        V = self._updated(V, U, is_column=True)
        self.factors = (U, V)
        if self.iterations % OPTIONS.refresh_interval == 0:
            self._residual = self._operations.residuals(U, V)
        return self._objective.value(self._residual, U, V)

    def _updated(self, own: Array, other: Array, is_column: bool) -> Array:
        """Return the factor after one exact step, and update the residuals."""
        operations = self._operations
        reg = self._objective.reg
        products = operations.column_products if is_column else operations.row_products
        descent = products(self._residual, other) - own.dtype.type(reg) * own
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
    """Return the inner product ⟨A, B⟩, accumulated in float64."""
    return float(np.sum(np.multiply(A, B, dtype=np.float64)))


def _scaled_by_gram(G: Array, V: Array) -> Array:
    """Return G(VᵀV)⁺."""
    gram = np.asarray(V.T @ V, np.float64)
    return np.asarray(G @ np.linalg.pinv(gram, hermitian=True).astype(G.dtype))
