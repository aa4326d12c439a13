"""A complete fit, in the order of the functions below.

1. :func:`fit` checks the settings and chooses the solver (:func:`check`),
2. and holds entries out for validation.
3. :func:`~robustmf.initialization.pipeline.initialize` finds initial factors and the noise level
   there (θ follows it), λ and biases.
4. :func:`iterate` runs the solver,
5. and certifies the result where that is requested.

With ``n_init`` > 1, steps 3 to 5 are repeated, and the best fit is kept.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.backends.cpu.blas import one_blas_thread
from robustmf.backends.ridge import penalty, ridge
from robustmf.data.factorization import Factorization
from robustmf.data.holdout import Holdout, hold_out, holdout_seed, select_by_hash
from robustmf.exceptions import CheckpointError, InterruptedFitWarning, warn_user
from robustmf.fit_result import FitResult
from robustmf.initialization.initial_point import check_init
from robustmf.initialization.nonnegative import require_nonnegative_init
from robustmf.initialization.pipeline import initialize
from robustmf.initialization.state import Initialization, placed_scales
from robustmf.io.checkpoint import Checkpoint, Progress
from robustmf.solvers.base import Outcome, require_same_layout, run, warn_of_limit
from robustmf.solvers.registry import (
    CERTIFIER,
    SolverChoice,
    SolverProblem,
    get_solver,
    solver_for,
)
from robustmf.solvers.settings import Settings

Array = NDArray[np.floating[Any]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CertifyOptions:
    """Constants of certifying runs.

    Attributes
    ----------
    tol : float
        The tolerance of the MM iterations, unless that of the fit is smaller.
    """

    tol: float = 1e-7


OPTIONS = CertifyOptions()


@dataclass(frozen=True)
class Data:
    """What is fitted, and how it is initialized.

    A fit on a cluster has a subclass (:class:`robustmf.distributed.fitting.ClusterData`).

    Attributes
    ----------
    operations : EntryOperations
        On the entries to fit.
    sample_weights : array over the entries, or None
        The factor of each entry's loss.
    holdout : Holdout or None, default=None
        Entries held out for validation.
    held_out : array of bool over all entries, or None, default=None
        Which entries these are.
    """

    operations: EntryOperations
    sample_weights: Array | None
    holdout: Holdout | None = None
    held_out: NDArray[np.bool_] | None = None

    def initialize(
        self, settings: Settings, rng: np.random.Generator, choice: SolverChoice
    ) -> Initialization:
        """See :func:`robustmf.initialization.pipeline.initialize`."""
        return initialize(settings, self.operations, self.sample_weights, rng, choice)

    def restored(self, parts: dict[str, Any], rank: int | None) -> Factorization:
        """A factorization from a file; its arrays must have the shapes and types of this fit."""
        found = Factorization(**parts)
        rank = found.rank if rank is None else rank
        m, n = self.operations.observed.shape
        number = self.operations.observed.dtype.type(0)
        saved = (found.row_factors, found.column_factors, found.row_bias, found.column_bias)
        shapes = ((m, rank), (n, rank), (m,), (n,))
        require_same_layout(saved, [np.broadcast_to(number, shape) for shape in shapes])
        return found

    def require_weights(self, weights: Array) -> None:
        """Refuse weights from a file that are not a number up to 1 per entry of this fit."""
        entries = np.broadcast_to(np.float64(0), (self.operations.observed.n_entries,))
        require_same_layout((weights,), (entries,))
        if not ((weights >= 0) & (weights <= 1)).all():
            raise CheckpointError("its weights of entries must be between 0 and 1")

    def weights(self, reliability: Array | None) -> Array | None:
        """The factors of the entries' losses, where entries are reliable to this degree."""
        if reliability is None:
            return self.sample_weights
        placed = self.operations.array(reliability.astype(self.operations.observed.dtype))
        return placed if self.sample_weights is None else self.sample_weights * placed

    def of_all_entries(self, reliability: Array | None) -> Array | None:
        """The reliability of all entries: held-out ones have no influence on the fit."""
        if reliability is None or self.held_out is None:
            return reliability
        of_all = np.zeros(len(self.held_out))
        of_all[~self.held_out] = reliability
        return of_all


def fit(
    settings: Settings,
    operations: EntryOperations,
    sample_weights: Array | None,
    rng: np.random.Generator,
    checkpoint: Checkpoint | None = None,
) -> FitResult:
    """The best of ``n_init`` fits.

    Parameters
    ----------
    settings : Settings
    operations : EntryOperations
        On all entries.
    sample_weights : array over the entries, or None
    rng : Generator
        Random numbers of the initialization and of the selection of held-out entries.
    checkpoint : Checkpoint, optional
        Where progress is saved and resumed from.
    """
    choice = check(settings, operations, sample_weights)
    _log.info(
        "%d × %d with %d entries, rank %s, loss %s",
        *operations.observed.shape,
        operations.observed.n_entries,
        "auto" if settings.auto_rank else settings.rank,
        settings.loss.name,
    )
    _log.info("solver %s: %s", choice.spec.name, choice.reason)
    progress = Progress()
    if checkpoint is not None:
        progress, rng = checkpoint.open(
            settings.identity(), operations.observed, sample_weights, rng, operations.array
        )
    streams = rng.spawn(settings.n_init)
    data = Data(operations, sample_weights)
    if settings.validation_fraction is not None:
        data = _hold_out(data, settings.validation_fraction, streams[0])
    best = fit_data(settings, data, streams, choice, progress)
    return replace(best, reliability=data.of_all_entries(best.reliability))


