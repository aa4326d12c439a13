"""A complete fit, in the order of the functions below.

1. :func:`fit` checks the settings, chooses the solver and holds entries out for validation.
2. :func:`initialize` finds initial factors and the noise level there (θ follows it), λ and biases.
3. :func:`iterate` runs the solver, and certifies the result where that is requested.

With ``n_init`` > 1 the last two are repeated, and the best fit is kept.
"""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.backends.biases import penalty, ridge
from robustmf.backends.cpu.blas import one_blas_thread
from robustmf.data.factorization import Factorization
from robustmf.data.holdout import Holdout, hold_out, holdout_seed, select_by_hash
from robustmf.exceptions import CheckpointError, InterruptedFitWarning, warn_user
from robustmf.initialization.graduated import Candidate
from robustmf.initialization.initial_point import (
    InitialPoint,
    check_init,
    initial_biases,
    initial_point,
    subtract_biases,
)
from robustmf.initialization.orientation import rows_are_reference, transposed_settings
from robustmf.initialization.problem import Problem, sampled_entries
from robustmf.initialization.regularization import (
    average_reg,
    biases_are_open,
    in_units,
    search_regularization,
)
from robustmf.initialization.scales import least_sigma
from robustmf.initialization.search import sampled_rank, searched_factors
from robustmf.initialization.variable_projection import projection_initialization
from robustmf.io.checkpoint import Checkpoint, Progress
from robustmf.losses import Loss
from robustmf.solvers.base import (
    Outcome,
    require_number,
    require_same_layout,
    run,
    warn_of_limit,
)
from robustmf.solvers.registry import (
    CERTIFIER,
    SolverChoice,
    SolverProblem,
    choose_solver,
    get_solver,
)
from robustmf.solvers.settings import Init, Settings

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

    A fit on a cluster has a class of its own with the same members
    (:class:`robustmf.distributed.fitting.ClusterData`).

    Attributes
    ----------
    operations : EntryOperations
        On the entries to fit.
    sample_weights : array over the entries, or None
        The factor of each entry's loss.
    holdout : Holdout or None
        Entries held out for validation.
    """

    operations: EntryOperations
    sample_weights: Array | None
    holdout: Holdout | None = None

    def initialize(
        self, settings: Settings, rng: np.random.Generator, choice: SolverChoice
    ) -> Initialization:
        """See :func:`initialize`."""
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


@dataclass(frozen=True)
class FitResult:
    """A fitted model, and how it was found.

    Attributes
    ----------
    factorization : Factorization
    bias_unit : float
        The ridge on biases is λ/bias_unit².
    loss : Loss
        With the θ that was used.
    reg : float
        λ.
    outcome : Outcome
        How the iteration ended.
    criticality : float
        The norm of the smallest element of the Clarke subdifferential; NaN where it was not
        measured.
    solver, reason : str
        The solver that was used, and why.
    """

    factorization: Factorization
    bias_unit: float
    loss: Loss
    reg: float
    outcome: Outcome
    criticality: float
    solver: str
    reason: str

    def parts(self) -> dict[str, Any]:
        """The result as plain values for a checkpoint, the loss by its θ."""
        return _plain(self) | {"loss": self.loss.theta, "outcome": self.outcome.parts()}

    @classmethod
    def from_parts(cls, parts: dict[str, Any], settings: Settings, data: Data) -> FitResult:
        """The inverse of :meth:`parts`, for a fit with the loss of the settings at any θ."""
        _require_valid(parts)
        theta = parts["loss"]
        loss = settings.loss
        return cls(
            **parts
            | {
                "factorization": data.restored(parts["factorization"], settings.max_rank),
                "loss": loss if theta == loss.theta else loss.at_scale(theta),
                "outcome": Outcome.from_parts(parts["outcome"]),
            }
        )


@dataclass(frozen=True)
class Initialization:
    """Where the iterations start.

    Attributes
    ----------
    factorization : Factorization
        The initial factors, and biases if the model has them.
    sigma : float
        The noise level there.
    reg : float
        λ.
    bias_unit : float
        The ridge on biases is λ/bias_unit².
    solver, reason : str
        The solver to use, and why.
    theta : float or None
        θ for the distribution of the noise, where that was learned.
    scales : (array, array) or None
        Scales of rows and columns: the noise of an entry is ``sigma`` times both.
    """

    factorization: Factorization
    sigma: float
    reg: float
    bias_unit: float
    solver: str
    reason: str
    theta: float | None = None
    scales: tuple[Array, Array] | None = None

    def parts(self) -> dict[str, Any]:
        """The initialization as plain values for a checkpoint."""
        return _plain(self)

    @classmethod
    def from_parts(cls, parts: dict[str, Any], settings: Settings, data: Data) -> Initialization:
        """The inverse of :meth:`parts`."""
        _require_valid(parts)
        require_number(parts["sigma"], above=0)
        if parts["theta"] is not None:
            require_number(parts["theta"], above=0)
        found = data.restored(parts["factorization"], settings.max_rank)
        if parts["scales"] is not None:
            for scales, biases in zip(
                parts["scales"], (found.row_bias, found.column_bias), strict=True
            ):
                if scales.shape != biases.shape or not (scales > 0).all():
                    raise CheckpointError("its scales must be a positive number per row and column")
        return cls(**parts | {"factorization": found})

    def loss(self, settings: Settings) -> Loss:
        """The loss with the θ that is used."""
        if self.theta is None:
            return settings.loss_at(self.sigma)
        return settings.loss.at_scale(self.theta * self.sigma)

    @property
    def transposed(self) -> Initialization:
        """The same for the transposed matrix."""
        scales = None if self.scales is None else (self.scales[1], self.scales[0])
        return replace(self, factorization=self.factorization.transposed, scales=scales)


def _require_valid(parts: dict[str, Any]) -> None:
    """Require that what a saved initialization and a saved result have in common is valid."""
    require_number(parts["reg"], least=0)
    require_number(parts["bias_unit"], above=0)
    get_solver(parts["solver"])
    if not isinstance(parts["reason"], str):
        raise CheckpointError("the reason for its solver is invalid")
    if parts["factorization"]["center"] is not None:
        require_number(parts["factorization"]["center"])


def _plain(record: FitResult | Initialization) -> dict[str, Any]:
    plain = {part.name: getattr(record, part.name) for part in fields(record)}
    return plain | {"factorization": dict(vars(record.factorization))}


# --- 1. Check, choose the solver, hold out ---


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
    return fit_data(settings, data, streams, choice, progress)


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


def check(
    settings: Settings, operations: EntryOperations, sample_weights: Array | None
) -> SolverChoice:
    """Refuse settings that do not go together; choose the solver."""
    check_init(settings.init)
    plain_model = is_plain(settings, sample_weights)
    choice = _choose_solver(settings, operations, plain_model)
    capabilities = operations.capabilities
    if choice.spec.check is not None:
        choice.spec.check(settings.loss, settings.mm, capabilities)
    if settings.certify is not None:
        if CERTIFIER.check is not None:
            CERTIFIER.check(settings.loss, settings.certify, capabilities)
        if not plain_model:
            raise ValueError(
                "certify=True goes with the plain model: no bias, weights or reg_by_count"
            )
        if settings.validation_fraction is not None:
            raise ValueError(
                "certify=True continues to a critical point, validation_fraction stops before one; "
                "choose one of them"
            )
    return choice


def is_plain(settings: Settings, sample_weights: Array | None) -> bool:
    """Whether the model is the plain one: no biases, weights or λ by count."""
    return settings.bias is not True and sample_weights is None and not settings.reg_by_count


def _choose_solver(
    settings: Settings, operations: EntryOperations, plain_model: bool
) -> SolverChoice:
    observed = operations.observed
    return choose_solver(
        settings.solver,
        observed.shape,
        observed.n_entries,
        settings.rank,
        settings.loss,
        plain_model=plain_model,
        capabilities=operations.capabilities,
    )


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
    return Data(operations.on(observed), weights, holdout)


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
    limited = choice.spec.single_blas_thread or settings.certify is not None
    with one_blas_thread() if limited else nullcontext():
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


# --- 2. Initialize: factors, noise level, λ and biases ---


def initialize(
    settings: Settings,
    operations: EntryOperations,
    sample_weights: Array | None,
    rng: np.random.Generator,
    choice: SolverChoice,
) -> Initialization:
    """Initial factors, the noise level there, λ and biases.

    The solver is another than the chosen one where the rank or the choice of biases requires it. A
    matrix and its transpose have the same initialization, bit for bit.
    """
    if rows_are_reference(operations, sample_weights):
        found = _initialize_oriented(settings, operations, sample_weights, rng, choice)
    else:
        order = operations.observed.column_order
        found = _initialize_oriented(
            transposed_settings(settings, operations),
            operations.transposed,
            None if sample_weights is None else sample_weights[order],
            rng,
            choice,
        ).transposed
    if found.factorization.has_bias and settings.bias is not True:
        settings = replace(settings, rank=found.factorization.rank)
        spec, reason = _choose_solver(settings, operations, plain_model=False)
        found = replace(found, solver=spec.name, reason=reason)
    return found


def _initialize_oriented(
    settings: Settings,
    operations: EntryOperations,
    sample_weights: Array | None,
    rng: np.random.Generator,
    choice: SolverChoice,
) -> Initialization:
    """The initialization in the orientation of ``operations``.

    λ is given, or found in two steps: in units of the data, then by the noise level. Factors that
    the data do not support are zero.
    """
    candidate = None
    given_rank = settings.max_rank
    if settings.auto_rank or _is_searched(settings, choice):
        weighted = _weighted(operations, sample_weights)
        candidate = searched_factors(weighted, settings.max_rank, rng)
        if settings.auto_rank:
            rank = sampled_rank(weighted, rng) if candidate is None else candidate.rank
            settings = replace(settings, rank=rank)
            choice = _choose_solver(settings, operations, is_plain(settings, sample_weights))
            _log.info("rank %d found; solver %s: %s", rank, choice.spec.name, choice.reason)
        if not _is_searched(settings, choice):
            candidate = None
    paper_reg = settings.reg
    if settings.auto_reg:
        rank = settings.rank if candidate is None else candidate.rank
        problem = Problem(operations, rank, settings.reg)
        settings, paper_reg = in_units(settings, problem, candidate is not None)
    initial = _initial_point(settings, operations, sample_weights, rng, choice, candidate)
    if settings.auto_reg and initial.ridge is not None:
        settings, initial = _choose_regularization(
            settings, operations, sample_weights, rng, choice, initial, paper_reg
        )
    typical = float(np.median(np.abs(sampled_entries(operations.observed)[2])))
    sigma = max(initial.sigma, least_sigma(typical, operations.observed.dtype))
    factors = initial.factorization
    return Initialization(
        factors if given_rank is None else factors.padded(given_rank),
        sigma,
        settings.reg,
        settings.bias_unit,
        choice.spec.name,
        choice.reason,
        *_noise_settings(settings, initial, sample_weights),
    )


def _is_searched(settings: Settings, choice: SolverChoice) -> bool:
    """Whether factors without biases are searched for."""
    automatic = isinstance(settings.init, str) and settings.init == "auto"
    by_projection = choice.spec.initialized_by_projection
    return automatic and settings.loss.robust and settings.bias is not True and not by_projection


def _weighted(operations: EntryOperations, sample_weights: Array | None) -> EntryOperations:
    """Operations on the entries with weight: others have no influence on the initialization."""
    if sample_weights is None or sample_weights.all():
        return operations
    return operations.on(operations.observed.select(sample_weights > 0))


def _noise_settings(
    settings: Settings, initial: InitialPoint, sample_weights: Array | None
) -> tuple[float | None, tuple[Array, Array] | None]:
    """θ for the distribution of the noise, and the scales of rows and columns, if learned.

    Scales go with the plain model alone: biases of a scaled matrix are not those of the matrix.
    """
    if initial.noise is None or settings.loss.degree != 2 or not settings.auto_theta:
        return None, None
    plain = not initial.factorization.has_bias and sample_weights is None
    scales = initial.noise.scales if plain and settings.validation_fraction is None else None
    default = settings.loss_at(1.0).theta
    return initial.noise.theta(settings.loss, default), scales


def _initial_point(
    settings: Settings,
    operations: EntryOperations,
    sample_weights: Array | None,
    rng: np.random.Generator,
    choice: SolverChoice,
    candidate: Candidate | None = None,
) -> InitialPoint:
    """The initial point for these settings: biases first, then factors of what they leave."""
    center: float | None = None
    init = settings.init
    if settings.bias is True and isinstance(init, Factorization):
        center = init.center
        row_bias = init.row_bias
        column_bias = init.column_bias
    elif settings.bias is True:
        reg = settings.reg / (settings.bias_unit * settings.bias_unit)
        center, row_bias, column_bias = initial_biases(operations, reg)
    operations = _weighted(operations, sample_weights)
    if choice.spec.initialized_by_projection and init == "auto":
        return projection_initialization(settings, operations, rng)
    if center is not None:
        operations = subtract_biases(operations, center, row_bias, column_bias)
    observed = operations.observed
    reg = average_reg(settings, observed.n_entries, observed.shape)
    if candidate is None and init == "auto" and settings.loss.robust:
        candidate = searched_factors(operations, settings.max_rank, rng)
    rank = settings.rank if candidate is None else candidate.rank
    problem = Problem(operations, rank, reg, settings.loss.degree)
    found = initial_point(init, problem, settings.loss, rng, candidate)
    if center is None:
        return found
    factors = found.factorization
    biased = Factorization(
        factors.row_factors, factors.column_factors, center, row_bias, column_bias
    )
    return replace(found, factorization=biased)


def _choose_regularization(
    settings: Settings,
    operations: EntryOperations,
    sample_weights: Array | None,
    rng: np.random.Generator,
    choice: SolverChoice,
    initial: InitialPoint,
    paper_reg: float,
) -> tuple[Settings, InitialPoint]:
    """Settings with λ, and biases where they are open; and the initial point for them.

    λ is the ridge of the noise level. Where the signal is weak, λ and biases are those that predict
    held-out entries best, unless the noise was learned and biases do not help; the initial factors
    are then those found so far, or new ones if these are of no use.
    """
    if settings.loss.degree == 2:
        assert initial.ridge is not None
        settings = replace(settings, reg=max(settings.reg, initial.ridge))
    learned = initial.noise is not None
    found = None
    if initial.weak_signal and (not learned or biases_are_open(settings, operations)):
        found = search_regularization(settings, operations, sample_weights, rng)
    if learned and (found is None or not found.bias):
        return settings, initial
    biased = None
    if learned:
        pays, biased = _biases_pay(settings, operations, sample_weights, rng, initial)
        if not pays:
            return settings, initial
    if found is None and not initial.missed_signal:
        return settings, initial
    if found is None:
        settings = replace(settings, reg=max(settings.reg, paper_reg))
    else:
        init: Init = "ridge"
        factors = initial.factorization
        if not initial.missed_signal and found.bias is factors.has_bias:
            init = (np.asarray(factors.row_factors), np.asarray(factors.column_factors))
        elif biased is not None:
            init = (np.asarray(biased.U), np.asarray(biased.V))
            settings = replace(settings, rank=biased.rank)
        settings = replace(settings, reg=found.reg, bias=found.bias, init=init)
    return settings, _initial_point(settings, operations, sample_weights, rng, choice)


def _biases_pay(
    settings: Settings,
    operations: EntryOperations,
    sample_weights: Array | None,
    rng: np.random.Generator,
    plain: InitialPoint,
) -> tuple[bool, Candidate | None]:
    """Whether entries given the others are more likely with biases than by factors alone.

    Also returned are the factors beside the biases, or None. Biases are fitted to all entries: each
    effective parameter costs one unit of log likelihood, as in Akaike's criterion.
    """
    operations = _weighted(operations, sample_weights)
    reg = settings.reg / (settings.bias_unit * settings.bias_unit)
    left = subtract_biases(operations, *initial_biases(operations, reg))
    biased = searched_factors(left, settings.max_rank, rng)
    if biased is None:
        return True, None
    observed = operations.observed
    counts = np.concatenate((observed.rows.counts, observed.columns.counts))
    parameters = float((counts / (counts + reg)).sum())
    density = biased.log_density - parameters / observed.n_entries
    return density > plain.log_density, biased


# --- 3. Iterate, certify ---


def iterate(
    settings: Settings, initial: Initialization, data: Data, progress: Progress
) -> FitResult:
    """Run the solver from the initial point; certify the result where that is requested."""
    spec = get_solver(initial.solver)
    center = initial.factorization.center
    loss = initial.loss(settings)
    operations = data.operations
    start = initial.factorization
    if initial.scales is not None:
        scales = [
            operations.array(scale.astype(start.row_factors.dtype)) for scale in initial.scales
        ]
        operations = _scaled(operations, *scales)
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
        data.sample_weights,
        settings.reg_by_count,
        settings.mm,
    )
    solver = spec.build(problem)
    validation = None
    if data.holdout is not None:
        validation = partial(data.holdout.error, bounds=settings.bounds)
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
    if initial.scales is not None:
        factorization = factorization.scaled(*scales)
    return FitResult(
        factorization,
        initial.bias_unit,
        loss,
        initial.reg,
        outcome,
        criticality,
        initial.solver,
        initial.reason,
    )


def _scaled(operations: EntryOperations, row_scale: Array, column_scale: Array) -> EntryOperations:
    """Operations on the entries divided by the scales of their rows and columns."""
    rows = operations.observed.rows
    scale = row_scale[rows.group_of_entry()] * column_scale[rows.indices]
    return operations.on(operations.observed.with_values(rows.values / scale))


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

    Objectives are compared at the smallest of the fits' θ and λ.
    """
    if len(results) == 1:
        return results[0]
    if settings.validation_fraction is not None:
        return min(results, key=lambda result: result.outcome.best_error)
    loss = min((result.loss for result in results), key=lambda loss: loss.theta)
    reg = min(result.reg for result in results)
    sides = (data.operations.observed, data.operations.observed.transposed)
    ridges = [ridge(reg, settings.reg_by_count, side) for side in sides]

    def value(result: FitResult) -> float:
        found = result.factorization
        total = data.operations.loss_sum(loss, *found.predictors(), data.sample_weights)
        return total + sum(map(penalty, ridges, found.augmented(result.bias_unit)))

    return min(results, key=value)
