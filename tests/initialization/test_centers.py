"""Tables whose columns (or rows) have different units and means: centers of their own."""

import numpy as np
import pytest

from robustmf import RobustMF, load
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.data.factorization import Factorization
from robustmf.data.observed import Observed
from robustmf.initialization.biases import OPTIONS, centers_of_side, side_of_units
from robustmf.kernels.team import Team

#: The mean of a column in units of its standard deviation.
RATIOS = (0, 3, 300)


def sensors(ratio, n=8, seed=0):
    """Clean values, the table, bad entries, and standard deviations of columns: rank 2."""
    rng = np.random.default_rng(seed)
    m = 300
    sd = 10 ** rng.uniform(-2, 3, n)
    mean = sd * ratio * rng.uniform(0.5, 1.5, n)
    clean = mean + sd * (rng.normal(size=(m, 2)) @ rng.normal(size=(2, n))) / 2**0.5
    values = clean + 0.1 * sd * rng.normal(size=clean.shape)
    observed = rng.random(clean.shape) < 0.8
    bad = (rng.random(clean.shape) < 0.05) & observed
    values += bad * sd * 10 * rng.choice([-1, 1], clean.shape)
    return clean, np.where(observed, values, np.nan), bad, sd


def relative_errors(model, clean, table, sd):
    predicted = model.predict(*np.indices(clean.shape))
    missing = np.isnan(table)
    return np.sqrt(np.nanmean(np.where(missing, ((predicted - clean) / sd) ** 2, np.nan), axis=0))


@pytest.fixture(scope="module")
def fits():
    problems = {ratio: sensors(ratio) for ratio in RATIOS}
    return {
        ratio: (RobustMF(random_state=0).fit(table), clean, table, bad, sd)
        for ratio, (clean, table, bad, sd) in problems.items()
    }


@pytest.mark.parametrize("ratio", RATIOS)
def test_errors_do_not_depend_on_the_means_of_columns(fits, ratio):
    model, clean, table, bad, sd = fits[ratio]
    errors = relative_errors(model, clean, table, sd)
    reference, *problem = fits[0]
    least = relative_errors(reference, problem[0], problem[1], sd)
    assert np.median(errors) < 1.1 * np.median(least)
    scores = model.outlier_scores()
    observed = ~np.isnan(table)
    assert (scores[bad[observed]] < 1e-3).mean() > 0.97


def test_the_model_has_centers_of_columns_alone(fits):
    model, clean, *_ = fits[300]
    assert not model.row_bias_.any()
    centers = model.center_ + model.column_bias_
    assert np.abs(centers / clean.mean(axis=0) - 1).max() < 1e-2
    assert np.median(model.column_bias_) == pytest.approx(0, abs=1e-9 * model.center_)
    chosen = [candidate for candidate in model.candidates_ if candidate.chosen]
    assert [candidate.model for candidate in chosen] == ["centers and factors"]
    assert (model.row_scales_ == 1).all()


def test_the_transposed_table_has_centers_of_rows(fits):
    model, _, table, *_ = fits[300]
    transposed = RobustMF(random_state=0).fit(table.T)
    centers = model.center_ + model.column_bias_
    np.testing.assert_allclose(transposed.center_ + transposed.row_bias_, centers, rtol=1e-4)
    assert not transposed.column_bias_.any()
    assert (transposed.column_scales_ == 1).all()


def test_units_of_columns_do_not_matter(fits):
    model, clean, table, _, sd = fits[300]
    units = np.exp(np.random.default_rng(1).normal(size=8))
    other = RobustMF(random_state=0).fit(table * units)
    i, j = np.indices(clean.shape)
    errors, expected = (
        np.median(np.abs(one.predict(i, j) / unit - clean) / sd)
        for one, unit in ((other, units), (model, 1.0))
    )
    assert errors == pytest.approx(expected, rel=0.05)


def test_new_rows_have_the_centers(fits):
    model, clean, table, _, sd = fits[300]
    T = model.transform(table)
    i, j = np.indices(clean.shape)
    folded = T[:, :-1] @ model.column_factors_.T + model.center_ + model.column_bias_ + T[:, -1:]
    assert np.median(np.abs(folded - model.predict(i, j)) / sd) < 0.02
    filled = model.impute(table)
    assert np.median(np.abs(filled - clean) / sd) < 0.15
    scores = np.asarray(model.outlier_scores(table))
    assert scores.shape == ((~np.isnan(table)).sum(),)


def test_more_entries_are_fitted_with_centers(fits):
    whole, clean, table, _, sd = fits[300]
    model = RobustMF(random_state=0).fit(table[:250])
    model.partial_fit(table[250:])
    errors, expected = (relative_errors(one, clean, table, sd) for one in (model, whole))
    assert np.median(errors) < 1.1 * np.median(expected)


def test_a_saved_model_predicts_the_same(fits, tmp_path):
    model, clean, table, *_ = fits[300]
    model.save(tmp_path / "model.rmf")
    loaded = load(tmp_path / "model.rmf")
    i, j = np.indices(clean.shape)
    np.testing.assert_array_equal(loaded.predict(i, j), model.predict(i, j))
    np.testing.assert_array_equal(loaded.transform(table), model.transform(table))


def test_side_of_units():
    _, table, *_ = sensors(3)
    observed = Observed.from_dense(table)
    assert side_of_units(observed) == 1
    assert side_of_units(observed.transposed) == 0
    rng = np.random.default_rng(0)
    equal = rng.normal(size=(50, 8)) + rng.normal(size=8) * 100
    assert side_of_units(Observed.from_dense(equal)) is None
    assert side_of_units(Observed.from_dense(np.ones((5, 4)))) is None


def test_centers_are_medians():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(9, 4)) + 100 * np.arange(4)
    table[:, 3] = np.nan
    centers = centers_of_side(CPUOperations(Observed.from_dense(table), Team(1)), 1)
    np.testing.assert_allclose(centers.column_bias, [*np.median(table[:, :3], axis=0), 0])
    assert not centers.row_bias.any()
    assert centers.column_ridge == OPTIONS.free
    assert centers.side == 1


def test_scaled_columns_keep_their_centers():
    rng = np.random.default_rng(0)
    U = rng.normal(size=(5, 2))
    V = rng.normal(size=(4, 2))
    model = Factorization(U, V, 7.0, np.zeros(5), np.arange(4.0))
    scale = np.array([1.0, 2, 3, 4])
    i, j = np.indices((5, 4))
    for one, other in ((model, (i, j)), (model.transposed, (j, i))):
        scales = (np.ones(5), scale) if one is model else (scale, np.ones(5))
        expected = model.predict_pairs(i, j) * scale
        for found in (one.scaled(*scales), one.scaled(*scales).centered):
            np.testing.assert_allclose(found.predict_pairs(*other), expected)
