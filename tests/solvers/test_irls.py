"""Reweighted least squares: descent for every loss, biases, weights, certificates."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import oracles
from conftest import random_problem
from robustmf import MM, RobustMF
from robustmf.backends.cpu import loss_sums as loss_sums_module
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.datasets import make_synthetic
from robustmf.exceptions import NotConvergedWarning
from robustmf.initialization.problem import Problem
from robustmf.kernels import team as team_module
from robustmf.losses import Loss, loss_names, make_loss
from robustmf.solvers import irls as irls_module
from robustmf.solvers.irls import IRLS, IRLSOptions
from robustmf.solvers.mm.criticality import criticality
from robustmf.solvers.objective import Objective


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
@pytest.mark.parametrize("name", loss_names())
def test_objective_never_rises(name, dtype):
    observed, U, V = random_problem(50, 40, 3, dtype=dtype)
    model = RobustMF(
        3, loss=name, theta=None, solver="irls", init=(U, V), tol=1e-4, max_iter=2000
    ).fit(observed)
    objective = np.array(model.history_["objective"])
    assert np.all(np.diff(objective) <= (1e-10 if dtype == np.float64 else 1e-5) * objective[0])
    assert objective[-1] < 0.9 * objective[0]
    assert model.row_factors_.dtype == dtype


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
@pytest.mark.parametrize(
    "name", ["l2", "huber", "cauchy", "welsch", "tukey", "geman-mcclure", "smoothed-lsp"]
)
def test_ends_where_the_gradient_vanishes(name, team):
    observed, U, V = random_problem(50, 40, 3, share=0.6)
    model = RobustMF(
        3, loss=name, theta=None, reg=0.3, solver="irls", init=(U, V), tol=1e-11, max_iter=20000
    ).fit(observed)
    operations = CPUOperations(observed, team)
    objective = Objective(model.loss_, 0.3)
    initial = criticality(operations, objective, U, V, operations.residuals(U, V))
    end = criticality(
        operations,
        objective,
        *(pair := (model.row_factors_, model.column_factors_)),
        operations.residuals(*pair),
    )
    assert end < 1e-3 * initial


def test_a_user_defined_loss_with_and_without_a_compilable_weight():
    @dataclass(frozen=True)
    class Root(Loss):
        name = "root"

        def _value(self, a):
            return np.sqrt(1 + a * a) - 1

        def _derivative(self, a):
            return a / np.sqrt(1 + a * a)

    @dataclass(frozen=True)
    class CompiledRoot(Root):
        @staticmethod
        def weight_formula(a, theta):
            return 1 / np.sqrt(1 + a * a)

    observed, U, V = random_problem()
    fits = [
        RobustMF(3, loss=loss, theta=None, solver="irls", init=(U, V), tol=1e-8).fit(observed)
        for loss in (Root(), CompiledRoot())
    ]
    np.testing.assert_allclose(fits[0].row_factors_, fits[1].row_factors_, rtol=1e-6, atol=1e-8)


def test_biases_are_found_and_used():
    rng = np.random.default_rng(0)
    b = 2 * rng.standard_normal(120)
    c = rng.standard_normal(90)
    clean = (
        10 + b[:, None] + c[None, :] + rng.standard_normal((120, 2)) @ rng.standard_normal((2, 90))
    )
    X = clean + 0.1 * rng.standard_normal(clean.shape)
    X[rng.random(X.shape) < 0.05] += 20
    X[rng.random(X.shape) < 0.5] = np.nan
    model = RobustMF(2, bias=True, random_state=0).fit(X)
    i, j = np.indices(X.shape)
    assert np.sqrt(np.mean((model.predict(i, j) - clean) ** 2)) < 0.07
    assert np.corrcoef(model.row_bias_, b)[0, 1] > 0.98
    assert np.all(np.diff(model.history_["objective"]) <= 1e-9)
    folded = model.transform(X)
    assert folded.shape == (120, 3)
    assert np.sqrt(np.mean((model.inverse_transform(folded) - clean) ** 2)) < 0.08
    without = RobustMF(2, bias=False, random_state=0).fit(X)
    assert np.sqrt(np.mean((without.predict(i, j) - clean) ** 2)) > 0.5, (
        "rank 2 alone cannot hold the biases"
    )


def test_sample_weights_multiply_the_losses():
    observed, U, V = random_problem(40, 30, 3, share=0.7)
    keep = np.arange(observed.n_entries) % 4 > 0
    common = {
        "rank": 3,
        "theta": 1.0,
        "reg": 0.2,
        "solver": "irls",
        "init": (U, V),
        "tol": 1e-10,
        "max_iter": 3000,
    }
    weighted = RobustMF(**common).fit(observed, weights=keep.astype(float))
    dropped = RobustMF(**common).fit(observed.select(keep))
    np.testing.assert_allclose(weighted.row_factors_, dropped.row_factors_, atol=1e-6)
    doubled = RobustMF(**common | {"reg": 0.4}).fit(
        observed, weights=np.full(observed.n_entries, 2.0)
    )
    plain = RobustMF(**common).fit(observed)
    np.testing.assert_allclose(doubled.row_factors_, plain.row_factors_, atol=1e-6)
    dense = np.zeros(observed.shape)
    dense[observed.rows.group_of_entry(), observed.rows.indices] = keep
    np.testing.assert_array_equal(
        RobustMF(**common).fit(observed, weights=dense).row_factors_, weighted.row_factors_
    )
    for bad, message in (
        ([1.0], "one number per observed entry"),
        (-keep.astype(float), ">= 0"),
        (keep.astype(str), "numbers"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            RobustMF(**common).fit(observed, weights=bad)


def test_regularization_by_count():
    observed, U, V = random_problem()
    common = {
        "rank": 3,
        "loss": "l2",
        "reg": 0.1,
        "solver": "irls",
        "init": (U, V),
        "max_iter": 5000,
        "tol": 1e-13,
    }
    model = RobustMF(**common, reg_by_count=True).fit(observed)
    counts = observed.rows.counts
    X = oracles.dense(observed, observed.rows.values)
    rows = observed.rows
    i = int(np.argmax(counts))
    seen = rows.indices[rows.pointers[i] : rows.pointers[i + 1]]
    Q = model.column_factors_[seen]
    np.testing.assert_allclose(
        model.row_factors_[i],
        np.linalg.solve(Q.T @ Q + 0.1 * counts[i] * np.eye(3), Q.T @ X[i, seen]),
        atol=1e-4,
    )


def test_the_best_of_several_initializations_is_kept():
    observed, *_ = random_problem(30, 25, 3, share=0.5)
    common = {
        "rank": 3,
        "loss": "l2",
        "solver": "irls",
        "init": "random",
        "random_state": 0,
        "tol": 1e-6,
        "max_iter": 2000,
    }
    one = RobustMF(**common).fit(observed)
    five = RobustMF(**common, n_init=5).fit(observed)
    assert five.history_["objective"][-1] <= one.history_["objective"][-1]


def test_certify_ends_at_a_critical_point(team):
    data = make_synthetic(60, 50, rank=3, observed=0.8, random_state=0)
    fast = RobustMF(3, loss="lsp", theta=1.0, solver="irls", random_state=0).fit(data.train)
    sure = RobustMF(
        3,
        loss="lsp",
        theta=1.0,
        solver="irls",
        random_state=0,
        certify=MM(max_iter=2000),
        max_iter=3000,
    ).fit(data.train)
    operations = CPUOperations(data.train, team)
    objective = Objective(make_loss("lsp", 1.0), sure.reg_)
    before = criticality(
        operations,
        objective,
        *(p := (fast.row_factors_, fast.column_factors_)),
        operations.residuals(*p),
    )
    assert np.isnan(fast.criticality_)
    assert sure.criticality_ < 0.01 * before
    assert "by mm after" in sure.stop_reason_
    with pytest.raises(ValueError, match=r"^certify=True needs .* loss=.welsch. is not"):
        RobustMF(3, certify=True).fit(data.train)


@pytest.mark.parametrize(("loss", "share"), [("welsch", 0.05), ("welsch", 0.25), ("lsp", 0.05)])
def test_results_do_not_depend_on_the_number_of_threads(monkeypatch, loss, share):
    monkeypatch.setattr(team_module, "OPTIONS", team_module.TeamOptions(small_work=0))
    options = replace(loss_sums_module.OPTIONS, slice_length=300)
    monkeypatch.setattr(loss_sums_module, "OPTIONS", options)
    data = make_synthetic(150, outliers=share, random_state=1)
    fits = [
        RobustMF(4, loss=loss, random_state=0, n_jobs=n_jobs).fit(data.train)
        for n_jobs in (1, 2, 4)
    ]
    for other in fits[1:]:
        assert np.array_equal(fits[0].row_factors_, other.row_factors_)
        assert fits[0].history_["objective"] == other.history_["objective"]


def test_a_nonsmooth_loss_ends_where_mm_does_in_far_fewer_passes():
    data = make_synthetic(300, random_state=3).train
    least_squares = RobustMF(5, loss="l2", solver="irls", init="ridge", random_state=0).fit(data)
    init = (least_squares.row_factors_, least_squares.column_factors_)
    mm, irls = (
        RobustMF(5, loss="lsp", theta=1.0, solver=solver, init=init).fit(data)
        for solver in ("mm", "irls")
    )
    assert irls.history_["objective"][-1] < 1.001 * mm.history_["objective"][-1]
    assert irls.n_iter_ < 0.1 * sum(mm.history_["inner_iterations"])


def test_fold_in_uses_regularization_by_count():
    observed, *_ = random_problem()
    model = RobustMF(
        3,
        loss="l2",
        reg=0.1,
        reg_by_count=True,
        solver="irls",
        tol=1e-12,
        max_iter=5000,
        random_state=0,
    ).fit(observed)
    np.testing.assert_allclose(model.transform(observed), model.row_factors_, atol=1e-3)


def test_a_callback_stops_all_initializations():
    observed, *_ = random_problem()
    seen = []
    RobustMF(
        3,
        n_init=5,
        random_state=0,
        solver="irls",
        callbacks=[lambda s: seen.append(s.iteration) or True],
    ).fit(observed)
    assert seen == [0]


def test_entries_of_weight_zero_have_no_influence():
    data = make_synthetic(120, rank=3, observed=0.6, random_state=5)
    keep = np.arange(data.train.n_entries) % 5 > 0
    wild = data.train.with_values(np.where(keep, data.train.rows.values, 1e6))
    weighted = RobustMF(3, random_state=0, solver="irls").fit(wild, weights=keep.astype(float))
    dropped = RobustMF(3, random_state=0, solver="irls").fit(data.train.select(keep))
    assert weighted.theta_ == dropped.theta_
    np.testing.assert_allclose(weighted.row_factors_, dropped.row_factors_, atol=1e-9)


def test_entry_weights_separate_outliers_from_clean_entries():
    data = make_synthetic(250, random_state=6)
    for loss in ("welsch", "lsp"):
        weights = RobustMF(5, loss=loss, random_state=0).fit(data.train).entry_weights(data.train)
        assert weights.max() <= 1
        assert weights[data.train_outliers].max() < weights[~data.train_outliers].min() + 0.6
        assert np.median(weights[data.train_outliers]) < 0.3 * np.median(
            weights[~data.train_outliers]
        )


def test_a_certifying_fit_that_does_not_converge_reports_its_tolerance():
    data = make_synthetic(60, rank=2, observed=0.5, random_state=0)
    with pytest.warns(NotConvergedWarning, match="converged to tol=1e-07"):
        RobustMF(2, loss="lsp", certify=True, max_iter=3, random_state=0).fit(data.train)


def test_steps_towards_newtons_save_sweeps_and_never_raise_the_objective(monkeypatch, team):
    operations = CPUOperations(make_synthetic(300, random_state=110).train, team)
    initial = Problem(operations, 5, 0.03).ridge_factors(np.random.default_rng(1), 15)

    def objectives(curvature):
        monkeypatch.setattr(irls_module, "OPTIONS", IRLSOptions(curvature=curvature))
        solver = IRLS.on_entries(operations, Objective(make_loss("lsp", 1.0), 0.03), 1.0)
        return np.array([solver.begin(*initial), *(solver.step() for _ in range(40))])

    ours = objectives(IRLSOptions().curvature)
    plain = objectives(np.inf)
    # far too long steps: such sweeps are repeated without them
    hasty = objectives(1e-4)
    assert all(np.all(np.diff(values) <= 1e-12 * values[0]) for values in (ours, plain, hasty))
    reached = [int(np.argmax(values < 1.003 * plain.min())) for values in (ours, plain)]
    assert 0 < reached[0] < 0.9 * reached[1]


@pytest.mark.parametrize("model", [{"reg_by_count": True}, {"bias": True}], ids=["count", "bias"])
def test_the_initialization_with_the_lowest_objective_is_kept(model):
    """The objective of the fits, with λ by count and the ridge on biases."""
    observed, *_ = random_problem(25, 20, 3, seed=4)
    ends = []

    def record(snapshot):
        if snapshot.iteration == 0:
            ends.append(None)
        ends[-1] = snapshot.objective

    for seed in range(4):
        ends.clear()
        fit = RobustMF(
            3,
            loss="huber",
            theta=0.3,
            reg=0.1,
            init="random",
            n_init=6,
            max_iter=12,
            tol=1e-12,
            solver="irls",
            random_state=seed,
            callbacks=[record],
            **model,
        )
        with pytest.warns(NotConvergedWarning):
            fit.fit(observed)
        assert len(ends) == 6
        assert fit.history_["objective"][-1] == min(ends)


def test_the_value_after_a_step_is_the_objective_with_the_reduced_width(team):
    observed, U, V = random_problem()
    solver = IRLS.on_entries(CPUOperations(observed, team), Objective(make_loss("lsp"), 0.3), 0.5)
    solver.begin(U, V)
    widths = [solver._smoothing.width]
    for _ in range(60):
        value = solver.step()
        widths.append(solver._smoothing.width)
        assert value == pytest.approx(solver._measured_value(), rel=1e-12)
    assert len(set(widths)) > 3
