"""The steps of an initialization, in their order.

1. The model is chosen: center, biases, centers, factors, or these and factors, and the rank.
2. The initial point is found, and the noise level there; θ follows it.
3. λ is chosen: given, or that of the noise, or by the prediction of held-out entries.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.backends.ridge import Ridges
from robustmf.data.factorization import Factorization
from robustmf.initialization.biases import Biases
from robustmf.initialization.graduated import Candidate
from robustmf.initialization.initial_point import (
    InitialPoint,
    initial_biases,
    initial_point,
    subtract_biases,
)
from robustmf.initialization.model_choice import ModelChoice, choose_model
from robustmf.initialization.noise_mixture import NoiseModel
from robustmf.initialization.nonnegative import nonnegative_factorization
from robustmf.initialization.orientation import rows_are_reference, transposed_settings
from robustmf.initialization.problem import Problem, sampled_entries
from robustmf.initialization.regularization import (
    average_reg,
    biases_are_open,
    in_units,
    least_reg,
    search_regularization,
)
from robustmf.initialization.scales import least_sigma
from robustmf.initialization.state import Initialization, placed_scales
from robustmf.initialization.variable_projection import projection_initialization
from robustmf.solvers.registry import SolverChoice, is_automatic, solver_for
from robustmf.solvers.settings import Init, Settings

Array = NDArray[np.floating[Any]]

_log = logging.getLogger(__name__)


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
        if found.reliability is not None:
            by_row = np.empty_like(found.reliability)
            by_row[np.asarray(order)] = found.reliability
            found = replace(found, reliability=by_row)
    if found.factorization.has_bias and settings.bias is not True:
        settings = replace(settings, rank=found.factorization.rank)
        spec, reason = solver_for(settings, operations, plain_model=False)
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

    1. The model: center, biases, centers, factors, or these and factors, and the rank.
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
            plain = settings.is_plain(sample_weights) and (model is None or model.biases is None)
            if is_automatic(settings.solver) and model is not None:
                plain = plain and not _has_learned_ridges(settings, model.factors)
            choice = solver_for(settings, operations, plain)
            _log.info("rank %d found; solver %s", settings.rank, choice.spec.name)
    elif (
        is_automatic(settings.solver)
        and _is_searchable(settings)
        and _has_open_biases(settings, operations)
    ):
        # projection has no biases: whether there are any is decided before
        model = _choose_model(settings, _weighted(operations, sample_weights), rng)
        if model is not None and model.biases is None:
            model = None
    candidates = () if model is None else model.candidates
    if model is not None and model.biases is not None and _is_searchable(settings):
        return _with_biases(settings, operations, sample_weights, rng, choice, model)
    searched = None if model is None else model.factors
    candidate = searched if _is_searched(settings, choice) else None
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
        if model is None and _is_searched(settings, choice):
            # too few entries for a search, or to see their noise
            paper_reg = least_reg(settings, Problem(operations, rank, 0.0))
            settings = replace(settings, reg=min(settings.reg, paper_reg))
    initial = _initial_point(settings, operations, sample_weights, rng, choice, candidate, searched)
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
        None if ridges is None else _of_all_entries(initial.reliability, sample_weights),
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
        placed = placed_scales(operations, scales)
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
    open_ = _has_open_biases(settings, operations)
    with_centers = settings.loss.degree == 2 and settings.auto_reg  # they have ridges of their own
    return choose_model(
        operations, settings.max_rank, required or open_, not required, rng, with_centers
    )


def _has_open_biases(settings: Settings, operations: EntryOperations) -> bool:
    """Whether models with and without biases are compared."""
    return settings.auto_reg and biases_are_open(settings, operations)


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
    if factors.rank > 0:
        biases = biases.beside_factors(_positive(factors.sigma, operations))
    rank = factors.rank if settings.max_rank is None else settings.max_rank
    factorization = Factorization(
        factors.U, factors.V, biases.center, biases.row_bias, biases.column_bias
    ).padded(rank)
    settings = replace(settings, bias=True, rank=rank)
    reg = settings.reg
    unit = settings.bias_unit
    ridges = None
    theta = None
    scales = None
    if settings.loss.degree == 2:
        assert factors.noise is not None
        assert factors.ridge is not None
        if settings.auto_theta:
            theta = factors.noise.theta(settings.loss, settings.loss_at(1.0).theta)
        if settings.auto_reg:
            reg = factors.ridge if factors.rank else biases.row_ridge
            unit = math.sqrt(reg / biases.row_ridge)
            ridges = _bias_ridges(factors, biases, rank, unit)
        if biases.side is not None:
            scales = _scales_of_side(factors.noise, biases.side)
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
        scales,
        ridges,
        model.candidates,
        None if ridges is None else _of_all_entries(factors.reliability, sample_weights),
    )


def _scales_of_side(noise: NoiseModel, side: int) -> tuple[Array, Array]:
    """The noise levels of one side; 1 on the other, which has no centers.

    Centers of columns are centers of the matrix with scaled columns, but not with scaled rows.
    """
    if side == 0:
        return noise.row_scales, np.ones_like(noise.column_scales)
    return np.ones_like(noise.row_scales), noise.column_scales


def _positive(sigma: float, operations: EntryOperations) -> float:
    """The noise level, at least that of an exact fit."""
    return max(sigma, _least_sigma(operations))


def _least_sigma(operations: EntryOperations) -> float:
    """The noise level of an exact fit."""
    typical = float(np.median(np.abs(sampled_entries(operations.observed)[2])))
    return least_sigma(typical, operations.observed.dtype)


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


def _of_all_entries(reliability: Array | None, sample_weights: Array | None) -> Array | None:
    """The reliability of all entries; that of entries without weight has no influence."""
    if reliability is None or sample_weights is None or sample_weights.all():
        return reliability
    of_all = np.zeros(len(sample_weights))
    of_all[np.asarray(sample_weights) > 0] = reliability
    return of_all


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


def _has_learned_ridges(settings: Settings, found: Candidate | InitialPoint) -> bool:
    """Whether each factor has the ridge that was learned with it.

    The rank was chosen with these ridges, and is too high without them: a solver that does not
    have them fits factors to few entries.
    """
    return found.ridges is not None and settings.loss.degree == 2 and settings.auto_reg


def _learned_ridges(
    settings: Settings, initial: InitialPoint, given_rank: int | None
) -> Ridges | None:
    """The ridge of each factor, where λ is not given and the factors' variances were learned."""
    if not _has_learned_ridges(settings, initial):
        return None
    assert initial.ridges is not None
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
    searched: Candidate | None = None,
) -> InitialPoint:
    """The initial point for these settings: biases first, then factors of what they leave.

    ``candidate`` is where the solver starts, if a search was made for it; ``searched`` are the
    factors that any search has found.
    """
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
        return projection_initialization(settings, operations, rng, searched)
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
