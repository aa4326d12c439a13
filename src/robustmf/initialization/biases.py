"""Center and biases of rows and columns, centers of one side, and what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.data.compressed import Compressed
from robustmf.data.observed import Observed
from robustmf.data.statistics import MAD_TO_SIGMA
from robustmf.initialization.initial_point import bias_half_step, bias_sweeps, subtract_biases
from robustmf.initialization.problem import sampled_entries
from robustmf.initialization.spectral import group_medians
from robustmf.losses import Huber

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class BiasOptions:
    """Constants of biases.

    Attributes
    ----------
    no_bias : float
        The ridge of biases that are not part of the model, in units of the largest number of
        entries.
    free : float
        The ridge of centers of one side, in units of an entry. They may be any multiple of the
        noise level, and are not shrunk; without any ridge a column whose entries all have weight 0
        would have no center.
    different_units : float
        Rows (or columns) may have different units if the logarithms of their robust scales have a
        larger standard deviation than this, a factor of 1.6: smaller differences are hardly larger
        than the errors of such scales, and cost biases in one unit little. The evidence decides.
    log_variance : float
        The variance of the logarithm of a median deviation from n entries is an n-th of this, for
        normal values.
    min_entries : int
        Scales of rows with fewer entries are mostly error, and not used.
    """

    no_bias: float = 1e6
    free: float = 1e-6
    different_units: float = 0.5
    log_variance: float = 1.36
    min_entries: int = 10


OPTIONS = BiasOptions()


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
    sigma : float
        The noise level to which the ridges belong; 0 where they do not depend on it.
    side : int or None, default=None
        0 or 1 if these are centers of the rows or of the columns alone, each in its own unit.
    """

    center: float
    row_bias: Array
    column_bias: Array
    row_ridge: float
    column_ridge: float
    width: float
    sigma: float = 0.0
    side: int | None = None

    def beside_factors(self, sigma: float) -> Biases:
        """The same biases beside factors that leave noise of this level.

        The variance of the biases is the same, and the ridges are relative to that of the noise.
        """
        if self.sigma <= 0:
            return self
        variance = (sigma / self.sigma) ** 2
        ridges = self.row_ridge * variance, self.column_ridge * variance
        return replace(self, row_ridge=ridges[0], column_ridge=ridges[1], sigma=sigma)

    def subtracted_from(self, operations: EntryOperations) -> EntryOperations:
        """Operations on what the biases leave."""
        return subtract_biases(operations, self.center, self.row_bias, self.column_bias)

    def leverage(self, observed: Observed, residual: Array) -> Array:
        """The leverage of each entry in the regressions for the biases.

        An entry counts with its weight, that of an outlier is small.
        """
        entries = observed.rows
        rows = 1 / (entries.counts + self.row_ridge)
        columns = 1 / (observed.columns.counts + self.column_ridge)
        weights = Huber(self.width).weight(residual)
        return np.asarray(weights * (rows[entries.group_of_entry()] + columns[entries.indices]))

    def divergence(self, observed: Observed, variance: float) -> float:
        """What the evidence loses by the biases: their information about the entries.

        Half of log(1 + n/λ) + n/(n + λ), for each bias that n entries determine, is the divergence
        of its posterior from its prior and the expected loss of its uncertainty. ``variance`` is
        that of the noise beside factors, relative to that beside biases alone. A center in its own
        unit has the prior of unit information, λ = 1.
        """
        total = 0.0
        ridges = (self.row_ridge, self.column_ridge)
        for k, (side, ridge) in enumerate(
            zip((observed.rows, observed.columns), ridges, strict=True)
        ):
            n = side.counts
            own = 1.0 if k == self.side else ridge * variance
            total += 0.5 * float((np.log1p(n / own) + n / (n + own)).sum())
        return total


