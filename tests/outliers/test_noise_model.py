"""The noise model against plain formulas, and which entries count as fitted."""

from __future__ import annotations

import numpy as np
import pytest

from robustmf import RobustMF
from robustmf.datasets import make_sensors
from robustmf.outliers.noise import (
    PRIOR,
    NoiseDistribution,
    NoiseModel,
    Regressors,
    Totals,
    fit_distribution,
    moment_sum,
)
from robustmf.outliers.scores import is_fitted, noise_model


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 30))
    X += 0.1 * rng.standard_normal(X.shape)
    X[rng.random(X.shape) < 0.4] = np.nan
    return X, RobustMF(2, bias=False, random_state=0, n_jobs=1).fit(X)


def test_tails_and_quantiles_are_inverse_to_each_other():
    distribution = NoiseDistribution(2.0, 5.0, 1.0)
    levels = np.array([0.1, 0.5, 0.9, 0.99])
    at = distribution.quantile(levels)
    np.testing.assert_allclose(distribution.two_sided(at), 1 - levels)
    np.testing.assert_allclose(distribution.two_sided(-at), 1 - levels)
    np.testing.assert_allclose(distribution.above(at), (1 - levels) / 2)
    normal = NoiseDistribution(3.0, 1e9, 1.0)
    assert normal.quantile(0.6827) == pytest.approx(3.0, rel=1e-3)


def test_values_that_are_not_finite_are_ignored():
    x = np.random.default_rng(0).standard_normal(2000)
    with_others = np.concatenate([x, [np.nan, np.inf, -np.inf]])
    assert fit_distribution(with_others) == fit_distribution(x)
    # the share counts the tails beyond the central part as clean
    assert fit_distribution(x, central=1.5, freedom=200.0).share > 0.95


@pytest.mark.parametrize("spikes", [0.0, 0.02])
def test_the_noise_of_an_estimator_is_that_of_clean_entries(spikes):
    sensors = make_sensors(14, 30, spikes=spikes, random_state=0)
    model = RobustMF(rank=5, bias=False, random_state=0).fit(sensors.readings)
    assert model.noise_ == pytest.approx(0.2, rel=0.1)
    clean = ~sensors.bad & ~np.isnan(sensors.readings)
    deviations = np.abs(sensors.readings - sensors.truth)[clean]
    assert np.mean(deviations < model.noise_) == pytest.approx(0.68, abs=0.05)
    assert not hasattr(RobustMF(), "noise_")


@pytest.mark.parametrize("by_count", [False, True])
def test_leverages_are_those_of_ridge_regressions(by_count):
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((50, 2))
    counts = rng.integers(1, 9, 50)
    moment = moment_sum(factors, counts, 0.0)
    side = Regressors.from_moment(moment, int(counts.sum()), 0.0, 0.7, by_count)
    S = (factors * counts[:, None]).T @ factors / counts.sum()
    n = np.array([3.0, 10.0, 200.0])
    v = rng.standard_normal((3, 2))
    expected = []
    for size, vector in zip(n, v, strict=True):
        information = size**2 / (size + 3) * S + 0.7 * (size if by_count else 1) * np.eye(2)
        expected.append(vector @ np.linalg.solve(information, vector))
    found = side.leverages(side.squared_coordinates(v), n)
    np.testing.assert_allclose(found, expected)
    assert np.isfinite(side.leverages(side.squared_coordinates(1e9 * v), np.zeros(3))).all()