def fit_data(
    settings: Settings,
    data: Data,
    streams: list[np.random.Generator],
    choice: SolverChoice,
    progress: Progress,
) -> FitResult:
    """The best of the fits from each of the ``streams`` of random numbers."""
    results = _fit_all(settings, data, streams, choice, progress)
    best = _best(results, settings, data)
    tol = settings.tol if settings.certify is None else _certifying_tol(settings)
    warn_of_limit(best.outcome, settings.max_iter, tol)
    return best


# --- 1. Check the settings, choose the solver ---


def check(
    settings: Settings, operations: EntryOperations, sample_weights: Array | None
) -> SolverChoice:
    """Refuse incompatible settings; choose the solver."""
    check_init(settings.init)
    if settings.nonnegative:
        require_nonnegative_init(settings.init)
    plain_model = settings.is_plain(sample_weights)
    choice = solver_for(settings, operations, plain_model)
    capabilities = operations.capabilities
    if choice.spec.check is not None:
        choice.spec.check(settings.loss, settings.mm, capabilities)
    if settings.certify is not None:
        if CERTIFIER.check is not None:
            CERTIFIER.check(settings.loss, settings.certify, capabilities)
        if not plain_model or settings.nonnegative:
            raise ValueError(
                "certify=True needs the plain model: no bias, weights, reg_by_count or nonnegative"
            )
        if settings.validation_fraction is not None:
            raise ValueError(
                "certify=True continues to a critical point, validation_fraction stops before one; "
                "choose one of them"
            )
    return choice


# --- 2. Hold out ---


def _hold_out(data: Data, fraction: float, stream: np.random.Generator) -> Data:
    """Hold a fraction of the entries out; equal seeds select the same entries on every backend."""
    operations = data.operations
    weights = data.sample_weights
    selected = select_by_hash(
        operations.observed.to_host(),
        None if weights is None else np.asarray(weights),
        fraction,
        holdout_seed(stream),
    )
    observed, weights, holdout = hold_out(operations.observed, weights, operations.array(selected))
    return Data(operations.on(observed), weights, holdout, selected)


# --- 3. Initialize, for each fit ---


def _fit_all(
    settings: Settings,
    data: Data,
    streams: list[np.random.Generator],
    choice: SolverChoice,
    progress: Progress,
) -> list[FitResult]:
    """One fit per stream of random numbers, without those that a checkpoint has."""
    with progress.reading():
        results = [FitResult.from_parts(parts, settings, data) for parts in progress.ended]
    # densities of outliers underflow to zero, which is no error, whatever the state of np.seterr
    with one_blas_thread(), np.errstate(under="ignore"):
        for stream in streams[len(results) :]:
            if results:
                # fits are compared with each other: all have the model of the first
                settings = replace(settings, bias=results[0].factorization.has_bias)
                choice = SolverChoice(get_solver(results[0].solver), results[0].reason)
            try:
                results.append(_fit_once(settings, data, stream, choice, progress))
            except KeyboardInterrupt:
                if not results:
                    raise KeyboardInterrupt(
                        "fit interrupted during the initialization: there is no result to keep yet"
                    ) from None
                warn_user(
                    f"fit interrupted in initialization {len(results) + 1} of {settings.n_init}; "
                    "the best so far is kept",
                    InterruptedFitWarning,
                )
                break
            if results[-1].outcome.stopped:
                break
            progress.save_result(results[-1].parts())
    return results


def _fit_once(
    settings: Settings,
    data: Data,
    rng: np.random.Generator,
    choice: SolverChoice,
    progress: Progress,
) -> FitResult:
    """Initialize (or take the initialization of a checkpoint), and iterate."""
    with progress.reading():
        saved = progress.prepared
    if saved is None:
        started = time.perf_counter()
        initial = data.initialize(settings, rng, choice)
        seconds = time.perf_counter() - started
        _log.info("initialized in %.3g s: noise %.4g", seconds, initial.sigma)
        progress.save_initialization(initial.parts())
    else:
        with progress.reading():
            initial = Initialization.from_parts(saved, settings, data)
    return iterate(settings, initial, data, progress)


# --- 4. Iterate ---


