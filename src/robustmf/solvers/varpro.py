"""``varpro``: variable projection for few rows (or few columns) and any visibility pattern, where alternation stalls.

V is eliminated, and Levenberg–Marquardt runs on U alone, with the loss's weights refreshed before each step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.losses import L1, Loss, smoothed
from robustmf.solvers.base import require_same_layout, small_change
from robustmf.solvers.objective import Objective
from robustmf.solvers.projection import (
    Entries,
    LevenbergMarquardt,
    Point,
    Projected,
    balanced,
    orthonormal,
)

Array = NDArray[np.floating[Any]]

#: Ridge on V along a start, in units of the weight of a zero residual: few effective factors first, then all.
_RIDGE_PATH = (1e-1, 1e-2, 1e-3, 1e-4)

#: Random starts at most, and how often the best value must be met (within 1 %) before it is believed.
_MOST_STARTS, _AGREE, _SAME = 10, 2, 1e-2

#: Random halves of a column's entries that repair tries.
_REPAIR_TRIES = 20

#: Tips of the rounded l1 losses of the start and of the convex stage, in units of the values' standard deviation.
_START_TIP, _CONVEX_TIP = 0.03, 1e-3


@dataclass(frozen=True)
class Graduated(Loss):
    """φ_κ(a) = κ²φ(a/κ): least squares for large κ, the loss itself for κ = 1, and never smaller for a larger κ."""

    base: Loss | None = None
    kappa: float = 1.0

    name = "graduated"

    @property
    def _inner(self) -> Loss:
        assert self.base is not None
        return self.base

    def value(self, residual: Array) -> Array:
        """κ²φ(a/κ)."""
        return self.kappa * self.kappa * self._inner.value(residual / self.kappa)

    def weight(self, residual: Array) -> Array:
        """The base's weight at a/κ."""
        return self._inner.weight(residual / self.kappa)


def oriented(operations: EntryOperations) -> tuple[EntryOperations, bool]:
    """Rows are the short side; and whether rows and columns were swapped for that."""
    m, n = operations.observed.shape
    return (operations, False) if m <= n else (operations.transposed, True)


