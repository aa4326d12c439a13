"""Data of the tests of the comparison systems."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.helpers import FIXTURES
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.data.observed import Observed


@pytest.fixture(scope="module")
def given():
    """The 60 × 45 problem on which the reference codes were run."""
    return np.load(FIXTURES / "input.npz")


@pytest.fixture(scope="module")
def octave():
    """Results of the authors' MATLAB codes."""
    return np.load(FIXTURES / "octave.npz")


@pytest.fixture(scope="module")
def small(given):
    return Observed.from_indices(given["i"], given["j"], given["a"], given["M"].shape)


@pytest.fixture
def operations(small, team):
    return CPUOperations(small, team)


@pytest.fixture
def spectral(given):
    """The truncated SVD of the zero-filled matrix as factors."""
    return given["svd_U"] * given["svd_s"], given["svd_V"]


@pytest.fixture(scope="module")
def recovery():
    """A 200 × 200 matrix of rank 5, 30 % of it observed, and the same with ±5 on 10 % of those."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((200, 5)) @ rng.standard_normal((200, 5)).T
    seen = rng.random(X.shape) < 0.3
    exact = np.where(seen, X, np.nan)
    hit = seen & (rng.random(X.shape) < 0.1)
    return X, exact, exact + 5 * hit * rng.choice([-1, 1], X.shape)
