"""Splits of entries, and the choice of rank, λ, θ and loss by them."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from robustmf import Observed, RobustMF, selection
from robustmf.datasets import make_synthetic
from robustmf.exceptions import NotConvergedWarning, UnreliableFitWarning
from robustmf.initialization import model_choice
from robustmf.initialization.search import search_entries
from robustmf.selection import EntryKFold, RobustMFCV, entry_split, entry_train_test_split

DATA = make_synthetic(120, rank=3, observed=0.5, random_state=0)
TEMPLATE = RobustMF(random_state=0, n_jobs=1)


def triplets(observed):
    rows = observed.rows
    return set(
        zip(
            rows.group_of_entry().tolist(), rows.indices.tolist(), rows.values.tolist(), strict=True
        )
    )


def test_a_split_assigns_every_entry_once():
    parts = entry_split(DATA.train, (0.5, 0.25, 0.25), random_state=0)
    assert [part.n_entries / DATA.train.n_entries for part in parts] == pytest.approx(
        [0.5, 0.25, 0.25], abs=1e-3
    )
    assert sum(part.n_entries for part in parts) == DATA.train.n_entries
    assert set().union(*map(triplets, parts)) == triplets(DATA.train)
    assert all(part.shape == DATA.train.shape for part in parts)


def test_a_split_is_random_and_reproducible():
    first, again, other = (
        entry_train_test_split(DATA.train, 0.2, random_state=seed)[1] for seed in (0, 0, 1)
    )
    assert triplets(first) == triplets(again)
    expected_in_common = 0.2 * first.n_entries
    assert len(triplets(first) & triplets(other)) == pytest.approx(expected_in_common, rel=0.3)
    share_of_top_half = (first.rows.group_of_entry() < 60).mean()
    assert share_of_top_half == pytest.approx(0.5, abs=0.08)


def test_splits_accept_the_input_of_fit_and_keep_ids():
    dense = np.array([[1.0, np.nan, 0.0], [2.0, 3.0, 4.0]])
    assert sum(part.n_entries for part in entry_train_test_split(dense, 0.4, random_state=0)) == 5
    assert (
        sum(
            part.n_entries
            for part in entry_train_test_split(sp.csr_array(np.eye(4)), 0.5, random_state=0)
        )
        == 4
    )
    named = Observed.from_triplets(row=list("aabb"), col=list("xyxy"), value=[1.0, 2.0, 3.0, 4.0])
    assert entry_train_test_split(named, 0.5, random_state=0)[1].row_ids == ["a", "b"]


def test_folds_test_every_entry_once():
    folds = list(EntryKFold(4, random_state=0).split(DATA.train))
    assert len(folds) == EntryKFold(4).get_n_splits() == 4
    for train, test in folds:
        assert not triplets(train) & triplets(test)
        assert triplets(train) | triplets(test) == triplets(DATA.train)
    assert set().union(*(triplets(test) for _, test in folds)) == triplets(DATA.train)
    assert max(test.n_entries for _, test in folds) - min(test.n_entries for _, test in folds) <= 1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: entry_split(DATA.train, (1.0,)), ValueError, "shares must be two or more"),
        (lambda: entry_split(DATA.train, (0.5, -0.5)), ValueError, "shares must be two or more"),
        (
            lambda: entry_split(DATA.train, (1, 1e-9)),
            ValueError,
            "leave a part of the 3600 entries empty",
        ),
        (
            lambda: entry_train_test_split(DATA.train, 1.0),
            ValueError,
            "test_size must be below 1",
        ),
        (
            lambda: entry_train_test_split(DATA.train, 0),
            ValueError,
            "test_size must be a finite number > 0",
        ),
        (lambda: entry_train_test_split(DATA.train, "half"), TypeError, "test_size"),
        (lambda: EntryKFold(1), ValueError, "n_splits must be an integer >= 2"),
        (lambda: EntryKFold(2.5), TypeError, "n_splits must be an integer"),
        (
            lambda: list(EntryKFold(5).split(np.ones((1, 3)))),
            ValueError,
            "n_splits=5 is more than the number of entries, 3",
        ),
        (
            lambda: RobustMFCV(rank=[]).fit(DATA.train),
            ValueError,
            "rank must have at least one value",
        ),
        (
            lambda: RobustMFCV(rank=[2, 500]).fit(DATA.train),
            ValueError,
            "rank must be an integer from 1 to 120",
        ),
        (
            lambda: RobustMFCV(2, reg=[1.0, -1.0]).fit(DATA.train),
            ValueError,
            "reg must be a finite number > 0 or one of",
        ),
        (lambda: RobustMFCV(2, theta=["big"]).fit(DATA.train), TypeError, "theta must be"),
        (lambda: RobustMFCV(2, loss="nope").fit(DATA.train), ValueError, "loss must be one of"),
        (
            lambda: RobustMFCV(2, scoring="r2").fit(DATA.train),
            ValueError,
            "scoring must be one of mae, trimmed or a callable",
        ),
        (lambda: RobustMFCV(2, cv=1).fit(DATA.train), ValueError, "n_splits"),
        (lambda: RobustMFCV(2).predict([0], [0]), NotFittedError, "call fit first"),
    ],
)
def test_bad_use_is_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.fixture(scope="module")
def search():
    return RobustMFCV(
        rank=[1, 3],
        reg=["auto", 0.1, 30.0],
        loss=["welsch", "l2"],
        estimator=TEMPLATE,
        cv=3,
        random_state=0,
    ).fit(DATA.train)


def test_the_right_rank_ridge_and_loss_are_chosen(search):
    assert search.best_params_["rank"] == 3
    assert search.best_params_["loss"] == "welsch"  # a twentieth of the entries is off by ±5
    assert search.best_params_["reg"] in ("auto", 0.1)
    assert search.best_params_ == search.cv_results_["params"][search.best_index_]


def test_results_are_those_of_scikit_learn(search):
    results = search.cv_results_
    assert len(results["params"]) == 2 * 3 * 2
    assert set(results) == {
        "params",
        "mean_fit_time",
        "param_rank",
        "param_reg",
        "param_theta",
        "param_loss",
        "mean_test_score",
        "std_test_score",
        "rank_test_score",
        "split0_test_score",
        "split1_test_score",
        "split2_test_score",
    }
    splits = np.column_stack([results[f"split{k}_test_score"] for k in range(3)])
    np.testing.assert_allclose(results["std_test_score"], splits.std(axis=1))
    np.testing.assert_allclose(results["mean_test_score"], splits.mean(axis=1))
    assert results["rank_test_score"][search.best_index_] == 1
    assert search.best_score_ == results["mean_test_score"].max()


def test_a_score_equals_that_of_an_explicit_fit(search):
    """The first fold of a setting without a predecessor."""
    k = next(
        k
        for k, p in enumerate(search.cv_results_["params"])
        if p["rank"] == 3 and p["reg"] == "auto" and p["loss"] == "welsch"
    )
    train, test = next(EntryKFold(3, random_state=0).split(DATA.train))
    model = clone(TEMPLATE).set_params(rank=3).fit(train)
    errors = np.abs(test.rows.values - model.predict(test.rows.group_of_entry(), test.rows.indices))
    assert search.cv_results_["split0_test_score"][k] == pytest.approx(-errors.mean())
    trimmed = RobustMFCV(3, estimator=TEMPLATE, cv=3, scoring="trimmed", random_state=0).fit(
        DATA.train
    )
    assert trimmed.cv_results_["split0_test_score"][0] == pytest.approx(
        -np.sort(errors)[: round(0.9 * len(errors))].mean()
    )
    assert trimmed.score(test) > search.score(test)


def test_scores_are_the_same_with_ids():
    """Held-out entries are matched by ids, here numbers that differ from the indices."""
    rows = DATA.train.rows
    named = Observed(
        rows, DATA.train.shape, row_ids=list(range(1000, 1120)), column_ids=list(range(119, -1, -1))
    )
    plain, by_id = (
        RobustMFCV(3, estimator=TEMPLATE, cv=2, random_state=0, refit=False).fit(X)
        for X in (DATA.train, named)
    )
    assert by_id.best_score_ == plain.best_score_


def test_the_seed_of_a_search_is_that_of_its_fits_unless_an_estimator_is_given():
    search = RobustMFCV(rank=[2, 3], cv=2, random_state=7).fit(DATA.train)
    assert search.best_estimator_.random_state == 7
    again = RobustMFCV(rank=[2, 3], cv=2, random_state=7).fit(DATA.train)
    np.testing.assert_array_equal(
        search.cv_results_["mean_test_score"], again.cv_results_["mean_test_score"]
    )
    given = RobustMFCV(2, estimator=TEMPLATE, cv=2, random_state=7).fit(DATA.train)
    assert given.best_estimator_.random_state == 0


def test_the_best_model_is_fitted_to_all_entries(search):
    model = clone(TEMPLATE).set_params(**search.best_params_).fit(DATA.train)
    np.testing.assert_array_equal(search.best_estimator_.row_factors_, model.row_factors_)
    np.testing.assert_array_equal(search.predict([3, 4], [5, 6]), model.predict([3, 4], [5, 6]))
    np.testing.assert_array_equal(
        search.transform(DATA.validation), model.transform(DATA.validation)
    )
    np.testing.assert_array_equal(
        search.inverse_transform(np.eye(3)), model.inverse_transform(np.eye(3))
    )


def test_a_path_has_the_scores_of_single_fits_with_one_initialization(monkeypatch):
    settings = {
        "rank": 3,
        "reg": [0.01, 0.03, 0.1, 0.3],
        "theta": [1.0, 0.5],
        "estimator": TEMPLATE,
        "cv": 2,
        "random_state": 0,
    }
    searches = []

    def counted(*arguments):
        searches.append(arguments)
        return search_entries(*arguments)

    monkeypatch.setattr(model_choice, "search_entries", counted)
    path = RobustMFCV(**settings, scoring="trimmed").fit(DATA.train)
    assert len(searches) == 2 + 1  # one per fold, and the refit
    monkeypatch.setattr(selection._Path, "_predecessor", lambda self, k, models: None)
    single = RobustMFCV(**settings, scoring="trimmed").fit(DATA.train)
    assert len(searches) == 3 + 2 * 8 + 1
    np.testing.assert_allclose(
        path.cv_results_["mean_test_score"], single.cv_results_["mean_test_score"], rtol=0.02
    )


def test_a_large_ridge_in_the_grid_does_not_affect_other_settings():
    """Factors that a large λ makes zero are a stationary point for every other λ."""
    search = RobustMFCV(3, reg=[1e4, 0.1], estimator=TEMPLATE, cv=2, random_state=0).fit(DATA.train)
    assert search.best_params_["reg"] == 0.1
    assert search.best_score_ > 0.3 * search.cv_results_["mean_test_score"].min()


def test_processes_do_not_change_the_choice():
    one, two = (
        RobustMFCV(
            [1, 3], reg=[0.1, 1.0], estimator=TEMPLATE, cv=2, n_jobs=jobs, random_state=0
        ).fit(DATA.train)
        for jobs in (1, 2)
    )
    np.testing.assert_array_equal(
        one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"]
    )


def test_scikit_learn_conventions():
    search = RobustMFCV([1, 2], estimator=RobustMF(bias=True), cv=3)
    again = clone(search)
    assert again.get_params()["estimator__bias"] is True
    assert again.set_params(estimator__bias=False).estimator.bias is False
    unfit = RobustMFCV(2, estimator=TEMPLATE, cv=2, refit=False, random_state=0).fit(DATA.train)
    assert not hasattr(unfit, "best_estimator_")
    with pytest.raises(NotFittedError, match="refit=True"):
        unfit.predict([0], [0])


def test_the_seed_of_the_folds_determines_them():
    X = np.arange(60.0).reshape(6, 10)

    def tests(seed):
        return [test.rows.values.tolist() for _, test in EntryKFold(3, random_state=seed).split(X)]

    assert tests(0) == tests(0)
    assert tests(0) != tests(1)
    sizes = [
        (train.n_entries, test.n_entries) for train, test in EntryKFold(3, random_state=0).split(X)
    ]
    assert sizes == [(40, 20)] * 3


def test_the_seed_of_a_search_determines_its_folds():
    data = make_synthetic(40, rank=1, observed=0.5, random_state=0).train
    template = RobustMF(bias=False, init="ridge", max_iter=20, tol=1e-2, random_state=0, n_jobs=1)

    def scores(seed):
        search = RobustMFCV(rank=[1], estimator=template, cv=3, refit=False, random_state=seed).fit(
            data
        )
        return [search.cv_results_[f"split{k}_test_score"][0] for k in range(3)]

    assert scores(0) == scores(0)
    assert scores(0) != scores(1)


def test_values_are_tried_along_the_path_with_names_first():
    assert selection._ordered([3, "auto", 1.5, 2], decreasing=True) == ["auto", 3, 2, 1.5]
    assert selection._ordered([3, "auto", 1.5, "paper"], decreasing=False) == [
        "auto",
        "paper",
        1.5,
        3,
    ]


def test_a_long_table_is_searched_by_its_columns():
    rng = np.random.default_rng(0)
    cells = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 20)) + 0.05 * rng.normal(size=(30, 20))
    table = pd.DataFrame(cells, index=[f"r{k}" for k in range(30)])
    long = table.rename_axis("r").reset_index().melt("r", var_name="c", value_name="v")
    template = RobustMF(random_state=0)
    search = RobustMFCV(rank=[1, 2], estimator=template, cv=2, random_state=0)
    search.fit(long, row="r", col="c", value="v")
    assert search.best_params_["rank"] == 2
    assert search.best_estimator_.outlier_scores().index.equals(long.index)
    assert abs(float(search.predict("r3", 4)) - cells[3, 4]) < 0.3
    assert list(search.get_feature_names_out()) == ["robustmf0", "robustmf1"]


def test_fits_that_do_not_converge_are_reported_once():
    data = make_synthetic(60, rank=2, observed=0.5, random_state=0)
    template = RobustMF(max_iter=1, tol=0, solver="irls", random_state=0)
    search = RobustMFCV(rank=[1, 2], estimator=template, cv=2, random_state=0, refit=False)
    with pytest.warns(NotConvergedWarning) as issued:
        search.fit(data.train)
    assert [str(one.message).split(" before")[0] for one in issued] == [
        "4 of 4 fits stopped at max_iter=1"
    ]


def test_folds_do_not_repeat_the_warning_about_rows_of_bad_entries():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 2)) @ rng.standard_normal((2, 40))
    X += 0.1 * rng.standard_normal(X.shape)
    X[3] = 10 * rng.standard_normal(40)
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        RobustMFCV(rank=[2, 3], cv=3, random_state=0).fit(X)
    unreliable = [w for w in issued if w.category is UnreliableFitWarning]
    assert len(unreliable) == 1, "that of the fit to all entries"


def test_the_template_decides_what_is_not_searched():
    template = RobustMF(loss="huber", theta=0.7, reg=0.3, random_state=0)
    search = RobustMFCV([2], estimator=template, cv=2, random_state=0).fit(DATA.train)
    assert search.best_params_ == {"rank": 2, "loss": "huber", "theta": 0.7, "reg": 0.3}
    fitted = search.best_estimator_
    assert (fitted.loss_.name, fitted.theta_, fitted.reg_) == ("huber", 0.7, 0.3)
    own_scale = RobustMFCV([2], theta=[None], estimator=template, cv=2, random_state=0)
    assert own_scale.fit(DATA.train).best_params_["theta"] is None
