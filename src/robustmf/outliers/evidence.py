"""Evidence against whole rows and columns.

An attack may follow a low-rank model exactly, so that residuals alone do not reveal it. Rows and
columns are called groups of entries here. Each kind of evidence is a tail probability: the share of
clean groups that would look as bad or worse. The distribution of clean groups is estimated robustly
from the groups at hand, most of which are assumed to be clean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import betainc, chdtrc, digamma, fdtr, fdtrc, ndtri, polygamma

from robustmf import phases
from robustmf.backends.cpu.blas import one_blas_thread
from robustmf.data.statistics import MAD_TO_SIGMA
from robustmf.outliers.noise import fit_distribution

Array = NDArray[np.float64]
Index = NDArray[Any]

#: The smallest positive probability or variance; avoids logarithms of zero.
_TINY = 1e-300

#: The largest probability below one; avoids infinite normal quantiles.
_ALMOST_ONE = 1 - 1e-16


@dataclass(frozen=True)
class EvidenceOptions:
    """Constants of the evidence against groups.

    Attributes
    ----------
    winsor : float
        Standardized residuals and values are clipped at this number of scales, so that a single
        outlier does not make its group suspicious.
    typical_entries : int
        The distribution of clean groups is estimated from groups with at least this number of
        entries.
    least_groups : int
        Minimum number of groups to estimate that distribution from.
    sketch, sketch_block : int
        Number of random projections that measure co-occurrence (relative error 1/√sketch), and how
        many are made at once.
    seed : int
        Seed of these projections; fixed, so that results depend on the data alone.
    suspicious : float
        Groups with a score up to this are the ones whose density "suspicious neighbours" measures.
    rounds : int
        Rounds in which suspicious rows and columns are updated from each other.
    near, freedom : float
        The upper tail of group scores is fitted within ``near`` scales, beyond which attacked
        groups lie, by a t distribution with ``freedom`` degrees of freedom.
    scale_level : float
        The scale of group scores is this quantile of those above the median.
    scale_ratio : float
        The scale of group scores may depend on the number of entries up to this factor.
    least_range : float
        Smallest range of the logarithm of the numbers of entries that a dependence is fitted to.
    line_steps : int
        Iterations of the regressions on the number of entries.
    """

    winsor: float = 5.0
    typical_entries: int = 5
    least_groups: int = 10
    sketch: int = 512
    sketch_block: int = 16
    seed: int = 20081
    suspicious: float = 5e-3
    rounds: int = 3
    near: float = 2.5
    freedom: float = 10.0
    scale_level: float = 0.7
    scale_ratio: float = 3.0
    least_range: float = 0.5
    line_steps: int = 20


OPTIONS = EvidenceOptions()


@dataclass(frozen=True)
class Groups:
    """Entries grouped by one side: group ``i`` of ``m`` has an entry with group ``j`` of ``n``.

    ``values`` are the entries, ``z`` their standardized residuals. For rows, i is the row index and
    j the column index.
    """

    i: Index
    j: Index
    m: int
    n: int
    values: Array
    z: Array

    @property
    def transposed(self) -> Groups:
        """The same entries grouped by the other side."""
        return Groups(self.j, self.i, self.n, self.m, self.values, self.z)

    def sums(self, weights: Array | None = None) -> Array:
        """Sums of the weights over each group; by default the numbers of entries."""
        return np.bincount(self.i, weights, self.m).astype(np.float64)


@dataclass(frozen=True)
class Evidence:
    """Tail probabilities of the groups of one side by kind of evidence.

    ``suspicious_others`` are the suspicious groups of the other side.
    """

    kinds: dict[str, Array]
    suspicious_others: NDArray[np.bool_]

    @property
    def scores(self) -> Array:
        """All evidence combined."""
        return combined(self.kinds)


@one_blas_thread()
def group_evidence(groups: Groups) -> tuple[Evidence, Evidence]:
    """The evidence against rows and against columns.

    The density of suspicious neighbours of either side depends on the suspicious groups of the
    other, so the two are updated in turn.
    """
    blocks = OPTIONS.sketch // OPTIONS.sketch_block
    phases.begin("audit, rows", blocks)
    of_rows = _own_evidence(groups)
    phases.begin("audit, columns", blocks)
    of_columns = _own_evidence(groups.transposed)
    rows = Evidence(of_rows, np.zeros(groups.n, bool))
    columns = Evidence(of_columns, np.zeros(groups.m, bool))
    for _ in range(OPTIONS.rounds):
        bad_rows = rows.scores <= OPTIONS.suspicious
        bad_columns = columns.scores <= OPTIONS.suspicious
        rows = Evidence(of_rows | _suspicious_neighbours(groups, bad_columns), bad_columns)
        columns = Evidence(
            of_columns | _suspicious_neighbours(groups.transposed, bad_rows), bad_rows
        )
    return rows, columns


def combined(kinds: dict[str, Array]) -> Array:
    """The smallest tail probability, corrected for the number of kinds (Šidák)."""
    smallest = np.minimum.reduce(list(kinds.values()))
    return np.asarray(-np.expm1(len(kinds) * np.log1p(-np.minimum(smallest, _ALMOST_ONE))))


def is_discrete_scale(values: NDArray[Any]) -> bool:
    """Whether the values are steps of a scale, as ratings are."""
    return _rounding_variance(values) > 0


def _own_evidence(groups: Groups) -> dict[str, Array]:
    """The kinds of evidence that do not depend on the other side's suspicious groups."""
    counts = groups.sums()
    kinds = {"misfit": _misfit(groups, counts), "co-occurrence": _co_occurrence(groups, counts)}
    if is_discrete_scale(groups.values):
        # Clean groups of measurements with small factors have similar values; on a rating scale
        # uniform values far from the mean are what an attack that promotes items gives.
        kinds["uniformity"] = _uniformity(groups, counts)
    return kinds


