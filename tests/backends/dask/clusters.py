"""Data, comparisons and fits that the tests of fits on a cluster share."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

import numpy as np
import pandas as pd

from robustmf import RobustMF
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.estimator import parameters, training
from robustmf.fitting import Data, iterate
from robustmf.initialization.state import Initialization
from robustmf.io.checkpoint import Progress
from robustmf.kernels.team import Team
from robustmf.losses import Loss

NAMES = {"row": "user", "col": "item", "value": "rating"}


@dataclass(frozen=True)
class Own(Loss):
    """A user-defined loss without a compiled kernel; it is sent to the workers."""

    theta: float = 0.5
    name = "own"
    concave = False

    def value(self, a):
        return self.theta * (np.sqrt(self.theta**2 + a**2) - self.theta)

    def derivative(self, a):
        return self.theta * np.abs(a) / np.sqrt(self.theta**2 + a**2)

    def weight(self, a):
        return self.theta / np.sqrt(self.theta**2 + a**2)


def table(m=60, n=40, rank=2, share=0.35, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    U = rng.normal(size=(m, rank))
    V = rng.normal(size=(n, rank))
    i, j = np.nonzero(rng.random((m, n)) < share)
    order = rng.permutation(len(i))
    i = i[order]
    j = j[order]
    values = (U @ V.T)[i, j] + 0.1 * rng.normal(size=len(i))
    bad = rng.random(len(i)) < 0.05
    values[bad] += 5
    return pd.DataFrame(
        {
            "user": [f"u{k:03}" for k in i],
            "item": 7 * j,
            "rating": values.astype(dtype),
            "trust": rng.integers(0, 3, len(i)).astype(dtype),
        }
    )


def settings_of(model, matrix):
    """The settings of a fit of the estimator to this matrix."""
    no_values = np.empty(0)  # the ratings of the tests are not on a scale
    return parameters.settings_of(model, matrix.shape, no_values)


def set_model(model, result, entries, weights=None):
    """Make the estimator a fitted one."""
    settings = settings_of(model, entries)
    found = training.fitted_model(settings, result, entries, weights, entries.n_entries)
    return model._set_model(training.checked(found, entries, weights), entries)


@dataclass
class InitialPoint:
    """The initial point of a fit on the cluster."""

    initial: Initialization

    def fit_alone(self, observed, weights=None, holdout=None, **settings):
        """Fit the same data on one machine from this point, with the same entries held out."""
        model = RobustMF(settings.pop("rank", 2), solver="irls", n_jobs=1, **settings)
        with Team(1) as team:
            data = Data(CPUOperations(observed, team), weights, holdout)
            result = iterate(settings_of(model, observed), self.initial, data, Progress())
        return set_model(model, result, observed, weights)


def in_pieces(frame, n=3):
    return [frame.iloc[k::n] for k in range(n)]


def assert_same(one, other, rtol=1e-5):
    """Two models agree to the tolerance, with equal ids and history."""
    assert one.row_ids_ == other.row_ids_
    assert one.column_ids_ == other.column_ids_
    assert one.n_iter_ == other.n_iter_
    for name in ("row_factors_", "column_factors_", "row_bias_", "column_bias_"):
        mine = getattr(one, name)
        theirs = getattr(other, name)
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=rtol * np.abs(theirs).max())
    np.testing.assert_allclose(one.history_["objective"], other.history_["objective"], rtol=rtol)
    for name in ("theta_", "reg_", "center_"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=rtol)
    scale = other.entries_["values"].std()
    for name in ("median_", "scale_"):  # of the sampled entries
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=0.1 * scale)


def die_once(marker, function, *arguments):
    """The function; but the process of the first call is killed."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return function(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
    return None
