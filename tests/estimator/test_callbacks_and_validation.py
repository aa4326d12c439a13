"""Validation with patience, callbacks, progress bar, Ctrl-C, and the lines of warnings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from robustmf import RMFNL, RobustMF, fitting
from robustmf.data.holdout import Holdout
from robustmf.datasets import make_synthetic
from robustmf.exceptions import (
    EmptyRowsWarning,
    InterruptedFitWarning,
    NotConvergedWarning,
    RobustMFWarning,
)
from robustmf.solvers.base import Outcome, run, small_change


@pytest.fixture(scope="module")
def data():
    return make_synthetic(150, 120, rank=3, observed=0.4, random_state=0)


#: Least squares with too many factors and little regularization, which overfits.
OVERFIT = {
    "rank": 12,
    "loss": "l2",
    "reg": 1e-3,
    "solver": "irls",
    "tol": 1e-9,
    "max_iter": 300,
    "random_state": 0,
}


def test_validation_stops_early_and_keeps_the_best_iterate(data):
    model = RobustMF(**OVERFIT, validation_fraction=0.2, patience=4).fit(data.train)
    errors = model.history_["validation"]
    assert model.best_iteration_ == int(np.argmin(errors))
    assert model.n_iter_ == model.best_iteration_ + 4 < 300
    assert "patience=4" in model.stop_reason_
    assert not model.converged_
    assert len(errors) == len(model.history_["objective"]) == model.n_iter_ + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        converged = RobustMF(**OVERFIT).fit(data.train)
    assert (
        model.score(data.validation, rows="fitted")
        > converged.score(data.validation, rows="fitted") + 0.1
    )


def test_the_iterate_kept_is_the_one_with_the_validation_error_in_the_history(data):
    """Also with biases."""
    kept = {}

    def keep(snapshot):
        kept[snapshot.iteration] = snapshot.factors

    model = RobustMF(
        **OVERFIT | {"bias": True, "validation_fraction": 0.2, "callbacks": [keep]}
    ).fit(data.train)
    U, V = kept[model.best_iteration_]
    i, j = np.indices(data.train.shape)
    np.testing.assert_allclose(model.predict(i, j), U @ V.T, rtol=1e-9, atol=1e-9)
    assert model.best_iteration_ < model.n_iter_
    assert not np.allclose(U @ V.T, kept[model.n_iter_][0] @ kept[model.n_iter_][1].T)


def test_the_validation_error_is_that_of_clipped_predictions():
    holdout = Holdout(np.array([0, 1]), np.array([0, 0]), np.array([5.0, 2.0]), None)
    U = np.array([[7.0], [0.5]])
    V = np.array([[1.0]])
    weighted = replace(holdout, weights=np.array([1.0, 3.0]))
    assert holdout.error(U, V, (1.0, 5.0)) == (0 + 1) / 2
    assert weighted.error(U, V, (1.0, 5.0)) == 3 / 4
    assert holdout.error(U, V, (-np.inf, np.inf)) == (2 + 1.5) / 2


@pytest.mark.parametrize("solver", ["irls", "varpro", "mm"])
def test_validation_works_with_every_solver(data, solver):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        model = RobustMF(
            3,
            loss="lsp",
            solver=solver,
            validation_fraction=0.1,
            random_state=0,
            max_iter=30,
            bounds=(-3, 3),
        ).fit(data.train)
    assert len(model.history_["validation"]) == model.n_iter_ + 1
    assert model.history_["validation"][model.best_iteration_] == min(model.history_["validation"])
    # 5 % of the holdout has errors of 5, and predictions are clipped to the bounds.
    assert 0.2 < min(model.history_["validation"]) < 0.6


def test_several_initializations_with_validation_keep_the_lowest_error(data):
    one = [
        RobustMF(**OVERFIT, validation_fraction=0.2, init="random", n_init=k).fit(data.train)
        for k in (1, 4)
    ]
    assert min(one[1].history_["validation"]) <= min(one[0].history_["validation"])


def test_the_loop_ends_at_a_small_change_relative_to_the_objective():
    assert small_change(1000.0, 999.5, 1e-3) is not None
    assert small_change(1e-3, 0.5e-3, 1e-2) is None
    assert small_change(-1000.0, -1000.5, 1e-3) is not None


def test_every_callback_is_called_although_one_ends_the_loop():
    seen = []
    X = np.outer(np.arange(1.0, 6), np.arange(1.0, 5))
    model = RobustMF(1, init="random", random_state=0, callbacks=[lambda _: True, seen.append])
    assert model.fit(X).n_iter_ == 0
    assert len(seen) == 1


def test_the_lowest_validation_error_of_several_fits_is_chosen():
    results = [SimpleNamespace(outcome=Outcome(best_error=error)) for error in (3.0, 1.0, 2.0)]
    chosen = fitting._best(results, SimpleNamespace(validation_fraction=0.2), None)
    assert chosen is results[1]


def test_a_fit_without_an_entry_to_hold_out_is_refused():
    with pytest.raises(ValueError, match=r"validation_fraction=0\.5 finds no entry to hold out"):
        RobustMF(1, validation_fraction=0.5).fit(np.ones((1, 1)))


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        (
            {"validation_fraction": 0.0},
            ValueError,
            "validation_fraction must be None or a number between 0 and 1, got .*=0.0",
        ),
        ({"validation_fraction": 1}, ValueError, "validation_fraction must be"),
        ({"validation_fraction": np.nan}, ValueError, "validation_fraction must be"),
        ({"validation_fraction": "some"}, TypeError, "validation_fraction must be"),
        ({"patience": 0}, ValueError, "patience must be an integer >= 1"),
        (
            {"validation_fraction": 0.1, "certify": True, "loss": "l1"},
            ValueError,
            "choose one of them",
        ),
        (
            {"callbacks": print},
            TypeError,
            "callbacks must be a list or tuple of functions, got callbacks=<built-in",
        ),
        ({"callbacks": [3]}, TypeError, "callbacks must be a list or tuple of functions"),
        (
            {"random_state": "x"},
            TypeError,
            "random_state must be None, an integer >= 0 or a Generator, got random_state='x'",
        ),
        ({"bias": "yes"}, TypeError, "bias must be True or False or 'auto', got bias='yes'"),
        ({"init": None}, TypeError, r"init must be .*got init=None"),
        ({"init": (1, 2, 3)}, TypeError, r"init must be .*got 3 of them"),
        ({"init": ("a", "b")}, TypeError, r"init=\(U, V\) must be two arrays of real numbers"),
    ],
)
def test_bad_parameters_are_refused_by_name(parameters, error, message, data):
    with pytest.raises(error, match=message):
        RobustMF(**{"rank": 2} | parameters).fit(data.train)


def test_a_tolerance_of_zero_is_allowed(data):
    with pytest.warns(NotConvergedWarning):
        model = RobustMF(2, tol=0, max_iter=2, random_state=0, n_jobs=1).fit(data.train)
    assert model.n_iter_ == 2


def test_callbacks_receive_copies_of_the_factors(data):
    """Snapshots may be kept, and modifying them does not change the fit."""
    kept = []

    def modify(snapshot):
        kept.append([A.copy() for A in snapshot.factors])
        snapshot.factors[0][:] = 1e6

    watched = RobustMF(3, random_state=0, callbacks=[modify]).fit(data.train)
    alone = RobustMF(3, random_state=0).fit(data.train)
    np.testing.assert_array_equal(watched.row_factors_, alone.row_factors_)
    assert len(kept) == watched.n_iter_ + 1
    assert not np.array_equal(kept[0][0], kept[-1][0])


def test_the_loop_runs_any_solver_with_begin_and_step():
    """A minimal solver: Newton's method for √2."""

    class Newton:
        def convergence_reason(self, before, objective, tol):
            return small_change(before, objective, tol)

        def begin(self, U, V):
            self.factors = (U.copy(), V.copy())
            return self.value()

        def value(self):
            return float((self.factors[0][0, 0] ** 2 - 2) ** 2)

        def step(self):
            x = self.factors[0]
            x -= (x**2 - 2) / (2 * x)
            return self.value()

        def report(self):
            return {}

    one = np.ones((1, 1))
    solver = Newton()
    outcome = run(solver, one, one, 50, 1e-12, [lambda snapshot: snapshot.objective < 1e-20])
    assert outcome.stopped
    assert solver.factors[0][0, 0] == pytest.approx(np.sqrt(2))
    away_from_one = run(
        Newton(), one, one, 50, 1e-12, validation=lambda U, V: abs(U[0, 0] - 1), patience=3
    )
    assert away_from_one.best_iteration == 0
    assert away_from_one.iterations == 3
    assert away_from_one.best[0][0, 0] == 1


