"""Approximate message passing (TAP form).

It finds the right basin of attraction where a quarter of the entries and more are outliers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.initialization.problem import Problem

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class MessagePassingOptions:
    """Constants of message passing. Lengths are in units of the values' scale.

    Attributes
    ----------
    max_iter : int
        The largest number of iterations.
    initial_noise, final_noise : float
        The noise level of inliers at the beginning, and the one at which the iteration ends.
    outlier_noise : float
        The standard deviation of outliers at the beginning.
    min_outlier_noise : float
        Its lower bound.
    min_outlier_ratio : float
        Its lower bound in units of the noise level.
    outlier_share : float
        The share of outliers at the beginning.
    share_bounds : (float, float)
        Bounds on the share of outliers.
    initial_size : float
        The root mean square of the initial factors, in units of the one that matches the values.
    grid : float
        Initial messages are rounded to multiples of this.
    initial_covariance : float
        The variance of the initial messages, in units of the variance of a factor's entry.
    warm_up : int
        Iterations before the estimate of the noise can count as stable.
    max_rise : float
        The noise is stable if the estimate of its variance is above what the schedule would set
        and below this many times the current one.
    min_weight : float
        Lower bound of a total weight that is divided by.
    steady : int
        The iteration ends when the estimate of the noise has been stable for this many iterations.
    """

    max_iter: int = 250
    initial_noise: float = 0.3
    final_noise: float = 0.04
    outlier_noise: float = 1.5
    min_outlier_noise: float = 0.5
    min_outlier_ratio: float = 3.0
    outlier_share: float = 0.2
    share_bounds: tuple[float, float] = (0.005, 0.6)
    initial_size: float = 0.7
    grid: float = 2.0**-24
    initial_covariance: float = 0.5
    warm_up: int = 10
    max_rise: float = 1.02
    min_weight: float = 1e-9
    steady: int = 5


OPTIONS = MessagePassingOptions()


def propagate(problem: Problem, U: Array, V: Array, rate: float) -> float:
    """Pass messages from (U, V), in place, and return the final noise level.

    The noise level falls by ``rate`` per iteration, but not below its estimate. Data and factors
    are rounded, in units of the scale: with few entries per parameter messages may not converge,
    and a difference in the last digits, such as that of another unit of the data, would then grow
    to the first ones.
    """
    scale = problem.scale
    rank = problem.rank
    rows = _in_units_of_scale(problem)
    columns = rows.transposed
    observed = rows.observed
    variance = float(_rounded(np.array(problem.factor_variance / scale)))
    by_row = np.arange(observed.n_entries)
    by_column = observed.column_order
    for factor in (U, V):
        size = float(np.sqrt(np.mean(np.square(factor, dtype=np.float64))))
        tiny = float(np.finfo(factor.dtype).tiny)
        factor *= factor.dtype.type(OPTIONS.initial_size / max(size, tiny))
        factor[:] = _rounded(factor) * factor.dtype.type(np.sqrt(variance))
    row_covariances, column_covariances = (
        np.tile(OPTIONS.initial_covariance * variance * np.eye(rank), (len(factor), 1, 1))
        for factor in (U, V)
    )
    row_weights = np.zeros(observed.n_entries)
    column_weights = np.zeros(observed.n_entries)
    row_precision = column_precision = 1 / variance
    s2 = OPTIONS.initial_noise**2
    t2 = OPTIONS.outlier_noise**2
    share = OPTIONS.outlier_share
    steady = 0
    for k in range(OPTIONS.max_iter):
        rows.propagate(
            U,
            row_covariances,
            V,
            column_covariances,
            by_row,
            row_weights,
            column_weights,
            row_precision,
            s2,
            t2,
            share,
        )
        inliers, energy, outliers, outlier_energy = columns.propagate(
            V,
            column_covariances,
            U,
            row_covariances,
            by_column,
            column_weights,
            row_weights,
            column_precision,
            s2,
            t2,
            share,
        )
        estimate = energy / max(inliers, OPTIONS.min_weight)
        is_steady = k > OPTIONS.warm_up and s2 * rate**2 < estimate < s2 * OPTIONS.max_rise
        steady = steady + 1 if is_steady else 0
        s2 = max(estimate, s2 * rate**2)
        share = float(np.clip(outliers / observed.n_entries, *OPTIONS.share_bounds))
        t2 = max(
            outlier_energy / max(outliers, OPTIONS.min_weight),
            OPTIONS.min_outlier_ratio**2 * s2,
            OPTIONS.min_outlier_noise**2,
        )
        row_precision = _precision(U, row_covariances)
        column_precision = _precision(V, column_covariances)
        if steady >= OPTIONS.steady or s2 < OPTIONS.final_noise**2:
            break
    for factor in (U, V):
        factor *= factor.dtype.type(np.sqrt(scale))
    return float(np.sqrt(s2)) * scale


def _in_units_of_scale(problem: Problem) -> EntryOperations:
    observed = problem.inliers.observed
    values = observed.rows.values / observed.dtype.type(problem.scale)
    return problem.inliers.on(observed.with_values(_rounded(values)))


def _rounded(x: Array) -> Array:
    """Rounded to fewer digits than float64 has, so that the unit of the data does not show.

    In float32 nothing is rounded.
    """
    return np.round(x / OPTIONS.grid) * OPTIONS.grid


def _precision(factor: Array, covariances: Array) -> float:
    """1 / mean second moment of a factor's entries."""
    return factor.size / float(
        np.square(factor, dtype=np.float64).sum() + np.trace(covariances, axis1=1, axis2=2).sum()
    )
