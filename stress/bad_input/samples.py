"""Data and fitted models that the cells share."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np

from robustmf import Observed, RobustMF, baselines, selection
from robustmf.exceptions import RobustMFWarning
from robustmf.intervals import ConformalIntervals
from stress.bad_input.cell import Answers

#: Shape of the valid matrix.
M = 12
N = 9

#: Rows without an observed entry.
ALL_MISSING = np.full((3, N), np.nan)

#: Results that several functions have.
FINITE = Answers(
    "a finite result", lambda answer: bool(np.isfinite(np.asarray(answer, float)).all())
)
ZEROS = Answers(
    "zeros: such rows have no known entries", lambda answer: not np.asarray(answer).any()
)


@cache
def matrix() -> Any:
    """A valid matrix."""
    rng = np.random.default_rng(0)
    X = np.outer(rng.uniform(1, 2, M), rng.uniform(1, 2, N)) + 0.01 * rng.standard_normal((M, N))
    X[0, 0] = np.nan
    return X


@cache
def table() -> Observed:
    """The same entries with ids."""
    i, j = np.nonzero(~np.isnan(matrix()))
    return Observed.from_triplets(
        row=[f"u{k:02}" for k in i], col=[f"i{k}" for k in j], value=matrix()[i, j]
    )


@cache
def fitted(ids: bool = False, bias: bool = False) -> RobustMF:
    """A fitted model."""
    return RobustMF(rank=1, bias=bias, random_state=0, n_jobs=1).fit(table() if ids else matrix())


def fresh(**parameters: Any) -> RobustMF:
    """An unfitted model."""
    return RobustMF(rank=1, random_state=0, n_jobs=1, **parameters)


def refittable() -> RobustMF:
    """A new fitted model, which may be modified."""
    return fresh().fit(matrix())


class NotATable:
    """An object that is neither an array nor a table."""


@cache
def baseline(name: str) -> Any:
    """A fitted baseline."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobustMFWarning)
        return getattr(baselines, name)(1, max_iter=2, n_jobs=1, random_state=0).fit(
            np.nan_to_num(matrix(), nan=1.0)
        )


@cache
def intervals() -> ConformalIntervals:
    """Calibrated intervals."""
    train, holdout = selection.entry_train_test_split(table(), 0.3, 0)
    return ConformalIntervals(fresh(bias=False).fit(train), holdout)


@cache
def search() -> selection.RobustMFCV:
    """A fitted search over one rank."""
    return selection.RobustMFCV([1], estimator=fresh(bias=False), cv=2, random_state=0).fit(table())
