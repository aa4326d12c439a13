"""A complete fit, in the order of the functions below.

1. :func:`fit` checks the settings, chooses the solver and holds entries out for validation.
2. :func:`initialize` finds initial factors and the noise level there (θ follows it), λ and biases.
3. :func:`iterate` runs the solver, and certifies the result where that is requested.

With ``n_init`` > 1 the last two are repeated, and the best fit is kept.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.backends.cpu.blas import one_blas_thread
from robustmf.backends.ridge import FactorRidge, Ridges, penalty, ridge
from robustmf.data.factorization import Factorization
from robustmf.data.holdout import Holdout, hold_out, holdout_seed, select_by_hash
from robustmf.exceptions import CheckpointError, InterruptedFitWarning, warn_user
from robustmf.initialization.candidates import ModelCandidate
from robustmf.initialization.graduated import Candidate
from robustmf.initialization.initial_point import (
    InitialPoint,
    check_init,
    initial_biases,
    initial_point,
    subtract_biases,
)
from robustmf.initialization.model_choice import Biases, ModelChoice, choose_model
from robustmf.initialization.nonnegative import (
    nonnegative_factorization,
    require_nonnegative_init,
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
    scales : (array, array) or None, default=None
        Scales of the noise of rows and columns, by which the entries were divided.
    candidates : tuple of ModelCandidate, default=()
        The models that were compared.
    """

    factorization: Factorization
    bias_unit: float
    loss: Loss
    reg: float
    outcome: Outcome
    criticality: float
    solver: str
    reason: str
    scales: tuple[Array, Array] | None = None
    candidates: tuple[ModelCandidate, ...] = ()

    def parts(self) -> dict[str, Any]:
        """The result as plain values for a checkpoint, the loss by its θ."""
        return _plain(self) | {"loss": self.loss.theta, "outcome": self.outcome.parts()}

    @classmethod
    def from_parts(cls, parts: dict[str, Any], settings: Settings, data: Data) -> FitResult:
        """The inverse of :meth:`parts`, for a fit with the loss of the settings at any θ."""
        _require_valid(parts)
        theta = parts["loss"]
        loss = settings.loss
        found = data.restored(parts["factorization"], settings.max_rank)
        _require_scales(parts["scales"], found)
        return cls(
            **parts
            | {
                "factorization": found,
                "loss": loss if theta == loss.theta else loss.at_scale(theta),
                "outcome": Outcome.from_parts(parts["outcome"]),
                "candidates": _restored_candidates(parts),
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
    ridges : (FactorRidge, FactorRidge) or None
        The ridge of each augmented factor of rows and columns, where it was learned.
    candidates : tuple of ModelCandidate, default=()
        The models that were compared.
    """

    factorization: Factorization
    sigma: float
    reg: float
    bias_unit: float
    solver: str
    reason: str
    theta: float | None = None
    scales: tuple[Array, Array] | None = None
    ridges: Ridges | None = None
    candidates: tuple[ModelCandidate, ...] = ()

    def parts(self) -> dict[str, Any]:
        """The initialization as plain values for a checkpoint."""
        ridges = None if self.ridges is None else [vars(side) for side in self.ridges]
        return _plain(self) | {"ridges": ridges}

    @classmethod
    def from_parts(cls, parts: dict[str, Any], settings: Settings, data: Data) -> Initialization:
        """The inverse of :meth:`parts`."""
        _require_valid(parts)
        require_number(parts["sigma"], above=0)
        if parts["theta"] is not None:
            require_number(parts["theta"], above=0)
        found = data.restored(parts["factorization"], settings.max_rank)
        _require_scales(parts["scales"], found)
        ridges = None
        if parts["ridges"] is not None:
            rows, columns = (FactorRidge(**side) for side in parts["ridges"])
            n_factors = found.rank + found.has_bias
            rows.require_shape(found.row_factors.shape[0], n_factors)
            columns.require_shape(found.column_factors.shape[0], n_factors)
            ridges = (rows, columns)
        restored = {"factorization": found, "ridges": ridges}
        return cls(**parts | restored | {"candidates": _restored_candidates(parts)})

    def loss(self, settings: Settings) -> Loss:
        """The loss with the θ that is used."""
        if self.theta is None:
            return settings.loss_at(self.sigma)
        return settings.loss.at_scale(self.theta * self.sigma)

    @property
    def transposed(self) -> Initialization:
        """The same for the transposed matrix."""
        scales = None if self.scales is None else (self.scales[1], self.scales[0])
        ridges = None if self.ridges is None else (self.ridges[1], self.ridges[0])
        return replace(
            self, factorization=self.factorization.transposed, scales=scales, ridges=ridges
        )


def _require_valid(parts: dict[str, Any]) -> None:
    """Require that what a saved initialization and a saved result have in common is valid."""
    require_number(parts["reg"], least=0)
    require_number(parts["bias_unit"], above=0)
    get_solver(parts["solver"])
    if not isinstance(parts["reason"], str):
        raise CheckpointError("the reason for its solver is invalid")
    if parts["factorization"]["center"] is not None:
        require_number(parts["factorization"]["center"])


def _require_scales(saved: tuple[Array, Array] | None, found: Factorization) -> None:
    """Require one positive scale per row and column of a saved factorization, or None."""
    if saved is None:
        return
    for scales, biases in zip(saved, (found.row_bias, found.column_bias), strict=True):
        if scales.shape != biases.shape or not (scales > 0).all():
            raise CheckpointError("its scales must be a positive number per row and column")


def _plain(record: FitResult | Initialization) -> dict[str, Any]:
    plain = {part.name: getattr(record, part.name) for part in fields(record)}
    candidates = [vars(candidate) for candidate in record.candidates]
    return plain | {"factorization": dict(vars(record.factorization)), "candidates": candidates}


def _restored_candidates(parts: dict[str, Any]) -> tuple[ModelCandidate, ...]:
    try:
        return tuple(ModelCandidate.from_plain(plain) for plain in parts["candidates"])
    except ValueError as error:
        raise CheckpointError(str(error)) from None


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
    if settings.nonnegative:
        require_nonnegative_init(settings.init)
    plain_model = is_plain(settings, sample_weights)
    choice = _choose_solver(settings, operations, plain_model)
    capabilities = operations.capabilities
    if choice.spec.check is not None:
        choice.spec.check(settings.loss, settings.mm, capabilities)
    if settings.certify is not None:
        if CERTIFIER.check is not None:
            CERTIFIER.check(settings.loss, settings.certify, capabilities)
        if not plain_model or settings.nonnegative:
            raise ValueError(
                "certify=True goes with the plain model: no bias, weights, reg_by_count or "
                "nonnegative"
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
        nonnegative=settings.nonnegative,
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
    with one_blas_thread():
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

    1. The model: center, biases, factors, or biases and factors, and the rank.
    2. The initial point.
    3. λ: given, or that of the noise, or chosen on held-out entries.

    Factors that the data do not support are zero.
    """
    given_rank = settings.max_rank
    model = None
    if settings.auto_rank or _is_searched(settings, choice):
        model = _choose_model(settings, _weighted(operations, sample_weights), rng)
        if settings.auto_rank:
            settings = replace(settings, rank=1 if model is None else model.factors.rank)
            plain = is_plain(settings, sample_weights) and (model is None or model.biases is None)
            choice = _choose_solver(settings, operations, plain)
            _log.info("rank %d found; solver %s", settings.rank, choice.spec.name)
    candidates = () if model is None else model.candidates
    if model is not None and model.biases is not None and _is_searchable(settings):
        return _with_biases(settings, operations, sample_weights, rng, choice, model)
    candidate = None
    if model is not None and _is_searched(settings, choice):
        candidate = model.factors
    least_rank = 1 if given_rank is None else given_rank
    if candidate is not None and candidate.rank == 0:
        # a given rank is used even if the data do not support it
        candidate = candidate.padded(1) if given_rank is None else None
    settings = replace(settings, rank=max(settings.rank, 1))
    paper_reg = settings.reg
    if settings.auto_reg:
        rank = settings.rank if candidate is None else candidate.rank
        problem = Problem(operations, rank, settings.reg)
        settings, paper_reg = in_units(settings, problem, candidate is not None)
    initial = _initial_point(settings, operations, sample_weights, rng, choice, candidate)
    if settings.auto_reg:
        settings, initial = _choose_regularization(
            settings, operations, sample_weights, rng, choice, initial, paper_reg
        )
    factors = initial.factorization
    if settings.nonnegative:
        return replace(
            _nonnegative(
                settings, _weighted(operations, sample_weights), initial, given_rank, choice
            ),
            candidates=candidates,
        )
    ridges = _learned_ridges(settings, initial, given_rank)
    reg = settings.reg
    if ridges is not None:
        assert initial.ridge is not None
        reg = initial.ridge  # of new rows: consistent with θ, also where there is no noise
    return Initialization(
        factors.padded(max(factors.rank, least_rank)),
        _positive(initial.sigma, operations),
        reg,
        settings.bias_unit,
        choice.spec.name,
        choice.reason,
        *_noise_settings(settings, initial),
        ridges,
        candidates,
    )


def _nonnegative(
    settings: Settings,
    operations: EntryOperations,
    initial: InitialPoint,
    given_rank: int | None,
    choice: SolverChoice,
) -> Initialization:
    """The initialization with non-negative factors, from a point without that constraint.

    The ridge of each factor was learned for other factors, and is not used.
    """
    theta, scales = _noise_settings(settings, initial)
    sigma = _positive(initial.sigma, operations)
    factors = initial.factorization
    if scales is not None:
        placed = _placed_scales(operations, scales)
        operations = operations.on(operations.observed.divided(*placed))
        factors = factors.scaled(*(1 / scale for scale in placed))
    factors, noise = nonnegative_factorization(settings, operations, factors, sigma, given_rank)
    if scales is not None:
        factors = factors.scaled(*placed)
    return Initialization(
        factors,
        max(sigma, noise),
        settings.reg,
        settings.bias_unit,
        choice.spec.name,
        choice.reason,
        theta,
        scales,
    )


def _choose_model(
    settings: Settings, operations: EntryOperations, rng: np.random.Generator
) -> ModelChoice | None:
    """The model that predicts entries from the others best, of those that the settings allow."""
    required = settings.bias is True
    open_ = settings.auto_reg and biases_are_open(settings, operations)
    return choose_model(operations, settings.max_rank, required or open_, not required, rng)


def _with_biases(
    settings: Settings,
    operations: EntryOperations,
    sample_weights: Array | None,
    rng: np.random.Generator,
    choice: SolverChoice,
    model: ModelChoice,
) -> Initialization:
    """The initialization of a model with biases, perhaps without factors.

    The unit of the biases is such that λ is the ridge of factors and of row biases. A loss of
    another degree has the λ that predicts held-out entries best.
    """
    factors = model.factors
    biases = model.biases
    assert biases is not None
    rank = factors.rank if settings.max_rank is None else settings.max_rank
    factorization = Factorization(
        factors.U, factors.V, biases.center, biases.row_bias, biases.column_bias
    ).padded(rank)
    settings = replace(settings, bias=True, rank=rank)
    reg = settings.reg
    unit = settings.bias_unit
    ridges = None
    theta = None
    if settings.loss.degree == 2:
        assert factors.noise is not None
        assert factors.ridge is not None
        if settings.auto_theta:
            theta = factors.noise.theta(settings.loss, settings.loss_at(1.0).theta)
        if settings.auto_reg:
            reg = factors.ridge if factors.rank else biases.row_ridge
            unit = math.sqrt(reg / biases.row_ridge)
            ridges = _bias_ridges(factors, biases, rank, unit)
    elif settings.auto_reg:
        problem = Problem(operations, max(rank, 1), settings.reg)
        settings, _ = in_units(replace(settings, rank=max(rank, 1)), problem, learned=True)
        unit = settings.bias_unit
        found = search_regularization(settings, operations, sample_weights, rng)
        reg = settings.reg if found is None else found.reg
    return Initialization(
        factorization,
        _positive(factors.sigma, operations),
        reg,
        unit,
        choice.spec.name,
        choice.reason,
        theta,
        None,
        ridges,
        model.candidates,
    )


def _positive(sigma: float, operations: EntryOperations) -> float:
    """The noise level, at least that of an exact fit."""
    typical = float(np.median(np.abs(sampled_entries(operations.observed)[2])))
    return max(sigma, least_sigma(typical, operations.observed.dtype))


def _is_searchable(settings: Settings) -> bool:
    """Whether initial factors are searched for, if the solver has no initialization of its own."""
    automatic = isinstance(settings.init, str) and settings.init == "auto"
    return automatic and settings.loss.robust


def _is_searched(settings: Settings, choice: SolverChoice) -> bool:
    """Whether initial factors are searched for."""
    return _is_searchable(settings) and not choice.spec.initialized_by_projection


def _weighted(operations: EntryOperations, sample_weights: Array | None) -> EntryOperations:
    """Operations on the entries with weight: others have no influence on the initialization."""
    if sample_weights is None or sample_weights.all():
        return operations
    return operations.on(operations.observed.select(sample_weights > 0))


def _noise_settings(
    settings: Settings, initial: InitialPoint
) -> tuple[float | None, tuple[Array, Array] | None]:
    """θ for the distribution of the noise, and the scales of rows and columns, if learned.

    Scales go with models without biases: biases of a scaled matrix are not those of the matrix.
    """
    if initial.noise is None or settings.loss.degree != 2 or not settings.auto_theta:
        return None, None
    scales = None if initial.factorization.has_bias else initial.noise.scales
    default = settings.loss_at(1.0).theta
    return initial.noise.theta(settings.loss, default), scales


def _learned_ridges(
    settings: Settings, initial: InitialPoint, given_rank: int | None
) -> Ridges | None:
    """The ridge of each factor, where λ is not given and the factors' variances were learned."""
    if initial.ridges is None or settings.loss.degree != 2 or not settings.auto_reg:
        return None
    rows, columns = initial.ridges
    rank = initial.factorization.rank if given_rank is None else given_rank
    return rows.padded(rank), columns.padded(rank)


def _bias_ridges(factors: Candidate, biases: Biases, rank: int, unit: float) -> Ridges:
    """The ridge of each factor and bias; that of biases does not depend on the row."""
    assert factors.ridges is not None
    sides = []
    for side, reg in zip(factors.ridges, (biases.row_ridge, biases.column_ridge), strict=True):
        of_factors = side.common.padded(rank)
        sides.append(of_factors.with_bias(reg * unit * unit))
    return sides[0], sides[1]


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

    λ is the ridge of the noise level. Where that was not learned and the signal is weak, or no
    search for factors was made, λ and biases are those that predict held-out entries best; the
    initial factors are then those found so far, or new ones if these are of no use.
    """
    follows_noise = settings.loss.degree == 2 and initial.ridge is not None
    if follows_noise:
        settings = replace(settings, reg=max(settings.reg, initial.ridge or 0.0))
    learned = initial.noise is not None
    if learned:
        settings = replace(settings, bias=initial.factorization.has_bias)
    if not _is_held_out(settings, initial) or (learned and follows_noise):
        return settings, initial
    found = search_regularization(settings, operations, sample_weights, rng)
    if learned:
        return (settings if found is None else replace(settings, reg=found.reg)), initial
    if found is None and not initial.missed_signal:
        return settings, initial
    if found is None:
        settings = replace(settings, reg=max(settings.reg, paper_reg))
    else:
        init: Init = "ridge"
        factors = initial.factorization
        if not initial.missed_signal and found.bias is factors.has_bias:
            init = (np.asarray(factors.row_factors), np.asarray(factors.column_factors))
        settings = replace(settings, reg=found.reg, bias=found.bias, init=init)
    return settings, _initial_point(settings, operations, sample_weights, rng, choice)


def _is_held_out(settings: Settings, initial: InitialPoint) -> bool:
    """Whether λ is chosen on held-out entries, unless the noise was learned."""
    if initial.ridge is not None:
        return initial.weak_signal
    # least squares; given and random factors have the paper's λ
    return isinstance(settings.init, str) and settings.init != "random"


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
    scales = None
    if initial.scales is not None:
        scales = _placed_scales(operations, initial.scales)
        operations = operations.on(operations.observed.divided(*scales))
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
        initial.scales,
        initial.candidates,
    )


def _placed_scales(operations: EntryOperations, scales: tuple[Array, Array]) -> tuple[Array, Array]:
    """The scales of rows and columns on the device and in the precision of the entries."""
    dtype = operations.observed.dtype
    rows, columns = (operations.array(scale.astype(dtype)) for scale in scales)
    return rows, columns


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
        scales = _placed_scales(operations, results[0].scales)
        operations = operations.on(operations.observed.divided(*scales))

    def value(result: FitResult) -> float:
        found = result.factorization
        if scales is not None:
            found = found.scaled(*(1 / scale for scale in scales))
        total = operations.loss_sum(loss, *found.predictors(), data.sample_weights)
        return total + sum(map(penalty, ridges, found.augmented(result.bias_unit)))

    return min(results, key=value)
