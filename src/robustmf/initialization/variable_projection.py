"""The initialization of the solver ``varpro``: the better of two initial points.

Variable projection from the l1 loss needs no θ and provides one. Graduated non-convexity is not
misled by outliers that have a low-rank structure of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf import phases
from robustmf.backends.base import EntryOperations
from robustmf.initialization.graduated import Candidate, better_of, polish
from robustmf.initialization.initial_point import InitialPoint, default_candidate
from robustmf.initialization.problem import Problem, interpolated_sigma
from robustmf.losses import L1, Loss, smoothed
from robustmf.solvers.objective import Objective
from robustmf.solvers.projection import (
    Entries,
    LevenbergMarquardt,
    Point,
    Projected,
    balanced,
    orthonormal,
)
from robustmf.solvers.settings import Settings
from robustmf.solvers.varpro import oriented

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class StoppingRule:
    """When a minimization by Levenberg–Marquardt steps ends.

    Attributes
    ----------
    max_iter : int
        The largest number of steps.
    tol : float
        A step is small if it decreases the value by no more than this share of it.
    patience : int
        The number of small steps in a row that end the minimization.
    """

    max_iter: int
    tol: float
    patience: int


@dataclass(frozen=True)
class ProjectionOptions:
    """Constants of the initialization.

    Attributes
    ----------
    ridge_path : tuple of float
        Ridges on V along a run from a random subspace, in units of the weight of a zero residual:
        few effective factors first, then all.
    max_runs : int
        The largest number of runs from random subspaces.
    agreements : int
        The best value must be reached by this many runs before the search ends.
    agreement_tol : float
        The relative difference within which two values count as the same.
    random_smoothing, convex_smoothing : float
        Smoothing widths of the l1 loss in these runs and in the convex stage, in units of the
        values' standard deviation.
    smoothing : float
        The smoothing width of the final loss, and the smallest noise level, in the same unit.
    repair_attempts : int
        Random parts of a column's entries that the repair of columns tries.
    noise_factor : float
        The noise level is taken to be this many times what the residuals show, those of the l1 fit
        and those of the initial point: columns of the long side have few entries, and one that θ
        rejects leaves its column nearly undetermined.
    random_damping : float
        The damping of the first step from a random subspace.
    damping : float
        The largest damping of the first step of any other minimization.
    ridge_stop, random_stop : StoppingRule
        The end at each ridge of ``ridge_path`` (a fixed number of steps), and without a ridge.
    kappa_stop, convex_stop, final_stop : StoppingRule
        The end at each κ > 1 of :class:`ScaledLoss`, at κ = 1 with the convex loss, and at κ = 1
        with the final loss.
    typical_residual : float
        In the final stage κ begins where a residual of this many times the median absolute one
        has at least ``typical_weight``; in the convex stage, where the root mean square has.
    typical_weight : float
        A share of the weight of a zero residual.
    max_kappa : float
        The largest κ, for losses with a very large weight at zero.
    repair_rounds : int
        How often columns are repaired, each time followed by a minimization.
    repair_share : float
        The expected share of a column's entries in a random part.
    repair_steps : int
        Reweighted steps from each random part.
    """

    ridge_path: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4)
    max_runs: int = 10
    agreements: int = 2
    agreement_tol: float = 1e-2
    random_smoothing: float = 0.03
    convex_smoothing: float = 1e-3
    smoothing: float = 1e-4
    repair_attempts: int = 20
    noise_factor: float = 2.0
    random_damping: float = 1e-2
    damping: float = 1e-3
    ridge_stop: StoppingRule = StoppingRule(5, 0.0, 5)
    random_stop: StoppingRule = StoppingRule(80, 1e-4, 3)
    kappa_stop: StoppingRule = StoppingRule(4, 1e-3, 1)
    convex_stop: StoppingRule = StoppingRule(15, 1e-4, 3)
    final_stop: StoppingRule = StoppingRule(30, 1e-4, 3)
    typical_residual: float = 16.0
    typical_weight: float = 0.5
    max_kappa: float = 2.0**40
    repair_rounds: int = 2
    repair_share: float = 0.5
    repair_steps: int = 3


OPTIONS = ProjectionOptions()


def projection_initialization(
    settings: Settings,
    operations: EntryOperations,
    rng: np.random.Generator,
    searched: Candidate | None = None,
) -> InitialPoint:
    """The better of the two initial points.

    ``searched`` is the result of a search that was made already, in the orientation of
    ``operations``.
    """
    operations, swapped = oriented(operations)
    observed = operations.observed
    problem = Problem(operations, settings.rank, settings.reg, settings.loss.degree)
    size = float(np.std(observed.rows.values)) or 1.0
    smoothing = OPTIONS.smoothing * size
    follows_noise = settings.auto_theta and settings.loss.degree == 2 and problem.has_enough_entries

    def noise(residual: Array) -> float:
        share = problem.free_parameters / observed.n_entries
        return max(OPTIONS.noise_factor * interpolated_sigma(residual, share), smoothing)

    def objective_at(residual: Array) -> Objective:
        if not settings.auto_theta:
            return Objective(smoothed(settings.loss, smoothing), settings.reg)
        if not follows_noise:
            reg = problem.reg_for(L1.degree, settings.reg, settings.loss.degree)
            return Objective(smoothed(L1(), smoothing), reg)
        sigma = noise(residual)
        reg = problem.ridge(sigma) if settings.auto_reg else settings.reg
        return Objective(settings.loss_at(sigma), reg)

    U, V = projected_factors(operations, settings.rank, objective_at, rng)
    U = np.ascontiguousarray(U, observed.dtype)
    V = np.ascontiguousarray(V, observed.dtype)
    best = Candidate(U, V, problem.noise(problem.residuals(U, V)))
    if settings.loss.robust:
        if searched is None or searched.rank == 0:
            searched = default_candidate(problem, rng)
        elif swapped:
            searched = searched.transposed
        other = searched.padded(settings.rank)
        # at a minimum, as the first is: posterior means alone would be compared with one
        U = other.U.copy()
        V = other.V.copy()
        sigma = polish(problem, U, V, other.sigma)
        best = better_of(problem, best, replace(other, U=U, V=V, sigma=sigma))
    initial = InitialPoint.from_candidate(best, problem)
    if follows_noise:
        # of the candidate that is kept: the other may have ended in a poor local minimum
        sigma = noise(problem.residuals(best.U, best.V))
        initial = replace(initial, sigma=max(initial.sigma, sigma))
    if swapped:
        return initial.transposed
    return initial


def projected_factors(
    operations: EntryOperations,
    rank: int,
    objective_at: Callable[[Array], Objective],
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Factors by variable projection from random subspaces.

    Runs with the l1 loss until two agree; then the loss is changed from a convex one to the final
    one step by step, and columns are repaired.

    Parameters
    ----------
    operations : EntryOperations
        With the short side as rows.
    objective_at : callable
        Loss and λ for the residuals of the l1 fit.
    """
    entries = Entries(operations.observed, operations.team)
    size = float(np.std(entries.values)) or float(np.abs(entries.values).max()) or 1.0
    point = _best_run(entries, smoothed(L1(), OPTIONS.random_smoothing * size), rank, rng)
    convex = smoothed(L1(), OPTIONS.convex_smoothing * size)
    typical = np.sqrt(np.mean(point.e**2))
    point = _graduate(entries, convex, 0.0, point, typical, OPTIONS.convex_stop)
    objective = objective_at(point.e)
    loss = objective.loss
    reg = objective.reg
    typical = OPTIONS.typical_residual * float(np.median(np.abs(point.e)))
    point = _graduate(entries, loss, reg, point, typical, OPTIONS.final_stop)
    problem = Projected(entries, loss, reg, reg)
    if not _is_convex(loss):
        for _ in range(OPTIONS.repair_rounds):
            repaired = _repair_columns(problem, point, rng)
            point = _minimize(problem, repaired, OPTIONS.damping, OPTIONS.final_stop)[0]
    return point.U, point.V