def learned_biases(operations: EntryOperations) -> Biases:
    """Center and biases by Huber regressions, with ridges learned from the biases themselves."""
    observed = operations.observed
    center, losses = bias_sweeps(observed.rows.values)
    b, c = (operations.array(np.zeros((k, 1), observed.dtype)) for k in observed.shape)
    sample: Any = sampled_entries(observed)
    i, j, values = map(np.asarray, sample)
    ridges = [1.0, 1.0]
    sigma = 0.0
    sides = ((operations, b, c), (operations.transposed, c, b))
    for loss in losses:
        for side, (own_operations, own, other) in enumerate(sides):
            bias_half_step(own_operations, loss, ridges[side], own, other, center)
            row_bias, column_bias = (np.asarray(bias)[:, 0] for bias in (b, c))
            residual = values - row_bias[i] - column_bias[j] - values.dtype.type(center)
            sigma = MAD_TO_SIGMA * float(np.median(np.abs(residual)))
            counts = np.asarray(own_operations.observed.rows.counts)
            ridges[side] = _learned_ridge(np.asarray(own)[:, 0], counts, sigma, ridges[side])
    return Biases(center, b[:, 0], c[:, 0], ridges[0], ridges[1], losses[-1].theta, sigma)


def _learned_ridge(
    biases: Array, counts: NDArray[np.integer[Any]], sigma: float, ridge: float
) -> float:
    """Noise variance over the variance of the biases: a step of expectation maximization."""
    filled = counts > 0
    if sigma <= 0:
        return ridge
    z = biases[filled].astype(np.float64) / sigma
    return float(1 / np.mean(z * z + 1 / (counts[filled] + ridge)))


def center_alone(operations: EntryOperations, biases: Biases) -> Biases:
    """The center of these biases, which are zero, and remain so."""
    observed = operations.observed
    rows, columns = (operations.array(np.zeros(k, observed.dtype)) for k in observed.shape)
    most = max(int(np.asarray(side.counts).max()) for side in (observed.rows, observed.columns))
    ridge = OPTIONS.no_bias * most
    return Biases(biases.center, rows, columns, ridge, ridge, biases.width)


def centers_of_side(operations: EntryOperations, side: int) -> Biases:
    """The median of each row (``side`` 0) or of each column (1), whatever its unit."""
    observed = operations.host().observed
    groups = (observed.rows, observed.columns)[side]
    centers = _medians(groups, groups.values)
    none = operations.array(np.zeros(observed.shape[1 - side], observed.dtype))
    placed = operations.array(centers.astype(observed.dtype))
    absent = OPTIONS.no_bias * max(
        int(own.counts.max()) for own in (observed.rows, observed.columns)
    )
    # all entries have the same weight in a leverage: errors are in many units
    width = float(np.abs(observed.rows.values).max()) or 1.0
    if side == 0:
        return Biases(0.0, placed, none, OPTIONS.free, absent, width, side=0)
    return Biases(0.0, none, placed, absent, OPTIONS.free, width, side=1)


def side_of_units(observed: Observed) -> int | None:
    """The side whose values have different units: 0 for rows, 1 for columns, None if neither has.

    Units show in the median deviations of rows (columns) from their medians, in which a row counts
    with its entries.
    """
    deviations = []
    for groups in (observed.rows, observed.columns):
        centered = groups.values - _medians(groups, groups.values)[groups.group_of_entry()]
        size = _medians(groups, np.abs(centered))
        used = (size > 0) & (groups.counts >= OPTIONS.min_entries)
        variance = 0.0
        if used.any():
            logs = np.log(size[used])
            counts = groups.counts[used]
            variance = np.average((logs - np.average(logs, weights=counts)) ** 2, weights=counts)
            variance -= OPTIONS.log_variance / float(np.average(counts))
        deviations.append(math.sqrt(max(float(variance), 0.0)))
    side = int(np.argmax(deviations))
    return side if deviations[side] > OPTIONS.different_units else None


def _medians(groups: Compressed, values: Array) -> Array:
    """The median of each group of values, 0 for none."""
    n_indices = int(groups.indices.max(initial=-1)) + 1
    used = np.ones(len(values), bool)
    return group_medians(groups, values.astype(np.float64), used, np.zeros(n_indices))[0]
