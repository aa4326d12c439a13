"""Data and fixtures of the tests of fits on a cluster."""

from __future__ import annotations

import numpy as np
import pytest
from clusters import NAMES, InitialPoint, table

from robustmf import Observed
from robustmf.distributed import fitting


@pytest.fixture(scope="module")
def ratings():
    return table()


@pytest.fixture(scope="module")
def observed(ratings):
    return Observed.from_triplets(ratings, **NAMES)


@pytest.fixture
def initial_points(monkeypatch):
    """The initial points of the following fits on a cluster, in their order."""
    points = []
    initialize = fitting.initialize

    def recorded(*arguments):
        estimates, point = initialize(*arguments)
        points.append(InitialPoint(estimates, tuple(np.asarray(one) for one in point)))
        return estimates, point

    monkeypatch.setattr(fitting, "initialize", recorded)
    return points
