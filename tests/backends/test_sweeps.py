"""Sweeps on one machine with non-negative factors; the conformance suite has the other ones."""

from __future__ import annotations

import numpy as np

from conftest import random_problem
from robustmf.backends.sweeps import NO_BIASES
from robustmf.losses import Welsch


def test_extrapolated_factors_are_projected(operations_on, dtype):
    observed, U, V = random_problem(12, 9, 2, dtype=dtype)
    operations = operations_on(observed)
    point = (np.abs(U), np.abs(V))
    previous = (point[0] + np.abs(U[::-1]), point[1] + np.abs(V[::-1]))
    projected = tuple(
        np.maximum(A + dtype(0.5) * (A - B), 0) for A, B in zip(point, previous, strict=True)
    )
    assert all((A == 0).any() for A in projected)
    sweeps = operations.sweeps(0.3, NO_BIASES, nonnegative=True)

    def swept(start, before, extrapolation):
        on = operations.array
        placed = tuple(map(on, start)), tuple(map(on, before))
        loss = Welsch(1.0)
        options = {"curvature": np.inf, "single": False}
        return sweeps.sweep(*placed, extrapolation, loss, [loss], **options)

    found, measured = swept(point, previous, 0.5)
    wanted, expected = swept(projected, projected, 0.0)
    for A, B in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(A), np.asarray(B))
        assert np.asarray(A).min() >= 0
    assert measured == expected
