"""The convex surrogate that MM minimizes in each outer iteration, and its dual.

At (U, V), with e = M − UVᵀ on the entries, w = φ'(|e|), R_i = Σ_j w_ij and C_j = Σ_i w_ij:

    F(dU, dV) = Σ w|e − dU Vᵀ − U dVᵀ| + λ/2 (‖U+dU‖² + ‖V+dV‖²)
                + ½ Σ R_i ‖dU_i‖² + ½ Σ C_j ‖dV_j‖² + b,
    b = Σ φ(|e|) − w|e|.

F equals H at (0, 0) and lies above it everywhere. Its dual has one variable x_t per entry, in the
box |x_t| ≤ w_t:

    D(x) = ½ Σ_i ‖(XV − λU)_i‖²/(λ+R_i) + ½ Σ_j ‖(XᵀU − λV)_j‖²/(λ+C_j) − ⟨x, e⟩,
    min F = λ/2(‖U‖²+‖V‖²) + b − min D,

with the primal increments dU_i = (XV − λU)_i/(λ+R_i), dV_j = (XᵀU − λV)_j/(λ+C_j).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.exceptions import NumericalError
from robustmf.kernels.reductions import inner_product, squared_norm
from robustmf.solvers.objective import Objective

Array = NDArray[np.floating[Any]]
Pair = tuple[Array, Array]


@dataclass(frozen=True)
class BoxDual:
    """min over |x| ≤ w of  ½ Σ_i ‖(XV − p)_i‖² a_i + ½ Σ_j ‖(XᵀU − q)_j‖² g_j − ⟨x, e⟩.

    The surrogate's dual has p = λU, q = λV, a = 1/(λ+R), g = 1/(λ+C).

    Attributes
    ----------
    factors : (U, V)
    residual, weights : arrays over the entries, e and w
    pulls : (p, q)
    inverses : (a, g), arrays over rows and columns
    """

    operations: EntryOperations
    factors: Pair
    residual: Array
    weights: Array
    pulls: Pair
    inverses: Pair

    def increments(self, products: Pair) -> Pair:
        """The primal (dU, dV) for x, from its products (XV, XᵀU)."""
        p, q = self.pulls
        a, g = self.inverses
        return a[:, None] * (products[0] - p), g[:, None] * (products[1] - q)

    def value(self, x: Array, products: Pair) -> float:
        """D(x), from x and its products."""
        p, q = self.pulls
        a, g = self.inverses
        quadratic = inner_product(a, _row_norms(products[0] - p)) + inner_product(
            g, _row_norms(products[1] - q)
        )
        return 0.5 * quadratic - inner_product(x, self.residual)

    def curvatures(self) -> Pair:
        """(α, γ) such that the Hessian of D is at most diag(α_i + γ_j), a bound for each entry.

        The Hessian is a direct sum over rows of a_i V_Ω V_Ωᵀ plus one over columns of g_j U_Ω U_Ωᵀ.
        """
        by_row, by_column = self.operations.curvatures(*self.factors)
        a, g = self.inverses
        dtype = self.residual.dtype
        # positive: where the dual is flat, a step ends at the boundary of the box
        least = np.finfo(dtype).tiny
        alpha = np.maximum(a * by_row, least).astype(dtype)
        gamma = np.maximum(g * by_column, least).astype(dtype)
        return alpha, gamma


class Surrogate:
    """F at one point, with the weights and sums that define it.

    Parameters
    ----------
    operations : EntryOperations
    objective : Objective
    U, V : array
        The point.
    residual : array over the entries
        M − UVᵀ.
    curvature : float, default=1.0
        A factor of R and C. Below 1 steps are longer, but F need not lie above H: the caller must
        check that H decreases.
    """

    def __init__(
        self,
        operations: EntryOperations,
        objective: Objective,
        U: Array,
        V: Array,
        residual: Array,
        curvature: float = 1.0,
    ) -> None:
        self.operations = operations
        self.factors = (U, V)
        self.residual = residual
        self.reg = objective.reg
        self.weights = objective.loss.derivative(residual).astype(residual.dtype, copy=False)
        #: F(0, 0) = H(U, V)
        self.at_zero = objective.value(residual, U, V)
        weighted = inner_product(self.weights, np.abs(residual))
        self._offset = objective.data_term(residual) - weighted
        #: what min F exceeds −min D by
        self.dual_offset = self._offset + objective.penalty(U, V)
        row_sums, column_sums = operations.sums(self.weights)
        if not np.isfinite(row_sums).all():
            raise NumericalError(
                "the derivative of the loss is not finite at some residuals; "
                "the values may be too large for their precision, or the loss is wrong there"
            )
        self.row_sums = curvature * row_sums
        self.column_sums = curvature * column_sums

    def dual(self) -> BoxDual:
        """The dual problem."""
        U, V = self.factors
        dtype = self.residual.dtype
        inverses = tuple(
            _inverse(self.reg + sums).astype(dtype) for sums in (self.row_sums, self.column_sums)
        )
        reg = dtype.type(self.reg)
        return BoxDual(
            self.operations,
            (U, V),
            self.residual,
            self.weights,
            (reg * U, reg * V),
            (inverses[0], inverses[1]),
        )

    def value(self, dU: Array, dV: Array, x: Array) -> tuple[float, float]:
        """F(dU, dV), and the duality gap if these are the primal increments for x."""
        U, V = self.factors
        loss, gap = self.operations.linearised_loss(self.residual, self.weights, U, V, dU, dV, x)
        quadratic = self.reg * (squared_norm(U + dU) + squared_norm(V + dV))
        quadratic += inner_product(self.row_sums, _row_norms(dU)) + inner_product(
            self.column_sums, _row_norms(dV)
        )
        return loss + 0.5 * quadratic + self._offset, gap


def _row_norms(A: Array) -> NDArray[np.float64]:
    return np.einsum("ij,ij->i", A, A, dtype=np.float64)


def _inverse(a: NDArray[np.float64]) -> NDArray[np.float64]:
    """1/a, and 0 where a is 0: a row without entries and without λ keeps its factors."""
    return np.divide(1.0, a, out=np.zeros_like(a), where=a > 0)
