"""The paper's algorithm: descent, criticality, accuracy on the paper's problem."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import oracles
from conftest import Root, random_problem
from robustmf import MM, RMFNL, Observed, RobustMF
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.datasets import make_synthetic
from robustmf.exceptions import NumericalError
from robustmf.losses import Loss, loss_names, make_loss
from robustmf.solvers.mm.criticality import criticality
from robustmf.solvers.mm.inner import Increment
from robustmf.solvers.mm.solver import MMSolver
from robustmf.solvers.mm.surrogate import Surrogate
from robustmf.solvers.objective import Objective

CONCAVE = [name for name in loss_names() if make_loss(name).concave]


@pytest.mark.parametrize("inner", ["apg", "apg-dense", "ladmpsap"])
@pytest.mark.parametrize("name", CONCAVE)
def test_objective_never_rises(name, inner, dtype):
    observed, U, V = random_problem(50, 40, 3, dtype=dtype)
    model = RobustMF(3, loss=name, solver=MM(inner=inner), init=(U, V), tol=1e-3, max_iter=200).fit(
        observed
    )
    objective = np.array(model.history_["objective"])
    assert np.all(np.diff(objective) <= 0)
    assert objective[-1] < 0.8 * objective[0]
    assert model.row_factors_.dtype == dtype
    final = oracles.objective(
        observed, model.loss_, model.reg_, model.row_factors_, model.column_factors_
    )
    assert objective[-1] == pytest.approx(final, rel=1e-12 if dtype == np.float64 else 1e-5)


@pytest.mark.parametrize("name", CONCAVE)
def test_criticality_falls_to_a_thousandth(name):
    data = make_synthetic(60, 50, rank=3, observed=0.8, random_state=0)
    initial = RobustMF(3, loss=name, solver="mm", max_iter=0, random_state=7)
    with pytest.warns(UserWarning, match="max_iter=0"):
        initial.fit(data.train)
    model = RobustMF(
        3,
        loss=name,
        solver=MM(gap=0.1, max_iter=2000),
        tol=1e-7,
        max_iter=3000,
        random_state=7,
    ).fit(data.train)
    assert model.converged_
    assert model.criticality_ <= 1e-3 * initial.criticality_
    zeros = np.abs(oracles.residuals(data.train, model.row_factors_, model.column_factors_)) < 1e-4
    assert zeros.sum() >= 0.9 * (110 * 3 - 9), (
        "as many residuals are zero as the model has free parameters"
    )


def test_criticality_is_the_gradient_norm_away_from_zero_residuals_and_smallest_at_them(team):
    observed, U, V = random_problem()
    operations = CPUOperations(observed, team)
    objective = Objective(make_loss("lsp"), 0.2)
    e = operations.residuals(U, V)
    X = oracles.dense(observed, objective.loss.derivative(e) * np.sign(e))
    plain = np.sqrt(((0.2 * U - X @ V) ** 2).sum() + ((0.2 * V - X.T @ U) ** 2).sum())
    assert criticality(operations, objective, U, V, e) == pytest.approx(plain, rel=1e-10)
    # make a third of the residuals exactly zero: any x in the box is allowed there
    at_zero = np.arange(observed.n_entries) % 3 == 0
    values = observed.rows.values.copy()
    values[at_zero] -= e[at_zero]
    moved = CPUOperations(observed.with_values(values), team)
    e = moved.residuals(U, V)
    smallest = criticality(moved, objective, U, V, e)
    rng = np.random.default_rng(0)
    slopes = objective.loss.derivative(e)
    for _ in range(50):
        x = np.where(at_zero, rng.uniform(-1, 1, len(e)), np.sign(e)) * slopes
        X = oracles.dense(observed, x)
        assert smallest < np.sqrt(((0.2 * U - X @ V) ** 2).sum() + ((0.2 * V - X.T @ U) ** 2).sum())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("offset", "scale"), [(0.0, 1.0), (1e6, 1.0), (-1e7, 1.0), (0.0, 1e6)])
def test_criticality_does_not_depend_on_offset_and_scale_of_the_values(team, offset, scale, dtype):
    """Residuals that are not zero are not free, however small they are relative to the values."""
    rng = np.random.default_rng(0)
    U = np.column_stack([rng.standard_normal((30, 2)), np.ones(30)])
    V = np.column_stack([scale * rng.standard_normal((20, 2)), np.full(20, offset)])
    U = U.astype(dtype)
    V = V.astype(dtype)
    noise = (0.1 if dtype == np.float64 else 100.0) * rng.uniform(0.5, 1.5, (30, 20))
    exact = rng.random((30, 20)) < 0.2
    X = (U.astype(float) @ V.T.astype(float) + np.where(exact, 0, noise)).astype(dtype)
    operations = CPUOperations(Observed.from_dense(X), team)
    objective = Objective(make_loss("l1"), 0.2)
    e = operations.residuals(U, V)
    found = criticality(operations, objective, U, V, e, polish=False)
    x = np.where(exact.ravel(), 0, np.sign(e)).reshape(30, 20)
    gradients = (0.2 * U - x @ V, 0.2 * V - x.T @ U)
    expected = np.sqrt(sum((part.astype(float) ** 2).sum() for part in gradients))
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("m", "bound"),
    [
        (250, 0.112),
        pytest.param(500, 0.100, marks=pytest.mark.slow),
        pytest.param(1000, 0.093, marks=pytest.mark.slow),
    ],
)
def test_accuracy_on_the_papers_problem(m, bound):
    """Mean RMSE of each nonconvex loss over five seeds with the paper's θ and λ; l1 is worse."""
    mean = {}
    for name in ("l1", "lsp", "geman", "laplace"):
        found = []
        for seed in range(5):
            data = make_synthetic(m, random_state=seed)
            model = RMFNL(5, loss=name, random_state=100 + seed).fit(data.train)
            found.append(data.test_rmse(model.row_factors_, model.column_factors_))
        mean[name] = np.mean(found)
    assert max(mean["lsp"], mean["geman"], mean["laplace"]) <= bound, mean
    assert mean["l1"] > max(mean["lsp"], mean["laplace"]), mean