def _misfit(groups: Groups, counts: Array) -> Array:
    """Residuals too large, given the number of entries and the variation of noise among groups."""
    clipped = np.clip(groups.z, -OPTIONS.winsor, OPTIONS.winsor)
    mean_square = groups.sums(np.square(clipped)) / np.maximum(counts, 1)
    tails = _variance_tails(mean_square, counts)
    return _recalibrated(tails.large, counts >= 1, counts)


def _uniformity(groups: Groups, counts: Array) -> Array:
    """Values with a small variance and a mean far from the others (Fisher's combination)."""
    values = _winsorized(groups.values)
    mean = groups.sums(values) / np.maximum(counts, 1)
    squares = groups.sums(np.square(values - mean[groups.i]))
    variance = squares / np.maximum(counts - 1, 1) + _rounding_variance(values)
    enough = counts >= 2
    tails = _variance_tails(variance, np.where(enough, counts - 1, 0))
    typical = _typical_groups(counts)
    center = float(np.median(mean[typical]))
    between = MAD_TO_SIGMA * float(np.median(np.abs(mean[typical] - center)))
    deviation = np.sqrt(between**2 + tails.typical / np.maximum(counts, 1) + _TINY)
    distance = (mean - center) / deviation
    far = fit_distribution(distance[typical]).two_sided(distance)
    fisher = -2 * (np.log(np.maximum(tails.small, _TINY)) + np.log(np.maximum(far, _TINY)))
    return _recalibrated(chdtrc(4, fisher), enough, counts)