def test_deviations_of_fitted_held_out_and_new_entries(fitted):
    _, model = fitted
    noise: NoiseModel = noise_model(model.model_)
    i = np.array([0, 5, 9])
    j = np.array([3, 7, 20])

    def leverages(of_rows, of_columns):
        of_row = noise.of_columns.leverages(
            noise.of_columns.squared_coordinates(noise.V[j]), noise.distribution.share * of_rows
        )
        of_column = noise.of_rows.leverages(
            noise.of_rows.squared_coordinates(noise.U[i]), noise.distribution.share * of_columns
        )
        return noise.inflation * of_row, noise.inflation * of_column

    rows = noise.row_counts[i]
    columns = noise.column_counts[j]
    a, b = leverages(rows - 1, columns - 1)
    found = noise.deviations(i, j, np.ones(3))
    np.testing.assert_allclose(found, 1 / np.sqrt((1 + a) * (1 + b)))
    w = np.array([0.9, 0.4, 0.1])  # entries that are partly reliable have partly drawn the fit
    expected = np.sqrt((1 + a) * (1 + b)) / ((1 + w * a) * (1 + w * b))
    np.testing.assert_allclose(noise.deviations(i, j, w), expected)
    a, b = leverages(rows, columns)
    found = noise.deviations(i, j, np.zeros(3))
    np.testing.assert_allclose(found, np.sqrt(1 + a + b))
    # new rows of one entry each: nothing else determines their factors
    new = noise.new_row_deviations(np.arange(3), j, noise.U[i], np.ones(3))
    a, b = leverages(np.zeros(3), columns)
    np.testing.assert_allclose(new, np.sqrt((1 + b) / (1 + a)))


def test_a_constant_regressor_has_the_unit_of_the_biases():
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((50, 2))
    moment = moment_sum(factors, np.ones(50, int), 3.0)
    side = Regressors.from_moment(moment, 50, 3.0, 0.1, False)
    squares = side.squared_coordinates(factors)
    np.testing.assert_allclose(squares.sum(axis=1), (factors**2).sum(axis=1) + 9)


def test_an_entry_counts_as_fitted_only_with_the_fitted_value(fitted):
    X, model = fitted
    i, j = np.nonzero(~np.isnan(X))
    values = X[i, j]
    assert is_fitted(model.model_, i, j, values).all()
    changed = values.copy()
    changed[::2] += 1e-9
    found = is_fitted(model.model_, i, j, changed)
    np.testing.assert_array_equal(found, np.arange(len(i)) % 2 == 1)
    # positions that were not fitted, with the value of the next fitted entry
    a, b = np.nonzero(np.isnan(X))
    n = X.shape[1]
    after = np.minimum(np.searchsorted(i * n + j, a * n + b), len(i) - 1)
    assert not is_fitted(model.model_, a, b, values[after]).any()


def test_a_changed_value_at_a_fitted_position_is_scored_as_a_held_out_one(fitted):
    """Its residual was not reduced by the fit, so it is less suspicious than a fitted one."""
    X, model = fitted
    changed = X + 0.3
    as_held_out = model.outlier_scores(changed)
    noise = noise_model(model.model_)
    i, j = np.nonzero(~np.isnan(X))
    residual = changed[i, j] - model.predict(i, j)
    deviations = noise.deviations(i, j, np.zeros(len(i)))
    np.testing.assert_allclose(as_held_out, noise.distribution.two_sided(residual / deviations))


def test_leverages_have_the_degrees_of_freedom_of_factors_up_to_a_change_of_basis():
    """A product of rank r has r² parameters less than its two factors."""
    rng = np.random.default_rng(0)
    m, n, rank = 30, 20, 3
    # with equal leverages the plain formula has enough degrees of freedom
    factors = [rng.standard_normal((size, rank)) ** 3 for size in (m, n)]
    counts = [np.full(m, n), np.full(n, m)]
    moments = [moment_sum(A, count, 0.0) for A, count in zip(factors, counts, strict=True)]
    sides = [Regressors.from_moment(moment, m * n, 0.0, 1e-9, False) for moment in moments]
    totals = Totals(tuple(moments), ((counts[0], None), (counts[1], None)), m * n)
    plain = NoiseModel(PRIOR, *factors, *sides, *counts)
    i, j = np.divmod(np.arange(m * n), n)
    found = m * n - np.square(plain.deviations(i, j, np.ones(m * n))).sum()
    inflation = plain._with_inflation(i, j, totals).inflation
    assert inflation > 1
    assert inflation * found == pytest.approx(rank * (m + n - rank))
