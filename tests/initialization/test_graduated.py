"""Initializations find the right minimum: many outliers, any noise level and unit, odd values."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from robustmf import RobustMF
from robustmf.datasets import make_synthetic
from robustmf.datasets.oracle import oracle_factors
from robustmf.exceptions import RobustMFWarning


@pytest.mark.parametrize("m", [250, 500])
def test_defaults_reach_the_oracle(m):
    ratios = []
    for seed in range(6):
        data = make_synthetic(m, random_state=500 + seed)
        model = RobustMF(5, random_state=seed).fit(data.train)
        ratios.append(
            data.test_rmse(model.row_factors_, model.column_factors_)
            / data.test_rmse(*oracle_factors(data, 20 / (2 * m)))
        )
    assert max(ratios) <= 1.05, ratios
    assert np.median(ratios) <= 1.02, ratios


@pytest.mark.parametrize(("share", "magnitude"), [(0.2, 5.0), (0.25, 5.0), (0.3, 50.0), (0.0, 5.0)])
def test_defaults_survive_many_outliers(share, magnitude):
    ratios = []
    for seed in range(3):
        data = make_synthetic(500, outliers=share, magnitude=magnitude, random_state=700 + seed)
        model = RobustMF(5, random_state=seed).fit(data.train)
        ratios.append(
            data.test_rmse(model.row_factors_, model.column_factors_)
            / data.test_rmse(*oracle_factors(data, 0.02))
        )
    assert np.median(ratios) <= 1.1, ratios


def test_resampling_of_rows_finds_all_of_them_among_30_percent_outliers():
    found = 0
    for seed in (6, 24, 26, 38):
        data = make_synthetic(500, outliers=0.3, random_state=97_000 + seed)
        model = RobustMF(5, random_state=seed).fit(data.train)
        found += data.test_rmse(model.row_factors_, model.column_factors_) <= 1.1 * data.test_rmse(
            *oracle_factors(data, 0.02)
        )
    assert found == 4


def test_theta_is_found_at_every_scale():
    for scale in (1e-3, 1.0, 1e3):
        data = make_synthetic(250, random_state=3)
        train = data.train.with_values(scale * data.train.rows.values)
        model = RobustMF(5, reg=scale * 0.04, random_state=0).fit(train)
        assert model.theta_ / scale == pytest.approx(np.sqrt(2) * 2.1105 * 0.085, rel=0.3)
        error = data.test_rmse(
            model.row_factors_ / np.sqrt(scale), model.column_factors_ / np.sqrt(scale)
        )
        assert error < 0.1


@pytest.mark.parametrize("solver", ["auto", "varpro"])
def test_outliers_with_structure_do_not_mislead_the_defaults(solver):
    """README's example: bad entries on a grid, which an l1 fit prefers to the truth."""
    clean = np.random.default_rng(0).normal(size=(200, 3)) @ np.random.default_rng(1).normal(
        size=(3, 100)
    )
    X = clean.copy()
    X[::7, ::5] += 50
    X[::3, ::2] = np.nan
    model = RobustMF(rank=3, solver=solver, random_state=0).fit(X)
    assert np.sqrt(np.mean((model.inverse_transform(model.row_factors_) - clean) ** 2)) < 0.05
    weights = model.entry_weights(X)
    bad = (X - clean)[~np.isnan(X)] > 25
    assert weights[bad].max() < 0.01
    assert np.median(weights[~bad]) > 0.9


@pytest.mark.parametrize("solver", ["irls", "varpro"])
@pytest.mark.parametrize("noise", [0.0, 1e-4, 1e-2])
def test_low_noise_does_not_collapse(solver, noise):
    rng = np.random.default_rng(3)
    clean = rng.normal(size=(100, 2)) @ rng.normal(size=(2, 20))
    X = clean + noise * rng.normal(size=clean.shape)
    X[rng.random(clean.shape) < 0.05] += 10
    model = RobustMF(2, solver=solver, random_state=0).fit(X)
    assert np.sqrt(np.mean((model.inverse_transform(model.row_factors_) - clean) ** 2)) < max(
        noise, 0.02
    )


@pytest.mark.parametrize("scale", [1e-3, 1e-1, 10.0, 1e3])
def test_the_unit_of_the_data_does_not_matter(scale):
    data = make_synthetic(120, rank=3, observed=0.6, random_state=0)
    plain, scaled = (
        RobustMF(3, random_state=0).fit(data.train.with_values(c * data.train.rows.values))
        for c in (1.0, scale)
    )
    error = data.test_rmse(
        scaled.row_factors_ / np.sqrt(scale), scaled.column_factors_ / np.sqrt(scale)
    )
    assert error == pytest.approx(
        data.test_rmse(plain.row_factors_, plain.column_factors_), rel=1e-3
    )


def test_initializations_with_different_theta_are_compared_fairly():
    data = make_synthetic(250, outliers=0.2, random_state=4)
    one, four = (RobustMF(5, random_state=1, n_init=k).fit(data.train) for k in (1, 4))
    assert data.test_rmse(four.row_factors_, four.column_factors_) <= 1.05 * data.test_rmse(
        one.row_factors_, one.column_factors_
    )


@pytest.mark.parametrize("solver", ["irls", "varpro"])
@pytest.mark.parametrize(
    "X",
    [
        np.outer(np.arange(1, 31), np.arange(1, 13)).astype(float),
        np.ones((30, 12)),
        np.zeros((30, 12)),
        1e30 * np.random.default_rng(0).standard_normal((30, 12)),
        1e-30 * np.random.default_rng(0).standard_normal((30, 12)),
        np.random.default_rng(0).standard_normal((30, 12)) * 10.0 ** np.arange(-6, 6),
        np.random.default_rng(0).integers(1, 6, (30, 12)),
        np.random.default_rng(0).standard_normal((30, 12)).astype(np.float32),
    ],
    ids=[
        "ints-as-floats",
        "constant",
        "zero",
        "1e30",
        "1e-30",
        "mixed-scales",
        "integers",
        "float32",
    ],
)
def test_unusual_values_give_finite_factors(X, solver):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobustMFWarning)
        model = RobustMF(3, solver=solver, random_state=0).fit(X)
    assert np.all(np.isfinite(model.row_factors_))
    assert np.all(np.isfinite(model.column_factors_))


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
def test_hard_cases_give_finite_and_accurate_factors():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 50)) + 0.05 * rng.standard_normal(
        (60, 50)
    )
    wrong_row = X.copy()
    wrong_row[7] = 1000 * rng.standard_normal(50)  # every entry of a row is an outlier
    model = RobustMF(3, random_state=0).fit(wrong_row)
    assert np.all(np.isfinite(model.row_factors_))
    others = np.arange(60) != 7
    assert np.abs(model.inverse_transform(model.row_factors_) - X)[others].max() < 0.5
    tiny = RobustMF(3, theta=1e-9, random_state=0).fit(X)
    assert np.all(np.isfinite(tiny.row_factors_))
    few = X.copy()
    few[3, 2:] = np.nan  # fewer entries than factors
    assert np.all(np.isfinite(RobustMF(3, random_state=0).fit(few).row_factors_))
