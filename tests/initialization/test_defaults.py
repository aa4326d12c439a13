"""Choices of ``RobustMF(rank).fit(X)``: λ by the noise, or by held-out entries of weak signals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robustmf import RMFNL, Observed, RobustMF
from robustmf.datasets import make_synthetic
from robustmf.initialization import regularization
from robustmf.selection import entry_train_test_split


def ratings(rows=300, columns=400, share=0.12, tastes=0.2, seed=0):
    """Half stars: biases, a little of taste, much noise."""
    rng = np.random.default_rng(seed)
    mean = 3.5 + 0.4 * rng.standard_normal((rows, 1)) + 0.5 * rng.standard_normal(columns)
    mean = mean + tastes * rng.standard_normal((rows, 2)) @ rng.standard_normal((2, columns))
    i, j = np.nonzero(rng.random(mean.shape) < share)
    values = np.clip(np.round(2 * (mean[i, j] + 0.8 * rng.standard_normal(len(i)))) / 2, 0.5, 5)
    return Observed.from_indices(i, j, values, mean.shape)


@pytest.fixture(scope="module")
def split():
    return entry_train_test_split(ratings(), 0.1, random_state=0)


@pytest.fixture(scope="module")
def model(split):
    return RobustMF(3, random_state=0, n_jobs=1).fit(split[0])


def error(model, test):
    return -model.score(test, rows="fitted")


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
def test_on_ratings_the_default_is_close_to_the_best_of_a_grid(split, model):
    train, test = split
    grid = [
        RobustMF(3, reg=reg, bias=bias, init="ridge", random_state=0).fit(train)
        for reg in (0.3, 1, 3, 10, 30)
        for bias in (False, True)
    ]
    errors = [error(one, test) for one in grid]
    assert error(model, test) < 1.03 * min(errors)
    assert min(errors) < 0.9 * max(errors), "the grid has bad settings too"


def test_biases_that_were_chosen_are_part_of_the_model(split, model):
    train, test = split
    assert model.row_bias_.any()
    assert 3 < model.center_ < 4
    assert model.transform(train).shape == (300, 4)
    assert model.fit_transform(train).shape == (300, 4) == (300, len(model.get_feature_names_out()))
    more = RobustMF(3, random_state=0).fit(train)
    before = error(more, test)
    extra = np.full((5, 400), np.nan)
    extra[:, :40] = 4.0
    more.partial_fit(extra)
    assert more.row_bias_.shape == (305,)
    assert more.reg_ == model.reg_
    rows = test.rows
    grown = Observed.from_indices(rows.group_of_entry(), rows.indices, rows.values, (305, 400))
    assert error(more, grown) < 1.02 * before


@pytest.mark.parametrize(("tastes", "unit"), [(0.3, 1024), (0.0, 1)])
def test_the_choice_is_the_same_in_other_units_and_with_more_threads(tastes, unit):
    """Factors are in units of the root of the values'; without them λ is the ridge of biases."""
    train = ratings(tastes=tastes)
    model = RobustMF(3, random_state=0, n_jobs=1).fit(train)
    assert model.row_factors_.any() == (tastes > 0)
    scaled = RobustMF(3, random_state=0, n_jobs=2).fit(train.with_values(1024 * train.rows.values))
    assert scaled.reg_ == pytest.approx(unit * model.reg_, rel=1e-12)
    np.testing.assert_allclose(scaled.row_bias_, 1024 * model.row_bias_, rtol=1e-9, atol=1e-9)
    again = RobustMF(3, random_state=0, n_jobs=2).fit(train)
    np.testing.assert_array_equal(again.row_factors_, model.row_factors_)


def test_what_is_given_is_kept(split):
    train, test = split
    for given in (
        RobustMF(3, reg=2.0, random_state=0),
        RobustMF(3, reg="paper", random_state=0),
        RMFNL(3, max_iter=2, random_state=0, tol=1),
    ):
        given.fit(train)
        assert not given.row_bias_.any(), "biases are chosen together with λ or not at all"
    without = RobustMF(3, bias=False, random_state=0).fit(train)
    assert not without.row_bias_.any()
    grid = [RobustMF(3, bias=False, reg=r, random_state=0).fit(train) for r in (0.1, 0.3, 1, 3, 10)]
    errors = [error(one, test) for one in grid]
    assert error(without, test) < 1.01 * min(errors), "λ is still chosen"
    assert min(errors) < 0.95 * max(errors), "the grid has bad settings too"


@pytest.mark.parametrize("noise", [0.03, 0.1, 0.3])
def test_a_strong_signal_has_no_biases_and_the_ridge_of_its_noise(noise):
    data = make_synthetic(250, noise=noise, random_state=3)
    model = RobustMF(5, random_state=0).fit(data.train)
    assert not model.row_bias_.any()
    assert 0.6 < model.reg_ / noise**2 < 1.2, "the factors have variance 1"
    best = min(
        data.test_rmse(m.row_factors_, m.column_factors_)
        for m in (RobustMF(5, reg=s * noise**2).fit(data.train) for s in (0.3, 1, 3))
    )
    assert data.test_rmse(model.row_factors_, model.column_factors_) < 1.05 * best


def test_weak_factors_without_biases_get_none():
    data = make_synthetic(400, rank=2, noise=1.2, outliers=0.02, magnitude=15, random_state=0)
    model = RobustMF(2, random_state=0).fit(data.train)
    assert not model.row_bias_.any()
    best = min(
        data.test_rmse(m.row_factors_, m.column_factors_)
        for m in (RobustMF(2, reg=reg, bias=False).fit(data.train) for reg in (1, 2, 4))
    )
    assert data.test_rmse(model.row_factors_, model.column_factors_) < 1.05 * best


def test_noise_about_a_mean_is_a_center():
    rng = np.random.default_rng(0)
    model = RobustMF(2, random_state=0).fit(3 + rng.standard_normal((30, 20)))
    assert [one.model for one in model.candidates_ if one.chosen] == ["center"]
    assert model.center_ == pytest.approx(3, abs=0.1)
    np.testing.assert_allclose(
        model.predict(np.arange(20), np.arange(20)), model.center_, atol=1e-5
    )


def test_large_data_are_judged_by_whole_rows(operations_on, monkeypatch):
    options = replace(regularization.OPTIONS, sample=5_000)
    monkeypatch.setattr(regularization, "OPTIONS", options)
    observed = ratings()
    operations = operations_on(observed)
    part, part_weights = regularization._sample_rows(
        operations, operations.array(np.arange(observed.n_entries, dtype=float))
    )
    every = -(-observed.n_entries // 5_000)
    assert part.observed.shape == (-(-observed.shape[0] // every), observed.shape[1])
    np.testing.assert_array_equal(part.observed.rows.counts, observed.rows.counts[::every])
    kept = np.asarray(part_weights).astype(int)
    np.testing.assert_array_equal(observed.rows.values[kept], part.observed.rows.values)
    np.testing.assert_array_equal(observed.rows.indices[kept], part.observed.rows.indices)


def test_what_some_rows_choose_is_similar_to_what_all_do(monkeypatch):
    options = replace(regularization.OPTIONS, sample=5_000)
    monkeypatch.setattr(regularization, "OPTIONS", options)
    observed = ratings()
    small = RobustMF(3, random_state=0).fit(observed)
    monkeypatch.undo()
    whole = RobustMF(3, random_state=0).fit(observed)
    assert small.row_bias_.any()
    assert 0.2 < small.reg_ / whole.reg_ < 5
