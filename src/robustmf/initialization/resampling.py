"""Rows and columns whose fit is bad, solved again from random subsets of their entries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.initialization.problem import Problem
from robustmf.initialization.scales import TUNING

Array = NDArray[np.floating[Any]]

_MOST_TRIALS = 300
_MOST_ROUNDS = 12
_SWEEPS_BETWEEN = 3

#: Candidates are judged at a θ that is a little wider, since the other side is not at its best yet.
WIDER = 1.15


def suspects(
    operations: EntryOperations, U: Array, V: Array, theta: float, z: float
) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Rows that explain fewer of their entries than the median row by z standard deviations, worst first; and subsets to try for each.

    Twice as many as make a subset without outliers all but sure (1 − 1e-3), at the row's own share of explained entries.
    """
    counts = np.maximum(operations.observed.rows.counts, 1)
    shares = operations.explained_shares(U, V, theta)
    middle = float(np.median(shares))
    deficit = (middle - shares) / np.sqrt(max(middle * (1 - middle), 0.03) / counts)
    rows = np.flatnonzero(deficit > z)
    rows = rows[np.argsort(-deficit[rows], kind="stable")]
    clean = np.clip(shares[rows], 0.1, 0.95) ** U.shape[1]
    return rows, np.minimum(_MOST_TRIALS, np.ceil(2 * np.log(1e-3) / np.log1p(-clean))).astype(
        np.int64
    )


def repair(
    problem: Problem, U: Array, V: Array, sigma: float, seed: int, z: float, budget: float
) -> tuple[float, bool]:
    """Alternate repair of rows and of columns with sweeps, until nothing changes. Returns σ̂, and whether it settled.

    ``z`` says how bad a row must be to be tried; ``budget`` how often all trials together may look at as many entries as there are.
    """
    operations = problem.operations
    sides = ((operations, U, V), (operations.transposed, V, U))
    left = budget * operations.observed.n_entries
    for k in range(_MOST_ROUNDS):
        ridge, theta = problem.ridge(sigma), TUNING * sigma
        changed, exhausted = 0, False
        for side, (rows_of, P, Q) in enumerate(sides):
            rows, trials = suspects(rows_of, P, Q, theta, z)
            work = np.cumsum(trials * rows_of.observed.rows.counts[rows])
            within = int(np.searchsorted(work, left, side="right"))
            exhausted |= within < len(rows)
            if within == 0:
                continue
            left -= float(work[within - 1])
            new = int(
                rows_of.repair_rows(
                    P, Q, ridge, WIDER * theta, rows[:within], trials[:within], seed + 2 * k + side
                ).sum()
            )
            changed += new
            for _ in range(_SWEEPS_BETWEEN if new else 0):
                problem.sweep(Q, P, ridge, sigma, rows_of.transposed)
        if not changed:
            return sigma, not exhausted
        sigma = min(sigma, max(problem.sigma(problem.residuals(U, V)), 0.6 * sigma))
    return sigma, False
