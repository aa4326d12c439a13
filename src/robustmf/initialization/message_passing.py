"""Approximate message passing (TAP form): finds the right valley where a quarter of the entries and more are outliers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.initialization.problem import Problem

Array = NDArray[np.floating[Any]]

_MOST_ITERATIONS = 250

#: The noise level starts and ends at these shares of the spread.
_FIRST_NOISE, _LAST_NOISE = 0.3, 0.04

#: What messages begin with is rounded to multiples of this.
_GRID = 2.0**-24

#: Iterations in which the estimate of the noise must hold still.
_STEADY = 5


def propagate(problem: Problem, U: Array, V: Array, rate: float) -> float:
    """Message passing from (U, V), in place; the noise level falls by ``rate`` an iteration, but not below its estimate.

    Returns the noise level where it ended. All is in units of the spread, and rounded, on the way: messages of few entries a parameter
    may never settle, and what then differs in the last digits at the start, as with data in another unit, would differ in the first.
    """
    rows, spread, r = _in_units_of_spread(problem), problem.spread, problem.rank
    columns, observed, prior = (
        rows.transposed,
        rows.observed,
        float(_rounded(np.array(problem.prior / spread))),
    )
    at_row, at_column = np.arange(observed.n_entries), observed.column_order
    for factor in (U, V):
        size = float(np.sqrt(np.mean(np.square(factor, dtype=np.float64))))
        factor *= factor.dtype.type(0.7 / max(size, float(np.finfo(factor.dtype).tiny)))
        factor[:] = _rounded(factor) * factor.dtype.type(np.sqrt(prior))
    of_rows, of_columns = (
        np.tile(0.5 * prior * np.eye(r), (len(factor), 1, 1)) for factor in (U, V)
    )
    row_weights, column_weights = np.zeros(observed.n_entries), np.zeros(observed.n_entries)
    row_precision = column_precision = 1 / prior
    s2, t2, share, steady = _FIRST_NOISE**2, 1.5**2, 0.2, 0
    for k in range(_MOST_ITERATIONS):
        rows.propagate(
            U,
            of_rows,
            V,
            of_columns,
            at_row,
            row_weights,
            column_weights,
            row_precision,
            s2,
            t2,
            share,
        )
        inliers, energy, outliers, far_energy = columns.propagate(
            V,
            of_columns,
            U,
            of_rows,
            at_column,
            column_weights,
            row_weights,
            column_precision,
            s2,
            t2,
            share,
        )
        estimate = energy / max(inliers, 1e-9)
        settled = k > 10 and s2 * rate**2 < estimate < s2 * 1.02
        steady = steady + 1 if settled else 0
        s2 = max(estimate, s2 * rate**2)
        share = float(np.clip(outliers / observed.n_entries, 0.005, 0.6))
        t2 = max(far_energy / max(outliers, 1e-9), 9 * s2, 0.5**2)
        row_precision, column_precision = _precision(U, of_rows), _precision(V, of_columns)
        if steady >= _STEADY or s2 < _LAST_NOISE**2:
            break
    for factor in (U, V):
        factor *= factor.dtype.type(np.sqrt(spread))
    return float(np.sqrt(s2)) * spread


def _in_units_of_spread(problem: Problem) -> EntryOperations:
    observed = problem.near.observed
    return problem.near.on(
        observed.with_values(_rounded(observed.rows.values / observed.dtype.type(problem.spread)))
    )


def _rounded(x: Array) -> Array:
    """To so many digits that in float64 two units of the data all but never show in them; float32 has no more to begin with."""
    return np.round(x / _GRID) * _GRID


def _precision(factor: Array, covariances: Array) -> float:
    """1 / mean second moment of a factor's entries."""
    return factor.size / float(
        np.square(factor, dtype=np.float64).sum() + np.trace(covariances, axis1=1, axis2=2).sum()
    )