class VarPro:
    """The solver, for the loop."""

    def __init__(self, operations: EntryOperations, objective: Objective) -> None:
        self._operations, self._swapped = oriented(operations)
        self._problem = Projected(
            Entries(self._operations.observed, operations.team),
            objective.loss,
            objective.reg,
            objective.reg,
        )
        self._dtype = operations.observed.dtype

    def settled(self, before: float, objective: float, tol: float) -> str | None:
        """The objective hardly changes."""
        return small_change(before, objective, tol)

    @property
    def factors(self) -> tuple[Array, Array]:
        """(U, V) of the matrix as given."""
        point = self._steps.point
        U, V = point.U.astype(self._dtype), point.V.astype(self._dtype)
        return (V, U) if self._swapped else (U, V)

    def begin(self, U: Array, V: Array) -> float:
        """Start at (U, V)."""
        P, Q = (V, U) if self._swapped else (U, V)
        P, Q = balanced(P.astype(np.float64), Q.astype(np.float64))
        at = self._problem.at(P)
        entries = self._problem.entries
        i, j = entries.columns.indices, entries.columns.group_of_entry()
        residual = entries.values - np.einsum("tq,tq->t", P[i], Q[j])
        self._steps = LevenbergMarquardt(
            self._problem, Point(P, Q, residual, at.Q, at.w), damping=1e-3
        )
        return self._steps.value

    def state(self) -> dict[str, Any]:
        """The point without weights and bases, which each step makes anew, its value, and the damping."""
        point = self._steps.point
        return {
            "U": point.U,
            "V": point.V,
            "e": point.e,
            "value": self._steps.value,
            "damping": self._steps.damping,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        point = self._steps.point
        U, V, e = require_same_layout(
            (state["U"], state["V"], state["e"]), (point.U, point.V, point.e)
        )
        self._steps.point = replace(point, U=U, V=V, e=e)
        self._steps.value, self._steps.damping = state["value"], state["damping"]

    def step(self) -> float:
        """One Levenberg–Marquardt step."""
        self._steps.step()
        return self._steps.value

    def report(self) -> dict[str, float]:
        """The damping."""
        return {"damping": self._steps.damping}


def varpro_start(
    operations: EntryOperations,
    rank: int,
    objective_at: Callable[[Array], Objective],
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Random starts with the l1 loss until two agree; then from convex to the loss itself, step by step, repairing columns.

    The rows of ``operations`` are the short side. ``objective_at`` gives loss and λ for the residuals of the l1 fit.
    """
    entries = Entries(operations.observed, operations.team)
    size = float(np.std(entries.values)) or float(np.abs(entries.values).max()) or 1.0
    point = _best_start(entries, smoothed(L1(), _START_TIP * size), rank, rng)
    point = _graduate(
        entries, smoothed(L1(), _CONVEX_TIP * size), 0.0, point, np.sqrt(np.mean(point.e**2)), 15
    )
    objective = objective_at(point.e)
    loss, reg = objective.loss, objective.reg
    point = _graduate(entries, loss, reg, point, 16 * float(np.median(np.abs(point.e))), 30)
    problem = Projected(entries, loss, reg, reg)
    if not _is_convex(loss):
        for _ in range(2):
            point = _minimise(problem, _repair_columns(problem, point, rng), 1e-3, 30, 1e-4, 3)[0]
    return point.U, point.V


def _is_convex(loss: Loss) -> bool:
    """A convex loss has one minimum a column, and nothing to repair."""
    a = np.geomspace(1e-3, 1e3, 200) * loss.theta
    return bool(np.all(np.diff(loss.derivative(a)) >= -1e-12))


def _minimise(
    problem: Projected, point: Point, damping: float, most: int, tol: float, patience: int
) -> tuple[Point, float, float]:
    """Steps until ``patience`` of them in a row gain less than ``tol``; returns point, value, damping."""
    steps, small = LevenbergMarquardt(problem, point, damping), 0
    for _ in range(most):
        before = steps.value
        if not steps.step():
            break
        small = small + 1 if before - steps.value <= tol * abs(steps.value) else 0
        if small >= patience:
            break
    return steps.point, steps.value, steps.damping


def _one_start(
    entries: Entries, loss: Loss, rank: int, rng: np.random.Generator
) -> tuple[Point, float]:
    U = orthonormal(rng.standard_normal((entries.shape[0], rank)))
    heaviest = float(loss.weight(np.zeros(1))[0])
    w, damping = np.full(len(entries.values), heaviest), 1e-2
    for share in _RIDGE_PATH:
        problem = Projected(entries, loss, 0.0, share * heaviest)
        point, _, damping = _minimise(problem, problem.at(U, w), damping, 5, 0.0, 5)
        U, w = point.U, point.w
    problem = Projected(entries, loss, 0.0, 0.0)
    return _minimise(problem, problem.at(U, w), damping, 80, 1e-4, 3)[:2]


def _best_start(entries: Entries, loss: Loss, rank: int, rng: np.random.Generator) -> Point:
    values: list[float] = []
    best: Point | None = None
    for _ in range(_MOST_STARTS):
        point, value = _one_start(entries, loss, rank, rng)
        if best is None or value < min(values):
            best = point
        values.append(value)
        if sum(v <= min(values) * (1 + _SAME) for v in values) >= _AGREE:
            break
    assert best is not None
    return best


def _graduate(
    entries: Entries, loss: Loss, reg: float, point: Point, typical: float, most: int
) -> Point:
    """κ halved from where a residual of typical size still has half the weight of a zero one, four steps each; then the loss itself."""
    if reg > 0:
        U, V = balanced(point.U, point.V)
        point = Point(U, V, point.e, point.Q, point.w)
    kappa, pair = 1.0, np.array([0.0, typical])
    while kappa < 2.0**40:
        at_zero, there = loss.weight(pair / kappa)
        if there >= 0.5 * at_zero:
            break
        kappa *= 2
    damping = 1e-3
    while kappa > 1:
        problem = Projected(entries, Graduated(base=loss, kappa=kappa), reg, reg)
        point, _, damping = _minimise(problem, point, min(damping, 1e-3), 4, 1e-3, 1)
        kappa /= 2
    return _minimise(Projected(entries, loss, reg, reg), point, min(damping, 1e-3), most, 1e-4, 3)[
        0
    ]


def _repair_columns(problem: Projected, point: Point, rng: np.random.Generator) -> Point:
    """Columns in a poor valley: v_j from a random half of their entries and a few reweighted steps, kept where it is lower."""
    columns = problem.entries.columns
    filled = np.flatnonzero(columns.counts > 0)
    column_of_entry = columns.group_of_entry()

    def by_column(p: Point) -> Array:
        losses = np.add.reduceat(problem.loss.value(p.e), columns.pointers[filled])
        return np.asarray(losses + 0.5 * problem.ridge_v * np.square(p.V[filled]).sum(axis=1))

    V, e, low = point.V.copy(), point.e.copy(), by_column(point)
    for _ in range(_REPAIR_TRIES):
        new = problem.at(point.U, (rng.random(len(e)) < 0.5).astype(np.float64))
        for _ in range(3):
            new = problem.at(point.U, problem.weights(new.e))
        value = by_column(new)
        better = np.zeros(len(V), bool)
        better[filled[value < low]] = True
        V[better], low = new.V[better], np.minimum(low, value)
        e[better[column_of_entry]] = new.e[better[column_of_entry]]
    return Point(point.U, V, e, point.Q, point.w)
