"""Refit rows and columns whose fit is poor, from random subsets of their entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.initialization.problem import Problem
from robustmf.initialization.scales import TUNING

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ResamplingOptions:
    """Constants of the repair.

    Attributes
    ----------
    max_subsets : int
        The largest number of subsets for one row.
    max_rounds : int
        The largest number of rounds over rows and columns.
    sweeps : int
        Sweeps after a side has changed.
    theta_factor : float
        Candidates are compared at a θ larger by this factor, because the other side is not
        converged.
    failure : float
        The probability that no subset is free of outliers; the number of subsets is twice the one
        that achieves it.
    min_variance : float
        Lower bound of s(1 − s), the variance of one entry in the median row's share s of explained
        entries: a share of nearly 1 would otherwise make every other row poor.
    clean_bounds : (float, float)
        Bounds on a row's share of clean entries, from which the number of subsets follows.
    max_noise_decrease : float
        The noise level falls to no less than this share in one round.
    """

    max_subsets: int = 300
    max_rounds: int = 12
    sweeps: int = 3
    theta_factor: float = 1.15
    failure: float = 1e-3
    min_variance: float = 0.03
    clean_bounds: tuple[float, float] = (0.1, 0.95)
    max_noise_decrease: float = 0.6


OPTIONS = ResamplingOptions()


def suspects(
    operations: EntryOperations, U: Array, V: Array, theta: float, z: float
) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Rows that explain fewer of their entries than the median row by z standard deviations.

    Returns the rows, the worst first, and the number of subsets to try for each, which depends on
    the row's own share of explained entries.
    """
    counts = np.maximum(operations.observed.rows.counts, 1)
    shares = operations.explained_shares(U, V, theta)
    median = float(np.median(shares))
    variance = max(median * (1 - median), OPTIONS.min_variance)
    deficit = (median - shares) / np.sqrt(variance / counts)
    rows = np.flatnonzero(deficit > z)
    rows = rows[np.argsort(-deficit[rows], kind="stable")]
    clean = np.clip(shares[rows], *OPTIONS.clean_bounds) ** U.shape[1]
    subsets = np.ceil(2 * np.log(OPTIONS.failure) / np.log1p(-clean))
    return rows, np.minimum(OPTIONS.max_subsets, subsets).astype(np.int64)


def repair(
    problem: Problem, U: Array, V: Array, sigma: float, seed: int, z: float, budget: float
) -> tuple[float, bool]:
    """Alternate the repair of rows and of columns with sweeps, until nothing changes.

    Parameters
    ----------
    U, V : array
        Changed in place.
    sigma : float
        The noise level.
    z : float
        How poor a row must be, see :func:`suspects`.
    budget : float
        How many entries all subsets together may contain, in units of the number of entries.

    Returns
    -------
    (float, bool)
        σ̂, and whether the repair converged within the budget.
    """
    operations = problem.operations
    sides = ((operations, U, V), (operations.transposed, V, U))
    left = budget * operations.observed.n_entries
    for k in range(OPTIONS.max_rounds):
        ridge = problem.ridge(sigma)
        theta = TUNING * sigma
        changed = 0
        exhausted = False
        for side, (rows_of, P, Q) in enumerate(sides):
            rows, subsets = suspects(rows_of, P, Q, theta, z)
            work = np.cumsum(subsets * rows_of.observed.rows.counts[rows])
            within = int(np.searchsorted(work, left, side="right"))
            exhausted |= within < len(rows)
            if within == 0:
                continue
            left -= float(work[within - 1])
            improved = rows_of.repair_rows(
                P,
                Q,
                ridge,
                OPTIONS.theta_factor * theta,
                rows[:within],
                subsets[:within],
                seed + 2 * k + side,
            )
            new = int(improved.sum())
            changed += new
            for _ in range(OPTIONS.sweeps if new else 0):
                problem.sweep(Q, P, ridge, sigma, rows_of.transposed)
        if not changed:
            return sigma, not exhausted
        least = OPTIONS.max_noise_decrease * sigma
        sigma = min(sigma, max(problem.noise(problem.residuals(U, V)), least))
    return sigma, False
