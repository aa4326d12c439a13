"""The peers of the benchmark of non-negative factors do what they are cited for."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import nonnegative
from benchmarks.nonnegative import (
    columns_weights,
    correntropy_weights,
    huber_weights,
    make_problem,
    multiplicative,
)


@pytest.fixture
def factors():
    rng = np.random.default_rng(0)
    return rng.gamma(2.0, 0.5, (30, 5)), rng.gamma(2.0, 0.5, (20, 5))


def objective(X, product):
    """The l2,1 norm of the residuals at the observed entries."""
    return np.sqrt(np.nansum((X - product) ** 2, axis=0)).sum()


def test_updates_lower_the_norm_that_they_minimize(factors):
    X = np.maximum(make_problem(30, 0.7, 0.1, 1).X[:, :20], 0)
    values = [
        objective(X, multiplicative(X, factors, columns_weights, updates)) for updates in range(9)
    ]
    assert np.all(np.diff(values) < 0)
    assert values[-1] < 0.8 * values[0]


@pytest.mark.parametrize("weights", [columns_weights, huber_weights, correntropy_weights])
def test_a_product_of_non_negative_factors_stays(weights, factors):
    U, V = factors
    X = U @ V.T
    X[3, 4] = np.nan
    np.testing.assert_allclose(multiplicative(X, factors, weights, 3), U @ V.T, rtol=0.02)


def test_entrywise_weights_are_small_at_outliers_only():
    residual = 0.1 * np.random.default_rng(2).standard_normal((40, 30))
    residual[5, 6] = 4.0
    seen = np.ones(residual.shape, bool)
    for weights in (huber_weights, correntropy_weights):
        found = weights(residual, seen)
        assert found[5, 6] < 0.05
        assert np.median(found) > 0.5
    assert np.ptp(columns_weights(residual, seen)[:, 6]) == 0, "one weight per column"


def test_the_problem_has_the_stated_shares():
    problem = make_problem(200, 0.2, 0.1, 3)
    assert abs(np.isfinite(problem.X).mean() - 0.2) < 0.01
    assert abs(problem.bad.mean() - 0.1) < 0.01
    assert problem.clean.min() >= 0
    assert np.linalg.matrix_rank(problem.clean) == nonnegative.RANK
    inside = ~problem.bad & np.isfinite(problem.X)
    assert abs(np.std((problem.X - problem.clean)[inside]) - 0.1) < 0.005
