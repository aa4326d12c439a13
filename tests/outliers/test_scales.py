"""Weights, scores and intervals use the noise of the entry's own row and column."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import robustmf
from robustmf import Observed, RobustMF
from robustmf.intervals import ConformalIntervals
from robustmf.losses import make_loss
from robustmf.model import FittedModel
from robustmf.outliers.noise import NoiseModel, ordinary_scales
from robustmf.selection import entry_train_test_split
from robustmf.solvers.fold_in import Columns

SHAPE = (200, 60)


@pytest.fixture(scope="module")
def table():
    """A matrix of rank 2 whose noise differs by row, half of it observed, with 3 % outliers."""
    rng = np.random.default_rng(0)
    noise = 0.1 * np.exp(rng.standard_normal(SHAPE[0]))
    X = rng.standard_normal((SHAPE[0], 2)) @ rng.standard_normal((SHAPE[1], 2)).T
    X += noise[:, None] * rng.standard_normal(SHAPE)
    wrong = rng.random(SHAPE) < 0.03
    X[wrong] += 5 * rng.choice([-1, 1], wrong.sum())
    X[rng.random(SHAPE) < 0.5] = np.nan
    return X, wrong, noise


@pytest.fixture(scope="module")
def model(table):
    return RobustMF(2, random_state=0, n_jobs=1).fit(table[0])


@pytest.fixture(scope="module")
def thirds(table):
    """Rows with little, medium and much noise."""
    noise = table[2]
    low, high = np.quantile(noise, [1 / 3, 2 / 3])
    return noise < low, (noise >= low) & (noise < high), noise >= high


def test_learned_scales_are_those_of_the_noise(table, model):
    learned = np.log(model.row_scales_)
    assert np.corrcoef(learned, np.log(table[2]))[0, 1] > 0.9
    assert np.std(np.log(model.column_scales_)) < 0.1


def test_false_alarms_do_not_depend_on_the_noise_of_the_row(table, model, thirds):
    X, wrong, _ = table
    scores = np.full(SHAPE, np.nan)
    scores[~np.isnan(X)] = model.outlier_scores()
    for rows in thirds:
        of_clean = scores[rows][~np.isnan(X[rows]) & ~wrong[rows]]
        assert 0.002 < np.mean(of_clean <= 0.01) < 0.025
        assert np.mean(of_clean <= 0.001) < 0.004


def test_weights_are_those_of_the_fit(table, model):
    X = table[0]
    observed = ~np.isnan(X)
    i, j = np.nonzero(observed)
    own = (X[observed] - model.predict(i, j)) / (model.row_scales_[i] * model.column_scales_[j])
    reliability = model.model_.reliability
    expected = reliability * model.loss_.weight(own) / model.loss_.weight(np.zeros(1))
    np.testing.assert_allclose(model.entry_weights(X), expected, rtol=1e-6)
    # At the solution the weighted least-squares equations of each row hold in scaled units.
    V = model.column_factors_ / model.column_scales_[:, None]
    U = model.row_factors_ / model.row_scales_[:, None]
    terms = (reliability * model.loss_.weight(own) * own)[:, None] * V[j]
    total = np.zeros_like(U)
    size = np.zeros_like(U)
    np.add.at(total, i, terms)
    np.add.at(size, i, np.abs(terms))
    assert np.median(np.abs(total - model.reg_ * U) / size) < 0.01


def test_weights_are_not_those_of_clipped_predictions(table, model):
    clipped = RobustMF(2, bounds=(-0.1, 0.1))
    clipped.model_ = model.model_
    clipped.n_features_in_ = SHAPE[1]
    np.testing.assert_array_equal(clipped.entry_weights(table[0]), model.entry_weights(table[0]))


def test_intervals_are_as_wide_as_the_noise_of_the_row(table, thirds):
    X, wrong, _ = table
    train, calibration = entry_train_test_split(X, test_size=0.3, random_state=0)
    fitted = RobustMF(2, random_state=0, n_jobs=1).fit(train)
    intervals = ConformalIntervals(fitted, calibration)
    i, j = np.nonzero(~np.isnan(X) & ~wrong)
    lower, upper = intervals.predict(i, j, 0.9)
    covered = (lower <= X[i, j]) & (X[i, j] <= upper)
    widths = [np.median((upper - lower)[rows[i]]) for rows in thirds]
    assert widths[2] > 4 * widths[0]
    for rows in thirds:
        assert 0.82 < covered[rows[i]].mean() < 0.97


@pytest.mark.parametrize("other", [{"validation_fraction": 0.1}, {"weights": True}])
def test_scales_are_learned_with_a_holdout_and_with_weights(table, other):
    X = table[0]
    n_entries = int((~np.isnan(X)).sum())
    weights = np.ones(n_entries) if other.pop("weights", False) else None
    fitted = RobustMF(2, random_state=0, n_jobs=1, **other).fit(X, weights=weights)
    assert np.std(np.log(fitted.row_scales_)) > 0.5
    truth = np.nanmedian(np.abs(X - fitted.row_factors_ @ fitted.column_factors_.T))
    assert truth < 0.15


def test_scales_are_saved_and_older_files_have_none(table, model, tmp_path):
    model.save(tmp_path / "model.rmf")
    loaded = robustmf.load(tmp_path / "model.rmf")
    np.testing.assert_array_equal(loaded.row_scales_, model.row_scales_)
    np.testing.assert_array_equal(loaded.outlier_scores(), model.outlier_scores())
    state = model.model_.to_state()
    del state["noise_scales"]
    older = FittedModel.from_state(state)
    np.testing.assert_array_equal(older.row_scales, np.ones(SHAPE[0]))


@pytest.mark.parametrize(
    "scales",
    [
        (np.ones(SHAPE[0]),),
        (np.ones(SHAPE[0]), np.zeros(SHAPE[1])),
        (np.ones(SHAPE[1]), np.ones(SHAPE[0])),
        "two",
    ],
)
def test_invalid_scales_in_a_file_are_refused(model, scales):
    state = model.model_.to_state() | {"noise_scales": scales}
    with pytest.raises(robustmf.exceptions.ModelFileError, match="noise_scales"):
        FittedModel.from_state(state)


def test_fold_in_weights_columns_by_their_noise(table):
    X = table[0].T.copy()  # the noise differs by column
    rng = np.random.default_rng(1)
    new = X[rng.integers(0, len(X), 20)]
    fitted = replace(RobustMF(2, random_state=0, n_jobs=1).fit(X).model_, sigma=0.0)
    assert np.std(np.log(fitted.column_scales)) > 0.5
    found = fitted.fold_in(new)
    scaled = fitted.equilibrated.fold_in(new / fitted.column_scales)
    np.testing.assert_allclose(found, scaled, rtol=1e-9, atol=1e-12)
    unweighted = fitted.equilibrated.fold_in(new)
    assert np.abs(found - unweighted).max() > 0.01


def test_new_rows_have_scales_of_their_own(table, thirds):
    X, wrong, noise = table
    fitted = RobustMF(2, random_state=0, n_jobs=1).fit(X[:120])
    new = X[120:]
    scales = fitted.model_.fold_in_with_scales(new)[1]
    assert np.corrcoef(np.log(scales), np.log(noise[120:]))[0, 1] > 0.9
    scores = np.full(new.shape, np.nan)
    scores[~np.isnan(new)] = fitted.outlier_scores(new, rows="new")
    clean = ~np.isnan(new) & ~wrong[120:]
    for rows in thirds:
        assert np.mean(scores[rows[120:]][clean[rows[120:]]] <= 0.01) < 0.04


def test_a_new_row_in_other_units_is_folded_in(table):
    X = table[0]
    fitted = RobustMF(2, random_state=0, n_jobs=1).fit(X[:120]).model_
    few = X[120:140]
    np.testing.assert_allclose(
        fitted.fold_in(1000 * few) / 1000, fitted.fold_in(few), rtol=0.3, atol=0.3
    )
    unscaled = replace(fitted, sigma=0.0)
    assert np.abs(unscaled.fold_in(1000 * few)).max() < 1000  # it rejects all of their entries


def test_the_scale_of_a_row_with_few_entries_is_shrunk():
    columns = Columns(
        np.ones((9, 1)),
        make_loss("welsch", 1.0),
        0.1,
        False,
        None,
        1.0,
        1.0,
        np.ones(9),
        (0.5, 1.0),
    )
    X = np.full((3, 9), np.nan)
    X[0, 0] = 50.0  # interpolated
    X[1, :3] = [-4.0, 0.0, 4.0]
    X[2] = np.linspace(-4, 4, 9)
    observed = Observed.from_dense(X)
    residual = observed.rows.values - np.repeat([50.0, 0.0, 0.0], [1, 3, 9])
    one, few, many = columns._estimated_scales(observed, residual, None)
    assert one == 1
    assert few == pytest.approx((1.4826 * 4 / 0.5) ** (1 / (1 + 1.36 / 2)))
    assert many == pytest.approx((1.4826 * 2.5 / 0.5) ** (1 / (1 + 1.36 / 8)))


def test_partial_fit_keeps_the_scales_and_new_rows_have_scale_one(table, model):
    X = table[0]
    continued = RobustMF(2, random_state=0, n_jobs=1).fit(X[:160])
    before = continued.row_scales_.copy()
    continued.partial_fit(X[160:])
    np.testing.assert_array_equal(continued.row_scales_[:160], before)
    np.testing.assert_array_equal(continued.row_scales_[160:], 1.0)
    i, j = np.indices(SHAPE)
    one_fit = model.predict(i, j)
    assert np.median(np.abs(continued.predict(i, j) - one_fit)) < 0.05


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
def test_a_bad_row_does_not_hide_behind_its_own_scale():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, 2)) @ rng.standard_normal((60, 2)).T
    X += 0.1 * rng.standard_normal(X.shape)
    X[:6] = 5 * rng.standard_normal((6, 60))
    fitted = RobustMF(2, random_state=0, n_jobs=1).fit(X)
    scores = np.asarray(fitted.outlier_scores()).reshape(X.shape)
    assert np.mean(scores[:6] <= 0.001) > 0.8
    assert (fitted.row_scores()[:6] <= 0.01).all()


def test_the_noise_of_many_rows_is_ordinary_and_that_of_few_is_not():
    counts = np.full(100, 10)
    few = np.ones(100)
    few[:5] = 50.0
    assert ordinary_scales(few, counts).max() < 2
    many = np.ones(100)
    many[:40] = 5.0
    np.testing.assert_array_equal(ordinary_scales(many, counts), many)
    empty = counts.copy()
    empty[5:] = 0  # rows without entries are not informative about the others
    np.testing.assert_array_equal(ordinary_scales(few, empty), few)


def test_entries_with_unknown_ids_have_scale_one(model):
    fitted = model.model_
    scales = fitted.entry_scales(np.array([-1, 0]), np.array([0, -1]))
    np.testing.assert_array_equal(scales, [fitted.column_scales[0], fitted.row_scales[0]])


def test_leverages_are_those_of_the_matrix_divided_by_the_scales():
    rng = np.random.default_rng(0)
    U = rng.standard_normal((30, 2))
    V = rng.standard_normal((20, 2))
    scales = np.linspace(0.5, 2, 30), np.linspace(1, 3, 20)
    i, j = (index.ravel() for index in np.indices((30, 20)))
    residual = rng.standard_normal(600) * scales[0][i] * scales[1][j]
    counts = np.full(30, 20), np.full(20, 30)
    noise = NoiseModel.fit(U, V, 0.0, 0.1, False, counts, residual, i, j, scales)
    np.testing.assert_allclose(noise.U, U / scales[0][:, None])
    np.testing.assert_allclose(noise.V, V / scales[1][:, None])
    # a new row in another unit: deviations in that unit
    T = rng.standard_normal((2, 2))
    own = np.array([0.7, 1.3])
    new = np.repeat([0, 1], 20), np.tile(np.arange(20), 2)
    np.testing.assert_allclose(
        noise.new_row_deviations(*new, 10 * T, 10 * own),
        10 * noise.new_row_deviations(*new, T, own),
    )
    plain = replace(noise, scales=None).new_row_deviations(*new, T, own)
    np.testing.assert_allclose(
        noise.new_row_deviations(*new, T, own), plain * noise.scales[1][new[1]]
    )
