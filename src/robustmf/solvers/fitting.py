"""A whole fit: choose the solver, start, set θ, iterate, certify; once or from several starts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from robustmf.exceptions import InterruptedFitWarning, warn_user
from robustmf.inner import InnerRule, make_inner
from robustmf.losses import L1, Loss, rounded
from robustmf.objective import Objective
from robustmf.observed import Observed
from robustmf.operations import Operations
from robustmf.solvers.blas import one_blas_thread
from robustmf.solvers.choose import choose_solver, require_concave
from robustmf.solvers.graduate import Found, better_of, graduated_start
from robustmf.solvers.holdout import Holdout, hold_out
from robustmf.solvers.irls import IRLS
from robustmf.solvers.loop import Callback, Outcome, run
from robustmf.solvers.mm import MM
from robustmf.solvers.problem import Problem, interpolated_sigma
from robustmf.solvers.shrink import Choice, choose
from robustmf.solvers.start import Init, Start, Warm, bias_start, check_init, make_start, without_biases
from robustmf.solvers.varpro import VarPro, oriented, varpro_start

Array = NDArray[np.floating[Any]]

#: θ = √2 · (95 %-efficiency constant) · σ̂, which is 98.7 % efficient: gross outliers lie far beyond either.
_GENEROUS = float(np.sqrt(2))

#: θ/σ̂ of a kinked loss, which no θ makes efficient: the paper's θ = 1 at noise 0.1.
_KINKED_THETA = 10.0

#: Half-width of a kinked loss's rounded tip in ``varpro``, in units of σ̂.
_TIP = 0.01

#: Half-width of the tip of a start by ``varpro``, in units of the values' standard deviation; its noise is not taken to be less.
_START_TIP = 1e-4

#: ``varpro`` takes noise to be so many times what the l1 fit shows: a long side has few entries a column, and one that θ rejects leaves
#: its column all but undetermined.
_WIDER = 2.0

#: Share of the paper's λ that stays where there is no noise: the factors of rows with few entries are then still determined.
_TRACE = 1e-6

#: Noise, in units of the spread, that the search for λ begins with.
_LITTLE = 0.1

#: Certifying runs: tolerance and gap of the MM iterations that follow.
_CERTIFY_TOL, _CERTIFY_GAP = 1e-7, 0.1


@dataclass(frozen=True)
class Settings:
    """What to fit and how; see :class:`robustmf.RobustMF` for each."""

    rank: int
    loss: Loss
    auto_theta: bool
    reg: float
    auto_reg: bool
    reg_by_count: bool
    bias: bool | Literal["auto"]
    bias_unit: float
    solver: str
    inner: str
    rule: InnerRule
    init: Init | Warm
    n_init: int
    certify: bool
    max_iter: int
    tol: float
    callbacks: Sequence[Callback]
    validation_fraction: float | None
    patience: int
    bounds: tuple[float, float]


@dataclass(frozen=True)
class Fit:
    """The result: factors, biases (zero where the model has none), and how it came about."""

    U: Array
    V: Array
    bias: bool
    center: float
    row_bias: Array
    column_bias: Array
    bias_unit: float
    loss: Loss
    reg: float
    outcome: Outcome
    criticality: float
    solver: str
    reason: str

    def predictors(self) -> tuple[Array, Array]:
        """Factors whose product is the prediction, biases included."""
        ones = [np.ones_like(A[:, :1]) for A in (self.U, self.V)]
        left = np.hstack([self.U, self.row_bias[:, None], ones[0]])
        return left, np.hstack([self.V, ones[1], self.column_bias[:, None] + self.V.dtype.type(self.center)])


def fit(settings: Settings, operations: Operations, sample_weights: Array | None, rng: np.random.Generator) -> Fit:
    """The best of ``n_init`` fits: by the validation error each ends with, or else by the objective."""
    check_init(settings.init)
    plain = settings.bias is not True and sample_weights is None and not settings.reg_by_count
    solver, reason = choose_solver(settings.solver, operations.observed, settings.rank, plain, operations.projects)
    if solver == "mm" or settings.certify:
        require_concave(settings.loss)
        make_inner(settings.inner)
        if settings.inner != "apg" and not operations.projects:
            raise ValueError(f"inner={settings.inner!r} needs device='cpu'; on a GPU use inner='apg'")
    if settings.certify and not plain:
        raise ValueError("certify=True goes with the plain model: no bias, weights or reg_by_count")
    streams, holdout = rng.spawn(settings.n_init), None
    if settings.validation_fraction is not None:
        if settings.certify:
            raise ValueError("certify=True goes on to a critical point, validation_fraction stops before one; choose one of them")
        operations, sample_weights, holdout = hold_out(
            operations, sample_weights, settings.validation_fraction, settings.bounds, rng.spawn(1)[0]
        )
    fits: list[Fit] = []
    with nullcontext() if solver == "irls" else one_blas_thread():
        for stream in streams:
            try:
                fits.append(_fit_once(settings, operations, sample_weights, holdout, stream, solver, reason))
            except KeyboardInterrupt:
                if not fits:
                    raise KeyboardInterrupt("fit interrupted while it looked for a start: there is no result to keep yet") from None
                warn_user(f"fit interrupted in start {len(fits) + 1} of {settings.n_init}; the best so far is kept", InterruptedFitWarning)
                break
            if fits[-1].outcome.stopped:
                break
            # fits are compared with each other: one model for all
            settings, solver, reason = replace(settings, bias=fits[0].bias), fits[0].solver, fits[0].reason
    return _best(fits, settings, operations, sample_weights)


def _best(fits: list[Fit], settings: Settings, operations: Operations, sample_weights: Array | None) -> Fit:
    """The fit with the lowest validation error or objective; with several θ, all are measured at the smallest of them."""
    if len(fits) == 1:
        return fits[0]
    if settings.validation_fraction is not None:
        return min(fits, key=lambda found: found.outcome.best_error)
    loss = min((found.loss for found in fits), key=lambda loss: loss.theta)
    objective = Objective(loss, min(found.reg for found in fits))

    def merit(found: Fit) -> float:
        return operations.loss_sum(loss, *found.predictors(), sample_weights) + objective.penalty(found.U, found.V)

    return min(fits, key=merit)


def _fit_once(
    settings: Settings,
    operations: Operations,
    sample_weights: Array | None,
    holdout: Holdout | None,
    rng: np.random.Generator,
    solver: str,
    reason: str,
) -> Fit:
    begun = begin_fit(settings, operations, sample_weights, rng, solver, reason)
    settings, sigma, loss, solver, reason = begun.settings, begun.sigma, begun.loss, begun.solver, begun.reason
    U, V, center, row_bias, column_bias = begun.U, begun.V, begun.center, begun.row_bias, begun.column_bias
    bias, objective = center is not None, Objective(loss, settings.reg)
    watch: dict[str, Any] = {"validation": None if holdout is None else holdout.error, "patience": settings.patience}
    if solver == "mm":
        mm = MM(operations, objective, make_inner(settings.inner), settings.rule)
        outcome = run(mm, U, V, settings.max_iter, settings.tol, settings.callbacks, **watch)
        U, V = outcome.best or mm.factors
        # the certificate is of the last iterate, which validation may not have kept
        measured = mm.criticality() if outcome.best is None or outcome.best_iteration == outcome.iterations else float("nan")
        return Fit(
            U, V, bias, 0.0, row_bias[:, 0], column_bias[:, 0], settings.bias_unit, loss, settings.reg, outcome, measured, solver, reason
        )
    if solver == "varpro":
        varpro = VarPro(operations, Objective(rounded(loss, _TIP * sigma), settings.reg))
        outcome = run(varpro, U, V, settings.max_iter, settings.tol, settings.callbacks, **watch)
        U, V = outcome.best or varpro.factors
    else:
        unit = operations.observed.dtype.type(settings.bias_unit)
        irls = IRLS(operations, objective, sigma, center, sample_weights, settings.reg_by_count, settings.bias_unit)
        if bias:
            U, V = np.hstack([U, row_bias / unit]), np.hstack([V, column_bias / unit])
        outcome = run(irls, U, V, settings.max_iter, settings.tol, settings.callbacks, keep=lambda: irls.own_factors, **watch)
        U, V = outcome.best or irls.own_factors
        if bias:
            U, row_bias, V, column_bias = U[:, :-1].copy(), U[:, -1:] * unit, V[:, :-1].copy(), V[:, -1:] * unit
    measured = float("nan")
    if settings.certify and not outcome.stopped:
        U, V, outcome, measured = _certify(settings, operations, objective, U, V, outcome)
    return Fit(
        U,
        V,
        bias,
        center or 0.0,
        row_bias[:, 0],
        column_bias[:, 0],
        settings.bias_unit,
        loss,
        settings.reg,
        outcome,
        measured,
        solver,
        reason,
    )


@dataclass(frozen=True)
class Beginning:
    """Where the iteration begins: λ, bias and its unit settled in ``settings``, factors and biases (zero without: ``center`` is None), σ̂, θ."""

    settings: Settings
    U: Array
    V: Array
    center: float | None
    row_bias: Array
    column_bias: Array
    sigma: float
    loss: Loss
    solver: str
    reason: str


def begin_fit(
    settings: Settings, operations: Operations, sample_weights: Array | None, rng: np.random.Generator, solver: str, reason: str
) -> Beginning:
    """Look for a start, and settle with it what is "auto"."""
    paper = settings.reg
    if settings.auto_reg:
        problem = Problem(operations, settings.rank, settings.reg)
        paper = _scaled_reg(settings, problem)
        trace = _TRACE if _follows_noise(settings, problem) else 1.0
        settings = replace(settings, reg=paper * trace, bias_unit=float(np.sqrt(problem.spread)))
    begun = _begin(settings, operations, sample_weights, rng, solver)
    if settings.auto_reg and begun.start.ridge is not None:
        if settings.loss.degree == 2:
            settings = replace(settings, reg=max(settings.reg, begun.start.ridge))
        chosen = _chosen(settings, operations, sample_weights, rng) if begun.start.weak else None
        if chosen is not None:
            anew = begun.start.lost or chosen.bias is not begun.bias
            init: Init = "ridge" if anew else (np.asarray(begun.start.U), np.asarray(begun.start.V))
            settings = replace(settings, reg=chosen.reg, bias=chosen.bias, init=init)
            if chosen.bias:
                solver, reason = choose_solver(settings.solver, operations.observed, settings.rank, False, operations.projects)
            begun = _begin(settings, operations, sample_weights, rng, solver)
        elif begun.start.lost:
            settings = replace(settings, reg=max(settings.reg, paper))
            begun = _begin(settings, operations, sample_weights, rng, solver)
    start, sigma = begun.start, max(begun.start.sigma, _least_sigma(operations.observed))
    return Beginning(
        settings, start.U, start.V, begun.center, begun.row_bias, begun.column_bias, sigma, _with_theta(settings, sigma), solver, reason
    )


@dataclass(frozen=True)
class _Begun:
    """A start, and the biases to start with; ``center`` is None where the model has none."""

    start: Start
    center: float | None
    row_bias: Array
    column_bias: Array

    @property
    def bias(self) -> bool:
        return self.center is not None


def _begin(settings: Settings, operations: Operations, sample_weights: Array | None, rng: np.random.Generator, solver: str) -> _Begun:
    m, n = operations.observed.shape
    dtype = operations.observed.dtype
    center: float | None = None
    row_bias, column_bias = (operations.array(np.zeros((k, 1), dtype)) for k in (m, n))
    if settings.bias is True:
        known = settings.init.biases if isinstance(settings.init, Warm) else None
        center, row_bias, column_bias = known or bias_start(operations, settings.reg / settings.bias_unit**2)
    if sample_weights is not None and not sample_weights.all():
        # entries without weight do not shape the start either
        operations = operations.on(operations.observed.select(sample_weights > 0))
    return _Begun(_start(settings, operations, center, row_bias, column_bias, rng, solver), center, row_bias, column_bias)


def _chosen(settings: Settings, operations: Operations, sample_weights: Array | None, rng: np.random.Generator) -> Choice | None:
    """λ, and biases where they are open, by what predicts entries set aside."""
    roomy = settings.rank < operations.largest_rank  # a bias counts as one
    free = settings.bias == "auto" and settings.solver in ("auto", "irls") and not settings.certify and roomy
    biases = (False, True) if free else (settings.bias is True,)
    return choose(
        settings.rank, partial(_with_theta, settings), partial(_least_reg, settings), settings.reg_by_count, settings.bias_unit,
        operations, sample_weights, settings.bounds, biases, rng,
    )  # fmt: skip


def _start(
    settings: Settings,
    operations: Operations,
    center: float | None,
    row_bias: Array,
    column_bias: Array,
    rng: np.random.Generator,
    solver: str,
) -> Start:
    if solver == "varpro" and settings.init == "auto":
        return _varpro_start(settings, operations, rng)
    if center is not None:
        operations = without_biases(operations, center, row_bias, column_bias)
    reg = settings.reg
    if settings.reg_by_count:
        reg *= operations.observed.n_entries / max(operations.observed.shape)
    return make_start(settings.init, Problem(operations, settings.rank, reg), settings.loss, rng)


def _varpro_start(settings: Settings, operations: Operations, rng: np.random.Generator) -> Start:
    """The better of two starts.

    Variable projection from the l1 loss, which needs no θ and gives one; and the graduated start, which is not fooled by outliers
    that form a pattern of their own.
    """
    operations, swapped = oriented(operations)
    problem = Problem(operations, settings.rank, settings.reg)
    size = float(np.std(operations.observed.rows.values)) or 1.0
    tip = _START_TIP * size
    widths: list[float] = []

    def objective_at(residual: Array) -> Objective:
        if not settings.auto_theta:
            return Objective(rounded(settings.loss, tip), settings.reg)
        if settings.loss.degree != 2 or not problem.has_enough_entries:
            return Objective(rounded(L1(), tip), settings.reg)
        sigma = max(_WIDER * interpolated_sigma(residual, problem.free_parameters / operations.observed.n_entries), tip)
        widths.append(sigma)
        return Objective(_with_theta(settings, sigma), problem.ridge(sigma) if settings.auto_reg else settings.reg)

    U, V = varpro_start(operations, settings.rank, objective_at, rng)
    dtype = operations.observed.dtype
    U, V = np.ascontiguousarray(U, dtype), np.ascontiguousarray(V, dtype)
    best = Found(U, V, problem.sigma(problem.residuals(U, V)), sure=False)
    if settings.loss.robust:
        best = better_of(problem, best, graduated_start(problem, rng))
    start = Start.of(best, problem)
    start = replace(start, sigma=max(start.sigma, *widths)) if widths else start
    return replace(start, U=best.V, V=best.U) if swapped else start


def _scaled_reg(settings: Settings, problem: Problem) -> float:
    """The paper's λ in units of the data: its own problem has values of size 2."""
    degree = 1 if settings.loss.degree is None else settings.loss.degree
    size = float(np.hypot(problem.middle, problem.spread))
    return float(settings.reg * (size / 2) ** (degree - 1))


