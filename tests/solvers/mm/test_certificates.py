"""Certificates hold: bounds of inner solvers, and the smallest subgradient by brute force."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

from conftest import random_problem
from robustmf import Observed
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.losses import make_loss
from robustmf.solvers.mm import LADMPSAP, MM, SparseAPG
from robustmf.solvers.mm.criticality import criticality
from robustmf.solvers.mm.surrogate import Surrogate
from robustmf.solvers.objective import Objective


@pytest.fixture
def surrogate(team):
    observed, U, V = random_problem(20, 15, 2, share=0.6)
    operations = CPUOperations(observed, team)
    objective = Objective(make_loss("lsp"), 0.3)
    return Surrogate(operations, objective, U, V, operations.residuals(U, V))


@pytest.mark.parametrize("max_iter", [5, 50, 500])
def test_the_gap_of_ladmpsap_bounds_the_distance_to_the_minimum(surrogate, max_iter):
    best = SparseAPG().solve(surrogate, MM(gap=1e-10, max_iter=20_000))
    lower = best.value - best.gap
    found = LADMPSAP(penalty=0.5).solve(surrogate, MM(inner="ladmpsap", max_iter=max_iter))
    assert found.value - found.gap <= best.value + 1e-9
    assert found.gap >= found.value - best.value - 1e-9
    assert found.value >= lower - 1e-9
    assert (np.abs(found.dual_point) <= surrogate.weights).all()


def test_the_multiplier_of_ladmpsap_is_a_subgradient_at_convergence(surrogate):
    found = LADMPSAP(penalty=0.5, settled=1e-9, feasible=1e-9).solve(
        surrogate, MM(inner="ladmpsap", max_iter=20_000)
    )
    U, V = surrogate.factors
    rows = surrogate.operations.observed.rows
    i = rows.group_of_entry()
    j = rows.indices
    rho = surrogate.residual - ((found.dU @ V.T) + (U @ found.dV.T))[i, j]
    far = np.abs(rho) > 0.05
    expected = (surrogate.weights * np.sign(rho))[far]
    assert far.sum() > 50
    np.testing.assert_allclose(found.dual_point[far], expected, atol=1e-3)
    assert found.gap < 1e-3 * (surrogate.at_zero - found.value)


def test_a_row_without_entries_and_ridge_keeps_its_factors(team):
    X = np.random.default_rng(0).standard_normal((6, 5))
    X[2] = np.nan
    operations = CPUOperations(Observed.from_dense(X), team)
    U = np.ones((6, 2))
    V = np.ones((5, 2))
    objective = Objective(make_loss("l1"), 0.0)
    surrogate = Surrogate(operations, objective, U, V, operations.residuals(U, V))
    found = SparseAPG().solve(surrogate, MM())
    assert np.isfinite(found.dU).all()
    assert (found.dU[2] == 0).all()


# --- Criticality ---


def point_with_zero_residuals(seed, zeros, size, m=12, n=10, rank=3):
    """Factors, values, and which residuals are zero up to ``size``; the others are about 0.1."""
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((m, rank))
    V = rng.standard_normal((n, rank))
    residual = 0.1 * rng.uniform(0.5, 1.5, m * n) * rng.choice([-1, 1], m * n)
    free = np.zeros(m * n, bool)
    free[rng.choice(m * n, zeros, replace=False)] = True
    residual[free] = size * rng.choice([-1, 1], zeros)
    return U, V, (U @ V.T).ravel() + residual, residual, free


def by_brute_force(U, V, reg, slopes, residual, free):
    """The norm of the smallest subgradient, by bounded least squares over the free entries."""
    m = len(U)
    n = len(V)

    def gradient(x):
        X = x.reshape(m, n)
        return np.concatenate([(reg * U - X @ V).ravel(), (reg * V - X.T @ U).ravel()])

    held = np.where(free, 0.0, slopes * np.sign(residual))
    offset = gradient(held)
    columns = []
    for k in np.flatnonzero(free):
        unit = np.zeros(m * n)
        unit[k] = 1
        columns.append(gradient(unit) - gradient(np.zeros(m * n)))
    A = np.array(columns).T
    bounds = (-slopes[free], slopes[free])
    solution = scipy.optimize.lsq_linear(A, -offset, bounds, tol=1e-14).x
    return np.linalg.norm(A @ solution + offset)


@pytest.mark.parametrize("name", ["l1", "lsp", "geman"])
@pytest.mark.parametrize("zeros", [10, 50, 70])
def test_criticality_is_the_norm_of_the_smallest_subgradient(team, name, zeros):
    """With up to as many zero residuals as the model has free parameters, 57, and more."""
    U, V, values, residual, free = point_with_zero_residuals(0, zeros, 1e-7)
    loss = make_loss(name)
    operations = CPUOperations(Observed.from_dense(values.reshape(12, 10)), team)
    e = operations.residuals(U, V)
    expected = by_brute_force(U, V, 0.3, loss.derivative(e), residual, free)
    objective = Objective(loss, 0.3)
    assert criticality(operations, objective, U, V, e) == pytest.approx(expected, rel=1e-3)


def test_a_dual_point_is_used_and_kept_within_its_bounds(team):
    U, V, values, residual, free = point_with_zero_residuals(1, 40, 1e-7)
    loss = make_loss("lsp")
    operations = CPUOperations(Observed.from_dense(values.reshape(12, 10)), team)
    objective = Objective(loss, 0.3)
    e = operations.residuals(U, V)
    slopes = loss.derivative(e)
    dual_point = np.random.default_rng(2).uniform(-3, 3, len(e))
    x = np.where(free, np.clip(dual_point, -slopes, slopes), slopes * np.sign(residual))
    X = x.reshape(12, 10)
    expected = np.sqrt(((0.3 * U - X @ V) ** 2).sum() + ((0.3 * V - X.T @ U) ** 2).sum())
    found = criticality(operations, objective, U, V, e, dual_point, polish=False)
    assert found == pytest.approx(expected, rel=1e-9)


def test_an_exact_fit_is_critical_where_nothing_pulls(team):
    """All residuals are zero up to the accuracy of the factors: any subgradient may be chosen."""
    U, V, values, *_ = point_with_zero_residuals(0, 120, 1e-9)
    operations = CPUOperations(Observed.from_dense(values.reshape(12, 10)), team)
    e = operations.residuals(U, V)
    assert (np.abs(e) > 1e-10).all()
    small = criticality(operations, Objective(make_loss("l1"), 1e-3), U, V, e)
    X = np.sign(e).reshape(12, 10)
    assert small < 1e-3 * np.sqrt(((X @ V) ** 2).sum() + ((X.T @ U) ** 2).sum())


def test_small_residuals_of_a_smooth_loss_are_not_free(team):
    U, V, values, *_ = point_with_zero_residuals(0, 40, 1e-6)
    operations = CPUOperations(Observed.from_dense(values.reshape(12, 10)), team)
    e = operations.residuals(U, V)
    loss = make_loss("huber")
    X = (loss.derivative(e) * np.sign(e)).reshape(12, 10)
    expected = np.sqrt(((0.3 * U - X @ V) ** 2).sum() + ((0.3 * V - X.T @ U) ** 2).sum())
    found = criticality(operations, Objective(loss, 0.3), U, V, e)
    assert found == pytest.approx(expected, rel=1e-12)
