"""The probability that an entry is no outlier, which weighs its loss in the iterations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robustmf import Observed, RobustMF, load
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.distributed.fitting import ClusterData
from robustmf.estimator.parameters import settings_of
from robustmf.exceptions import CheckpointError, ModelFileError
from robustmf.fitting import Data, check
from robustmf.initialization.pipeline import initialize
from robustmf.initialization.state import Initialization
from robustmf.kernels.team import Team
from robustmf.model import FittedModel
from robustmf.outliers.noise import fit_distribution

SHAPE = (150, 110)


def problem(seed=0, rank=3, noise=0.1, share=0.2, size=1.0, density=0.5):
    """A table with outliers of ten standard deviations, which of its entries they are, the rest."""
    rng = np.random.default_rng(seed)
    clean = rng.standard_normal((SHAPE[0], rank)) @ rng.standard_normal((rank, SHAPE[1]))
    X = clean + noise * rng.standard_normal(SHAPE)
    is_outlier = rng.random(SHAPE) < share
    X += np.where(is_outlier, size * rng.choice([-1.0, 1.0], SHAPE), 0.0)
    X[rng.random(SHAPE) > density] = np.nan
    return X, is_outlier[~np.isnan(X)], clean


def predicted(model):
    """All values of the matrix."""
    offsets = model.center_ + model.row_bias_[:, None] + model.column_bias_
    return model.row_factors_ @ model.column_factors_.T + offsets


def initialized(X, sample_weights=None, **parameters):
    """The data, the settings and the initialization of a fit."""
    observed = Observed.from_dense(X)
    operations = CPUOperations(observed, Team(1))
    values = observed.rows.values
    settings = settings_of(RobustMF(**parameters), observed.shape, values)
    choice = check(settings, operations, sample_weights)
    rng = np.random.default_rng(0)
    found = initialize(settings, operations, sample_weights, rng, choice)
    return Data(operations, sample_weights), settings, found


@pytest.mark.parametrize("wide", [False, True])
def test_outliers_are_not_reliable(wide):
    X, is_outlier, _ = problem()
    if wide:
        transposed = np.full(SHAPE, False)
        transposed[~np.isnan(X)] = is_outlier
        is_outlier = transposed.T[~np.isnan(X.T)]
        X = X.T
    reliability = initialized(X)[2].reliability
    assert reliability.shape == is_outlier.shape
    assert ((reliability >= 0) & (reliability <= 1)).all()
    assert np.mean(reliability[is_outlier] > 0.5) < 0.02
    assert np.mean(reliability[~is_outlier] < 0.5) < 0.005


def test_entries_without_weight_have_the_others_in_their_places():
    X, is_outlier, _ = problem()
    rng = np.random.default_rng(1)
    weights = (rng.random(is_outlier.size) < 0.8).astype(float)
    data, _, found = initialized(X, weights)
    assert found.reliability.shape == weights.shape
    kept = weights > 0
    assert np.mean(found.reliability[kept & is_outlier] > 0.5) < 0.04
    assert np.mean(found.reliability[kept & ~is_outlier] < 0.5) < 0.01
    np.testing.assert_array_equal(
        data.weights(found.reliability), weights * data.weights(found.reliability)
    )


def test_weights_of_losses_are_products():
    X, is_outlier, _ = problem()
    data, _, found = initialized(X)
    np.testing.assert_allclose(data.weights(found.reliability), found.reliability)
    assert data.weights(None) is None
    double = replace(data, sample_weights=np.full(is_outlier.size, 2.0))
    np.testing.assert_allclose(double.weights(found.reliability), 2 * found.reliability)
    assert double.weights(None) is double.sample_weights


def test_moderate_outliers_do_not_pull_the_fit():
    """Their residuals are small where they determine the factors, and the loss alone keeps them."""
    errors = []
    for seed in range(3):
        X, is_outlier, clean = problem(seed, density=0.3)
        known = ~np.isnan(X)
        good = X.copy()
        bad = np.full(SHAPE, False)
        bad[known] = is_outlier
        good[bad] = np.nan
        fits = [RobustMF(random_state=0).fit(table) for table in (X, good)]
        unknown = ~known
        errors.append([np.sqrt(np.mean((predicted(fit) - clean)[unknown] ** 2)) for fit in fits])
    robust, reference = np.mean(errors, axis=0)
    assert robust < 1.05 * reference


@pytest.mark.parametrize("parameters", [{"reg": 0.1}, {"nonnegative": True}, {"bias": True}])
def test_it_is_learned_with_the_ridges_only(parameters):
    X = np.abs(problem()[0])
    found = initialized(X, **parameters)[2]
    assert (found.reliability is None) == (found.ridges is None)


def test_it_is_restored_from_a_checkpoint_and_others_are_refused():
    X, is_outlier, _ = problem()
    data, settings, found = initialized(X)
    parts = found.parts()
    again = Initialization.from_parts(parts, settings, data)
    np.testing.assert_array_equal(again.reliability, found.reliability)
    without = Initialization.from_parts(parts | {"reliability": None}, settings, data)
    assert without.reliability is None
    n = is_outlier.size
    for other in (
        np.ones(n - 1),
        np.ones(n, np.float32),
        np.ones((n, 1)),
        np.full(n, -0.1),
        np.full(n, 1.1),
        np.full(n, np.nan),
    ):
        with pytest.raises(CheckpointError):
            Initialization.from_parts(parts | {"reliability": other}, settings, data)
    with pytest.raises(CheckpointError, match="not those of this fit"):
        ClusterData(None, None).require_weights(np.ones(n))


def test_scores_know_which_entries_the_fit_did_not_trust():
    X, is_outlier, _ = problem()
    model = RobustMF(random_state=0).fit(X)
    scores = model.outlier_scores()
    assert np.mean(scores[is_outlier] <= 0.001) > 0.9
    assert np.mean(scores[~is_outlier] <= 0.001) < 0.003
    assert 0.005 < np.mean(scores[~is_outlier] <= 0.01) < 0.015
    np.testing.assert_array_equal(model.outlier_scores(X), scores)


def test_it_is_part_of_the_model_and_of_its_file(tmp_path):
    X = problem()[0]
    model = RobustMF(random_state=0).fit(X)
    model.save(tmp_path / "model.rmf")
    loaded = load(tmp_path / "model.rmf")
    np.testing.assert_array_equal(loaded.outlier_scores(), model.outlier_scores())
    weights = model.entry_weights(X)
    plain = replace(model.model_, reliability=None).entry_weights(X)
    np.testing.assert_allclose(weights, plain * model.model_.reliability, rtol=1e-6)
    changed = np.where(np.isnan(X), X, X + 1e-9)  # entries that were not fitted are not unreliable
    np.testing.assert_allclose(model.entry_weights(changed), plain, rtol=1e-6)
    state = model.model_.to_state()
    for forged in (3, weights, model.model_.reliability[1:], model.model_.reliability - 1):
        with pytest.raises(ModelFileError, match="reliability_ must be one float32"):
            FittedModel.from_state(state | {"reliability_": forged})


def test_held_out_entries_have_no_influence():
    X = problem()[0]
    model = RobustMF(validation_fraction=0.2, random_state=0).fit(X)
    reliability = model.model_.reliability
    assert len(reliability) == (~np.isnan(X)).sum()
    assert np.mean(reliability == 0) == pytest.approx(0.2, abs=0.01)


def test_the_distribution_is_fitted_to_reliable_values():
    rng = np.random.default_rng(0)
    clean = rng.standard_normal(20_000)
    moderate = rng.choice([-4.5, 4.5], 4_000) + rng.standard_normal(4_000)
    x = np.concatenate([clean, moderate])
    reliability = np.where(np.abs(x) < 2.7, 0.99, 0.01)
    found = fit_distribution(x, reliability=reliability)
    assert found.scale == pytest.approx(1, rel=0.03)
    assert found.freedom > 10 > fit_distribution(x).freedom
    assert found.share == pytest.approx(20 / 24, abs=0.02)