def _follows_noise(settings: Settings, problem: Problem) -> bool:
    """Whether λ will be that of the noise which the start finds: the losses with a noise to speak of, and entries enough to see it."""
    graduated = settings.loss.robust and isinstance(settings.init, str) and settings.init == "auto"
    return graduated and settings.loss.degree == 2 and problem.has_enough_entries


def _least_reg(settings: Settings, problem: Problem) -> float:
    """Where to begin with λ when the noise is not known: where it would be right for noise far below the spread."""
    return float(problem.ridge(_LITTLE * problem.spread)) if settings.loss.degree == 2 else settings.reg


def _least_sigma(observed: Observed) -> float:
    """Where the fit is exact, noise is taken to be this small beside the values."""
    some = observed.rows.values[:: max(1, observed.n_entries // 1_000_000)]
    return 1e-8 * (float(np.median(np.abs(some))) or 1.0)


def _with_theta(settings: Settings, sigma: float) -> Loss:
    loss = settings.loss
    if not settings.auto_theta or not loss.has_scale or loss.degree is None:
        return loss
    return loss.at_scale(sigma * (_KINKED_THETA if loss.efficient_theta is None else _GENEROUS * loss.efficient_theta))


def _certify(
    settings: Settings, operations: Operations, objective: Objective, U: Array, V: Array, outcome: Outcome
) -> tuple[Array, Array, Outcome, float]:
    """MM from where the fast solver ended, until the objective itself (kinks and all) is critical."""
    rule = InnerRule(settings.rule.change, settings.rule.gap or _CERTIFY_GAP, settings.rule.max_iter)
    mm = MM(operations, objective, make_inner(settings.inner), rule)
    after = run(mm, U, V, settings.max_iter, min(settings.tol, _CERTIFY_TOL), settings.callbacks)
    after.reason = f"{after.reason}, by mm after {outcome.iterations} iterations of the fast solver"
    return *mm.factors, after, mm.criticality()
