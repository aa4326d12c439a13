"""Attempts of a search: from a spectrum to the state with the largest evidence.

Each attempt anneals with another least prior variance. Factors are then added and removed, and rows
repaired, while the evidence rises. See docs/design/initialization.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.observed import Observed
from robustmf.initialization.spectral import bethe_hessian_rank, clipped, spectral_factors
from robustmf.initialization.variational import FoundFactors, VariationalSearch
from robustmf.initialization.variational_options import OPTIONS
from robustmf.kernels.team import Team

Array = NDArray[np.floating[Any]]


def search_factors(
    observed: Observed, rank: int | None, team: Team, rng: np.random.Generator
) -> FoundFactors | None:
    """Factors, noise level and scales; at most ``rank`` factors, or as many as the data show.

    None where the data are too few to show any: a model of rank 1 has nearly as many parameters as
    there are rows and columns.
    """
    seed = int(rng.integers(1 << 40))
    if not is_searchable(observed):
        return None
    attempts: list[VariationalSearch] = []
    many_outliers = False
    n_complete = 0
    for least_prior in OPTIONS.least_priors:
        if attempts and attempts[-1].smallest_share >= least_prior:
            break  # the prior variances were above this bound: the attempt would be the same
        search = VariationalSearch(observed, team, seed)
        shown = _attempt(search, rank, least_prior)
        attempts.append(search)
        # with many outliers the removal of factors decides which attempt is the better one
        many_outliers |= search.noise.outlier_share > OPTIONS.many_outliers
        many_outliers |= bool(search.gross.mean() > OPTIONS.many_outliers)
        if many_outliers:
            for attempt in attempts[n_complete:]:
                _complete(attempt, rank)
            n_complete = len(attempts)
        if search.is_clear or (search.rank >= shown and not many_outliers):
            break
    if many_outliers and attempts[0].scale_deviation > OPTIONS.unequal_scales:
        found = _best(attempts)
        attempts.append(_attempt_in_units_of_data(observed, rank, team, seed))
        if found.rank and _best(attempts) is not found:
            attempts.append(_in_units_of_data(found, rank))
    best = _best(attempts)
    rescaled = _rescaled(best, rank)
    if rescaled is not best:
        best = rescaled
        n_complete = 0
    if n_complete == 0:
        _complete(best, rank)
    return best.found()


def _best(attempts: list[VariationalSearch]) -> VariationalSearch:
    return max(attempts, key=lambda attempt: attempt.evidence())


def refine_factors(
    observed: Observed,
    U: Array,
    V: Array,
    exponents: tuple[float, float],
    rank: int | None,
    team: Team,
    rng: np.random.Generator,
    required: bool = True,
) -> FoundFactors | None:
    """The search continued from factors that were found in a part of the entries.

    ``exponents`` are those of the scales there.
    None if the residuals show no further factors and the result is not ``required``.
    """
    seed = int(rng.integers(1 << 40))
    search = VariationalSearch(observed, team, seed, exponents)
    grown = _resume(search, U, V, rank)
    if not grown and not required:
        return None
    _settle(search)
    _complete(search, rank, grown)
    return search.found()


def shown_factors(observed: Observed, rank: int | None, team: Team) -> int:
    """The number of factors that the spectrum of the entries shows, at most ``rank``."""
    search = VariationalSearch(observed, team, 0)
    return _shown_factors(search, _spectral_values(search), _most_factors(observed, rank))


def is_searchable(observed: Observed) -> bool:
    """Whether there are enough entries to find factors and noise."""
    enough = observed.n_entries > sum(observed.shape) and min(observed.shape) >= OPTIONS.min_side
    return bool(enough and observed.rows.values.any())


def largest_rank(observed: Observed) -> int:
    """The largest number of factors that the entries can determine, at least 1."""
    filled = [int((side.counts > 0).sum()) for side in (observed.rows, observed.columns)]
    determined = int(observed.n_entries / (OPTIONS.entries_per_parameter * sum(filled)))
    return max(1, min(determined, min(observed.shape) - 1))


def noise_without_factors(observed: Observed, team: Team) -> FoundFactors:
    """The distribution of the noise if the entries are noise alone."""
    search = VariationalSearch(observed, team, 0)
    m, n = observed.shape
    search.start(np.zeros((m, 0)), np.zeros((n, 0)), 0.0)
    search.settle_noise()
    return search.found()


def _most_factors(observed: Observed, rank: int | None) -> int:
    return min(largest_rank(observed), OPTIONS.max_rank if rank is None else rank)


def _attempt(search: VariationalSearch, rank: int | None, least_prior: float) -> int:
    """Anneal and settle, from the spectrum of clipped values, and return how many it shows."""
    observed = search.observed
    m, n = observed.shape
    values = _spectral_values(search)
    most = _most_factors(observed, rank)
    shown = _shown_factors(search, values, most)
    number, share = OPTIONS.margin
    start = min(most, shown + max(number, round(share * shown)))
    left, right = spectral_factors(observed, values, start, search.seed)
    size = OPTIONS.initial_size * (search.size / start) ** 0.25
    search.start(
        left * (np.sqrt(m) * size),
        right * (np.sqrt(n) * size),
        OPTIONS.initial_covariance * np.sqrt(search.size / start),
    )
    search.anneal(least_prior)
    _settle(search)
    return shown


def _attempt_in_units_of_data(
    observed: Observed, rank: int | None, team: Team, seed: int
) -> VariationalSearch:
    """A complete attempt without scales of rows and columns.

    Where a row has values of two sizes, its median is one of them by chance: divided by it, the
    others look like outliers.
    """
    search = VariationalSearch(observed, team, seed, (0.0, 0.0))
    _attempt(search, rank, OPTIONS.least_priors[0])
    _complete(search, rank)
    return search


def _in_units_of_data(found: VariationalSearch, rank: int | None) -> VariationalSearch:
    """The search continued without scales of rows and columns.

    Outliers may have one size in all rows, and then have more evidence so; but the values of a row
    with large factors are outliers themselves for a search that begins without scales.
    """
    search = VariationalSearch(found.observed, found.team, found.seed, (0.0, 0.0))
    _resume(search, *found.factors(), rank)
    _settle(search)
    _complete(search, rank)
    return search


def _spectral_values(search: VariationalSearch) -> Array:
    """The values, clipped, and without outliers by value."""
    values = clipped(search.values)
    values[search.gross] = np.median(values)
    return values


def _shown_factors(search: VariationalSearch, values: Array, most: int) -> int:
    """The number of factors that the spectrum of values shows."""
    return bethe_hessian_rank(search.observed, values - np.median(values), most, search.seed)


def _settle(search: VariationalSearch) -> None:
    """Settle; with many outliers their distribution is learned too."""
    search.settle()
    many_outliers = search.noise.outlier_share > OPTIONS.many_outliers
    if search.rank and many_outliers and not search.noise.is_free:
        search.noise.is_free = True
        search.settle()


def _resume(search: VariationalSearch, U: Array, V: Array, rank: int | None) -> bool:
    """Begin at these factors, in the unit of the data, and those that their residuals show.

    Returns whether there are any of the latter.
    """
    search.resume(U, V)
    for _ in range(OPTIONS.resumed_sweeps):
        search.learning_sweep()
    return search.grow(_most_factors(search.observed, rank))


def _rescaled(search: VariationalSearch, rank: int | None) -> VariationalSearch:
    """The search continued with the scales that suit its factors, if the evidence is larger.

    Otherwise ``search`` itself. Sizes of rows that strong factors make different hide weak ones.
    """
    exponents, gain = search.preferred_exponents()
    if gain <= OPTIONS.rescaling_gain:
        return search
    rescaled = VariationalSearch(search.observed, search.team, search.seed, exponents)
    _resume(rescaled, *search.factors(), rank)
    _settle(rescaled)
    return max(search, rescaled, key=lambda attempt: attempt.evidence())


def _complete(search: VariationalSearch, rank: int | None, growing: bool = True) -> None:
    """Add factors; remove those that outliers formed; repair rows: while the evidence rises."""
    best = _BestState(search)
    if growing:
        _add_factors(best, _most_factors(search.observed, rank))
    _remove_factors(best)
    _repair_again(best)


class _BestState:
    """The state of a search with the largest evidence so far, to which it can return."""

    def __init__(self, search: VariationalSearch) -> None:
        self.search = search
        self.evidence = search.evidence()
        self.state = search.state()

    def update(self, by_prediction: bool = False) -> bool:
        """Keep the present state if its evidence is larger; return whether it is.

        The evidence is that of a Gaussian approximation, which is too small for weak factors; the
        log density of entries given the others does not count what factors cost. With
        ``by_prediction`` their mean decides.
        """
        evidence = self.search.evidence()
        gain = evidence - self.evidence
        if by_prediction:
            densities = (self.search.log_densities, self.state["log_densities"])
            gain += float(densities[0].sum() - densities[1].sum())
        if gain <= 0:
            return False
        self.evidence = evidence
        self.state = self.search.state()
        return True

    def restore(self) -> None:
        """Return to the best state."""
        self.search.restore(self.state)


def _add_factors(best: _BestState, most: int) -> None:
    """Add factors that the residuals show."""
    search = best.search
    for _ in range(OPTIONS.max_growth if search.rank else 0):
        before = search.rank
        if search.is_exhausted or not search.grow(most):
            break
        added = search.rank - before
        _settle(search)
        few_outliers = search.noise.outlier_share <= OPTIONS.many_outliers
        if not best.update(by_prediction=few_outliers):
            break
        if search.rank - before < OPTIONS.surviving * added:
            break
    best.restore()


def _remove_factors(best: _BestState) -> None:
    """Remove factors that outliers formed."""
    search = best.search
    while search.rank > 1 and search.noise.outlier_share > OPTIONS.many_outliers:
        if search.is_exhausted or not search.remove_factor() or not best.update():
            break
    best.restore()


def _repair_again(best: _BestState) -> None:
    """Repair all rows, with more subsets."""
    search = best.search
    for _ in range(OPTIONS.max_repetitions if search.rank else 0):
        search.forget_failures()
        if not any(search.repair(last=True) for _ in range(OPTIONS.max_failures)):
            break
        if search.is_exhausted:
            break
        _settle(search)
        if not best.update():
            break
    best.restore()