def test_the_papers_gaussian_initialization_is_independent_of_the_data_and_fails():
    """Data and initial factors are drawn from separate streams: from one, both would be equal."""
    data = make_synthetic(250, random_state=3)
    initial = RMFNL(5, init="random", random_state=3, max_iter=0)
    with pytest.warns(UserWarning, match="max_iter=0"):
        initial.fit(data.train)
    assert data.test_rmse(initial.row_factors_, initial.column_factors_) == pytest.approx(
        3.2, abs=0.25
    )
    stuck = RMFNL(5, init="random", random_state=3).fit(data.train)
    assert data.test_rmse(stuck.row_factors_, stuck.column_factors_) > 2


def test_a_user_defined_loss():
    data = make_synthetic(250, random_state=0)
    model = RobustMF(5, loss=Root(), solver="mm", random_state=1).fit(data.train)
    assert data.test_rmse(model.row_factors_, model.column_factors_) < 0.13


def test_a_loss_that_wrongly_claims_to_be_concave_is_detected():
    @dataclass(frozen=True)
    class Cube(Loss):
        name = "cube"
        concave = True

        def _value(self, a):
            return a**3

        def _derivative(self, a):
            return 3 * a**2

    observed, U, V = random_problem()
    with pytest.raises(NumericalError, match="may not be concave"):
        RobustMF(3, loss=Cube(), solver="mm", init=(U / 3, V / 3), tol=1e-12).fit(observed)


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch):
    from robustmf.kernels import team as team_module  # noqa: PLC0415

    monkeypatch.setattr(team_module, "OPTIONS", team_module.TeamOptions(small_work=0))
    data = make_synthetic(120, random_state=0)
    fits = [RMFNL(4, random_state=0, n_jobs=n_jobs).fit(data.train) for n_jobs in (1, 2, 4)]
    for other in fits[1:]:
        assert np.array_equal(fits[0].row_factors_, other.row_factors_)
        assert fits[0].history_["objective"] == other.history_["objective"]


def test_a_gap_that_allows_the_value_at_zero_is_possible(team):
    observed, U, V = random_problem()
    solver = MMSolver(CPUOperations(observed, team), Objective(make_loss("lsp"), 0.1), MM())
    at_zero = solver.begin(U, V)
    solver._require_possible(at_zero, Increment(U, V, None, at_zero + 1, 2.0, 1))
    with pytest.raises(NumericalError, match="impossible"):
        solver._require_possible(at_zero, Increment(U, V, None, at_zero + 1, 0.5, 1))


def test_an_impossible_duality_gap_raises(monkeypatch):
    """A lower bound above the surrogate's value without increments: a sum is wrong."""
    observed, U, V = random_problem()
    value = Surrogate.value

    def too_large(self, dU, dV, x):
        found, _ = value(self, dU, dV, x)
        return found + self.at_zero, 0.0

    monkeypatch.setattr(Surrogate, "value", too_large)
    with pytest.raises(NumericalError, match="duality gap of an inner solve is impossible"):
        RobustMF(3, loss="lsp", solver="mm", init=(U, V)).fit(observed)
