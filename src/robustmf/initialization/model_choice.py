"""The choice of the model: a center, biases or centers, factors, or factors beside these.

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
from robustmf.data.observed import Observed
from robustmf.data.statistics import MAD_TO_SIGMA
from robustmf.initialization.biases import (
    Biases,
    center_alone,
    centers_of_side,
    learned_biases,
    side_of_units,
)
from robustmf.initialization.blocks import Block
from robustmf.initialization.candidates import ModelCandidate, simplest
from robustmf.initialization.graduated import Candidate
from robustmf.initialization.noise_mixture import NoiseModel
from robustmf.initialization.scales import least_sigma
from robustmf.initialization.search import (
    extended,
    noise_of_entries,
    refined,
    search_entries,
    search_in_blocks,
)
from robustmf.initialization.variational import FoundFactors

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
    """

    cutoff: float = 3.0
    exact: float = 1e-6
    constant_share: float = 0.5
    worthwhile: float = 0.01
    unequal_noise: float = 1.5
    min_freedom: float = 0.05


OPTIONS = ModelChoiceOptions()


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
        Center and biases, or centers of one side; None without.
    evidence : float
        The log evidence; of a model with factors and biases, less what the biases cost.
    """

    name: str
    factors: FoundFactors
    biases: Biases | None
    evidence: float

    @property
    def base(self) -> str:
        """The part of the model without factors: "center" …; "factors" for none."""
        return self.name.split()[0]

    @property
    def complexity(self) -> int:
        """The number of parameters of a row."""
        return self.factors.rank + (self.biases is not None)

    @property
    def side(self) -> int | None:
        """The side whose centers the model has; None without."""
        return None if self.biases is None else self.biases.side


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
    with_centers: bool = True,
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
    with_centers : bool, default=True
        Whether models with biases include those with centers of one side.

    Returns
    -------
    ModelChoice or None
        None where there are too few entries for factors, if these are required.
    """

    def search(part: EntryOperations) -> Comparison | None:
        return _compared(part, rank, with_biases, without_biases, rng, with_centers)

    def refine(
        inside: EntryOperations, found: Comparison, coarse: Block, block: Block
    ) -> Comparison | None:
        return _refined(inside, found, rank, rng, coarse, block)

    found, block = search_in_blocks(
        operations, rank, search, refine, lambda one: one.chosen.factors
    )
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
        cls, models: Sequence[ConsideredModel], open_: Sequence[int], observed: Observed
    ) -> Comparison:
        """The simplest of the ``open_`` models that predicts as well as the best of them."""
        errors = [_errors(one, observed) for one in models]
        unit = _unit(models, observed)
        if unit is not None:
            errors = [own / unit for own in errors]
        errors = _truncated(errors, [errors[k] for k in open_], [models[k] for k in open_])
        best = open_[simplest([errors[k] for k in open_], observed)]
        return cls(tuple(models), tuple(errors), best)

    def extended(self, operations: EntryOperations, block: Block) -> ModelChoice:
        """The chosen model for all rows and columns."""
        candidates = tuple(
            ModelCandidate.from_errors(one.name, one.factors.rank, own, k == self.best)
            for k, (one, own) in enumerate(zip(self.models, self.errors, strict=True))
            if one.complexity > 0
        )
        biases = self.chosen.biases
        if biases is None:
            remaining = operations
        else:
            biases = _of_all(self.chosen, operations, block)
            remaining = biases.subtracted_from(operations)
        factors = extended(remaining, self.chosen.factors, block)
        return ModelChoice(factors, biases, candidates)


def _of_all(model: ConsideredModel, operations: EntryOperations, block: Block) -> Biases:
    """The biases of a model of a block, for all rows and columns.

    Those of data that were searched whole were computed on the host, as factors are: with the same
    bits on every device.
    """
    if not block.is_whole:
        return _bases(operations, model.side)[model.base]
    assert model.biases is not None
    arrays = (model.biases.row_bias, model.biases.column_bias)
    row_bias, column_bias = map(operations.array, arrays)
    return replace(model.biases, row_bias=row_bias, column_bias=column_bias)


