"""The choice of the model: a center, biases, factors, or factors beside a center or biases.

Models are compared by the errors of entries that are predicted from the others, and the simplest
one is chosen whose error is the least up to one standard error. Of two models with factors the
one with more evidence is considered. See docs/design/regularization.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.data.statistics import MAD_TO_SIGMA
from robustmf.initialization.blocks import Block
from robustmf.initialization.candidates import ModelCandidate, simplest
from robustmf.initialization.graduated import Candidate
from robustmf.initialization.initial_point import bias_half_step, bias_sweeps, subtract_biases
from robustmf.initialization.problem import sampled_entries
from robustmf.initialization.scales import least_sigma
from robustmf.initialization.search import (
    coarse_block,
    extended,
    noise_of_block,
    refined,
    search_block,
)
from robustmf.initialization.variational import FoundFactors
from robustmf.losses import Huber

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ModelChoiceOptions:
    """Constants of the comparison of models.

    Attributes
    ----------
    cutoff : float
        Errors are truncated at this many standard deviations of the noise,
    exact : float
        or where there is no noise at this share of a typical error of the simplest model.
    constant_share : float
        The share of the constant vector in the span of factors above which these may contain
        biases.
    worthwhile : float
        A second search, with biases, is made where these lower the errors by more than this share.
    unequal_noise : float
        Where the logarithms of the noise levels of rows and columns have a larger standard
        deviation than this, a model with one noise level would fit the most accurate rows alone.
    min_freedom : float
        Lower bound of 1 − leverage: an entry that determines its row alone is not divided by zero.
    no_bias : float
        The ridge of biases that are not part of the model, in units of the largest number of
        entries.
    """

    cutoff: float = 3.0
    exact: float = 1e-6
    constant_share: float = 0.5
    worthwhile: float = 0.01
    unequal_noise: float = 1.5
    min_freedom: float = 0.05
    no_bias: float = 1e6


OPTIONS = ModelChoiceOptions()


@dataclass(frozen=True)
class Biases:
    """Center and biases, with the ridges that belong to them.

    Attributes
    ----------
    center : float
    row_bias, column_bias : array
    row_ridge, column_ridge : float
        The noise variance over the variance of the biases.
    width : float
        Of Huber's loss, by which the biases were fitted.
    """

    center: float
    row_bias: Array
    column_bias: Array
    row_ridge: float
    column_ridge: float
    width: float

    def subtracted_from(self, operations: EntryOperations) -> EntryOperations:
        """Operations on what the biases leave."""
        return subtract_biases(operations, self.center, self.row_bias, self.column_bias)

    def leverage(self, block: Block, residual: Array) -> Array:
        """The leverage of each entry of a block in the regressions for the biases.

        An entry counts with its weight, that of an outlier is small.
        """
        groups = (block.observed.rows, block.observed.columns)
        ridges = (self.row_ridge, self.column_ridge)
        rows, columns = (
            1 / (side.counts[kept] + ridge)
            for side, kept, ridge in zip(groups, block.indices, ridges, strict=True)
        )
        entries = block.of(block.observed).rows
        weights = Huber(self.width).weight(residual)
        return np.asarray(weights * (rows[entries.group_of_entry()] + columns[entries.indices]))

    def divergence(self, block: Block, variance: float) -> float:
        """What the evidence of a block loses by the biases: their information about its entries.

        Half of log(1 + n/λ) + n/(N + λ), for each bias that N entries determine, n of them in the
        block, is the divergence of its posterior from its prior and the expected loss of its
        uncertainty. ``variance`` is that of the noise beside factors, relative to that beside
        biases alone.
        """
        total = 0.0
        entries = block.of(block.observed)
        of_block = (entries.rows, entries.columns)
        of_all = (block.observed.rows, block.observed.columns)
        ridges = (self.row_ridge, self.column_ridge)
        for inside, side, kept, ridge in zip(of_block, of_all, block.indices, ridges, strict=True):
            n = inside.counts
            own = ridge * variance
            total += 0.5 * float((np.log1p(n / own) + n / (side.counts[kept] + own)).sum())
        return total


@dataclass(frozen=True)
class ConsideredModel:
    """A model, and its evidence.

    Attributes
    ----------
    name : str
        As in :class:`ModelCandidate`.
    factors : FoundFactors
        Perhaps none, and the noise.
    biases : Biases or None
        Center and biases; None without.
    evidence : float
        The log evidence; of a model with factors and biases, less what the biases cost.
    """

    name: str
    factors: FoundFactors
    biases: Biases | None
    evidence: float

    @property
    def complexity(self) -> int:
        """The number of parameters of a row."""
        return self.factors.rank + (self.biases is not None)


@dataclass(frozen=True)
class ModelChoice:
    """The model that was chosen.

    Attributes
    ----------
    factors : Candidate
        Its factors, perhaps none, and the noise.
    biases : Biases or None
    candidates : tuple of ModelCandidate
        All models that were compared.
    """

    factors: Candidate
    biases: Biases | None
    candidates: tuple[ModelCandidate, ...]


def choose_model(
    operations: EntryOperations,
    rank: int | None,
    with_biases: bool,
    without_biases: bool,
    rng: np.random.Generator,
) -> ModelChoice | None:
    """The simplest model that predicts entries from the others as well as the best.

    Parameters
    ----------
    operations : EntryOperations
    rank : int or None
        The largest number of factors; None to find it.
    with_biases, without_biases : bool
        Whether models with biases, and models without them, are considered.
    rng : Generator

    Returns
    -------
    ModelChoice or None
        None where there are too few entries to compare models, or where the center leaves nothing
        but zeros.
    """
    block = Block.to_search(operations)
    coarse = coarse_block(operations, block, rank)
    found = _compared(operations, rank, with_biases, without_biases, rng, coarse)
    if coarse is not block:
        if found is None or found.chosen.factors.rank == 0:
            # factors that a part of the entries does not show
            found = _compared(operations, rank, with_biases, without_biases, rng, block)
        else:
            found = _refined(operations, found, rank, rng, coarse, block)
    return None if found is None else found.extended(operations, block)


@dataclass(frozen=True)
class Comparison:
    """Models and their errors.

    Attributes
    ----------
    models : tuple of ConsideredModel
    errors : tuple of array
        Of the entries, truncated.
    best : int
        The index of the chosen one.
    """

    models: tuple[ConsideredModel, ...]
    errors: tuple[Array, ...]
    best: int

    @property
    def chosen(self) -> ConsideredModel:
        """The chosen model."""
        return self.models[self.best]

    @classmethod
    def of(
        cls, models: Sequence[ConsideredModel], open_: Sequence[int], block: Block
    ) -> Comparison:
        """The simplest of the ``open_`` models that predicts as well as the best of them."""
        errors = [_errors(one, block) for one in models]
        errors = _truncated(errors, [errors[k] for k in open_], [models[k] for k in open_])
        best = open_[simplest([errors[k] for k in open_])]
        return cls(tuple(models), tuple(errors), best)

    def extended(self, operations: EntryOperations, block: Block) -> ModelChoice:
        """The chosen model for all rows and columns."""
        candidates = tuple(
            ModelCandidate.from_errors(one.name, one.factors.rank, own, k == self.best)
            for k, (one, own) in enumerate(zip(self.models, self.errors, strict=True))
            if one.complexity > 0
        )
        biases = self.chosen.biases
        remaining = operations if biases is None else biases.subtracted_from(operations)
        factors = extended(remaining, self.chosen.factors, block)
        return ModelChoice(factors, biases, candidates)


def _compared(
    operations: EntryOperations,
    rank: int | None,
    with_biases: bool,
    without_biases: bool,
    rng: np.random.Generator,
    block: Block,
) -> Comparison | None:
    """The models of a block, each searched from nothing."""
    plain = None
    if without_biases:
        plain = search_block(operations, rank, rng, block)
        if plain is None:
            return None
    considered: list[ConsideredModel] = []
    base: Biases | None = None
    if with_biases:
        biases = _placed_biases(operations, block)
        center = replace(_without_biases(operations), center=biases.center, width=biases.width)
        for name, own in (("center", center), ("biases", biases)):
            left = noise_of_block(own.subtracted_from(operations), block)
            if left is None:
                return None
            considered.append(ConsideredModel(name, left, own, left.evidence))
        zero = np.abs(block.of(block.observed).rows.values)
        errors = [zero, *(_errors(one, block) for one in considered)]
        base = (None, center, biases)[simplest(_truncated(errors, errors[1:], considered))]
        if plain is None:
            base = biases
    with_factors = []
    if plain is not None and plain.rank > 0:
        with_factors.append(ConsideredModel("factors", plain, None, plain.evidence))
    if base is not None and (plain is None or _may_have_biases(operations, plain, block)):
        both = search_block(base.subtracted_from(operations), rank, rng, block)
        if both is not None and both.rank > 0:
            name = "biases" if base is biases else "center"
            cost = base.divergence(block, (both.sigma / considered[-1].factors.sigma) ** 2)
            with_factors.append(
                ConsideredModel(f"{name} and factors", both, base, both.evidence - cost)
            )
    considered += with_factors
    if not considered:
        assert plain is not None
        considered = [ConsideredModel("factors", plain, None, plain.evidence)]
    preferred = _with_more_evidence(with_factors)
    open_ = [k for k, one in enumerate(considered) if one is preferred or one not in with_factors]
    return Comparison.of(considered, open_, block)


def _refined(
    operations: EntryOperations,
    found: Comparison,
    rank: int | None,
    rng: np.random.Generator,
    coarse: Block,
    block: Block,
) -> Comparison:
    """The model that was chosen on the coarse block, and those without factors, on a larger one."""
    models = []
    for one in found.models:
        left = operations if one.biases is None else one.biases.subtracted_from(operations)
        if one is found.chosen:
            factors = refined(left, one.factors, coarse, block, rank, rng)
        elif one.factors.rank == 0:
            residuals = block.of(left.host().observed).rows.values
            factors = replace(one.factors, residuals=np.asarray(residuals, np.float64))
        else:
            continue
        models.append(replace(one, factors=factors))
    compared = Comparison.of(models, range(len(models)), block)
    chosen = compared.chosen
    if chosen.factors.rank > 0 or chosen.biases is None:
        return compared
    noise = noise_of_block(chosen.biases.subtracted_from(operations), block)
    assert noise is not None
    models[compared.best] = replace(chosen, factors=noise)
    return replace(compared, models=tuple(models))


def _with_more_evidence(models: Sequence[ConsideredModel]) -> ConsideredModel | None:
    """The model with factors that is considered, without biases or beside them.

    The simpler one if its evidence is that of the other up to one standard error, which is that of
    the difference of the log densities of the same entries; and the one without biases where the
    noise levels of rows and columns differ much: models with biases are fitted in the given units,
    with one noise level for all entries.
    """
    if len(models) < 2:
        return models[0] if models else None
    plain, both = models
    if both.factors.noise.log_deviation > OPTIONS.unequal_noise:
        return plain
    simple, other = sorted(models, key=lambda one: one.complexity)
    difference = other.factors.log_densities - simple.factors.log_densities
    error = float(difference.std()) * math.sqrt(len(difference))
    return simple if other.evidence - simple.evidence <= error else other


def _may_have_biases(operations: EntryOperations, plain: FoundFactors, block: Block) -> bool:
    """Whether a model with biases beside factors can be better than these factors.

    A bias is a factor of which the other side is constant. So either the factors contain most of
    the constant vector, or biases explain a part of what the factors leave; where neither is the
    case, there are none.
    """
    if plain.rank == 0:
        return True
    observed = block.of(block.observed)
    for factors, groups in ((plain.U, observed.rows), (plain.V, observed.columns)):
        counts = groups.counts
        root = np.sqrt(counts)
        basis = np.linalg.qr(factors * root[:, None])[0]
        if np.square(root @ basis).sum() > OPTIONS.constant_share * counts.sum():
            return True
    left = operations.host().on(observed.with_values(plain.residuals.astype(observed.dtype)))
    biases = learned_biases(left)
    explained = replace(
        plain, residuals=np.asarray(biases.subtracted_from(left).observed.rows.values)
    )
    whole = Block(left.observed, None, None)
    models = [
        ConsideredModel("", plain, None, plain.evidence),
        ConsideredModel("", explained, biases, plain.evidence),
    ]
    errors = [_errors(one, whole) for one in models]
    own, less = (float(error.mean()) for error in _truncated(errors, errors[1:], models[1:]))
    return less < (1 - OPTIONS.worthwhile) * own


def _truncated(
    errors: Sequence[Array], of_models: Sequence[Array], models: Sequence[ConsideredModel]
) -> list[Array]:
    """Errors, but at most three noise levels: a model must not be better by fitting outliers.

    The noise level is the lowest of these models, which have the errors ``of_models``. Errors below
    that of an exact fit are all equal.
    """
    typical = float(np.median(errors[0])) or 1.0
    least = least_sigma(typical, errors[0].dtype)
    # σ belongs to an entry whose row and column have scale 1: most errors may be larger
    noise = min(
        max(model.factors.sigma, MAD_TO_SIGMA * float(np.median(own)))
        for model, own in zip(models, of_models, strict=True)
    )
    most = max(OPTIONS.cutoff * noise, OPTIONS.exact * typical)
    return [np.clip(own, least, most) for own in errors]


def _errors(model: ConsideredModel, block: Block) -> Array:
    """Absolute errors of the entries of a block, each predicted from the others.

    Biases were fitted to all entries: the leave-one-out residual is larger by the leverage.
    """
    residuals = model.factors.residuals
    if model.biases is None:
        return np.abs(residuals)
    leverage = model.biases.leverage(block, residuals)
    return np.asarray(np.abs(residuals) / np.maximum(1 - leverage, OPTIONS.min_freedom))


def _placed_biases(operations: EntryOperations, block: Block) -> Biases:
    """Biases in the memory of the device that has the entries.

    Those of data that are searched whole are computed on the host, as factors are: with the same
    bits on every device.
    """
    if block.rows is not None:
        return learned_biases(operations)
    found = learned_biases(operations.host())
    row_bias, column_bias = map(operations.array, (found.row_bias, found.column_bias))
    return replace(found, row_bias=row_bias, column_bias=column_bias)


def learned_biases(operations: EntryOperations) -> Biases:
    """Center and biases by Huber regressions, with ridges learned from the biases themselves."""
    observed = operations.observed
    center, losses = bias_sweeps(observed.rows.values)
    b, c = (operations.array(np.zeros((k, 1), observed.dtype)) for k in observed.shape)
    i, j, values = sampled_entries(operations.host().observed)
    ridges = [1.0, 1.0]
    sides = ((operations, b, c), (operations.transposed, c, b))
    for loss in losses:
        for side, (own_operations, own, other) in enumerate(sides):
            bias_half_step(own_operations, loss, ridges[side], own, other, center)
            row_bias, column_bias = (np.asarray(bias)[:, 0] for bias in (b, c))
            residual = values - row_bias[i] - column_bias[j] - values.dtype.type(center)
            sigma = MAD_TO_SIGMA * float(np.median(np.abs(residual)))
            counts = np.asarray(own_operations.observed.rows.counts)
            ridges[side] = _learned_ridge(np.asarray(own)[:, 0], counts, sigma, ridges[side])
    return Biases(center, b[:, 0], c[:, 0], ridges[0], ridges[1], losses[-1].theta)


def _learned_ridge(
    biases: Array, counts: NDArray[np.integer[Any]], sigma: float, ridge: float
) -> float:
    """Noise variance over the variance of the biases: a step of expectation maximization."""
    filled = counts > 0
    if sigma <= 0:
        return ridge
    z = biases[filled].astype(np.float64) / sigma
    return float(1 / np.mean(z * z + 1 / (counts[filled] + ridge)))


def _without_biases(operations: EntryOperations) -> Biases:
    """Biases that are zero, and remain so."""
    observed = operations.observed
    zeros = [operations.array(np.zeros(k, observed.dtype)) for k in observed.shape]
    most = max(int(np.asarray(side.counts).max()) for side in (observed.rows, observed.columns))
    ridge = OPTIONS.no_bias * most
    return Biases(0.0, zeros[0], zeros[1], ridge, ridge, 1.0)
