"""Solvers verify what they guarantee: a fault in arithmetic raises instead of ending a fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from conftest import random_problem
from robustmf import RobustMF
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.backends.sweeps import LocalSweeps
from robustmf.exceptions import NumericalError
from robustmf.losses import Loss, make_loss
from robustmf.solvers.base import run
from robustmf.solvers.irls import IRLS
from robustmf.solvers.mm.acceleration import WarmStartedAPG
from robustmf.solvers.mm.surrogate import Surrogate
from robustmf.solvers.objective import Objective


def fit_irls(loss, U, V, observed, **settings):
    return RobustMF(
        3, loss=loss, theta=None, reg=0.1, solver="irls", init=(U, V), n_jobs=1, **settings
    ).fit(observed)


@pytest.mark.parametrize("loss", ["welsch", "l1", "l2"])
def test_an_objective_that_rises_by_more_than_rounding_raises(monkeypatch, loss):
    """One wrong sum: half of it, as a race in a threaded reduction returned."""
    observed, U, V = random_problem()
    measure = LocalSweeps.measure
    calls = []

    def wrong_once(sweeps, point, losses, *, single):
        calls.append(len(calls))
        found = measure(sweeps, point, losses, single=single)
        if len(calls) == 4:
            return replace(found, loss_sums=[0.5 * value for value in found.loss_sums])
        return found

    fit_irls(loss, U, V, observed)  # the same fit without a fault
    monkeypatch.setattr(LocalSweeps, "measure", wrong_once)
    with pytest.raises(NumericalError, match="a sweep raised the objective"):
        fit_irls(loss, U, V, observed)
    assert len(calls) < 12


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("loss", ["welsch", "l2", "l1", "geman"])
def test_rounding_is_no_fault(loss, dtype):
    """Data far from zero, and an exact fit, iterated long after convergence."""
    rng = np.random.default_rng(0)
    U = rng.standard_normal((30, 3))
    V = rng.standard_normal((25, 3))
    for X in (U @ V.T, U @ V.T + 1e5, 1e6 * U @ V.T):
        init = (U.astype(dtype), V.astype(dtype))
        model = fit_irls(loss, *init, X.astype(dtype), tol=1e-300, max_iter=150)
        assert np.isfinite(model.history_["objective"]).all()


def test_a_derivative_that_is_not_finite_raises(team):
    @dataclass(frozen=True)
    class Wrong(Loss):
        name = "wrong"
        concave = True

        def value(self, residual):
            return np.abs(residual)

        def derivative(self, residual):
            return np.where(np.abs(residual) > 4, np.nan, 1.0)

    observed, U, V = random_problem()
    operations = CPUOperations(observed, team)
    residual = operations.residuals(U, V)
    Surrogate(operations, Objective(make_loss("l1"), 0.1), U, V, residual)
    with pytest.raises(NumericalError, match="derivative of the loss is not finite"):
        Surrogate(operations, Objective(Wrong(), 0.1), U, V, residual)


def test_factors_of_another_matrix_raise(team):
    observed, U, V = random_problem()
    sweeps = LocalSweeps(CPUOperations(observed, team), 0.1)
    point = sweeps.place(U, V)
    for wrong in ((V, U), (U[:-1], V), (U, V[:, :2]), (U[:, :2], V)):
        with pytest.raises(NumericalError, match="do not belong to a matrix"):
            sweeps.place(*wrong)
    loss = make_loss("welsch")
    narrow = (U.astype(np.float32), V)
    with pytest.raises(NumericalError, match="do not belong to a matrix"):
        sweeps.sweep(point, narrow, 0.0, loss, [loss], curvature=np.inf, single=False)


@pytest.mark.parametrize("side", ["dU", "dV"])
def test_increments_of_another_shape_raise(monkeypatch, side):
    """NumPy would add an increment of one row to all rows."""
    observed, U, V = random_problem()
    solve = WarmStartedAPG.solve

    def one_row(inner, surrogate, options):
        found = solve(inner, surrogate, options)
        return replace(found, **{side: getattr(found, side)[:1]})

    monkeypatch.setattr(WarmStartedAPG, "solve", one_row)
    model = RobustMF(3, loss="lsp", theta=1.0, reg=0.1, solver="mm", init=(U, V))
    with pytest.raises(NumericalError, match="do not belong to factors of shapes"):
        model.fit(observed)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_objective_that_is_not_finite_raises(value):
    class Diverging:
        factors = (np.zeros((3, 1)), np.zeros((2, 1)))

        def begin(self, U, V):
            return 1.0

        def step(self):
            return value

        def convergence_reason(self, before, objective, tol):
            return "converged"

        def report(self):
            return {}

    with pytest.raises(NumericalError, match=f"the objective became {value}"):
        run(Diverging(), *Diverging.factors, 10, 1e-3)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("digits", [0, None])
def test_an_exact_fit_with_biases_is_no_fault(seed, digits):
    """The normal equations of two factors are nearly singular where biases are enough."""
    rng = np.random.default_rng(seed)
    rows = 3 + rng.normal(size=(60, 1))
    columns = rng.normal(size=20)
    if digits is not None:
        rows = rows.round(digits)
        columns = columns.round(digits)
    X = np.where(rng.random((60, 20)) < 0.5, rows + columns, np.nan)
    model = RobustMF(2, bias=True, random_state=0).fit(X)
    assert np.abs(model.predict(X) - (rows + columns)).max() < 1e-5


@pytest.mark.parametrize("value", [1e-12, 1.0, 1e6])
def test_the_bound_on_rounding_follows_the_size_of_the_values(team, value):
    """An error δ of the values changes the objective H by at most about δ·√(2 w H Σ x²)."""
    observed, U, V = random_problem()
    loss = make_loss("l2")
    solver = IRLS.on_entries(CPUOperations(observed, team), Objective(loss, 0.1), 0.1)
    solver.begin(U, V)
    solver._value = value
    energy = float((observed.rows.values**2).sum())
    eps = np.finfo(np.float64).eps
    bound = 1e4 * eps * (value + np.sqrt(2 * value * energy)) + eps * energy
    solver._require_rounding(0.9 * bound)
    with pytest.raises(NumericalError, match="a sweep raised the objective"):
        solver._require_rounding(1.1 * bound)
