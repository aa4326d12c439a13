"""The synthetic problem of the paper."""

from __future__ import annotations

import numpy as np
import pytest

from robustmf.datasets import make_synthetic


@pytest.mark.parametrize(("m", "density"), [(250, 11.04), (500, 6.21), (1000, 3.45)])
def test_density_is_that_of_the_paper(m, density):
    data = make_synthetic(m, random_state=0)
    assert 100 * data.train.n_entries / m**2 == pytest.approx(density, abs=0.01)
    assert abs(data.train.n_entries - data.validation.n_entries) <= 1
    assert data.train_outliers.mean() == pytest.approx(0.05, abs=0.01)


def test_values_are_clean_plus_noise_plus_outliers():
    data = make_synthetic(
        300, 200, rank=4, noise=0.2, outliers=0.1, magnitude=7, observed=0.3, random_state=1
    )
    rows = data.train.rows
    deviation = rows.values - data.clean[rows.group_of_entry(), rows.indices]
    assert deviation[~data.train_outliers].std() == pytest.approx(0.2, rel=0.05)
    assert np.abs(np.abs(deviation[data.train_outliers]) - 7).max() < 1.2
    assert np.sign(deviation[data.train_outliers]).mean() == pytest.approx(0, abs=0.1)
    assert np.linalg.matrix_rank(data.clean) == 4


def test_training_validation_and_test_entries_are_disjoint():
    data = make_synthetic(60, 50, rank=2, observed=0.4, random_state=2)
    seen = [
        set(zip(p.rows.group_of_entry(), p.rows.indices, strict=True))
        for p in (data.train, data.validation)
    ]
    assert not seen[0] & seen[1]
    assert data.test_mask.sum() == 60 * 50 - len(seen[0]) - len(seen[1])


def test_rmse_equals_that_of_the_dense_matrices():
    data = make_synthetic(60, 50, rank=2, random_state=3)
    rng = np.random.default_rng(0)
    U = rng.standard_normal((60, 4))
    V = rng.standard_normal((50, 4))
    dense = np.sqrt(((U @ V.T - data.clean)[data.test_mask] ** 2).mean())
    assert data.test_rmse(U, V) == pytest.approx(dense, rel=1e-10)
    assert data.test_rmse(data.row_factors, data.column_factors) < 1e-7


def test_seed_determines_the_data_and_large_shapes_need_little_memory():
    a = make_synthetic(100, random_state=5)
    b = make_synthetic(100, random_state=5)
    assert np.array_equal(a.train.rows.values, b.train.rows.values)
    large = make_synthetic(200_000, rank=2, observed=1e-7, random_state=0)
    assert large.train.n_entries == 2000
    assert large.train.shape == (200_000, 200_000)


@pytest.mark.parametrize(
    "bad",
    [
        {"m": 0},
        {"m": 5, "rank": 6},
        {"m": 10, "outliers": 1.5},
        {"m": 10, "noise": -1},
        {"m": 10, "observed": 0.0},
    ],
)
def test_invalid_parameters(bad):
    with pytest.raises(ValueError, match=r"got|leaves"):
        make_synthetic(**bad)
