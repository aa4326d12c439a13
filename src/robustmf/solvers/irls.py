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
from robustmf.solvers.loop import require_alike, small_change

Array = NDArray[np.floating[Any]]


#: The tip of a kinked loss is rounded to this half-width at first and to no less than the last, in units of σ̂. Alternation at once
#: with a narrow tip would stall: weights at the kink lock rows and columns to each other.
_FIRST_TIP, _LAST_TIP = 0.3, 1e-4

#: The tip is halved after a sweep that gained less than this share of what halving it will gain.
_PATIENCE = 0.05


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
    bias_unit : float
        Biases are solved for in this unit, as factors of a constant: the ridge on them is λ/unit². With a unit that grows as the root of
        the data's, as factors do, λ means the same for both.
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
        bias_unit: float = 1.0,
    ) -> None:
        self._objective, self._center, self._unit = objective, center, operations.observed.dtype.type(bias_unit)
        self._tip, self._last_tip = _FIRST_TIP * sigma, _LAST_TIP * sigma
        self._sides = (operations, operations.transposed)
        order = None if sample_weights is None else operations.observed.column_order
        self._sample = (sample_weights, None if sample_weights is None else sample_weights[order])
        self._reg: tuple[float | Array, float | Array] = (objective.reg, objective.reg)
        if reg_by_count:
            self._reg = tuple(objective.reg * side.observed.rows.counts.astype(side.observed.dtype) for side in self._sides)  # type: ignore[assignment]

    def begin(self, U: Array, V: Array) -> float:
        """Start at (U, V); with biases, their last column is the bias of the row and of the column, in units of ``bias_unit``."""
        self._own = self._before = (self._sides[0].array(U), self._sides[0].array(V))
        self._pace = 1.0
        self._settling = False
        self._value = self._values(self._own)[0]
        return self._value

    def state(self) -> dict[str, Any]:
        """The last two points, and how the next is reached from them."""
        return {
            "own": self._own,
            "before": self._before,
            "pace": self._pace,
            "settling": self._settling,
            "value": self._value,
            "tip": self._tip,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._own, self._before = (require_alike(state[name], self._own) for name in ("own", "before"))
        self._pace, self._settling, self._value, self._tip = (state[name] for name in ("pace", "settling", "value", "tip"))

    def settled(self, before: float, objective: float, tol: float) -> str | None:
        """The objective hardly changes, and that was all there was to gain: the step narrowed the tip too, or there is none to narrow."""
        return small_change(before, objective, tol) if self._settling else None

    def step(self) -> float:
        """One sweep; then the tip is halved, if that is now the better way to go on."""
        pace = (1 + math.sqrt(1 + 4 * self._pace**2)) / 2
        ahead = (self._pace - 1) / pace
        U, V = self._point(ahead)
        value, narrower = self._sweep(U, V)
        if ahead > 0 and not value <= self._value:
            pace = 1.0
            U, V = self._point(0.0)
            value, narrower = self._sweep(U, V)
        gained, offered = self._value - value, value - narrower
        narrowest = not self._objective.loss.concave or self._tip <= self._last_tip
        halved = not narrowest and gained < _PATIENCE * offered
        if halved:
            self._tip, value = self._tip / 2, narrower
        self._settling = narrowest or halved
        self._before, self._own, self._pace, self._value = self._own, (U, V), pace, value
        return value

    def _point(self, ahead: float) -> tuple[Array, Array]:
        """A new point, this share of the last step ahead of the present one."""
        (U, V), (U_before, V_before) = self._own, self._before
        return U + ahead * (U - U_before), V + ahead * (V - V_before)

    def _sweep(self, U: Array, V: Array) -> tuple[float, float]:
        """Rows, then columns, in place; the objective after it, with this tip and with half of it."""
        factors, loss = (U, V), rounded(self._objective.loss, self._tip)
        for side, operations in enumerate(self._sides):
            design, shifts = self._design(factors[1 - side])
            operations.half_step(loss, self._reg[side], factors[side], design, self._sample[side], shifts)
        return self._values(factors)

    def _design(self, other: Array) -> tuple[Array, Array | None]:
        """What the other side offers to regress on, and what it already explains by itself."""
        if self._center is None:
            return other, None
        design = other.copy()
        design[:, -1] = self._unit
        return design, other[:, -1] * self._unit + other.dtype.type(self._center)

    @property
    def factors(self) -> tuple[Array, Array]:
        """Factors whose product is the prediction, biases included."""
        return self._predictors(self._own)

    def _predictors(self, own: tuple[Array, Array]) -> tuple[Array, Array]:
        U, V = own
        if self._center is None:
            return U, V
        ones = [np.ones_like(A[:, :1]) for A in (U, V)]
        return np.hstack([U, ones[0]]), np.hstack([V[:, :-1], ones[1] * self._unit, V[:, -1:] * self._unit + V.dtype.type(self._center)])

    @property
    def own_factors(self) -> tuple[Array, Array]:
        """(U, V) as solved for; with biases, each with its own bias, in units of ``bias_unit``, as the last column."""
        return self._own

    def _values(self, own: tuple[Array, Array]) -> tuple[float, float]:
        """The objective with the tip, and with half of it (the same where there is none)."""
        sample, base = self._sample[0], self._objective.loss
        penalty = sum(
            0.5 * float((reg * np.einsum("ij,ij->i", A, A, dtype=np.float64)).sum()) for reg, A in zip(self._reg, own, strict=True)
        )
        if not base.concave:
            value = self._sides[0].loss_sum(base, *self._predictors(own), sample) + penalty
            return value, value
        tips = (self._tip, self._tip / 2)
        sums = self._sides[0].loss_sums([rounded(base, tip) for tip in tips], *self._predictors(own), sample)
        # a rounded loss starts at 0; what it is lowered by for that changes with ε, and would hide the descent
        total = self._sides[0].observed.n_entries if sample is None else float(sample.sum(dtype=np.float64))
        wide, narrow = (data + total * float(base.value(np.array([tip]))[0]) + penalty for data, tip in zip(sums, tips, strict=True))
        return wide, narrow

    def report(self) -> dict[str, float]:
        """Nothing beside the objective."""
        return {}
