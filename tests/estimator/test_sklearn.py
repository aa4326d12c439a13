"""RobustMF with scikit-learn: estimator checks, pipelines, searches, tables."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import has_fit_parameter

from robustmf import RMFNL, Observed, RobustMF
from robustmf.datasets import make_synthetic
from robustmf.exceptions import EmptyRowsWarning, RobustMFWarning


@parametrize_with_checks(
    [
        RobustMF(),
        RobustMF(1),
        RobustMF(1, bias=True),
        RobustMF(1, solver="irls", loss="lsp", reg_by_count=True),
        RobustMF(1, nonnegative=True),
        RobustMF(1, loss="cauchy", n_init=2, bounds=(-1e3, 1e3)),
        RMFNL(1),
    ]
)
@pytest.mark.filterwarnings(
    "ignore::robustmf.exceptions.RobustMFWarning"
)  # tiny problems, some with rows of zeros only
def test_estimator_check(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def table():
    """120 rows of a rank-2 table with outliers, a fifth of it missing."""
    data = make_synthetic(120, 30, rank=2, observed=1.0, random_state=0)
    X = np.full((120, 30), np.nan)
    for part in (data.train, data.validation):
        X[part.rows.group_of_entry(), part.rows.indices] = part.rows.values
    X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    return X, data.clean


def test_tags():
    tags = get_tags(RobustMF())
    assert tags.input_tags.allow_nan
    assert tags.input_tags.sparse
    assert tags.transformer_tags.preserves_dtype == ["float64", "float32"]


def test_cross_validation_over_rows_finds_the_rank(table):
    """Held-out rows are scored on entries that are not folded in; surplus factors are harmless."""
    search = GridSearchCV(RobustMF(random_state=0, solver="irls"), {"rank": [1, 2, 6]}, cv=4).fit(
        table[0]
    )
    scores = search.cv_results_["mean_test_score"]
    assert scores[0] < 2 * scores[1] < 0
    assert scores[2] == pytest.approx(scores[1], rel=0.02)
    # also where train and test have the same number of rows, and so the same shape
    halves = cross_val_score(RobustMF(2, random_state=0), table[0], cv=2)
    assert halves == pytest.approx(scores[1], rel=0.1)
    sparse = sp.csr_array(np.nan_to_num(table[0]))
    assert cross_val_score(RobustMF(2, random_state=0), sparse, cv=2).shape == (2,)


def test_pipeline_regresses_on_factors_of_a_table_with_missing_values_and_outliers(table):
    X, clean = table
    y = clean @ np.linspace(-1, 1, 30)
    pipeline = make_pipeline(RobustMF(2, random_state=0), Ridge(1e-6)).fit(X[:80], y[:80])
    assert pipeline.score(X[80:], y[80:]) > 0.99
    assert list(pipeline[:-1].get_feature_names_out()) == ["robustmf0", "robustmf1"]


def test_tables_in_and_out(table):
    frame = pd.DataFrame(
        table[0], columns=[f"item{j}" for j in range(30)], index=[f"user{i}" for i in range(120)]
    )
    model = RobustMF(2, bias=True, random_state=0).set_output(transform="pandas").fit(frame)
    assert list(model.feature_names_in_) == list(frame.columns)
    out = model.transform(frame.iloc[:5])
    assert list(out.index) == list(frame.index[:5])
    assert list(out.columns) == ["robustmf0", "robustmf1", "robustmf2"]
    assert list(out.columns) == list(model.get_feature_names_out()), "the last is the bias"
    np.testing.assert_array_equal(
        model.inverse_transform(out), model.inverse_transform(out.to_numpy())
    )
    assert list(model.fit_transform(frame).index) == list(frame.index)
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(frame.iloc[:5, ::-1])
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.iloc[:5, 1:])


def test_clone_and_pickle(table):
    model = RobustMF(2, loss="cauchy", bounds=(0.0, 5.0), validation_fraction=0.1, random_state=0)
    assert clone(model).get_params() == model.get_params()
    model.fit(table[0])
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(table[0]), model.predict(table[0]))
    np.testing.assert_array_equal(again.recommend([0, 7]).items, model.recommend([0, 7]).items)


def test_predict_of_a_matrix_cleans_and_completes_it(table):
    X, clean = table
    model = RobustMF(2, random_state=0, bounds=(-2.0, 2.0)).fit(X[:80])
    completed = model.predict(X[80:])
    assert completed.shape == (40, 30)
    assert completed.min() == -2
    assert completed.max() == 2
    inside = np.abs(clean[80:]) < 1.8
    assert np.sqrt(np.mean((completed - clean[80:])[inside] ** 2)) < 0.1


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("reg_by_count", [False, True])
def test_rows_without_entries_are_the_biases_of_the_columns(table, bias, reg_by_count):
    model = RobustMF(2, bias=bias, reg_by_count=reg_by_count, solver="irls", random_state=0).fit(
        table[0]
    )
    nothing = np.full((3, 30), np.nan, np.float32)
    expected = model.column_bias_ + model.center_ if bias else np.zeros(30)
    for X in (
        nothing,
        sp.csr_array((3, 30), dtype=np.float32),
        np.ma.masked_all((3, 30), np.float32),
    ):
        T = model.transform(X)
        assert T.dtype == np.float32
        assert np.all(T == 0)
        np.testing.assert_allclose(model.inverse_transform(T), np.tile(expected, (3, 1)), rtol=1e-6)
    mixed = np.vstack([table[0][:2], nothing[:1]])
    np.testing.assert_allclose(model.transform(mixed)[:2], model.transform(table[0][:2]), rtol=1e-6)
    assert np.all(model.transform(mixed)[2] == 0)


def test_fold_in_of_a_row_does_not_depend_on_the_batch(table):
    """The smoothing width of a nonsmooth loss depends on the fitted values, not on the batch."""
    model = RobustMF(2, loss="l1", random_state=0).fit(table[0])
    X = table[0][:4].copy()
    X[1:] *= 1e6
    np.testing.assert_allclose(model.transform(X)[:1], model.transform(X[:1]), rtol=1e-9)


def test_search_over_observed_entries(table):
    """Rows of an ``Observed`` are split as those of an array."""
    found = [
        GridSearchCV(RobustMF(random_state=0), {"rank": [1, 2]}, cv=3).fit(X).cv_results_
        for X in (table[0], Observed.from_dense(table[0]))
    ]
    np.testing.assert_array_equal(found[0]["mean_test_score"], found[1]["mean_test_score"])


@pytest.fixture(scope="module")
def frame(table):
    """The table with labels, and a column without entries, about which every fit warns."""
    made = pd.DataFrame(table[0][:60, :12], index=[f"row {i}" for i in range(60)])
    return made.add_prefix("item").assign(empty=np.nan)


def test_a_search_issues_each_kind_of_warning_once(frame):
    def count(run):
        with warnings.catch_warnings(record=True) as issued:
            warnings.simplefilter("always")
            run()
        return [w.category for w in issued if issubclass(w.category, RobustMFWarning)]

    model = RobustMF(1, random_state=0)
    search = GridSearchCV(model, {"reg": [0.1, 1.0]}, cv=2)
    assert count(lambda: search.fit(frame)) == [EmptyRowsWarning]
    assert count(lambda: cross_val_score(model, frame, cv=2)) == [EmptyRowsWarning]
    assert count(lambda: [model.fit(frame) for _ in range(2)]) == [EmptyRowsWarning] * 2
    pipeline = make_pipeline(model, Ridge())
    y = np.arange(60.0)
    assert count(lambda: [pipeline.fit(frame, y) for _ in range(2)]) == [EmptyRowsWarning] * 2


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.EmptyRowsWarning")
def test_search_over_a_labelled_frame_has_the_scores_of_its_array(frame):
    found = [
        GridSearchCV(RobustMF(random_state=0), {"rank": [1, 2]}, cv=2).fit(X)
        for X in (frame, frame.to_numpy())
    ]
    np.testing.assert_array_equal(
        found[0].cv_results_["mean_test_score"], found[1].cv_results_["mean_test_score"]
    )
    assert found[0].best_estimator_.row_ids_ == list(frame.index)
    names = found[0].best_estimator_.get_feature_names_out()
    assert list(names) == [f"robustmf{k}" for k in range(found[0].best_params_["rank"])]


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.EmptyRowsWarning")
def test_entry_weights_are_split_with_the_rows(table):
    """Rows of the weights go to the folds of their rows: bad ones of weight 0 do not matter."""
    X = table[0][:60, :12]
    weights = np.ones(X.shape)
    weights[::4] = 0
    bad = np.where(weights == 0, 1000.0, X)
    scorer = {"scoring": lambda model, test: -np.abs(model.column_factors_).max()}
    found = [
        GridSearchCV(RobustMF(2, loss="l2", random_state=0), {"reg": [1.0]}, cv=2, **scorer)
        .fit(data, weights=on_entries)
        .best_score_
        for data, on_entries in ((bad, weights), (bad, np.ones(X.shape)), (X, weights))
    ]
    assert found[0] == pytest.approx(found[2], rel=0.2)
    assert abs(found[1]) > 2 * abs(found[0])


def test_sample_weight_of_score_weights_rows(table):
    X = table[0]
    model = RobustMF(2, random_state=0).fit(X[:80])
    new = X[80:]
    weights = np.arange(40) % 3
    repeated = np.repeat(new, weights, axis=0)
    assert model.score(new, sample_weight=weights) == pytest.approx(model.score(repeated))
    fitted = X[:80]
    only = np.where((np.arange(80) == 7)[:, None], fitted, np.nan)
    assert model.score(fitted, rows="fitted", sample_weight=np.eye(80)[7]) == pytest.approx(
        model.score(only, rows="fitted")
    )
    with pytest.raises(ValueError, match=r"one number per row of X, \(40,\), got shape \(3,\)"):
        model.score(X[80:], sample_weight=[1, 2, 3])
    with pytest.raises(ValueError, match="finite and >= 0"):
        model.score(X[80:], sample_weight=-np.ones(40))
    with pytest.raises(ValueError, match="positive for a row"):
        model.score(X[80:], sample_weight=np.zeros(40))
    with pytest.raises(TypeError, match="must hold numbers"):
        model.score(X[80:], sample_weight=["a"] * 40)


def test_sample_weight_is_routed_to_the_score(table):
    X = table[0][:60]
    weights = np.linspace(0, 1, 60)
    with sklearn.config_context(enable_metadata_routing=True):
        model = RobustMF(2, random_state=0).set_score_request(sample_weight=True)
        routed = cross_val_score(model, X, cv=2, params={"sample_weight": weights})
    for k, score in enumerate(routed):
        train, test = (X[30:], X[:30]) if k == 0 else (X[:30], X[30:])
        part = weights[:30] if k == 0 else weights[30:]
        fitted = RobustMF(2, random_state=0).fit(train)
        assert score == fitted.score(test, sample_weight=part)


def test_sample_weight_of_fit_is_refused_with_the_remedy():
    X = make_synthetic(40, random_state=0).train.to_dense()
    w = np.ones(len(X))
    w[:5] = 3.0
    model = RobustMF(2, random_state=0)
    search = GridSearchCV(model, {"rank": [1]}, error_score="raise")
    for fit in (model.fit, model.fit_transform, search.fit):
        with pytest.raises(TypeError, match="'sample_weight'; weights belong to entries") as caught:
            fit(X, sample_weight=w)
    remedy = str(caught.value).split("weights=")[1]
    weights = eval(remedy, {"np": np, "sample_weight": w, "X": X})
    assert weights.shape == X.shape
    model.fit(X, weights=weights)
    with pytest.raises(TypeError, match=r"fit\(\) got an unexpected keyword argument 'weight'$"):
        model.fit(X, weight=w)
    assert not has_fit_parameter(model, "sample_weight")
