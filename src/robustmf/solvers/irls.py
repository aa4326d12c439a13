"""``irls``: reweighted least squares, the workhorse for large sparse data.

At the present residuals each loss lies below a parabola of weight φ'(a)/a. Minimising these parabolas over the rows, then over the
columns, are small independent ridge regressions; but for rounding the objective never rises. Each sweep starts from a point a little
ahead, in the direction of the last one (Nesterov 1983); where that would raise the objective, the sweep is done again without
(O'Donoghue & Candès 2015).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.data.observed import Observed
from robustmf.solvers.base import require_alike, small_change
from robustmf.solvers.objective import Objective, squared_norm
from robustmf.solvers.precision import TOLERANCE, is_large, least_width
from robustmf.solvers.smoothing import Measured, Tip

Array = NDArray[np.floating[Any]]


#: The curvature of half-steps towards Newton's, once the tip has been narrowed.
_CURVATURE = 0.45


class Alternation:
    """The decisions of ``irls``: how far ahead a sweep starts, when to do it again, in which precision, when to stop.

    Where factors and entries are is a subclass's to know: it places a start, makes a sweep and measures a point, in ``_single`` precision
    where that is so.
    """

    def __init__(self, objective: Objective, sigma: float, least_width: float) -> None:
        self._objective = objective
        self._sigma, self._least_width = sigma, least_width
        self._tip = Tip(objective.loss, sigma)
        self._single = self._course() >= least_width

    def begin(self, U: Array, V: Array) -> float:
        """Start at (U, V); with biases, their last column is the bias of the row and of the column, in units of ``bias_unit``."""
        self._own = self._before = self._placed(U, V)
        self._pace = 1.0
        self._confirming = False
        self._unknowns = U.shape[0] * U.shape[1] + V.shape[0] * V.shape[1]
        self._value = self._measured(self._own).values[0]
        return self._value

    def state(self) -> dict[str, Any]:
        """The last two points, and how the next is reached from them."""
        return {
            "own": self._own,
            "before": self._before,
            "pace": self._pace,
            "confirming": self._confirming,
            "value": self._value,
            "tip": self._tip.state(),
            "single": self._single,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._own, self._before = (
            require_alike(state[name], self._own) for name in ("own", "before")
        )
        self._pace, self._value, self._single, self._confirming = (
            state[name] for name in ("pace", "value", "single", "confirming")
        )
        self._tip.restore(state["tip"])

    def settled(self, before: float, objective: float, tol: float) -> str | None:
        """The objective hardly changed in the last step, nor would it with a narrower tip.

        In single precision that is no end. Sweeps go on in double precision, where the first may confirm it, if ``tol`` was reached.
        What the step began with is kept here: ``before`` may have been measured in another precision.
        """
        enough = max(tol, TOLERANCE) if self._single else tol
        reason = (
            small_change(self._stepped_from, objective, enough)
            if self._offered <= enough * abs(objective)
            else None
        )
        self._confirming = self._single and reason is not None and tol >= TOLERANCE
        if not self._single:
            return reason
        if reason is not None:
            self._leave_single()
        return None

    def _leave_single(self) -> None:
        """From here on in double precision; what was measured so far is no measure for that."""
        self._single = False
        self._value = self._measured(self._own).values[0]

    def _course(self) -> float:
        """Within what distance the loss changes its course."""
        return self._tip.width if self._objective.loss.concave else self._sigma

    def step(self) -> float:
        """One sweep; then the tip is narrowed, if that is now the better way to go on."""
        pace = (1 + math.sqrt(1 + 4 * self._pace**2)) / 2
        ahead = (self._pace - 1) / pace
        curvature = math.inf if self._tip.first else _CURVATURE
        own, measured = self._sweep(ahead, curvature)
        if (ahead > 0 or curvature < math.inf) and not measured.values[0] <= self._value:
            pace = 1.0
            own, measured = self._sweep(0.0, math.inf)
        if self._single and not measured.values[0] <= self._value:
            self._leave_single()  # a plain sweep raises the objective by rounding alone
            own, measured = self._sweep(0.0, math.inf)
        steps = self._tip.steps_to_narrow(
            self._value - measured.values[0], measured, self._unknowns
        )
        if self._tip.first and steps > 0:
            pace = 1.0  # sweeps with the first tip went elsewhere
        self._offered = (
            0.0 if steps > 0 or self._confirming else measured.values[0] - measured.values[-1]
        )
        self._tip.narrow(steps)
        self._stepped_from = self._value
        self._before, self._own, self._pace, self._value = (
            self._own,
            own,
            pace,
            measured.values[steps],
        )
        if self._single and self._course() < self._least_width:
            self._leave_single()
        return self._value

    def _placed(self, U: Array, V: Array) -> tuple[Array, Array]:
        """The start, where the sweeps will be."""
        raise NotImplementedError

    def _sweep(self, ahead: float, curvature: float) -> tuple[tuple[Array, Array], Measured]:
        """Factors after a sweep that begins this share of the last step ahead; what is measured there, looking ahead."""
        raise NotImplementedError

    def _measured(self, own: tuple[Array, Array], ahead: bool = False) -> Measured:
        """The objective at a point."""
        raise NotImplementedError

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
        return np.hstack([U, ones[0]]), np.hstack(
            [V[:, :-1], ones[1] * unit, V[:, -1:] * unit + V.dtype.type(self.center)]
        )


def ridge(reg: float, by_count: bool, observed: Observed) -> float | Array:
    """λ of every row: one for all, or multiplied by its number of entries."""
    return reg * observed.rows.counts.astype(observed.dtype) if by_count else reg


def entries_weight(observed: Observed, sample_weights: Array | None) -> tuple[float, int]:
    """The sum of the entries' weights, and how many have any."""
    if sample_weights is None:
        return observed.n_entries, observed.n_entries
    return float(sample_weights.sum(dtype=np.float64)), int((sample_weights > 0).sum())


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
        operations: EntryOperations,
        objective: Objective,
        sigma: float,
        center: float | None = None,
        sample_weights: Array | None = None,
        reg_by_count: bool = False,
        bias_unit: float = 1.0,
    ) -> None:
        observed = operations.observed
        self._weight = entries_weight(observed, sample_weights)
        least = math.inf
        if operations.capabilities.float32_sweeps and is_large(observed.dtype, observed.n_entries):
            least = least_width(squared_norm(observed.rows.values[None]), *self._weight, objective)
        super().__init__(objective, sigma, least)
        self._biases = BiasModel(center, bias_unit)
        self._sides = (operations, operations.transposed)
        order = None if sample_weights is None else observed.column_order
        self._sample = (sample_weights, None if sample_weights is None else sample_weights[order])
        self._reg = tuple(ridge(objective.reg, reg_by_count, side.observed) for side in self._sides)

    def _placed(self, U: Array, V: Array) -> tuple[Array, Array]:
        return self._sides[0].array(U), self._sides[0].array(V)

    def _point(self, ahead: float) -> tuple[Array, Array]:
        """A new point, this share of the last step ahead of the present one."""
        (U, V), (U_before, V_before) = self._own, self._before
        return U + ahead * (U - U_before), V + ahead * (V - V_before)

    def _sweep(self, ahead: float, curvature: float) -> tuple[tuple[Array, Array], Measured]:
        """Rows, then columns."""
        factors, loss, single = self._point(ahead), self._tip.loss, self._single
        for side, operations in enumerate(self._sides):
            design, shifts = self._biases.design(factors[1 - side])
            operations.half_step(
                loss,
                self._reg[side],
                factors[side],
                design,
                self._sample[side],
                shifts,
                curvature=curvature,
                single=single,
            )
        return factors, self._measured(factors, ahead=True)

    @property
    def factors(self) -> tuple[Array, Array]:
        """Factors whose product is the prediction, biases included."""
        return self._biases.predictors(*self._own)

    @property
    def own_factors(self) -> tuple[Array, Array]:
        """(U, V) as solved for; with biases, each with its own bias, in units of ``bias_unit``, as the last column."""
        return self._own

    def _measured(self, own: tuple[Array, Array], ahead: bool = False) -> Measured:
        losses = self._tip.measured_losses(ahead)
        sums = self._sides[0].loss_sums(
            losses, *self._biases.predictors(*own), self._sample[0], self._single
        )
        return self._tip.measured(sums, *self._weight, sum(map(penalty, self._reg, own)))
