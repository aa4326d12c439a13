"""The public behaviour of RobustMF."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from conftest import random_problem
from robustmf import MM, RMFNL, Observed, RobustMF
from robustmf.datasets import make_synthetic
from robustmf.exceptions import EmptyRowsWarning, InterruptedFitWarning, NotConvergedWarning


@pytest.fixture(scope="module")
def data():
    return make_synthetic(150, 120, rank=3, observed=0.5, random_state=0)


@pytest.fixture(scope="module")
def model(data):
    return RMFNL(3, random_state=1).fit(data.train)


def test_every_kind_of_input_gives_the_same_fit():
    observed, *_ = random_problem(30, 20, 2)
    dense = np.full(observed.shape, np.nan)
    dense[observed.rows.group_of_entry(), observed.rows.indices] = observed.rows.values
    fits = [
        RMFNL(2, random_state=0).fit(X)
        for X in (
            observed,
            dense,
            observed.to_sparse(),
            sp.csc_matrix(observed.to_sparse()),
            dense.tolist(),
        )
    ]
    for other in fits[1:]:
        assert np.array_equal(fits[0].row_factors_, other.row_factors_)


def test_predict_is_the_product(model, data):
    i = np.array([0, 5, 149])
    j = np.array([3, 3, 119])
    product = model.row_factors_ @ model.components_
    np.testing.assert_allclose(model.predict(i, j), product[i, j])
    np.testing.assert_allclose(model.inverse_transform(model.row_factors_), product)
    assert model.predict(0, 1).shape == ()


def test_fold_in_recovers_the_factors_of_new_rows(data):
    """New rows with outliers are predicted about as well as fitted rows."""
    seen = data.train.rows.group_of_entry() < 100
    with pytest.warns(EmptyRowsWarning, match="50 of 150 rows"):
        model = RMFNL(3, random_state=1).fit(data.train.select(seen))
    T = model.transform(data.train)
    error = model.inverse_transform(T) - data.clean
    fitted = np.sqrt((error[:100] ** 2).mean())
    new = np.sqrt((error[100:] ** 2).mean())
    assert new < 1.5 * fitted
    assert new < 0.15
    l2_error = (
        _least_squares_rows(data.train, model.column_factors_) @ model.components_ - data.clean
    )
    assert new < 0.3 * np.sqrt((l2_error[100:] ** 2).mean()), (
        "least squares is biased by the outliers"
    )


def _least_squares_rows(observed, V):
    rows = observed.rows
    out = []
    for i in range(len(rows)):
        part = slice(rows.pointers[i], rows.pointers[i + 1])
        out.append(np.linalg.lstsq(V[rows.indices[part]], rows.values[part], rcond=None)[0])
    return np.array(out)


def test_transform_of_the_fitted_rows_returns_their_factors(model, data):
    error = np.abs(model.transform(data.train) - model.row_factors_)
    assert np.median(error) < 1e-3


def test_score_of_the_fitted_rows_is_minus_the_mean_absolute_error(model, data):
    rows = data.validation.rows
    error = np.abs(rows.values - model.predict(rows.group_of_entry(), rows.indices))
    assert model.score(data.validation, rows="fitted") == pytest.approx(-error.mean())


def test_score_of_new_rows_predicts_each_entry_from_the_others_of_its_row(model, data):
    """The score equals that of explicit fold-ins with a fifth of the entries left out."""
    few = np.full((3, 120), np.nan)
    for i in range(3):
        part = slice(*data.train.rows.pointers[i : i + 2])
        few[i, data.train.rows.indices[part]] = data.train.rows.values[part]
    errors = []
    for row in few:
        observed = np.flatnonzero(~np.isnan(row))
        for k in range(5):
            left = row.copy()
            left[observed[k::5]] = np.nan
            errors.extend(
                np.abs(row - model.inverse_transform(model.transform(left[None]))[0])[
                    observed[k::5]
                ]
            )
    assert model.score(few) == pytest.approx(-np.mean(errors), rel=1e-6)
    assert model.score(few) == pytest.approx(
        np.mean([model.score(row[None]) for row in few]), rel=0.2
    )
    single = np.full((1, 120), np.nan)
    single[0, 7] = 4.0
    assert model.score(single) == -4.0, "the entry of a row with one entry is predicted as 0"


def test_history_has_the_documented_series(model):
    assert set(model.history_) == {
        "iteration",
        "objective",
        "seconds",
        "gap",
        "criticality",
        "inner_iterations",
    }
    assert len(model.history_["objective"]) == model.n_iter_ + 1
    assert np.all(np.diff(model.history_["seconds"]) >= 0)
    assert model.history_["criticality"][-1] >= model.criticality_ * (1 - 1e-9)
    assert model.converged_
    assert "tol" in model.stop_reason_


def test_presets_and_clones(data):
    preset = RMFNL(3, loss="geman", theta=0.7)
    assert clone(preset).get_params() == preset.get_params()
    preset.fit(data.train)
    same = RobustMF(3, loss="geman", theta=0.7, solver="mm", random_state=0)
    assert same.fit(data.train).theta_ == preset.theta_ == 0.7
    assert preset.reg_ == pytest.approx(20 / 270)


def test_rows_and_columns_without_entries_are_zero_and_warned_about_once():
    dense = np.arange(30.0).reshape(6, 5)
    dense[2] = np.nan
    dense[:, 4] = np.nan
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = RMFNL(2, random_state=0).fit(dense)
    ours = [w for w in caught if issubclass(w.category, EmptyRowsWarning)]
    assert len(ours) == 1
    assert "1 of 6 rows and 1 of 5 columns" in str(ours[0].message)
    assert np.all(model.row_factors_[2] == 0)
    assert np.all(model.column_factors_[4] == 0)
    assert np.all(model.predict([2, 0], [0, 4]) == 0)


def test_callbacks_receive_snapshots_and_can_stop(data):
    seen = []

    def stop_at_three(snapshot):
        seen.append(snapshot.iteration)
        return snapshot.iteration == 3

    model = RMFNL(3, random_state=0, callbacks=[stop_at_three]).fit(data.train)
    assert seen == [0, 1, 2, 3]
    assert model.n_iter_ == 3
    assert not model.converged_
    assert "callback" in model.stop_reason_


def test_an_interrupted_fit_keeps_the_last_iterate(data):
    def interrupt(snapshot):
        if snapshot.iteration == 2:
            raise KeyboardInterrupt

    with pytest.warns(InterruptedFitWarning, match="after 2 iterations"):
        model = RMFNL(3, random_state=0, callbacks=[interrupt]).fit(data.train)
    assert np.all(np.isfinite(model.row_factors_))


def test_reaching_max_iter_warns(data):
    with pytest.warns(NotConvergedWarning, match="max_iter=2"):
        RMFNL(3, random_state=0, max_iter=2, tol=1e-12).fit(data.train)


def test_verbose_shows_a_bar(data, capsys):
    RMFNL(3, random_state=0, verbose=1).fit(data.train)
    assert "RMFNL rank 3" in capsys.readouterr().err


def test_input_is_not_modified():
    X = np.random.default_rng(0).standard_normal((20, 10))
    before = X.copy()
    X.flags.writeable = False
    RMFNL(2, random_state=0).fit(X).transform(X)
    assert np.array_equal(X, before)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"rank": 0}, ValueError, r"rank must be an integer from 1 to 4 .*got rank=0"),
        ({"rank": -3}, ValueError, "got rank=-3"),
        (
            {"rank": 5},
            ValueError,
            r"rank must be an integer from 1 to 4 = min\(6, 4\) or 'auto', got rank=5",
        ),
        ({"rank": 2.0}, TypeError, "rank must be an integer"),
        ({"rank": "Auto"}, TypeError, "min.6, 4. or 'auto', got rank='Auto'"),
        ({"rank": None}, TypeError, "got rank=None"),
        (
            {"rank": "auto", "init": (np.ones((6, 5)), np.ones((4, 5)))},
            ValueError,
            r"init=\(U, V\) must be matrices with 1 to 4 = min\(6, 4\) columns, got .*\(6, 5\)",
        ),
        ({"rank": "auto", "init": (np.ones(6), np.ones(4))}, ValueError, r"got U of shape \(6,\)"),
        ({"rank": "auto", "init": ([[1], [1, 2]], [1])}, TypeError, "two arrays of real numbers"),
        ({"rank": "auto", "init": (1, 2, 3)}, TypeError, "got 3 of them"),
        ({"rank": True}, TypeError, "got rank=True"),
        ({"rank": "2"}, TypeError, "got rank='2'"),
        (
            {"reg": -1.0},
            ValueError,
            "reg must be a finite number > 0 or 'auto' or 'paper', got reg=-1.0",
        ),
        ({"reg": 0}, ValueError, "got reg=0"),
        ({"reg": np.nan}, ValueError, "got reg=nan"),
        ({"reg": "much"}, TypeError, "got reg='much'"),
        ({"theta": 0.0}, ValueError, "theta must be a finite number > 0"),
        ({"theta": -2}, ValueError, "got theta=-2"),
        ({"theta": np.nan}, ValueError, "got theta=nan"),
        ({"theta": "big"}, TypeError, "got theta='big'"),
        ({"tol": -1}, ValueError, "tol must be a finite number >= 0, got tol=-1"),
        ({"max_iter": -1}, ValueError, "max_iter must be an integer >= 0"),
        (
            {"loss": "l2", "solver": "mm"},
            ValueError,
            "solver='mm' needs a loss that is concave .*loss='l2' is not",
        ),
        ({"loss": "welsch", "solver": "mm"}, ValueError, "loss='welsch' is not"),
        ({"loss": "nope"}, ValueError, "loss must be one of"),
        ({"loss": 5}, TypeError, "loss must be a name"),
        ({"solver": "magic"}, ValueError, "solver must be .*got solver='magic'"),
        ({"init": "magic"}, ValueError, "init must be 'auto', 'ridge', 'random'"),
        (
            {"init": (np.ones((6, 3)), np.ones((4, 2)))},
            ValueError,
            r"init=\(U, V\) must have shapes \(6, 2\), \(4, 2\)",
        ),
        ({"init": (np.full((6, 2), np.nan), np.ones((4, 2)))}, ValueError, "must be finite"),
        ({"n_jobs": 0}, ValueError, "n_jobs must be a positive integer"),
    ],
)
def test_bad_parameters_are_refused_by_name(parameters, error, message):
    X = np.random.default_rng(0).standard_normal((6, 4))
    with pytest.raises(error, match=message):
        RobustMF(**({"rank": 2, "loss": "lsp", "solver": "mm"} | parameters)).fit(X)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"inner": "magic"}, ValueError, "inner must be one of apg, apg-dense, ladmpsap"),
        ({"max_iter": 0}, ValueError, "max_iter must be an integer >= 1"),
        ({"tol": 0.0}, ValueError, "tol must be a finite number > 0"),
        ({"gap": "small"}, TypeError, "gap must be a finite number > 0"),
    ],
)
def test_bad_options_of_mm_are_refused_by_name(options, error, message):
    with pytest.raises(error, match=message):
        MM(**options)


def test_an_init_of_the_wrong_shape_is_reported_as_it_was_given():
    """Also for a matrix with more columns than rows, which is transposed."""
    X = np.random.default_rng(0).standard_normal((8, 15))
    message = r"init=\(U, V\) must have shapes \(8, 2\), \(15, 2\), got \(9, 2\), \(15, 2\)"
    with pytest.raises(ValueError, match=message):
        RobustMF(2, init=(np.ones((9, 2)), np.ones((15, 2)))).fit(X)


def test_bad_use_is_refused_by_name(model, data):
    with pytest.raises(NotFittedError):
        RobustMF().predict([0], [0])
    with pytest.raises(ValueError, match="X has 7 features, but RMFNL is expecting 120"):
        model.transform(np.ones((2, 7)))
    with pytest.raises(ValueError, match=r"rows must lie in 0 … 149, got 150"):
        model.predict([150], [0])
    with pytest.raises(ValueError, match=r"columns must lie in 0 … 119, got -1"):
        model.predict([0], [-1])
    with pytest.raises(TypeError, match="rows must be integers"):
        model.predict([0.5], [0])
    with pytest.raises(ValueError, match=r"T must have shape \(rows, 3\)"):
        model.inverse_transform(np.ones((2, 4)))
    with pytest.raises(ValueError, match="shape of the fitted matrix"):
        model.score(np.ones((2, 120)), rows="fitted")
    with pytest.raises(ValueError, match="rows must be 'new' or 'fitted', got rows='old'"):
        model.score(np.ones((2, 120)), rows="old")
    with pytest.raises(ValueError, match="at least one observed entry"):
        model.score(np.full((2, 120), np.nan))
    with pytest.raises(TypeError, match="sparse matrix would be a dense one"):
        model.predict(data.train)


@pytest.mark.parametrize(
    "X",
    [
        np.ones((5, 4)),
        np.zeros((5, 4)),
        1e30 * np.ones((5, 4)),
        1e-30 * np.eye(5, 4),
        np.arange(20).reshape(5, 4),
    ],
)
def test_plain_and_extreme_values_give_finite_factors(X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        model = RMFNL(2, random_state=0).fit(X)
    assert np.all(np.isfinite(model.row_factors_))
    assert np.all(np.isfinite(model.column_factors_))


def test_one_entry():
    model = RMFNL(1, random_state=0, reg=0.01).fit(Observed.from_indices([0], [0], [3.0]))
    assert model.predict(0, 0) == pytest.approx(3.0, rel=0.05)


def test_tol_0_iterates_until_the_objective_does_not_decrease():
    data = make_synthetic(60, 40, rank=2, random_state=0)
    loose, exact = (
        RobustMF(2, tol=tol, solver="irls", max_iter=3000, random_state=0).fit(data.train)
        for tol in (1e-4, 0)
    )
    assert exact.n_iter_ > loose.n_iter_
    assert exact.converged_
