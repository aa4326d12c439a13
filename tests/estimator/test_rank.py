"""The parameter ``rank``: found from the data, or given."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest

import robustmf
from robustmf import RMFNL, RobustMF
from robustmf.backends.registry import get_backend
from robustmf.datasets import make_synthetic
from robustmf.estimator import training
from robustmf.report.summary import summary
from robustmf.selection import RobustMFCV


@pytest.fixture(scope="module")
def data():
    return make_synthetic(60, 40, rank=2, observed=0.8, random_state=0)


@pytest.fixture(scope="module")
def model(data):
    return RobustMF(random_state=0).fit(data.train)


def test_the_rank_is_found_by_default_and_given_in_the_settings_of_the_paper():
    assert RobustMF().rank == "auto"
    assert RMFNL().rank == 10
    assert inspect.signature(RMFNL).parameters["rank"].default == 10


def test_the_rank_of_the_data_is_found(model, data):
    assert model.rank_ == 2
    assert type(model.rank_) is int
    assert model.row_factors_.shape == (60, 2)
    assert model.column_factors_.shape == (40, 2)
    assert model.rank == "auto", "parameters are not changed by a fit"
    assert data.test_rmse(model.row_factors_, model.column_factors_) < 0.1


@pytest.mark.parametrize("estimator", [RobustMF(np.int64(3), random_state=0), RMFNL(3)])
def test_a_given_rank_is_used(estimator, data):
    assert estimator.fit(data.train).rank_ == 3


def test_there_is_no_rank_before_a_fit():
    assert not hasattr(RobustMF(), "rank_")
    with pytest.raises(AttributeError, match="not fitted yet"):
        RobustMF(3).rank_  # noqa: B018 - the access raises


def test_a_saved_model_has_the_rank(model, tmp_path):
    model.save(tmp_path / "model.rmf")
    for again in (robustmf.load(tmp_path / "model.rmf"), pickle.loads(pickle.dumps(model))):
        assert (again.rank, again.rank_) == ("auto", 2)
        assert repr(again) == repr(model)


def test_texts_report_the_rank_and_whether_it_was_found(model, data, capsys):
    assert repr(RobustMF(random_state=0)) == "RobustMF(random_state=0)"
    assert repr(model) == "RobustMF(random_state=0)  # rank 2, found"
    assert eval(repr(model)).get_params() == model.get_params()
    assert summary(model)["model"].startswith("rank 2, found")
    assert "rank 2, found" in model._repr_html_()
    given = RobustMF(3, random_state=0, verbose=1).fit(data.train)
    assert "RobustMF: rank 3, given; solver" in capsys.readouterr().err
    assert repr(given) == "RobustMF(random_state=0, rank=3, verbose=1)"
    assert summary(given)["model"].startswith("rank 3, given")
    RobustMF(random_state=0, verbose=1).fit(data.train)
    assert "RobustMF: rank 2, found; solver" in capsys.readouterr().err


def test_lines_of_a_long_repr_are_wrapped():
    model = RobustMF(
        loss="l1", theta=None, bounds=(-1.5, 1.5), max_iter=17, tol=1e-3, n_jobs=1, random_state=0
    )
    assert repr(model).splitlines() == [
        "RobustMF(bounds=(-1.5, 1.5), loss='l1', max_iter=17, n_jobs=1, random_state=0,",
        "         theta=None, tol=0.001)",
    ]


def test_the_rank_of_given_factors_is_used(data):
    rng = np.random.default_rng(0)
    given = (rng.standard_normal((60, 3)), rng.standard_normal((40, 3)))
    model = RobustMF(init=given, random_state=0).fit(data.train)
    np.testing.assert_array_equal(
        model.row_factors_, RobustMF(3, init=given, random_state=0).fit(data.train).row_factors_
    )
    assert model.rank_ == 3
    assert summary(model)["model"].startswith("rank 3, given")


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.EmptyRowsWarning")
def test_partial_fit_continues_at_the_rank_of_the_model(data, monkeypatch):
    first = data.train.select(data.train.rows.group_of_entry() < 50)
    few = data.train.select(data.train.rows.group_of_entry() >= 50)
    ranks = []

    def recorded(settings, *rest):
        ranks.append(None if settings.auto_rank else settings.rank)
        return fit(settings, *rest)

    fit = training.fit
    monkeypatch.setattr(training, "fit", recorded)
    model = RobustMF(random_state=0)
    model.fit(first).partial_fit(few)
    assert ranks == [None, 2]
    model.partial_fit(data.validation)
    assert ranks == [None, 2, None], "found again where the factors are initialized again"
    assert model.rank_ == 2


def test_memory_is_estimated_for_rank_16_while_the_rank_is_open(data, monkeypatch):
    size = {"shape": (1000, 800), "n_entries": 50_000}
    open_rank = RobustMF().memory_estimate(**size)
    assert open_rank == RobustMF(16).memory_estimate(**size)
    assert open_rank < RobustMF(50).memory_estimate(**size)
    narrow = {"shape": (1000, 3), "n_entries": 2_000}
    assert RobustMF().memory_estimate(**narrow) == RobustMF(3).memory_estimate(**narrow)
    checked = []
    backend = type(get_backend("cpu"))
    operations = backend.operations

    def recorded(self, observed, team, rank, solver):
        checked.append(rank)
        return operations(self, observed, team, rank, solver)

    monkeypatch.setattr(backend, "operations", recorded)
    RobustMF(bias=True, random_state=0).fit(data.train)
    assert checked[0] == 17, "one more for the bias"


def test_a_search_may_include_the_rank_that_is_found(data):
    search = RobustMFCV(
        rank=[1, "auto"], estimator=RobustMF(random_state=0), cv=2, random_state=0
    ).fit(data.train)
    assert search.best_params_["rank"] == "auto"
    assert search.best_estimator_.rank_ == 2
    assert list(search.cv_results_["param_rank"]) == [1, "auto"]
    with pytest.raises(TypeError, match=r"rank must be an integer from 1 to 40 .* or 'auto'"):
        RobustMFCV(rank=["all"]).fit(data.train)


def test_a_path_with_the_rank_that_is_found_has_one_rank(data):
    """λ as numbers: each fit is initialized with the factors of its predecessor."""
    search = RobustMFCV(
        rank="auto", reg=[0.1, 1.0], estimator=RobustMF(random_state=0), cv=2, random_state=0
    ).fit(data.train)
    assert [setting["rank"] for setting in search.cv_results_["params"]] == ["auto", "auto"]
    assert search.best_estimator_.rank_ == 2