def iterate(
    settings: Settings, initial: Initialization, data: Data, progress: Progress
) -> FitResult:
    """Run the solver from the initial point; certify the result where that is requested."""
    spec = get_solver(initial.solver)
    center = initial.factorization.center
    loss = initial.loss(settings)
    operations = data.operations
    start = initial.factorization
    scales = None
    if initial.scales is not None:
        operations, scales = equilibrated(operations, initial.scales)
        start = start.scaled(*(1 / scale for scale in scales))
    _log.info(
        "λ %.4g, θ %.4g, %s biases, solver %s",
        initial.reg,
        loss.theta,
        "no" if center is None else "with",
        spec.name,
    )
    problem = SolverProblem(
        operations,
        loss,
        initial.reg,
        initial.sigma,
        center,
        initial.bias_unit,
        data.weights(initial.reliability),
        settings.reg_by_count,
        initial.ridges,
        settings.nonnegative,
        settings.mm,
    )
    solver = spec.build(problem)
    validation = None
    if data.holdout is not None:
        validation = partial(_holdout_error, data.holdout, settings.bounds, scales)
    outcome = run(
        solver,
        *start.augmented(initial.bias_unit),
        settings.max_iter,
        settings.tol,
        settings.callbacks,
        validation=validation,
        patience=settings.patience,
        keep=lambda: solver.augmented_factors,
        progress=progress.loop("fit"),
    )
    U, V = outcome.best or solver.augmented_factors
    criticality = float("nan")
    if spec.criticality is not None:
        # measured at the last iterate, which validation may not have kept
        if outcome.best is None or outcome.best_iteration == outcome.iterations:
            criticality = spec.criticality(solver)
    elif settings.certify is not None and not outcome.stopped:
        U, V, outcome, criticality = _certify(settings, problem, U, V, outcome, progress)
    factorization = start.with_augmented(U, V, initial.bias_unit)
    if scales is not None:
        factorization = factorization.scaled(*scales).centered
    return FitResult(
        factorization,
        initial.bias_unit,
        loss,
        initial.reg,
        outcome,
        criticality,
        initial.solver,
        initial.reason,
        initial.scales,
        initial.candidates,
        initial.reliability,
        None if initial.ridges is None else initial.ridges[0].of_new_row(),
    )


def equilibrated(
    operations: EntryOperations, scales: tuple[Array, Array]
) -> tuple[EntryOperations, tuple[Array, Array]]:
    """Operations on the entries divided by the scales of rows and columns, and these scales there.

    The scales are returned on the device and in the precision of the entries.
    """
    placed = placed_scales(operations, scales)
    return operations.on(operations.observed.divided(*placed)), placed


def _holdout_error(
    holdout: Holdout,
    bounds: tuple[float, float],
    scales: tuple[Array, Array] | None,
    U: Array,
    V: Array,
) -> float:
    """The error on held-out entries of factors of the entries divided by ``scales``."""
    if scales is not None:
        U = U * scales[0][:, None]
        V = V * scales[1][:, None]
    return holdout.error(U, V, bounds)


# --- 5. Certify, choose the best ---


def _certify(
    settings: Settings,
    problem: SolverProblem,
    U: Array,
    V: Array,
    outcome: Outcome,
    progress: Progress,
) -> tuple[Array, Array, Outcome, float]:
    """Continue with MM until the objective itself, without smoothing, is critical."""
    assert settings.certify is not None
    assert CERTIFIER.criticality is not None
    solver = CERTIFIER.build(replace(problem, mm=settings.certify))
    after = run(
        solver,
        U,
        V,
        settings.max_iter,
        _certifying_tol(settings),
        settings.callbacks,
        progress=progress.loop("certify"),
    )
    after.reason = f"{after.reason}, by mm after {outcome.iterations} iterations of the fast solver"
    return *solver.factors, after, CERTIFIER.criticality(solver)


def _certifying_tol(settings: Settings) -> float:
    return min(settings.tol, OPTIONS.tol)


def _best(results: list[FitResult], settings: Settings, data: Data) -> FitResult:
    """The fit with the lowest validation error, or else the lowest objective.

    Objectives are compared at the smallest of the fits' θ and λ, for entries divided by the scales
    of the first fit.
    """
    if len(results) == 1:
        return results[0]
    if settings.validation_fraction is not None:
        return min(results, key=lambda result: result.outcome.best_error)
    loss = min((result.loss for result in results), key=lambda loss: loss.theta)
    reg = min(result.reg for result in results)
    sides = (data.operations.observed, data.operations.observed.transposed)
    ridges = [ridge(reg, settings.reg_by_count, side) for side in sides]
    operations = data.operations
    scales = None
    if results[0].scales is not None:
        operations, scales = equilibrated(operations, results[0].scales)

    def value(result: FitResult) -> float:
        found = result.factorization
        if scales is not None:
            found = found.scaled(*(1 / scale for scale in scales))
        total = operations.loss_sum(loss, *found.predictors(), data.sample_weights)
        return total + sum(map(penalty, ridges, found.augmented(result.bias_unit)))

    return min(results, key=value)