def _bases(operations: EntryOperations, side: int | None = None) -> dict[str, Biases]:
    """Models without factors, in the order of their complexity; centers of a side if given."""
    biases = learned_biases(operations)
    bases = {"center": center_alone(operations, biases), "biases": biases}
    if side is not None:
        bases["centers"] = centers_of_side(operations, side)
    return bases


def _log_deviations(noise: NoiseModel) -> tuple[float, float]:
    """The standard deviations of the logarithms of the noise levels of rows and columns."""
    rows, columns = (float(np.std(np.log(own))) for own in (noise.row_scales, noise.column_scales))
    return rows, columns


def _unit(models: Sequence[ConsideredModel], observed: Observed) -> Array | None:
    """The noise level of each entry about centers of its row or column; None without centers."""
    for one in models:
        if one.side is not None and one.factors.rank == 0:
            noise = one.factors.noise
            rows = observed.rows
            unit = noise.row_scales[rows.group_of_entry()] * noise.column_scales[rows.indices]
            return np.asarray(unit)
    return None


def _compared(
    operations: EntryOperations,
    rank: int | None,
    with_biases: bool,
    without_biases: bool,
    rng: np.random.Generator,
    with_centers: bool = True,
) -> Comparison | None:
    """The models of these entries, each searched from nothing."""
    observed = operations.observed
    plain = None
    if without_biases:
        plain = search_entries(operations, rank, rng)
        if plain is None and not (with_biases and rank is None):
            return None
    considered: list[ConsideredModel] = []
    base: str | None = None
    if with_biases:
        bases = _bases(operations)
        considered = [_without_factors(operations, name, own) for name, own in bases.items()]
        side = side_of_units(observed) if with_centers else None
        if side is not None:
            centers = centers_of_side(operations, side)
            about_centers = _without_factors(operations, "centers", centers)
            if about_centers.evidence > considered[0].evidence:
                bases["centers"] = centers
                considered.append(about_centers)
        errors = [np.abs(observed.rows.values)]
        errors += [_errors(one, observed) for one in considered]
        best = (None, *bases)[simplest(_truncated(errors, errors[1:], considered), observed)]
        base = "biases" if plain is None else best
        if "centers" in bases:
            base = "centers"
    with_factors = []
    if plain is not None and plain.rank > 0:
        with_factors.append(ConsideredModel("factors", plain, None, plain.evidence))
    if base is not None and (
        plain is None or base == "centers" or _may_have_biases(operations, plain)
    ):
        both = search_entries(bases[base].subtracted_from(operations), rank, rng)
        if both is not None and both.rank > 0:
            variance = (both.sigma / considered[-1].factors.sigma) ** 2
            evidence = both.evidence - bases[base].divergence(observed, variance)
            model = ConsideredModel(f"{base} and factors", both, bases[base], evidence)
            with_factors.append(model)
    considered += with_factors
    if not considered:
        assert plain is not None
        considered = [ConsideredModel("factors", plain, None, plain.evidence)]
    preferred = _with_more_evidence(with_factors)
    open_ = [k for k, one in enumerate(considered) if one is preferred or one not in with_factors]
    return Comparison.of(considered, open_, observed)


def _without_factors(operations: EntryOperations, name: str, base: Biases) -> ConsideredModel:
    """The model of noise about center, biases or centers."""
    left = noise_of_entries(base.subtracted_from(operations))
    cost = 0.0 if base.side is None else base.divergence(operations.observed, 1.0)
    return ConsideredModel(name, left, base, left.evidence - cost)