def _co_occurrence(groups: Groups, counts: Array) -> Array:
    """Entries in groups of the other side that rarely occur together.

    Σ over the other groups of (entries shared with them, each weighted by its rarity)², divided by
    the squared number of entries; estimated by random projections, without a table of all pairs.
    """
    rarity = 1 / np.sqrt(np.maximum(np.bincount(groups.j, minlength=groups.n), 1))
    ones = np.ones(len(groups.i))
    incidence = sp.csr_array((ones, (groups.i, groups.j)), (groups.m, groups.n))
    transposed = sp.csr_array(incidence.T)
    own = incidence @ rarity
    rng = np.random.default_rng(OPTIONS.seed)
    shared = np.zeros(groups.m)
    for block in range(OPTIONS.sketch // OPTIONS.sketch_block):
        signs = rng.choice([-1.0, 1.0], (groups.m, OPTIONS.sketch_block))
        projected = incidence @ ((transposed @ signs) * rarity[:, None]) - own[:, None] * signs
        shared += np.square(projected).sum(axis=1)
        phases.step(block + 1)
    density = np.maximum(shared / OPTIONS.sketch, _TINY) / np.maximum(counts, 1) ** 2
    return _upper_tail(-np.log(density), counts >= 2, counts)


def _suspicious_neighbours(groups: Groups, suspicious: NDArray[np.bool_]) -> dict[str, Array]:
    """More entries in suspicious groups of the other side than expected (binomial tail).

    Empty where no group of the other side is suspicious.
    """
    if not suspicious.any():
        return {}
    hits = groups.sums(suspicious[groups.j].astype(np.float64))
    counts = groups.sums()
    share = _hit_shares(hits, counts)
    tail = betainc(np.maximum(hits, 1), np.maximum(counts - hits, 0) + 1, share)
    return {"suspicious neighbours": np.where(hits > 0, tail, 1.0)}


def _hit_shares(hits: Array, counts: Array) -> Array:
    """The expected share of hits of each group: log-linear in its number of entries.

    Groups with few entries share them with unusual groups of the other side more often. Poisson
    regression by Newton's method; the slope is at most 0, and the share at least the mean one.
    """
    mean = float(hits.sum() / counts.sum())
    used = counts > 0
    size = np.log(counts[used])
    center = float(size @ counts[used] / counts.sum())
    design = np.column_stack([np.ones(len(size)), size - center])
    line = np.array([np.log(mean), 0.0])
    for _ in range(OPTIONS.line_steps):
        expected = counts[used] * np.exp(np.minimum(design @ line, 0.0))
        information = (design * expected[:, None]).T @ design
        information[np.diag_indices(2)] += _TINY + 1e-9 * np.trace(information)
        step = np.linalg.solve(information, design.T @ (hits[used] - expected))
        line = line + np.clip(step, -1, 1)
    shares = np.full(len(counts), mean)
    shares[used] = np.clip(np.exp(design @ line), mean, 1.0)
    return shares


class _VarianceTails(NamedTuple):
    """Probabilities of a smaller and of a larger variance, and the typical variance."""

    small: Array
    large: Array
    typical: float


def _variance_tails(variance: Array, freedom: Array) -> _VarianceTails:
    """Tail probabilities of the variances of clean groups.

    The empirical Bayes model of Smyth (2004): variance/typical follows F(freedom, prior), the two
    parameters estimated from medians.
    """
    typical_freedom = OPTIONS.typical_entries - 1
    usable = freedom >= typical_freedom
    if usable.sum() < OPTIONS.least_groups:
        usable = freedom >= 1
    n = np.maximum(freedom, 1)
    log_variance = np.log(np.maximum(variance, _TINY))
    centered = (log_variance - digamma(n / 2) + np.log(n / 2))[usable]
    middle = 0.0
    excess = 0.0
    if centered.size:
        middle = float(np.median(centered))
        deviation = MAD_TO_SIGMA * float(np.median(np.abs(centered - middle)))
        excess = deviation**2 - float(np.median(polygamma(1, n[usable] / 2)))
    # The root lies within the bracket for excess variances in this range.
    excess = min(max(excess, 1e-3), 1e4)
    prior = 2 * scipy.optimize.brentq(lambda half: float(polygamma(1, half)) - excess, 1e-2, 1e4)
    typical = float(np.exp(middle + digamma(prior / 2) - np.log(prior / 2)))
    ratio = variance / max(typical, _TINY)
    return _VarianceTails(
        np.where(freedom >= 1, fdtr(n, prior, ratio), 1.0),
        np.where(freedom >= 1, fdtrc(n, prior, ratio), 1.0),
        typical,
    )


def _recalibrated(tail: Array, eligible: NDArray[np.bool_], counts: Array) -> Array:
    """Tail probabilities recalibrated on the groups at hand."""
    return _upper_tail(-ndtri(np.clip(tail, _TINY, _ALMOST_ONE)), eligible, counts)


def _upper_tail(statistic: Array, eligible: NDArray[np.bool_], counts: Array) -> Array:
    """The probability that a clean group has a statistic at least as large.

    The distribution is fitted to the statistics above their median: only these are informative
    about the upper tail. Median and scale are linear in the logarithm of the number of entries:
    groups with many entries differ more from each other than chance explains, because they are
    never random samples. Below 1/(number of groups) a probability p is an extrapolation, and its
    geometric mean with that limit takes its place.
    """
    usable = eligible & _typical_groups(counts)
    n_usable = int(usable.sum())
    if n_usable < OPTIONS.least_groups:
        return np.ones(len(statistic))
    size = np.log(np.maximum(counts, 1))
    excess = statistic - _quantile_line(size[usable], statistic[usable], 0.5)(size)
    upper = usable & (excess > 0)
    if not upper.any():
        return np.ones(len(statistic))
    level = OPTIONS.scale_level
    scale = float(np.quantile(excess[upper], level))
    line = _quantile_line(size[upper], excess[upper], level)(size)
    excess = excess / np.clip(line, scale / OPTIONS.scale_ratio, scale * OPTIONS.scale_ratio)
    distribution = fit_distribution(excess[upper], OPTIONS.near, OPTIONS.freedom)
    tail = np.where(eligible, distribution.above(excess), 1.0)
    return np.where(tail < 1 / n_usable, np.sqrt(tail / n_usable), tail)


def _quantile_line(x: Array, y: Array, level: float) -> Callable[[Array], Array]:
    """The line that describes a quantile of y given x, by reweighted least squares.

    Without variation in x, the quantile of y.
    """
    middle = float(np.quantile(y, level))
    center = float(np.median(x))
    scale = float(np.median(np.abs(y - middle)))
    if scale <= 0 or np.ptp(x) < OPTIONS.least_range:
        return lambda at: np.full(len(at), middle)
    design = np.column_stack([np.ones(len(x)), x - center])
    line = np.array([middle, 0.0])
    for _ in range(OPTIONS.line_steps):
        residual = y - design @ line
        sides = np.where(residual > 0, level, 1 - level)
        weighted = design * (sides / np.maximum(np.abs(residual), 1e-3 * scale))[:, None]
        line = np.linalg.solve(weighted.T @ design, weighted.T @ y)
    return lambda at: np.asarray(line[0] + line[1] * (at - center))


def _typical_groups(counts: Array) -> NDArray[np.bool_]:
    typical = counts >= OPTIONS.typical_entries
    return typical if typical.sum() >= OPTIONS.least_groups else counts >= 1


def _winsorized(values: Array) -> Array:
    """Values clipped at ``winsor`` robust scales from their median."""
    middle = float(np.median(values))
    scale = MAD_TO_SIGMA * float(np.median(np.abs(values - middle)))
    reach = OPTIONS.winsor * scale
    return np.clip(values, middle - reach, middle + reach) if scale > 0 else values


def _rounding_variance(values: NDArray[Any]) -> float:
    """The variance of rounding to a scale of few steps; 0 for values that are not on one."""
    steps = np.unique(values[:100_000])
    return float(np.diff(steps).min()) ** 2 / 12 if 1 < len(steps) <= 100 else 0.0
