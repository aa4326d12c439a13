"""RP against its authors' code, and its Riemannian gradient."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.helpers import relative_error
from robustmf.baselines.riemannian import ConjugateGradients


@pytest.mark.parametrize("rule", ["r3mc", "r3mc_hs"])
def test_iterates_equal_those_of_the_authors_code(rule, octave, operations, spectral):
    descent = ConjugateGradients(operations, rule == "r3mc_hs")
    costs = [descent.begin(*spectral)]
    for k in range(1, 21):
        costs.append(descent.step())
        if f"{rule}_X{k}" in octave:
            U, V = descent.factors
            assert relative_error(U @ V.T, octave[f"{rule}_X{k}"]) < 1e-10
    np.testing.assert_allclose(
        2 * np.array(costs) / operations.observed.n_entries, octave[f"{rule}_costs"], rtol=1e-10
    )


def test_gradient_is_the_derivative(operations, spectral):
    """g(grad, ξ) is the directional derivative along any tangent ξ; the gradient is horizontal."""
    descent = ConjugateGradients(operations, False)
    descent.begin(*spectral)
    descent.step()
    metric = descent.metric
    point = metric.point
    gradient = descent.gradient
    rng = np.random.default_rng(3)
    for _ in range(3):
        x = tuple(rng.standard_normal(A.shape) for A in (point.U, point.R, point.V))
        x = (x[0] - point.U @ (point.U.T @ x[0]), x[1], x[2] - point.V @ (point.V.T @ x[2]))
        h = 1e-6
        slope = (
            descent.cost(descent.residual_at(point.retract(x, h)))
            - descent.cost(descent.residual_at(point.retract(x, -h)))
        ) / (2 * h)
        assert metric.inner(gradient, x) == pytest.approx(slope, rel=1e-6)
    RRt = point.R @ point.R.T
    RtR = point.R.T @ point.R
    left = RRt @ gradient[0].T @ point.U + gradient[1] @ point.R.T
    right = RtR @ gradient[2].T @ point.V - point.R.T @ gradient[1]
    size = np.abs(left).max()
    assert np.abs(left - left.T).max() < 1e-12 * size
    assert np.abs(right - right.T).max() < 1e-12 * size
