"""To be removed: the Dask backend implements ``backends.base.Sweeps`` for ``IRLS`` instead.

Reweighted least squares, the workhorse for large sparse data.

At the present residuals each loss lies below a parabola of weight φ'(a)/a. Minimising these parabolas over the rows, then over the
columns, are small independent ridge regressions; but for rounding the objective never rises. Each sweep starts from a point a little
ahead, in the direction of the last one (Nesterov 1983); where that would raise the objective, the sweep is done again without
(O'Donoghue & Candès 2015).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.solvers import precision
from robustmf.solvers.base import require_same_layout, small_change
from robustmf.solvers.objective import Objective
from robustmf.solvers.smoothing import ObjectiveByWidth, SmoothingSchedule

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
        self._tip = SmoothingSchedule(objective.loss, sigma)
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
            require_same_layout(state[name], self._own) for name in ("own", "before")
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
        enough = max(tol, precision.OPTIONS.tolerance) if self._single else tol
        reason = (
            small_change(self._stepped_from, objective, enough)
            if self._offered <= enough * abs(objective)
            else None
        )
        self._confirming = (
            self._single and reason is not None and tol >= precision.OPTIONS.tolerance
        )
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
        curvature = math.inf if self._tip.is_initial else _CURVATURE
        own, measured = self._sweep(ahead, curvature)
        if (ahead > 0 or curvature < math.inf) and not measured.values[0] <= self._value:
            pace = 1.0
            own, measured = self._sweep(0.0, math.inf)
        if self._single and not measured.values[0] <= self._value:
            self._leave_single()  # a plain sweep raises the objective by rounding alone
            own, measured = self._sweep(0.0, math.inf)
        steps = self._tip.reductions(self._value - measured.values[0], measured, self._unknowns)
        if self._tip.is_initial and steps > 0:
            pace = 1.0  # sweeps with the first tip went elsewhere
        self._offered = (
            0.0 if steps > 0 or self._confirming else measured.values[0] - measured.values[-1]
        )
        self._tip.reduce(steps)
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

    def _sweep(
        self, ahead: float, curvature: float
    ) -> tuple[tuple[Array, Array], ObjectiveByWidth]:
        """Factors after a sweep that begins this share of the last step ahead; what is measured there, looking ahead."""
        raise NotImplementedError

    def _measured(self, own: tuple[Array, Array], ahead: bool = False) -> ObjectiveByWidth:
        """The objective at a point."""
        raise NotImplementedError

    def report(self) -> dict[str, float]:
        """Nothing beside the objective."""
        return {}
