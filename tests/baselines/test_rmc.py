"""RMC against its authors' code, and its Riemannian gradient."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.helpers import relative_error
from robustmf.baselines.fixed_rank import FixedRank
from robustmf.baselines.rmc import SmoothingRounds


@pytest.mark.parametrize(
    ("name", "reg", "rounds", "tol"),
    [("rmc_X_1", 0, 1, 1e-10), ("rmc_X_7", 0, 7, 1e-6), ("rmc_X_lam1e3", 1e-3, 7, 1e-6)],
)
def test_result_equals_that_of_the_authors_code(
    name, reg, rounds, tol, octave, operations, spectral
):
    smoothing = SmoothingRounds(operations, reg, 1.0, 0.05, 40, rounds)
    smoothing.begin(*spectral)
    smoothing.step()
    while smoothing.convergence_reason(0.0, 0.0, 1e-8) is None:
        smoothing.step()
    U, V = smoothing.factors
    assert relative_error(U @ V.T, octave[name]) < tol


@pytest.mark.parametrize("reg", [0.0, 0.01])
def test_gradient_is_the_derivative(reg, operations, spectral):
    smoothing = SmoothingRounds(operations, reg, 0.3, 0.05, 40, 1)
    smoothing.begin(*spectral)
    point = FixedRank.from_factors(*spectral)
    _, predicted, z = smoothing.cost(point)
    gradient = smoothing.gradient(point, predicted, z)
    rng = np.random.default_rng(3)
    Z = rng.standard_normal(operations.observed.shape)
    x = point.project(Z @ point.V, Z.T @ point.U)
    h = 1e-5
    slope = (smoothing.cost(point.retract(x, h))[0] - smoothing.cost(point.retract(x, -h))[0]) / (
        2 * h
    )
    assert sum(np.sum(a * b) for a, b in zip(gradient, x, strict=True)) == pytest.approx(
        slope, rel=1e-6
    )
