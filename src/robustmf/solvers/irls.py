"""``irls``: iteratively reweighted least squares, the solver for large sparse data.

At the current residuals each loss is majorized by a parabola of weight φ'(a)/a. Minimizing the sum
of the parabolas over the rows, then over the columns, consists of small independent ridge
regressions, and up to rounding the objective never rises. Each sweep starts from a point
extrapolated in the direction of the last one (Nesterov 1983); where that would raise the objective,
the sweep is repeated without extrapolation (O'Donoghue & Candès 2015).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations, Measurement, Point, Sweeps
from robustmf.backends.biases import BiasModel
from robustmf.backends.ridge import Ridges
from robustmf.exceptions import NumericalError
from robustmf.solvers import precision
from robustmf.solvers.base import require_same_layout, small_change
from robustmf.solvers.objective import Objective
from robustmf.solvers.smoothing import ObjectiveByWidth, SmoothingSchedule

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class IRLSOptions:
    """Constants of the solver.

    Attributes
    ----------
    curvature : float
        The share of Newton's curvature in the half-steps of a nonsmooth loss, once its smoothing
        width has been reduced; see :meth:`EntryOperations.half_step`.
    rounding_errors : float
        A sweep may raise the objective by the effect of this many rounding errors of the values.
    """

    curvature: float = 0.45
    rounding_errors: float = 1e4


OPTIONS = IRLSOptions()


class IRLS:
    """One step is one sweep: all rows, then all columns.

    The solver decides how far to extrapolate, when to repeat a sweep, in which precision to
    compute, when to reduce the smoothing width and when to stop. The sweeps themselves are the
    backend's.

    Parameters
    ----------
    sweeps : Sweeps
        The entries, their weights, λ and the bias model, with the passes over them.
    objective : Objective
        H. For a nonsmooth loss the reported objective is that with φ(√(a² + ε²)), which lies above
        H and falls to it with ε.
    sigma : float
        The noise level at the initial point, the unit of ε.
    """

    def __init__(self, sweeps: Sweeps, objective: Objective, sigma: float) -> None:
        self._sweeps = sweeps
        self._objective = objective
        self._sigma = sigma
        self._smoothing = SmoothingSchedule(objective.loss, sigma)
        self._least_width = math.inf
        if sweeps.supports_single and precision.is_large(sweeps.dtype, sweeps.n_entries):
            self._least_width = precision.least_width(*sweeps.entries_size(), objective)
        self._single = self._loss_scale() >= self._least_width

    @classmethod
    def on_entries(
        cls,
        operations: EntryOperations,
        objective: Objective,
        sigma: float,
        center: float | None = None,
        sample_weights: Array | None = None,
        reg_by_count: bool = False,
        bias_unit: float = 1.0,
        ridges: Ridges | None = None,
        nonnegative: bool = False,
    ) -> IRLS:
        """The solver for entries in one memory.

        Parameters
        ----------
        center : float or None, default=None
            With a number the model is center + b_i + c_j + u_i·v_j; None has no biases.
        sample_weights : array over the entries, optional
            The factor of each entry's loss.
        reg_by_count : bool, default=False
            Multiply λ by the number of entries of the row or column.
        bias_unit : float, default=1.0
            Biases are solved for in this unit, as factors of a constant: the ridge on them is
            λ/unit². With a unit that grows as the root of the data's unit, as factors do, λ has the
            same effect on both.
        ridges : (FactorRidge, FactorRidge), optional
            The ridge of each factor of rows and columns, instead of λ.
        nonnegative : bool, default=False
            Constrain the factors to be non-negative.
        """
        biases = BiasModel(center, bias_unit)
        reg = objective.reg if ridges is None else ridges
        sweeps = operations.sweeps(reg, biases, sample_weights, reg_by_count, nonnegative)
        return cls(sweeps, objective, sigma)

    @property
    def factors(self) -> Point:
        """Factors whose product is the prediction, biases included."""
        return self._sweeps.predictors(self._point)

    @property
    def augmented_factors(self) -> Point:
        """(U, V) as solved for; with biases, each with its own bias in its unit as last column."""
        return self._point

    def begin(self, U: Any, V: Any) -> float:
        """Start at the augmented factors (U, V)."""
        self._point = self._previous = self._sweeps.place(U, V)
        self._momentum = 1.0
        self._confirm_convergence = False
        self._n_unknowns = U.shape[0] * U.shape[1] + V.shape[0] * V.shape[1]
        self._value = self._measured_value()
        return self._value

    def state(self) -> dict[str, Any]:
        """The last two iterates, and how the next is reached from them."""
        return {
            "point": self._point,
            "previous": self._previous,
            "momentum": self._momentum,
            "confirming": self._confirm_convergence,
            "value": self._value,
            "smoothing": self._smoothing.state(),
            "single": self._single,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a :meth:`state`."""
        self._point, self._previous = (
            require_same_layout(state[name], self._point) for name in ("point", "previous")
        )
        self._momentum = state["momentum"]
        self._confirm_convergence = state["confirming"]
        self._value = state["value"]
        self._single = state["single"]
        self._smoothing.restore(state["smoothing"])

    def convergence_reason(self, before: float, objective: float, tol: float) -> str | None:
        """Converged if the objective hardly changed, nor would with a smaller smoothing width.

        In float32 that is not the end: sweeps continue in float64, where the first one may confirm
        convergence if ``tol`` was reached. The objective before the step is kept here, because
        ``before`` may have been measured in the other precision.
        """
        tolerance = precision.OPTIONS.tolerance
        enough = max(tol, tolerance) if self._single else tol
        reason = None
        if self._smoothing_gain <= enough * abs(objective):
            reason = small_change(self._value_before, objective, enough)
        self._confirm_convergence = self._single and reason is not None and tol >= tolerance
        if not self._single:
            return reason
        if reason is not None:
            self._leave_single()
        return None

    def step(self) -> float:
        """One sweep; then the smoothing width is reduced if that promises more than sweeps."""
        momentum = (1 + math.sqrt(1 + 4 * self._momentum**2)) / 2
        extrapolation = (self._momentum - 1) / momentum
        curvature = math.inf if self._smoothing.is_initial else OPTIONS.curvature
        point, measured = self._sweep(extrapolation, curvature)
        plain = extrapolation == 0 and curvature == math.inf
        if not plain and not measured.values[0] <= self._value:
            momentum = 1.0
            point, measured = self._sweep(0.0, math.inf)
        if self._single and not measured.values[0] <= self._value:
            # a plain sweep raises the objective by rounding alone
            self._leave_single()
            point, measured = self._sweep(0.0, math.inf)
        decrease = self._value - measured.values[0]
        if decrease < 0:
            self._require_rounding(-decrease)
        reductions = self._smoothing.reductions(decrease, measured, self._n_unknowns)
        if self._smoothing.is_initial and reductions > 0:
            momentum = 1.0  # sweeps with the initial width moved in another direction
        self._smoothing_gain = 0.0
        if reductions == 0 and not self._confirm_convergence:
            self._smoothing_gain = measured.values[0] - measured.values[-1]
        self._smoothing.reduce(reductions)
        self._value_before = self._value
        self._previous = self._point
        self._point = point
        self._momentum = momentum
        self._value = measured.values[reductions]
        if self._single and self._loss_scale() < self._least_width:
            self._leave_single()
        return self._value

    def _require_rounding(self, increase: float) -> None:
        """A plain sweep raises the objective by rounding alone; anything else is a fault.

        With φ concave in a², φ'² ≤ 2 φ'(a)/a φ: a relative rounding error of the values changes the
        objective H by at most √(2 w H Σ x²) times that error, where w is the largest weight. Normal
        equations of condition κ are solved up to an increase of (κε)² w Σ x²; they are meaningful
        for κ up to ε^(−1/2), so that an objective of ε w Σ x² is that of an exact fit.
        """
        energy, weight, n_weighted = self._sweeps.entries_size()
        loss = self._smoothing.loss
        largest = float(np.max(loss.weight(np.zeros(1)))) * max(1.0, weight / max(n_weighted, 1))
        eps = float(np.finfo(self._sweeps.dtype).eps)
        value = abs(self._value)
        bound = value + math.sqrt(2 * largest * value * energy)
        bound = OPTIONS.rounding_errors * eps * bound + eps * largest * energy
        if increase > bound:
            raise NumericalError(
                f"a sweep raised the objective from {self._value!r} by {increase!r}, more than "
                "rounding explains; the loss may not have a weight φ'(a)/a that decreases in "
                "|residual|, or an arithmetic operation has returned a wrong result"
            )

    def report(self) -> dict[str, float]:
        """Nothing besides the objective."""
        return {}

    def _sweep(self, extrapolation: float, curvature: float) -> tuple[Point, ObjectiveByWidth]:
        point, measured = self._sweeps.sweep(
            self._point,
            self._previous,
            extrapolation,
            self._smoothing.loss,
            self._smoothing.losses(look_ahead=True),
            curvature=curvature,
            single=self._single,
        )
        return point, self._smoothing.objective(measured)

    def _measured_value(self) -> float:
        """The objective at the current point."""
        losses = self._smoothing.losses(look_ahead=False)
        measured: Measurement = self._sweeps.measure(self._point, losses, single=self._single)
        return self._smoothing.objective(measured).values[0]

    def _leave_single(self) -> None:
        """Continue in float64; the objective measured so far does not compare with it."""
        self._single = False
        self._value = self._measured_value()

    def _loss_scale(self) -> float:
        """The scale within which the loss changes its slope."""
        return self._smoothing.width if self._objective.loss.concave else self._sigma