def _refined(
    operations: EntryOperations,
    found: Comparison,
    rank: int | None,
    rng: np.random.Generator,
    coarse: Block,
    block: Block,
) -> Comparison | None:
    """The model that was chosen on the coarse block, and those without factors, on a larger one.

    The noise is learned of the model that is chosen. None where the larger block shows no more.
    """
    observed = operations.observed
    has_bases = any(one.biases is not None for one in found.models)
    side = next((one.side for one in found.models if one.side is not None), None)
    bases = _bases(operations, side) if has_bases else {}
    models = []
    for one in found.models:
        biases = None if one.biases is None else bases[one.base]
        left = operations if biases is None else biases.subtracted_from(operations)
        if one is found.chosen:
            better = refined(left, one.factors, coarse, block, rank, rng)
            if better is None:
                return None
            factors = better
        elif one.side is not None and one.factors.rank == 0:
            factors = noise_of_entries(left)  # errors are in units of its noise levels
        elif one.factors.rank == 0:
            factors = replace(one.factors, residuals=left.observed.rows.values.astype(np.float64))
        else:
            continue
        models.append(replace(one, factors=factors, biases=biases, evidence=factors.evidence))
    compared = Comparison.of(models, range(len(models)), observed)
    chosen = compared.chosen
    if chosen.factors.rank > 0 or chosen.biases is None:
        return compared
    noise = noise_of_entries(chosen.biases.subtracted_from(operations))
    models[compared.best] = replace(chosen, factors=noise)
    return replace(compared, models=tuple(models))


def _with_more_evidence(models: Sequence[ConsideredModel]) -> ConsideredModel | None:
    """The model with factors that is considered, without biases or beside them.

    The simpler one if its evidence is that of the other up to one standard error, which is that of
    the difference of the log densities of the same entries; and the one without biases where the
    noise levels of rows and columns differ much: models with biases are fitted in the given units,
    with one noise level for all entries, and models with centers with one of all entries of a
    column (or row).
    """
    if len(models) < 2:
        return models[0] if models else None
    plain, both = models
    noise = both.factors.noise
    deviation = noise.log_deviation
    if both.side is not None:
        deviation = _log_deviations(noise)[1 - both.side]
    if deviation > OPTIONS.unequal_noise:
        return plain
    simple, other = sorted(models, key=lambda one: one.complexity)
    difference = other.factors.log_densities - simple.factors.log_densities
    error = float(difference.std()) * math.sqrt(len(difference))
    return simple if other.evidence - simple.evidence <= error else other


def _may_have_biases(operations: EntryOperations, plain: FoundFactors) -> bool:
    """Whether a model with biases beside factors can be better than these factors.

    A bias is a factor of which the other side is constant. So either the factors contain most of
    the constant vector, or biases explain a part of what the factors leave; where neither is the
    case, there are none.
    """
    if plain.rank == 0:
        return True
    observed = operations.observed
    for factors, groups in ((plain.U, observed.rows), (plain.V, observed.columns)):
        counts = groups.counts
        root = np.sqrt(counts)
        basis = np.linalg.qr(factors * root[:, None])[0]
        if np.square(root @ basis).sum() > OPTIONS.constant_share * counts.sum():
            return True
    left = operations.on(observed.with_values(plain.residuals.astype(observed.dtype)))
    biases = learned_biases(left)
    explained = replace(
        plain, residuals=np.asarray(biases.subtracted_from(left).observed.rows.values)
    )
    models = [
        ConsideredModel("", plain, None, plain.evidence),
        ConsideredModel("", explained, biases, plain.evidence),
    ]
    errors = [_errors(one, observed) for one in models]
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


def _errors(model: ConsideredModel, observed: Observed) -> Array:
    """Absolute errors of the entries, each predicted from the others.

    Biases were fitted to all entries: the leave-one-out residual is larger by the leverage.
    """
    residuals = model.factors.residuals
    if model.biases is None:
        return np.abs(residuals)
    leverage = model.biases.leverage(observed, residuals)
    return np.asarray(np.abs(residuals) / np.maximum(1 - leverage, OPTIONS.min_freedom))
