"""The non-negative half-step: guards, options and threads; its results are in the conformance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import oracles
from conftest import random_problem
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.data.observed import Observed
from robustmf.kernels import team as team_module
from robustmf.kernels.team import Team
from robustmf.losses import L2, Loss, make_loss, smoothed


@pytest.fixture
def entries(dtype):
    observed, U, V = random_problem(37, 25, 5, dtype=dtype)
    return observed, np.abs(U), V


def test_an_element_without_curvature_becomes_zero(entries, team):
    observed, U, V = entries
    V[:, 2] = 0
    weights = np.ones(observed.n_entries, observed.dtype)
    weights[observed.rows.group_of_entry() == 4] = 0
    CPUOperations(observed, team).half_step(L2(), 0.0, U, V, weights, nonnegative=True)
    assert np.all(U[:, 2] == 0)
    assert np.all(U[4] == 0)
    assert np.all(np.isfinite(U))


def test_the_step_stays_within_bounds_and_lowers_each_row(team, dtype):
    """Regressors are strongly correlated: complete Newton steps would often leave the bounds."""
    rng = np.random.default_rng(0)
    V = (2 + rng.random((40, 10))).astype(dtype)
    X = rng.random((300, 40)).astype(dtype)
    U = (rng.random((300, 10)) / 20).astype(dtype)
    operations = CPUOperations(Observed.from_dense(X), team)

    def values():
        residual = X - U.astype(float) @ V.T.astype(float)
        return (residual**2).sum(axis=1) + 1e-3 * (U.astype(float) ** 2).sum(axis=1)

    before = first = values()
    for _ in range(4):
        operations.half_step(L2(), 1e-3, U, V, nonnegative=True)
        after = values()
        assert np.all(after <= before + (1e-10 if dtype == np.float64 else 1e-3) * first)
        assert U.min() >= 0
        before = after
    assert (U == 0).mean() > 0.3


def test_a_row_whose_solution_is_not_finite_keeps_its_values(team):
    """The sums of one row overflow."""
    rng = np.random.default_rng(0)
    X = rng.random((9, 6)).astype(np.float32)
    X[3] = 3e38
    U, V = (rng.random((k, 2)).astype(np.float32) + 1 for k in X.shape)
    before = U.copy()
    CPUOperations(Observed.from_dense(X), team).half_step(L2(), 0.1, U, V, nonnegative=True)
    np.testing.assert_array_equal(U[3], before[3])
    others = np.arange(9) != 3
    assert np.all(np.isfinite(U[others]))
    assert not np.any(U[others] == before[others])


@dataclass(frozen=True)
class WithoutFormula(Loss):
    """A loss whose weight cannot be compiled."""

    name = "without-formula"

    def _value(self, a):
        return np.sqrt(1 + a * a) - 1

    def _derivative(self, a):
        return a / np.sqrt(1 + a * a)


def test_the_weights_of_a_loss_without_formula(entries, team):
    observed, U, V = entries
    loss = WithoutFormula()
    weights = loss.weight(oracles.residuals(observed, U, V))
    wanted = U.copy()
    operations = CPUOperations(observed, team)
    operations.half_step(L2(), 0.2, wanted, V, weights.astype(U.dtype), nonnegative=True)
    operations.half_step(loss, 0.2, U, V, nonnegative=True)
    np.testing.assert_allclose(U, wanted, rtol=1e-4 if U.dtype == np.float32 else 1e-12)
    assert np.any(U == 0)


def test_float32_sweeps_of_float64_entries(team):
    observed, U, V = random_problem(37, 25, 5)
    U = np.abs(U)
    single = U.copy()
    operations = CPUOperations(observed, team)
    loss = make_loss("welsch", 1.0)
    operations.half_step(loss, 0.2, U, V, nonnegative=True)
    operations.half_step(loss, 0.2, single, V, single=True, nonnegative=True)
    assert not np.array_equal(single, U)
    np.testing.assert_allclose(single, U, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("curvature", [np.inf, 0.45])
def test_bits_do_not_depend_on_threads_or_on_the_other_rows(entries, curvature, monkeypatch):
    monkeypatch.setattr(team_module, "OPTIONS", team_module.TeamOptions(small_work=1))
    observed, U, V = entries
    loss = smoothed(make_loss("l1"), 0.1)
    found = []
    for n_jobs in (1, 3):
        with Team(n_jobs) as several:
            got = U.copy()
            operations = CPUOperations(observed, several)
            operations.half_step(loss, 0.2, got, V, curvature=curvature, nonnegative=True)
            found.append(got)
    np.testing.assert_array_equal(*found)
    alone = U[20:].copy()
    with Team(1) as one:
        later = CPUOperations(observed.later_rows(20), one)
        later.half_step(loss, 0.2, alone, V, curvature=curvature, nonnegative=True)
    np.testing.assert_array_equal(alone, found[0][20:])
