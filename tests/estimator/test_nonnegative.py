"""``RobustMF(nonnegative=True)``: descent, accuracy, answers, files, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

import oracles
import robustmf
from conftest import random_problem
from robustmf import Observed, RobustMF
from robustmf.losses import loss_names
from robustmf.selection import RobustMFCV

pytestmark = pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")


def parts(m=80, n=60, rank=3, share=0.6, outliers=0.1, seed=0):
    """Entries of a product of sparse non-negative factors, the product, and what is bad."""
    rng = np.random.default_rng(seed)
    U, V = (rng.gamma(2.0, 0.5, (k, rank)) * (rng.random((k, rank)) < 0.6) for k in (m, n))
    clean = U @ V.T
    X = clean + 0.1 * rng.standard_normal(clean.shape)
    bad = rng.random(X.shape) < outliers
    X[bad] += 5 * rng.choice([-1.0, 1.0], int(bad.sum()))
    X[rng.random(X.shape) > share] = np.nan
    return X, clean, bad


def rmse(model, clean):
    return float(np.sqrt(np.mean((model.row_factors_ @ model.components_ - clean) ** 2)))


def smallest(model):
    return min(model.row_factors_.min(), model.column_factors_.min())


@pytest.fixture(scope="module")
def fitted():
    X, clean, bad = parts()
    return RobustMF(3, nonnegative=True, random_state=0, n_jobs=1).fit(X), X, clean, bad


@pytest.mark.parametrize("name", loss_names())
def test_objective_never_rises_and_factors_stay_non_negative(name, dtype):
    observed, U, V = random_problem(50, 40, 3, dtype=dtype)
    seen = []
    model = RobustMF(
        3,
        loss=name,
        theta=None,
        nonnegative=True,
        init=(np.abs(U), np.abs(V)),
        tol=1e-5,
        max_iter=300,
        callbacks=[lambda at: seen.append(min(map(np.min, at.factors)))],
    ).fit(observed)
    objective = np.array(model.history_["objective"])
    assert np.all(np.diff(objective) <= (1e-10 if dtype == np.float64 else 1e-5) * objective[0])
    assert objective[-1] < 0.9 * objective[0]
    assert min(seen) >= 0
    assert smallest(model) == 0, "some elements are at the bound"
    assert model.row_factors_.dtype == dtype
    assert model.solver_ == "irls"


@pytest.mark.parametrize("name", ["welsch", "l2", "huber"])
def test_ends_where_the_conditions_of_optimality_hold(name):
    observed, U, V = random_problem(40, 30, 3, share=0.7)
    model = RobustMF(
        3,
        loss=name,
        theta=None,
        reg=0.3,
        nonnegative=True,
        init=(np.abs(U), np.abs(V)),
        tol=1e-13,
        max_iter=20000,
    ).fit(observed)
    U = model.row_factors_
    V = model.column_factors_
    slopes = -oracles.dense(
        observed, model.loss_.derivative(e := oracles.residuals(observed, U, V))
    )
    slopes *= oracles.dense(observed, np.sign(e))
    for A, gradient in ((U, slopes @ V + 0.3 * U), (V, slopes.T @ U + 0.3 * V)):
        assert np.all(gradient[A == 0] > -1e-3)
        assert np.abs(gradient[A > 0]).max() < 1e-3
        assert (A == 0).any()


def test_outliers_have_no_effect_and_the_rank_is_found(fitted):
    model, X, clean, bad = fitted
    oracle = RobustMF(3, loss="l2", nonnegative=True, random_state=0).fit(np.where(bad, np.nan, X))
    least_squares = RobustMF(3, loss="l2", nonnegative=True, random_state=0).fit(X)
    assert rmse(model, clean) < 1.1 * rmse(oracle, clean)
    assert rmse(least_squares, clean) > 3 * rmse(oracle, clean)
    assert smallest(model) == smallest(least_squares) == 0
    assert not model.has_bias_
    found = RobustMF(nonnegative=True, random_state=0).fit(X)
    assert found.rank_ == 3
    assert rmse(found, clean) < 1.1 * rmse(oracle, clean)


def test_bits_do_not_depend_on_threads_or_on_the_orientation(fitted):
    model, X, *_ = fitted
    same = RobustMF(3, nonnegative=True, random_state=0, n_jobs=3).fit(X)
    np.testing.assert_array_equal(same.row_factors_, model.row_factors_)
    once = RobustMF(3, nonnegative=True, random_state=0, max_iter=0).fit(X)
    transposed = RobustMF(3, nonnegative=True, random_state=0, max_iter=0).fit(X.T)
    np.testing.assert_array_equal(once.row_factors_, transposed.column_factors_)


def test_new_rows_have_non_negative_factors(fitted):
    model, X, clean, _ = fitted
    T = model.transform(X)
    assert T.min() == 0
    assert np.sqrt(np.mean((model.inverse_transform(T) - clean) ** 2)) < 0.15
    np.testing.assert_array_equal(model.transform(X[[5, 9]]), T[[5, 9]])
    negative = model.transform(-np.abs(X[:3]))
    np.testing.assert_array_equal(negative, 0)
    unconstrained = RobustMF(3, random_state=0).fit(X).transform(-np.abs(X[:3]))
    assert np.abs(unconstrained).max() > 0.5


def test_a_saved_model_keeps_the_constraint(fitted, tmp_path):
    model, X, *_ = fitted
    model.save(tmp_path / "model.rmf")
    again = robustmf.load(tmp_path / "model.rmf")
    assert again.nonnegative is True
    assert again.model_.nonnegative
    np.testing.assert_array_equal(again.transform(X), model.transform(X))


def test_partial_fit_keeps_the_constraint():
    X, clean, _ = parts(120)
    model = RobustMF(3, nonnegative=True, random_state=0).fit(X[:90])
    model.partial_fit(X[90:])
    assert model.row_factors_.shape == (120, 3)
    assert smallest(model) == 0
    assert rmse(model, clean) < 0.12
    free = RobustMF(3, random_state=0).fit(X[:90]).set_params(nonnegative=True)
    free.partial_fit(X[90:])
    assert smallest(free) == 0
    assert rmse(free, clean) < 0.12


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
def test_weights_and_regularization_by_count():
    X, clean, bad = parts()
    observed = Observed.from_dense(X)
    good = ~bad[observed.rows.group_of_entry(), observed.rows.indices]
    common = {"loss": "l2", "nonnegative": True, "reg": 0.1, "random_state": 0, "tol": 1e-9}
    weighted = RobustMF(3, **common).fit(observed, weights=good.astype(float))
    left_out = RobustMF(3, **common).fit(np.where(bad, np.nan, X))
    assert abs(rmse(weighted, clean) - rmse(left_out, clean)) < 2e-3
    by_count = RobustMF(3, reg_by_count=True, **common | {"loss": "welsch"}).fit(X)
    counts = np.isfinite(X).sum(axis=1), np.isfinite(X).sum(axis=0)
    U = by_count.row_factors_
    V = by_count.column_factors_
    residual = oracles.residuals(observed, U, V)
    value = by_count.loss_.value(residual).sum() + 0.05 * sum(
        float((n * (A**2).sum(axis=1)).sum()) for n, A in zip(counts, (U, V), strict=True)
    )
    assert by_count.history_["objective"][-1] == pytest.approx(value, rel=1e-9)
    assert smallest(by_count) == 0


def test_several_initializations_and_validation():
    X, clean, _ = parts()
    several = RobustMF(3, nonnegative=True, init="random", n_init=3, loss="huber", random_state=0)
    one = clone(several).set_params(n_init=1)
    values = [model.fit(X).history_["objective"][-1] for model in (several, one)]
    assert values[0] <= values[1]
    early = RobustMF(3, nonnegative=True, validation_fraction=0.1, random_state=0).fit(X)
    assert smallest(early) == 0
    assert rmse(early, clean) < 0.12


def test_cross_validation_fits_with_the_constraint():
    X, *_ = parts(40, 30)
    template = RobustMF(nonnegative=True, random_state=0)
    search = RobustMFCV([1, 3], reg=[0.1, 1.0], estimator=template, cv=2, n_jobs=1, random_state=0)
    search.fit(X)
    assert search.best_estimator_.nonnegative
    assert smallest(search.best_estimator_) >= 0


def test_what_cannot_go_together_is_refused_by_name():
    X, *_ = parts(20, 15)
    for solver in ("mm", "varpro"):
        with pytest.raises(ValueError, match=f"nonnegative=True needs solver='irls'.*'{solver}'"):
            RobustMF(2, nonnegative=True, solver=solver, loss="lsp").fit(X)
    with pytest.raises(ValueError, match=r"certify=True needs the plain model: .* or nonnegative"):
        RobustMF(2, nonnegative=True, certify=True, loss="lsp").fit(X)
    with pytest.raises(ValueError, match=r"model without biases: .*got bias=True"):
        RobustMF(2, nonnegative=True, bias=True).fit(X)
    with pytest.raises(TypeError, match="nonnegative must be True or False"):
        RobustMF(2, nonnegative=1).fit(X)
    assert RobustMF(2, nonnegative=True, loss="l1").fit(np.hstack([X] * 5)).solver_ == "irls"
