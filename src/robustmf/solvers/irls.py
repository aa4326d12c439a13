"""``irls``: reweighted least squares, the workhorse for large sparse data.

At the present residuals each loss lies below a parabola of weight φ'(a)/a. Minimising these parabolas over the rows, then over the
columns, are small independent ridge regressions; the objective never rises. Each sweep starts from a point a little ahead, in the
direction of the last one (Nesterov 1983); where that would raise the objective, the sweep is done again without (O'Donoghue & Candès 2015).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.losses import Loss, rounded
from robustmf.objective import Objective, squared_norm
from robustmf.observed import Observed
from robustmf.operations import Operations
from robustmf.solvers.loop import require_alike, small_change

Array = NDArray[np.floating[Any]]


#: The tip of a kinked loss is rounded to this half-width at first and to no less than the last, in units of σ̂. Alternation at once
#: with a narrow tip would stall: weights at the kink lock rows and columns to each other.
_FIRST_TIP, _LAST_TIP = 0.3, 1e-4

#: A tip is narrowed to this share of itself, after a sweep that gained less than ``_PATIENCE`` of what narrowing it will gain.
_NARROWING, _PATIENCE = 0.4, 0.04

#: Once a tip has been narrowed the valley is found, and half-steps go towards Newton's with this curvature.
_CURVATURE = 0.45


class Alternation:
    """The decisions of ``irls``: how far ahead a sweep starts, when to do it again, when to narrow the tip, when to stop.

    Where factors and entries are is a subclass's to know: it places a start, makes a sweep and measures a point.
    """

    def __init__(self, objective: Objective, sigma: float) -> None:
        self._objective = objective
        self._first_tip, self._last_tip = _FIRST_TIP * sigma, _LAST_TIP * sigma
        self._tip = self._first_tip

    def begin(self, U: Array, V: Array) -> float:
        """Start at (U, V); with biases, their last column is the bias of the row and of the column, in units of ``bias_unit``."""
        self._own = self._before = self._placed(U, V)
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
        """One sweep; then the tip is narrowed, if that is now the better way to go on."""
        pace = (1 + math.sqrt(1 + 4 * self._pace**2)) / 2
        ahead = (self._pace - 1) / pace
        curvature = _CURVATURE if self._tip < self._first_tip else math.inf
        own, value, narrower = self._sweep(ahead, curvature)
        if (ahead > 0 or curvature < math.inf) and not value <= self._value:
            pace = 1.0
            own, value, narrower = self._sweep(0.0, math.inf)
        gained, offered = self._value - value, value - narrower
        narrowest = not self._objective.loss.concave or self._tip <= self._last_tip
        narrowed = not narrowest and gained < _PATIENCE * offered
        if narrowed:
            self._tip, value = _NARROWING * self._tip, narrower
        self._settling = narrowest or narrowed
        self._before, self._own, self._pace, self._value = self._own, own, pace, value
        return value

    def _placed(self, U: Array, V: Array) -> tuple[Array, Array]:
        """The start, where the sweeps will be."""
        raise NotImplementedError

    def _sweep(self, ahead: float, curvature: float) -> tuple[tuple[Array, Array], float, float]:
        """Factors after a sweep that begins this share of the last step ahead; the objective there, with this tip and with the next."""
        raise NotImplementedError

    def _values(self, own: tuple[Array, Array]) -> tuple[float, float]:
        """The objective with the tip, and with the next (the same where there is none)."""
        raise NotImplementedError

    def _tips(self) -> tuple[float, float]:
        """The tip, and the next."""
        return self._tip, _NARROWING * self._tip

    def _measured_losses(self) -> list[Loss]:
        """The losses whose sums over the entries :meth:`_objectives` wants."""
        base = self._objective.loss
        return [rounded(base, tip) for tip in self._tips()] if base.concave else [base]

    def _objectives(self, sums: Sequence[float], total: float, penalty: float) -> tuple[float, float]:
        """The objective with the tip and with the next, from the sums of the losses, of the entries' weights, and of the penalties."""
        base = self._objective.loss
        if not base.concave:
            return sums[0] + penalty, sums[0] + penalty
        # a rounded loss starts at 0; what it is lowered by for that changes with ε, and would hide the descent
        wide, narrow = (
            data + total * float(at_tip) + penalty for data, at_tip in zip(sums, base.value(np.array(self._tips())), strict=True)
        )
        return wide, narrow

    def report(self) -> dict[str, float]:
        """Nothing beside the objective."""
        return {}