@dataclass(frozen=True)
class ScaledLoss(Loss):
    """φ_κ(a) = κ²φ(a/κ): least squares for large κ, the loss itself for κ = 1, increasing in κ."""

    base: Loss | None = None
    kappa: float = 1.0

    name = "scaled"

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


def _is_convex(loss: Loss) -> bool:
    """Whether the loss is convex: each column then has one minimum, and nothing to repair."""
    a = np.geomspace(1e-3, 1e3, 200) * loss.theta
    return bool(np.all(np.diff(loss.derivative(a)) >= -1e-12))


def _minimize(
    problem: Projected, point: Point, damping: float, stop: StoppingRule
) -> tuple[Point, float, float]:
    """Step until the rule ends it; returns the point, its value and the damping."""
    steps = LevenbergMarquardt(problem, point, damping)
    small = 0
    for _ in range(stop.max_iter):
        before = steps.value
        if not steps.step():
            break
        small = small + 1 if before - steps.value <= stop.tol * abs(steps.value) else 0
        if small >= stop.patience:
            break
    return steps.point, steps.value, steps.damping


def _run_from_random_subspace(
    entries: Entries, loss: Loss, rank: int, rng: np.random.Generator
) -> tuple[Point, float]:
    U = orthonormal(rng.standard_normal((entries.shape[0], rank)))
    weight_at_zero = float(loss.weight(np.zeros(1))[0])
    w = np.full(len(entries.values), weight_at_zero)
    damping = OPTIONS.random_damping
    for share in OPTIONS.ridge_path:
        problem = Projected(entries, loss, 0.0, share * weight_at_zero)
        point, _, damping = _minimize(problem, problem.at(U, w), damping, OPTIONS.ridge_stop)
        U = point.U
        w = point.w
    problem = Projected(entries, loss, 0.0, 0.0)
    return _minimize(problem, problem.at(U, w), damping, OPTIONS.random_stop)[:2]