def script(code, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def test_ctrl_c_returns_the_best_iterate():
    process = script("""
        import warnings
        from robustmf import RobustMF
        from robustmf.datasets import make_synthetic

        def announce(snapshot):
            if snapshot.iteration == 3:
                print("running", flush=True)

        data = make_synthetic(300, random_state=0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = RobustMF(5, loss="l1", solver="irls", tol=1e-300, max_iter=10**7,
                             random_state=0, callbacks=[announce], validation_fraction=0.1,
                             patience=10**6).fit(data.train)
        errors = model.history_["validation"]
        print(model.stop_reason_, data.test_rmse(model.row_factors_, model.column_factors_) < 0.3,
              errors[model.best_iteration_] == min(errors),
              len({len(series) for series in model.history_.values()}))
        print([(w.category.__name__, str(w.message)) for w in caught])
    """)
    assert process.stdout.readline() == "running\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "interrupted True True 1" in out
    assert "InterruptedFitWarning" in out
    assert "the best so far, is kept" in out


def test_ctrl_c_during_the_initialization_raises_a_keyboard_interrupt():
    """With few entries per parameter the initialization takes seconds and shows its progress."""
    process = script(
        """
        import numpy as np
        from robustmf import RobustMF
        small = np.random.default_rng(0).standard_normal((20, 10))
        RobustMF(2, verbose=1, random_state=0).fit(small)
        rng = np.random.default_rng(0)
        X = rng.standard_normal((100, 500))
        X[rng.random(X.shape) > 0.07] = np.nan
        X[0], X[:, 0] = 1.0, 1.0
        model = RobustMF(5, solver="varpro", verbose=1, random_state=0)
        try:
            model.fit(X)
        except KeyboardInterrupt as error:
            print("KeyboardInterrupt:", error, hasattr(model, "row_factors_"))
        """,
        FORCE_COLOR="1",
        COLUMNS="150",
    )
    shown = ""
    while "RobustMF rank 5: initialization" not in shown:
        shown += process.stderr.read(1) or pytest.fail(shown)
    time.sleep(0.7)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    message = "fit interrupted during the initialization: there is no result to keep yet"
    assert f"KeyboardInterrupt: {message} False" in out


def test_an_interrupted_later_initialization_keeps_the_first(data):
    iterations = []

    def interrupt_the_second(snapshot):
        iterations.append(snapshot.iteration)
        if iterations.count(0) == 2:
            raise KeyboardInterrupt

    with pytest.warns(InterruptedFitWarning):
        model = RobustMF(3, random_state=0, n_init=3, callbacks=[interrupt_the_second]).fit(
            data.train
        )
    assert data.test_rmse(model.row_factors_, model.column_factors_) < 0.15
    assert iterations.count(0) == 2


def test_the_bar_shows_objective_validation_error_and_time_left():
    code = """
        from robustmf import RobustMF
        from robustmf.datasets import make_synthetic
        data = make_synthetic(250, random_state=0).train
        settings = {"validation_fraction": 0.1, "random_state": 0, "n_jobs": 1}
        RobustMF(5, loss="l1", tol=1e-9, max_iter=200, verbose=1, **settings).fit(data)
    """
    process = script(code, FORCE_COLOR="1", COLUMNS="200")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    for shown in (
        "RobustMF rank 5",
        "objective",
        "validation error",
        "iterations",
        " left",
        "solver irls",
    ):
        assert shown in err


def test_warnings_point_at_the_line_of_the_caller(data):
    X = np.random.default_rng(0).standard_normal((6, 5))
    X[2] = np.nan
    for call in (
        lambda: RMFNL(2, random_state=0, max_iter=1, tol=1e-12).fit(X),
        lambda: RMFNL(2, random_state=0, max_iter=1, tol=1e-12).fit_transform(X),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        ours = [w for w in caught if issubclass(w.category, RobustMFWarning)]
        assert {w.category for w in ours} == {EmptyRowsWarning, NotConvergedWarning}
        assert {w.filename for w in ours} == {__file__}
        assert {w.lineno for w in ours} == {call.__code__.co_firstlineno}
