"""The noise model of a fit: the distribution of clean residuals, and the share of clean entries.

The residual of a fitted entry is smaller than the noise, because the entry has influenced the fit;
that of a held-out entry is larger, because the factors are estimates. Let l be the leverage, the
variance of the prediction relative to that of the noise, from the regressions of the row and of the
column without the entry. Then

    fitted entry:                   Var e ≈ σ² / ((1 + l_row)(1 + l_col))
    fitted entry of weight w:       Var e ≈ σ² (1 + l_row)(1 + l_col) / ((1 + wl_row)(1 + wl_col))²
    held-out entry:                 Var e ≈ σ² (1 + l_row + l_col)
    entry of a new row, folded in:  Var e ≈ σ² (1 + l_col) / (1 + l_row)

The weight is the reliability of the entry: the probability, learned by the fit, that it is no
outlier. An entry that the fit did not trust has not drawn the factors to itself.

The leverage l_row = v_jᵀ(n_i S + λI)⁻¹v_j treats the entries of a row as a random sample of all
entries (S is their second moment), which needs no pass over them. One factor corrects the mean
leverage to the effective degrees of freedom of the fit. The standardized residuals of clean entries
are modelled by Student's t distribution, whose scale and degrees of freedom are estimated from the
central part alone by truncated maximum likelihood, so that outliers beyond it have no influence.
Where the fit has learned how reliable the entries are, the central part ends where most of them are
outliers, which may be of moderate size.
The probability of the central part under this distribution gives the share of clean entries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

from robustmf.backends.cpu.blas import one_blas_thread
from robustmf.data.statistics import MAD_TO_SIGMA

Array = NDArray[np.floating[Any]]

#: Numbers of entries, and how many rows (or columns) have each; None if one each.
Frequencies = tuple[NDArray[np.int64], NDArray[np.int64] | None]

_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class NoiseOptions:
    """Constants of the noise model.

    Attributes
    ----------
    sample : int
        The largest number of residuals that the distribution is fitted to, evenly spaced over the
        entries.
    block_entries : int
        Entries whose leverages are computed at once, which bounds the memory.
    central : float
        The distribution is fitted to residuals within this number of robust scales. A wide interval
        is more informative about the tails, a narrow one excludes outliers of moderate size.
    least_central : float
        The interval is at least this wide where reliable entries end earlier: the scale of a
        shorter part of the distribution is not determined.
    bins : int
        Number of histogram bins in that interval; the resolution of the likelihood.
    freedom : (float, float)
        Range of the degrees of freedom: finite variance at the lower end, indistinguishable from
        the normal distribution at the upper end.
    least_residuals : int
        With fewer residuals the tails cannot be estimated, and the normal distribution is used.
    most_freedom_used : float
        Upper bound on effective degrees of freedom per entry, for fits close to interpolation.
    most_leverage : float
        Upper bound on a leverage: without entries it is infinite, and its square must be finite.
    scale_quantile, scale_limit : float
        The standard deviation of the logarithms of the scales of rows (columns) is estimated from
        their median and this quantile, and they are clipped at ``scale_limit`` standard deviations
        above the median. A larger share of noisy rows than 1 − ``scale_quantile`` is ordinary;
        fewer are bad rows.
    least_scale_deviation : float
        Lower bound on that standard deviation: the error of a scale that is learned.
    """

    sample: int = 50_000
    block_entries: int = 1 << 14
    central: float = 4.0
    least_central: float = 2.0
    bins: int = 200
    freedom: tuple[float, float] = (2.1, 200.0)
    least_residuals: int = 200
    most_freedom_used: float = 0.8
    most_leverage: float = 1e12
    scale_quantile: float = 0.9
    scale_limit: float = 3.5
    least_scale_deviation: float = 0.1


OPTIONS = NoiseOptions()


@dataclass(frozen=True)
class NoiseDistribution:
    """Student's t distribution around 0, and the share of the values that follow it.

    Attributes
    ----------
    scale : float
        Scale of the distribution.
    freedom : float
        Degrees of freedom.
    share : float
        Share of the values that follow the distribution; the others are outliers.
    """

    scale: float
    freedom: float
    share: float

    def in_scales(self, x: Array) -> NDArray[np.float64]:
        """``x`` divided by the scale; infinite where the scale of an exact fit underflows."""
        with np.errstate(over="ignore"):
            return np.asarray(x / self.scale, np.float64)

    def two_sided(self, x: Array) -> NDArray[np.float64]:
        """The probability of a value at least as far from 0 as x."""
        return np.asarray(2 * stdtr(self.freedom, -np.abs(self.in_scales(x))))

    def above(self, x: Array) -> NDArray[np.float64]:
        """The probability of a value of at least x."""
        return np.asarray(stdtr(self.freedom, -self.in_scales(x)))

    def quantile(self, level: Any) -> Any:
        """The quantile of |x| at this level."""
        return self.scale * stdtrit(self.freedom, (1 + np.asarray(level)) / 2)


#: The distribution that is assumed before residuals are known.
PRIOR = NoiseDistribution(1.0, OPTIONS.freedom[1], 1.0)


def _limit_of_reliable(size: Array, reliability: Array) -> float:
    """The limit that separates reliable values from outliers with the fewest expected errors."""
    order = np.argsort(size)
    gains = np.cumsum(reliability[order] - 0.5)
    return float(size[order][np.argmax(gains)])


def fit_distribution(
    x: Array,
    central: float = OPTIONS.central,
    freedom: float | None = None,
    reliability: Array | None = None,
) -> NoiseDistribution:
    """Fit Student's t distribution to the central part of x by truncated maximum likelihood.

    Values outside the central part enter only by their number.

    Parameters
    ----------
    x : array
        Values; those that are not finite are ignored.
    central : float, default=4.0
        Half-width of the central part, in robust scales.
    freedom : float, optional
        Degrees of freedom; estimated by default, which needs a wide central part.
    reliability : array over x, optional
        The probability that a value is no outlier; the central part ends where most values are.
    """
    finite = np.isfinite(x)
    size = np.abs(x[finite]).astype(np.float64)
    limit = np.inf if reliability is None else _limit_of_reliable(size, reliability[finite])
    kept = size[size <= limit]
    scale = 0.0
    end = limit
    for _ in range(3):
        scale = MAD_TO_SIGMA * float(np.median(kept)) if kept.size else 0.0
        end = min(central * scale, max(limit, OPTIONS.least_central * scale))
        kept = size[size <= end]
    if scale <= _TINY or len(kept) < OPTIONS.least_residuals:
        share = len(kept) / len(size) if scale > 0 else 1.0
        return NoiseDistribution(max(scale, _TINY), freedom or OPTIONS.freedom[1], share)
    edges = np.linspace(0, end / scale, OPTIONS.bins + 1)
    counts = np.histogram(kept / scale, edges)[0] / len(kept)

    def negative_log_likelihood(free: NDArray[np.float64]) -> float:
        inside = 2 * stdtr(freedom or _freedom(free[1]), edges / np.exp(free[0])) - 1
        return -float(counts @ np.log(np.maximum(np.diff(inside) / inside[-1], 1e-300)))

    best = scipy.optimize.minimize(
        negative_log_likelihood,
        [0.0] if freedom else [0.0, 0.1],
        method="Nelder-Mead",
        options={"xatol": 1e-3, "fatol": 1e-8},
    ).x
    found = NoiseDistribution(scale * float(np.exp(best[0])), freedom or _freedom(best[1]), 1.0)
    inside = 1 - float(found.two_sided(np.array([edges[-1] * scale]))[0])
    return replace(found, share=min(1.0, len(kept) / len(size) / inside))


def _freedom(inverse: float) -> float:
    """Degrees of freedom from their inverse: the likelihood is smooth in it at the normal limit."""
    low, high = OPTIONS.freedom
    return float(1 / np.clip(inverse, 1 / high, 1 / low))


@dataclass(frozen=True)
class Regressors:
    """The factors of one side as regressors of the other side.

    Attributes
    ----------
    moments, axes : array
        Eigenvalues and eigenvectors of their second moment over the entries.
    constant : float
        The constant regressor of a model with biases; 0 without.
    reg, reg_by_count : float, bool
        The regularization.
    """

    moments: NDArray[np.float64]
    axes: NDArray[np.float64]
    constant: float
    reg: float
    reg_by_count: bool

    @classmethod
    @one_blas_thread()
    def from_moment(
        cls,
        total: NDArray[np.float64],
        n_entries: int,
        constant: float,
        reg: float,
        reg_by_count: bool,
    ) -> Regressors:
        """The factors whose :func:`moment_sum` over ``n_entries`` entries is ``total``."""
        moments, axes = np.linalg.eigh(total / max(n_entries, 1))
        return cls(np.maximum(moments, 0.0), axes, constant, reg, reg_by_count)

    @one_blas_thread()
    def squared_coordinates(self, factors: Array) -> NDArray[np.float64]:
        """Squared coordinates of factor vectors along the axes."""
        return np.square(_design(factors, self.constant) @ self.axes)

    def coordinates_at(
        self, factors: Array, groups: NDArray[Any]
    ) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Squared coordinates of factor vectors, and the position there of each of the ``groups``.

        For fewer groups than vectors only theirs are computed.
        """
        if len(groups) >= len(factors):
            return self.squared_coordinates(factors), groups
        distinct, positions = np.unique(groups, return_inverse=True)
        return self.squared_coordinates(factors[distinct]), positions

    def leverages(self, squares: NDArray[np.float64], counts: NDArray[Any]) -> NDArray[np.float64]:
        """vᵀ(nS + λI)⁻¹v for regressions on ``counts`` entries each.

        ``squares`` are the squared coordinates of the vectors v.
        """
        with np.errstate(over="ignore"):
            leverage = np.einsum("tq,tq->t", squares, 1 / self._information(counts)[1])
        return np.asarray(np.minimum(leverage, OPTIONS.most_leverage))

    def degrees_of_freedom(
        self, counts: NDArray[Any], frequencies: NDArray[np.int64] | None = None
    ) -> float:
        """Effective degrees of freedom of regressions on ``counts`` entries, in total.

        ``frequencies`` are the numbers of regressions with each count; one each by default.
        """
        entries, both = self._information(counts)
        freedom = entries / both
        return float((freedom if frequencies is None else freedom * frequencies[:, None]).sum())

    def _information(self, counts: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The information of the entries, and of entries and ridge together, along each axis.

        n²/(n + r + 1) approximates n − r − 1, from the mean of an inverse Wishart matrix, and
        remains positive for small n.
        """
        n = np.asarray(counts, np.float64)[:, None]
        entries = n**2 / (n + len(self.moments) + 1) * self.moments
        ridge = np.maximum(self.reg * (n if self.reg_by_count else 1.0), _TINY)
        return entries, entries + ridge


def _design(factors: Array, constant: float) -> NDArray[np.float64]:
    design = np.asarray(factors, np.float64)
    return np.hstack([design, np.full((len(design), 1), constant)]) if constant else design


@one_blas_thread()
def moment_sum(factors: Array, counts: NDArray[np.int64], constant: float) -> NDArray[np.float64]:
    """Σ v vᵀ over entries, where each factor vector v occurs in ``counts`` of them."""
    design = _design(factors, constant)
    return np.asarray((design * counts[:, None]).T @ design)


def frequencies_of(counts: NDArray[np.int64]) -> Frequencies:
    """The distinct numbers of entries, and how many rows have each."""
    frequencies = np.bincount(counts)
    distinct = np.flatnonzero(frequencies)
    return distinct, frequencies[distinct]


@dataclass(frozen=True)
class Totals:
    """What the noise model needs to know of all entries of a fit.

    Attributes
    ----------
    moments : (array, array)
        :func:`moment_sum` of the factors of the rows and of the columns.
    counts : (Frequencies, Frequencies)
        The numbers of entries that rows have, and how many rows have each; the same for columns.
    n_entries : int
        Number of entries.
    """

    moments: tuple[NDArray[np.float64], NDArray[np.float64]]
    counts: tuple[Frequencies, Frequencies]
    n_entries: int


def ordinary_scales(scales: Array, counts: NDArray[np.int64]) -> Array:
    """Scales of rows (or columns) with those that the others do not explain clipped.

    A fit learns a large scale for a row whose entries are all bad. Divided by it, they would look
    clean; the scale that is plausible among the other rows shows what they are.
    """
    logs = np.log(scales[counts > 0])
    middle, upper = np.quantile(logs, [0.5, OPTIONS.scale_quantile])
    deviation = max((upper - middle) / ndtri(OPTIONS.scale_quantile), OPTIONS.least_scale_deviation)
    return np.minimum(scales, np.exp(middle + OPTIONS.scale_limit * deviation))


@dataclass(frozen=True)
class NoiseModel:
    """The noise of one fit.

    Attributes
    ----------
    distribution : NoiseDistribution
        Distribution of the standardized residuals of clean entries, and the share of clean entries.
    U, V : array
        The factors of the fit.
    of_rows, of_columns : Regressors
        U as the regressors of the columns, and V as those of the rows.
    row_counts, column_counts : array of int64
        Number of fitted entries of each row and column.
    inflation : float, default=1.0
        Factor of the leverages that makes their sum the effective degrees of freedom.
    scales : (array, array) or None, default=None
        Scales of rows and columns, see :func:`ordinary_scales`. The factors are those of the matrix
        divided by the scales of the fit; residuals and deviations are those of the matrix itself.
    """

    distribution: NoiseDistribution
    U: Array
    V: Array
    of_rows: Regressors
    of_columns: Regressors
    row_counts: NDArray[np.int64]
    column_counts: NDArray[np.int64]
    inflation: float = 1.0
    scales: tuple[Array, Array] | None = None

    @classmethod
    def fit(
        cls,
        U: Array,
        V: Array,
        constant: float,
        reg: float,
        reg_by_count: bool,
        counts: tuple[NDArray[np.int64], NDArray[np.int64]],
        residual: Array,
        i: NDArray[Any],
        j: NDArray[Any],
        scales: tuple[Array, Array] | None = None,
        totals: Totals | None = None,
        reliability: Array | None = None,
    ) -> NoiseModel:
        """The noise of a fit, from the residuals of a sample of its entries at (i, j).

        ``totals`` are given where U, V and ``counts`` are those of some rows and columns only;
        ``reliability`` is the factor of the loss of each entry of the sample, 1 by default.
        """
        if scales is not None:
            U = U / scales[0][:, None]
            V = V / scales[1][:, None]
            scales = ordinary_scales(scales[0], counts[0]), ordinary_scales(scales[1], counts[1])
        if totals is None:
            moments = (moment_sum(U, counts[0], constant), moment_sum(V, counts[1], constant))
            frequencies = (frequencies_of(counts[0]), frequencies_of(counts[1]))
            totals = Totals(moments, frequencies, int(counts[0].sum()))
        of_rows, of_columns = (
            Regressors.from_moment(moment, totals.n_entries, constant, reg, reg_by_count)
            for moment in totals.moments
        )
        noise = cls(PRIOR, U, V, of_rows, of_columns, *counts, scales=scales)
        influence = np.ones(len(residual)) if reliability is None else reliability
        for _ in range(2):  # first the share of clean entries, then leverages of these alone
            noise = noise._with_inflation(i, j, totals)
            standardized = residual / noise.deviations(i, j, influence)
            distribution = fit_distribution(standardized, reliability=reliability)
            noise = replace(noise, distribution=distribution)
        return noise

    def for_rows_and_columns(
        self, U: Array, V: Array, counts: tuple[NDArray[np.int64], NDArray[np.int64]]
    ) -> NoiseModel:
        """The same noise with the factors and counts of other rows and columns of the fit."""
        return replace(self, U=U, V=V, row_counts=counts[0], column_counts=counts[1])

    def _with_inflation(self, i: NDArray[Any], j: NDArray[Any], totals: Totals) -> NoiseModel:
        """The same with leverages that have the degrees of freedom of the fit."""
        clean = self.distribution.share
        (by_row, rows), (by_column, columns) = totals.counts
        freedom = self.of_rows.degrees_of_freedom(clean * by_column, columns)
        freedom += self.of_columns.degrees_of_freedom(clean * by_row, rows)
        total = freedom - len(self.of_rows.moments) ** 2
        per_entry = max(total, 0.0) / max(clean * totals.n_entries, 1.0)
        wanted = min(per_entry, OPTIONS.most_freedom_used)
        plain = replace(self, inflation=1.0, scales=None).deviations(i, j, np.ones(len(i)))
        found = 1 - float(np.square(plain).mean())
        return replace(self, inflation=max(wanted / found, 1.0) if found > 0 else 1.0)

    def deviations(
        self, i: NDArray[Any], j: NDArray[Any], influence: NDArray[np.floating[Any]]
    ) -> NDArray[np.float64]:
        """Standard deviations of the residuals of clean entries at (i, j), relative to the noise.

        The noise is that of an entry in a row and a column of scale 1.
        ``influence`` is 1 for fitted entries, less as far as they are not reliable, and 0 for
        held-out ones.
        """
        w = influence.astype(np.float64)
        fitted = w > 0
        own = fitted.astype(np.int64)
        of_row, of_column = self._leverages(
            self.U, i, j, self.row_counts[i] - own, self.column_counts[j] - own
        )
        of_fitted = np.sqrt((1 + of_row) * (1 + of_column))
        of_fitted /= (1 + w * of_row) * (1 + w * of_column)
        deviations = np.where(fitted, of_fitted, np.sqrt(1 + of_row + of_column))
        if self.scales is None:
            return deviations
        return np.asarray(deviations * self.scales[0][i] * self.scales[1][j])

    def new_row_deviations(
        self, i: NDArray[Any], j: NDArray[Any], T: Array, row_scales: Array
    ) -> NDArray[np.float64]:
        """The same for all entries of rows that were folded in, with factors T and these scales."""
        folded_in = np.bincount(i, minlength=len(T))
        factors = T[:, : self.U.shape[1]] / row_scales[:, None]
        of_row, of_column = self._leverages(factors, i, j, folded_in[i] - 1, self.column_counts[j])
        deviations = np.sqrt((1 + of_column) / (1 + of_row)) * row_scales[i]
        return deviations if self.scales is None else np.asarray(deviations * self.scales[1][j])

    def _leverages(
        self,
        U: Array,
        i: NDArray[Any],
        j: NDArray[Any],
        in_row: NDArray[Any],
        in_column: NDArray[Any],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Inflated leverages of the regressions of the row and of the column at (i, j)."""
        by_row, j = self.of_columns.coordinates_at(self.V, j)
        by_column, i = self.of_rows.coordinates_at(U, i)
        of_row = np.empty(len(i))
        of_column = np.empty(len(i))
        clean = self.distribution.share
        for low in range(0, len(i), OPTIONS.block_entries):
            block = slice(low, low + OPTIONS.block_entries)
            row_entries = clean * np.maximum(in_row[block], 0)
            column_entries = clean * np.maximum(in_column[block], 0)
            of_row[block] = self.inflation * self.of_columns.leverages(
                by_row[j[block]], row_entries
            )
            of_column[block] = self.inflation * self.of_rows.leverages(
                by_column[i[block]], column_entries
            )
        return of_row, of_column
