"""``irls``: reweighted least squares, the workhorse for large sparse data.

At the present residuals each loss lies below a parabola of weight φ'(a)/a. Minimising these parabolas over the rows, then over the
columns, are small independent ridge regressions; the objective never rises. Each sweep starts from a point a little ahead, in the
direction of the last one (Nesterov 1983); where that would raise the objective, the sweep is done again without (O'Donoghue & Candès 2015).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.losses import rounded
from robustmf.objective import Objective
from robustmf.operations import Operations

Array = NDArray[np.floating[Any]]


#: The tip of a kinked loss is rounded to this half-width at first, in units of σ̂; each sweep narrows it by the factor, down to the
#: last. Alternation at once with a narrow tip would stall: weights at the kink lock rows and columns to each other.
_FIRST_TIP, _NARROWING, _LAST_TIP = 0.3, 0.8, 1e-4


class IRLS:
    """One step is one sweep: all rows, then all columns.

    Parameters
    ----------
    objective : Objective
        H. For a kinked loss the objective reported is that with φ(√(a² + ε²)), which lies above H and falls to it with ε.
    sigma : float
        Noise level at the start, the unit of ε.
    center : float or None
        With a number the model is center + b_i + c_j + u_i·v_j; None has no biases.
    sample_weights : array over the entries, optional
        What each entry's loss is multiplied by.
    reg_by_count : bool
        λ is multiplied by the number of entries of the row or column.
    """

    def __init__(
        self,
        operations: Operations,
        objective: Objective,
        sigma: float,
        center: float | None = None,
        sample_weights: Array | None = None,
        reg_by_count: bool = False,
    ) -> None:
        self._objective, self._center = objective, center
        self._tip, self._last_tip = _FIRST_TIP * sigma, _LAST_TIP * sigma
        self._loss = rounded(objective.loss, self._tip)
        self._sides = (operations, operations.transposed)
        order = None if sample_weights is None else operations.observed.column_order
        self._sample = (sample_weights, None if sample_weights is None else sample_weights[order])
        self._reg: tuple[float | Array, float | Array] = (objective.reg, objective.reg)
        if reg_by_count:
            self._reg = tuple(objective.reg * side.observed.rows.counts.astype(side.observed.dtype) for side in self._sides)  # type: ignore[assignment]

    def begin(self, U: Array, V: Array) -> float:
        """Start at (U, V); with biases, their last column is the bias of the row and of the column."""
        self._own = self._before = (np.ascontiguousarray(U), np.ascontiguousarray(V))
        self._pace = 1.0
        self._value = self._value_at(self._own)
        return self._value

    @property
    def settling(self) -> bool:
        """The tip of a kinked loss is as narrow as it gets."""
        return not self._objective.loss.concave or self._tip <= self._last_tip

    def step(self) -> float:
        """One sweep, with the tip a little narrower than in the last."""
        self._tip = max(_NARROWING * self._tip, self._last_tip)
        self._loss = rounded(self._objective.loss, self._tip)
        pace = (1 + math.sqrt(1 + 4 * self._pace**2)) / 2
        ahead = (self._pace - 1) / pace
        U, V = (now + ahead * (now - before) for now, before in zip(self._own, self._before, strict=True))
        value = self._sweep(U, V)
        if ahead > 0 and not value <= self._value:
            pace = 1.0
            U, V = (now.copy() for now in self._own)
            value = self._sweep(U, V)
        self._before, self._own, self._pace, self._value = self._own, (U, V), pace, value
        return value

    def _sweep(self, U: Array, V: Array) -> float:
        """Rows, then columns, in place; the objective after it."""
        factors = (U, V)
        for side, operations in enumerate(self._sides):
            design, shifts = self._design(factors[1 - side])
            operations.half_step(self._loss, self._reg[side], factors[side], design, self._sample[side], shifts)
        return self._value_at(factors)

    def _design(self, other: Array) -> tuple[Array, Array | None]:
        """What the other side offers to regress on, and what it already explains by itself."""
        if self._center is None:
            return other, None
        design = other.copy()
        design[:, -1] = 1
        return design, other[:, -1] + other.dtype.type(self._center)

    @property
    def factors(self) -> tuple[Array, Array]:
        """Factors whose product is the prediction, biases included."""
        return self._predictors(self._own)

    def _predictors(self, own: tuple[Array, Array]) -> tuple[Array, Array]:
        U, V = own
        if self._center is None:
            return U, V
        ones = [np.ones((len(A), 1), A.dtype) for A in (U, V)]
        return np.hstack([U, ones[0]]), np.hstack([V[:, :-1], ones[1], V[:, -1:] + V.dtype.type(self._center)])

    @property
    def own_factors(self) -> tuple[Array, Array]:
        """(U, V) as solved for; with biases, each with its own bias as the last column."""
        return self._own

    def _value_at(self, own: tuple[Array, Array]) -> float:
        data = self._sides[0].loss_sum(self._loss, *self._predictors(own), self._sample[0])
        if self._objective.loss.concave:
            # a rounded loss starts at 0; what it is lowered by for that changes with ε, and would hide the descent
            total = self._sides[0].observed.n_entries if self._sample[0] is None else float(self._sample[0].sum(dtype=np.float64))
            data += total * float(self._objective.loss.value(np.array([self._tip]))[0])
        penalty = sum(
            0.5 * float(np.dot(np.broadcast_to(np.asarray(reg, np.float64), len(A)), np.einsum("ij,ij->i", A, A, dtype=np.float64)))
            for reg, A in zip(self._reg, own, strict=True)
        )
        return data + penalty

    def report(self) -> dict[str, float]:
        """Nothing beside the objective."""
        return {}