def _best_run(entries: Entries, loss: Loss, rank: int, rng: np.random.Generator) -> Point:
    """The best of several random runs, until enough of them agree."""
    values: list[float] = []
    best: Point | None = None
    phases.begin("initialization, random runs", OPTIONS.max_runs, at_most=True)
    for number in range(OPTIONS.max_runs):
        phases.step(number)
        point, value = _run_from_random_subspace(entries, loss, rank, rng)
        if best is None or value < min(values):
            best = point
        values.append(value)
        limit = min(values) * (1 + OPTIONS.agreement_tol)
        if sum(v <= limit for v in values) >= OPTIONS.agreements:
            break
    assert best is not None
    return best


def _graduate(
    entries: Entries, loss: Loss, reg: float, point: Point, typical: float, stop: StoppingRule
) -> Point:
    """Halve κ from where a typical residual has a large enough weight, down to 1."""
    if reg > 0:
        U, V = balanced(point.U, point.V)
        point = Point(U, V, point.e, point.Q, point.w)
    kappa = 1.0
    pair = np.array([0.0, typical])
    while kappa < OPTIONS.max_kappa:
        at_zero, at_typical = loss.weight(pair / kappa)
        if at_typical >= OPTIONS.typical_weight * at_zero:
            break
        kappa *= 2
    damping = OPTIONS.damping
    while kappa > 1:
        problem = Projected(entries, ScaledLoss(base=loss, kappa=kappa), reg, reg)
        damping = min(damping, OPTIONS.damping)
        point, _, damping = _minimize(problem, point, damping, OPTIONS.kappa_stop)
        kappa /= 2
    problem = Projected(entries, loss, reg, reg)
    return _minimize(problem, point, min(damping, OPTIONS.damping), stop)[0]


def _repair_columns(problem: Projected, point: Point, rng: np.random.Generator) -> Point:
    """Refit columns in poor local minima.

    v_j is computed from a random part of the column's entries and a few reweighted steps, and kept
    where the objective is lower.
    """
    columns = problem.entries.columns
    filled = np.flatnonzero(columns.counts > 0)
    column_of_entry = columns.group_of_entry()

    def by_column(p: Point) -> Array:
        losses = np.add.reduceat(problem.loss.value(p.e), columns.pointers[filled])
        return np.asarray(losses + 0.5 * problem.ridge_v * np.square(p.V[filled]).sum(axis=1))

    V = point.V.copy()
    e = point.e.copy()
    lowest = by_column(point)
    for _ in range(OPTIONS.repair_attempts):
        new = problem.at(point.U, (rng.random(len(e)) < OPTIONS.repair_share).astype(np.float64))
        for _ in range(OPTIONS.repair_steps):
            new = problem.at(point.U, problem.weights(new.e))
        value = by_column(new)
        better = np.zeros(len(V), bool)
        better[filled[value < lowest]] = True
        V[better] = new.V[better]
        lowest = np.minimum(lowest, value)
        e[better[column_of_entry]] = new.e[better[column_of_entry]]
    return Point(point.U, V, e, point.Q, point.w)
