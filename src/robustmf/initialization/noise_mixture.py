"""The distribution of the noise, learned from the residuals, and the noise level of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from robustmf.data.statistics import MAD_TO_SIGMA
from robustmf.kernels.variational import OUTLIER_VARIANCE, RAISED
from robustmf.losses import Loss

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class NoiseOptions:
    """The components of the noise distribution, in units of its first standard deviation.

    Attributes
    ----------
    scales : (float, int)
        Ratio and number of the standard deviations of components with mean zero. They model
        heavy tails: a mixture of such components approximates any Student distribution.
    bumps : (float, float, int)
        The mean of the first component with a mean other than zero, the ratio of consecutive
        means, and their number, for each sign. They model outliers of a similar size, or of one
        sign.
    bump_width : float
        Their standard deviation relative to their mean, such that neighbours overlap, and at least
        that of the noise. Mean and standard deviation of a component are learned, where it has
    learned_share : float
        at least this share.
    outlier_share : float
        The share of outliers before it is learned.
    prior_share : float
        Added to the share of each component, so that one that is not needed now can return.
    least_share : float
        Components with a smaller share, most of it that prior share, are left out of most passes.
    level_step : float
        The step of the grid of noise levels, in the logarithm of the variance.
    level_steps : int
        Steps on each side: standard deviations up to 55 times larger or smaller.
    parts : int
        The number of points between two steps in the mean density of the noise.
    level_prior : float
        The share of rows whose level is not near the others' before levels are learned.
    slope_sweeps : int
        Of the regression of levels on scales.
    level_damping : float
        The share of the step to new levels, in the logarithm, where it is opposed to the last one.
    low_quantile, low_deviations : float
        Noise levels below the median by more than this many standard deviations, which are
        estimated from a quantile, are raised to that.
    equal_levels : float
        Scales whose logarithms have a smaller standard deviation are taken to be equal.
    exact : float
        The smallest variance that is learned, in units of the initial one: smaller residuals are
        those of an exact fit, and covariances in single precision remain positive.
    nodes : int
        Of the quadrature for each component.
    least_theta, thetas : float, int
        θ is the best of this many down to this share of the largest.
    theta_gain : float
        A smaller θ must lower the asymptotic variance by this share.
    """

    scales: tuple[float, int] = (2.0, 14)
    bumps: tuple[float, float, int] = (3.0, 1.3, 24)
    bump_width: float = 0.2
    learned_share: float = 5e-3
    outlier_share: float = 0.2
    prior_share: float = 2e-4
    least_share: float = 3e-4
    level_step: float = 0.25
    level_steps: int = 32
    parts: int = 8
    level_prior: float = 1e-3
    slope_sweeps: int = 5
    level_damping: float = 0.5
    low_quantile: float = 0.1
    low_deviations: float = 3.5
    equal_levels: float = 0.1
    exact: float = 1e-24
    nodes: int = 31
    least_theta: float = 0.3
    thetas: int = 12
    theta_gain: float = 0.005


OPTIONS = NoiseOptions()


class NoiseMixture:
    """A Gaussian mixture: one noise level, heavier tails, and outliers.

    Parameters
    ----------
    variance : float
        Of the first component.
    largest : float
        The largest squared value: there are no components beyond.
    least : float, default=0.0
        The smallest variance: smaller residuals are those of an exact fit.

    Attributes
    ----------
    variance : float
    shares : array
        Of the components.
    """

    def __init__(self, variance: float, largest: float, least: float = 0.0) -> None:
        ratio, count = OPTIONS.scales
        scales = ratio ** np.arange(count)
        first, ratio, count = OPTIONS.bumps
        bumps = first * ratio ** np.arange(count)
        widths = OPTIONS.bump_width * bumps
        self.first_centers = np.concatenate((np.zeros(len(scales)), bumps, -bumps))
        self.first_variances = np.concatenate((scales, widths, widths)) ** 2
        self.centers = self.first_centers.copy()
        self.variances = self.first_variances.copy()
        self.variance = variance
        self.least = max(OPTIONS.exact * variance, least)
        self.largest = largest
        self.is_free = False
        self.shares = np.zeros(len(self.centers))
        self.shares[0] = 1.0

    @property
    def _possible(self) -> NDArray[np.bool_]:
        size = np.maximum(self.first_centers**2, self.first_variances)
        possible: NDArray[np.bool_] = self.variance * size < self.largest
        possible[0] = True
        return possible

    def impose(self, variance: float, outlier_variance: float) -> None:
        """Two components: noise of this variance, and outliers."""
        variance = max(variance, self.least)
        self.variance = variance
        ratio, count = OPTIONS.scales
        k = round(np.log(max(outlier_variance / variance, 1.0)) / np.log(ratio**2))
        self.shares[:] = 0
        self.shares[0] = 1 - OPTIONS.outlier_share
        self.shares[min(max(1, k), count - 1)] += OPTIONS.outlier_share

    def release(self, variance: float) -> None:
        """All components, equal but for the first: to be learned from here."""
        self.variance = max(variance, self.least)
        self.centers[:] = self.first_centers
        self.variances[:] = self.first_variances
        possible = self._possible
        self.shares = OPTIONS.outlier_share * possible / possible.sum()
        self.shares[0] += 1 - OPTIONS.outlier_share

    def components(
        self, least: float = 0.0, with_tails: bool = False
    ) -> tuple[NDArray[np.intp], Array, Array, Array]:
        """Indices of the components of more than this share; log shares, centers, variances.

        With ``with_tails`` all that have mean zero are included, so that the density of no residual
        is far too small.
        """
        kept = self.shares > least
        if with_tails:
            kept |= (self.first_centers == 0) & (self.shares > 0)
        used = np.flatnonzero(kept)
        centers = np.sqrt(self.variance) * self.centers[used]
        return used, np.log(self.shares[used]), centers, self.variance * self.variances[used]

    def learn(self, used: NDArray[np.intp], moments: Array, energy: float) -> None:
        """New components from the sums of an expectation pass over ``used``.

        Parameters
        ----------
        used : array
            Indices of the components.
        moments : (3, components) array
            For each component the expected number of entries, the sum of their noise and of its
            square.
        energy : float
            The sum of squares of the noise of the others, in units of their variances.
        """
        counts = moments[0]
        shares = np.zeros(len(self.shares))
        shares[used] = counts / counts.sum()
        informative = counts[self.first_centers[used] == 0].sum()
        if informative > 0 and energy > 0:
            self.variance = max(self.variance * float(energy / informative), self.least)
        self.centers[:] = self.first_centers
        self.variances[:] = self.first_variances
        learned = (self.first_centers[used] != 0) & (shares[used] > OPTIONS.learned_share)
        learned &= self.is_free
        own = used[learned]
        mean, square = moments[1:, learned] / counts[learned]
        least, *_ = OPTIONS.bumps
        sd = np.sqrt(self.variance)
        size = np.maximum(np.abs(mean) / sd, least)
        self.centers[own] = np.sign(self.first_centers[own]) * size
        widest = (OPTIONS.bump_width * size) ** 2
        variance = (square - mean * mean) / self.variance
        self.variances[own] = np.clip(variance, np.minimum(widest, 1.0), widest)
        shares += OPTIONS.prior_share * self._possible
        self.shares = shares / shares.sum()

    def log_density(self, log_energy: Array, used: NDArray[np.bool_]) -> Array:
        """Log density under these components of squared residuals, in units of the variance."""
        e = np.exp(0.5 * log_energy)[:, None]
        z = (e - self.centers[used]) ** 2 / self.variances[used]
        terms = np.log(self.shares[used]) - 0.5 * (np.log(self.variances[used]) + z)
        best = terms.max(axis=1)
        density: Array = best + np.log(np.exp(terms - best[:, None]).sum(axis=1))
        return density

    def level_table(self, log_energies: Array, offsets: Array, tail: float) -> Array:
        """Log densities at these squared residuals, which are evenly spaced, by the noise level.

        The noise of a row has the variance exp(offset) of a typical one, by columns. Outliers do
        not: how far off an entry is does not depend on how accurate its row is. Beyond all
        components is a tail that is uniform in the logarithm, with the density ``tail``: one entry
        that is far off must not make its row noisy.
        """
        used = self.shares > 0
        outliers = used & self.is_outlier
        step = log_energies[1] - log_energies[0]
        n = len(offsets) // 2
        around = np.arange(-n, len(log_energies) + n) * step + log_energies[0]
        of_noise = self._mean_log_density(around, used & ~outliers)
        at = np.arange(len(log_energies))[:, None] + np.arange(2 * n, -1, -1)
        others = np.log(tail) - 0.5 * log_energies
        if outliers.any():
            others = np.logaddexp(others, self._mean_log_density(log_energies, outliers))
        return np.logaddexp(of_noise[at] - 0.5 * offsets, others[:, None])

    def _mean_log_density(self, log_energies: Array, used: NDArray[np.bool_]) -> Array:
        """The logarithm of the mean density around these, which are evenly spaced.

        A component of outliers may be narrower than the spacing: at single points it would be
        missed, and a row with many of them would look noisy.
        """
        step = log_energies[1] - log_energies[0]
        n = OPTIONS.parts
        parts = step * ((np.arange(n) + 0.5) / n - 0.5)
        at = (log_energies[:, None] + parts).ravel()
        density = self.log_density(at, used).reshape(-1, n)
        return np.asarray(np.logaddexp.reduce(density, axis=1) - np.log(n))

    def asymptotic_variance(self, loss: Loss) -> float:
        """Asymptotic variance of a location estimate with this loss, in units of σ²."""
        nodes, probabilities = np.polynomial.hermite_e.hermegauss(OPTIONS.nodes)
        probabilities = probabilities / probabilities.sum()
        used = self.shares > 0
        shares = self.shares[used, None] * probabilities
        width = np.sqrt(self.variances[used, None])
        e = self.centers[used, None] + width * nodes
        influence = loss.weight(e) * e
        # by Stein's lemma E[ψ'(e)] = E[ψ(e)(e − μ)]/s² for a Gaussian component
        slope = float((shares * influence * nodes / width).sum())
        return float((shares * influence**2).sum()) / max(slope, 1e-12) ** 2

    @property
    def outlier_share(self) -> float:
        """The share of components that are not noise: ten times its variance and more."""
        return float(self.shares[self.is_outlier].sum())

    @property
    def is_outlier(self) -> NDArray[np.bool_]:
        """Which components are not noise."""
        return np.asarray((self.centers != 0) | (self.variances > OUTLIER_VARIANCE))


@dataclass(frozen=True)
class NoiseModel:
    """What a search has learned of the noise.

    Attributes
    ----------
    row_scales, column_scales : array
        The noise level of an entry is that of the fit times both; their geometric mean over the
        entries is 1.
    mixture : NoiseMixture
        Its distribution.
    """

    row_scales: Array
    column_scales: Array
    mixture: NoiseMixture

    @property
    def transposed(self) -> NoiseModel:
        """The same for the transposed matrix."""
        return NoiseModel(self.column_scales, self.row_scales, self.mixture)

    @property
    def scales(self) -> tuple[Array, Array] | None:
        """Scales of rows and columns, or None where they are the same for all practical purposes.

        Weights that differ by less than 20 % cost less than 1 % of efficiency.
        """
        unequal = self.log_deviation > OPTIONS.equal_levels
        return (self.row_scales, self.column_scales) if unequal else None

    @property
    def log_deviation(self) -> float:
        """The standard deviation of the logarithms of the noise levels."""
        return float(np.hypot(np.std(np.log(self.row_scales)), np.std(np.log(self.column_scales))))

    def theta(self, loss: Loss, largest: float) -> float:
        """The loss's scale, in units of σ, with the least asymptotic variance for this noise.

        At most ``largest``, which is efficient for Gaussian noise.
        """
        best = largest
        least = np.inf
        for theta in largest * np.geomspace(1, OPTIONS.least_theta, OPTIONS.thetas):
            if theta <= loss.theta_above:
                break
            variance = self.mixture.asymptotic_variance(loss.at_scale(float(theta)))
            # a smaller θ must be better by more than the error of the learned distribution
            if variance < least * (1 - OPTIONS.theta_gain):
                best = float(theta)
                least = variance
        return best


class NoiseLevels:
    """The noise variance of each row relative to the others: a posterior mean.

    Rows are in units of their scales. Noise that is equal in the given units has levels that
    fall with the scale; noise in proportion to the scale has equal levels. Which it is, is a
    regression of the levels on the scales. The distribution about the regression line is learned
    from all rows, so that where the data show no differences there are none.

    Parameters
    ----------
    log_scale : array over the rows
        The logarithms of the scales.

    Attributes
    ----------
    values, base : array over the rows
        The levels, and those of the regression line.
    log_marginal : float
        What the log evidence has more than the log density of the entries at these levels, when
        these were learned: their log likelihood averaged over the prior, less that at the levels.
    """

    def __init__(self, log_scale: Array) -> None:
        steps = OPTIONS.level_steps
        self.offsets = np.arange(-steps, steps + 1)
        self.log_scale = log_scale
        self.base: Array = np.ones(len(log_scale))
        self.values: Array = np.ones(len(log_scale))
        near = np.abs(self.offsets) <= 1
        self.log_marginal = 0.0
        self.last_step: Array = np.zeros(len(log_scale))
        self.prior = np.where(near, 1.0, OPTIONS.level_prior)
        self.prior /= self.prior.sum()

    def reset(self, rows: NDArray[np.intp]) -> None:
        """Give these rows their base level."""
        self.values = self.values.copy()
        self.values[rows] = self.base[rows]

    def raise_(self, rows: NDArray[np.intp], ratios: Array) -> None:
        """Multiply the levels of these rows."""
        self.values = self.values.copy()
        self.values[rows] *= ratios

    def raised_priors(self, rows: NDArray[np.intp], number: int) -> Array:
        """Log prior probabilities of so many higher levels, relative to that of the present one."""
        present = np.log(self.values[rows] / self.base[rows])[:, None]
        higher = present + np.log(RAISED) * np.arange(1, number + 1)
        at = OPTIONS.level_step * self.offsets
        log_prior = np.log(self.prior)
        return np.asarray(np.interp(higher, at, log_prior) - np.interp(present, at, log_prior))

    def learn(self, likelihoods: Array, counts: NDArray[np.int64], common: bool) -> None:
        """New levels from log likelihoods of levels ``base``·exp(offsets·step), one row each.

        With ``common`` the levels are on the regression line.
        """
        step = OPTIONS.level_step
        shifted = np.exp(likelihoods - likelihoods.max(axis=1, keepdims=True))
        single = step * self.offsets[np.argmax(likelihoods, axis=1)] + np.log(self.base)
        line = _slope(self.log_scale, single, counts) * self.log_scale
        line -= np.median(line)
        if common:
            self.base = np.exp(line)
            self.values = self.base
            self.log_marginal = 0.0
            return
        posterior = shifted
        for _ in range(3):
            posterior = shifted * self.prior
            posterior /= posterior.sum(axis=1, keepdims=True)
            self.prior = posterior.mean(axis=0) + OPTIONS.level_prior / len(self.offsets)
            self.prior /= self.prior.sum()
        logs = step * (posterior @ self.offsets)
        logs -= np.median(logs)  # the noise variance is that of the median row
        # a row whose values happen to be equal would otherwise outweigh all others
        deviation = -np.quantile(logs, OPTIONS.low_quantile) / -ndtri(OPTIONS.low_quantile)
        new = np.log(self.base) + np.maximum(logs, -OPTIONS.low_deviations * deviation)
        # rows and columns are learned in turn, from the same residuals: levels that would oscillate
        # take shorter steps
        step = new - np.log(self.values)
        step *= np.where(step * self.last_step < 0, OPTIONS.level_damping, 1.0)
        self.values = self.values * np.exp(step)
        self.last_step = step
        self.log_marginal = self._relative_marginal(likelihoods)
        self.base = np.exp(line)

    def _relative_marginal(self, likelihoods: Array) -> float:
        """The log likelihood of all rows, averaged over the prior, less that of the levels."""
        largest = likelihoods.max(axis=1)
        averaged = largest + np.log(np.exp(likelihoods - largest[:, None]) @ self.prior)
        at = np.log(self.values / self.base) / OPTIONS.level_step - self.offsets[0]
        at = np.clip(at, 0.0, len(self.offsets) - 1.001)
        below = at.astype(np.intp)
        rows = np.arange(len(at))
        share = at - below
        of_levels = (1 - share) * likelihoods[rows, below] + share * likelihoods[rows, below + 1]
        return float((averaged - of_levels).sum())


def _slope(x: Array, y: Array, counts: NDArray[np.int64]) -> float:
    """Slope of Huber's regression of y on x, weighted by counts, between −2 and 0.

    Rows in a poor local maximum look noisy, and outliers have made their scales large: by least
    squares a few of them would determine the slope.
    """
    slope = 0.0
    weights = counts / max(counts.sum(), 1)
    for _ in range(OPTIONS.slope_sweeps):
        total = max(float(weights.sum()), 1e-300)
        centered = x - weights @ x / total
        variance = float(weights @ centered**2)
        if variance < 1e-12:
            return 0.0
        slope = float(weights @ (centered * y)) / variance
        residual = y - slope * x
        size = np.abs(residual - np.median(residual))
        width = MAD_TO_SIGMA * float(np.median(size)) + OPTIONS.level_step
        weights = counts * np.minimum(1.0, width / np.maximum(size, width))
    return min(0.0, max(-2.0, slope))