@dataclass(frozen=True)
class BiasModel:
    """center + b_i + c_j + u_i·v_j, the biases being each side's last factor in the given unit; with center None, u_i·v_j alone."""

    center: float | None
    unit: float

    def design(self, other: Array) -> tuple[Array, Array | None]:
        """What the other side offers to regress on, and what it already explains by itself."""
        if self.center is None:
            return other, None
        design, unit = other.copy(), other.dtype.type(self.unit)
        design[:, -1] = unit
        return design, other[:, -1] * unit + other.dtype.type(self.center)

    def predictors(self, U: Array, V: Array) -> tuple[Array, Array]:
        """Factors whose product is the prediction, biases included."""
        if self.center is None:
            return U, V
        unit = V.dtype.type(self.unit)
        ones = [np.ones_like(A[:, :1]) for A in (U, V)]
        return np.hstack([U, ones[0]]), np.hstack([V[:, :-1], ones[1] * unit, V[:, -1:] * unit + V.dtype.type(self.center)])


def ridge(reg: float, by_count: bool, observed: Observed) -> float | Array:
    """λ of every row: one for all, or multiplied by its number of entries."""
    return reg * observed.rows.counts.astype(observed.dtype) if by_count else reg


def penalty(reg: float | Array, A: Array) -> float:
    """Σ λ‖a‖²/2 over the rows a."""
    if isinstance(reg, float):
        return 0.5 * reg * squared_norm(A)
    return 0.5 * float((reg * np.einsum("ij,ij->i", A, A, dtype=np.float64)).sum())


class IRLS(Alternation):
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
        super().__init__(objective, sigma)
        self._biases = BiasModel(center, bias_unit)
        self._sides = (operations, operations.transposed)
        order = None if sample_weights is None else operations.observed.column_order
        self._sample = (sample_weights, None if sample_weights is None else sample_weights[order])
        self._reg = tuple(ridge(objective.reg, reg_by_count, side.observed) for side in self._sides)

    def _placed(self, U: Array, V: Array) -> tuple[Array, Array]:
        return self._sides[0].array(U), self._sides[0].array(V)

    def _point(self, ahead: float) -> tuple[Array, Array]:
        """A new point, this share of the last step ahead of the present one."""
        (U, V), (U_before, V_before) = self._own, self._before
        return U + ahead * (U - U_before), V + ahead * (V - V_before)

    def _sweep(self, ahead: float, curvature: float) -> tuple[tuple[Array, Array], float, float]:
        """Rows, then columns."""
        factors, loss = self._point(ahead), rounded(self._objective.loss, self._tip)
        for side, operations in enumerate(self._sides):
            design, shifts = self._biases.design(factors[1 - side])
            operations.half_step(loss, self._reg[side], factors[side], design, self._sample[side], shifts, curvature=curvature)
        return factors, *self._values(factors)

    @property
    def factors(self) -> tuple[Array, Array]:
        """Factors whose product is the prediction, biases included."""
        return self._biases.predictors(*self._own)

    @property
    def own_factors(self) -> tuple[Array, Array]:
        """(U, V) as solved for; with biases, each with its own bias, in units of ``bias_unit``, as the last column."""
        return self._own

    def _values(self, own: tuple[Array, Array]) -> tuple[float, float]:
        sample = self._sample[0]
        sums = self._sides[0].loss_sums(self._measured_losses(), *self._biases.predictors(*own), sample)
        total = self._sides[0].observed.n_entries if sample is None else float(sample.sum(dtype=np.float64))
        return self._objectives(sums, total, sum(map(penalty, self._reg, own)))
