"""Guards of the kernels: weights that are not finite, singular systems, float64 sums, blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from robustmf import Observed
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.kernels.reductions import inner_product, squared_norm
from robustmf.losses import Loss, make_loss
from robustmf.solvers.objective import Objective


@dataclass(frozen=True)
class NotFinite(Loss):
    """Weight 1, but NaN for residuals above θ, and infinite below a hundredth of it."""

    name = "not finite"

    def _value(self, a):
        return 0.5 * a * a

    def _derivative(self, a):
        return a

    @staticmethod
    def weight_formula(a, theta):
        """NaN, 1 or infinity."""
        return np.where(a > theta, np.nan, np.where(a < 0.01 * theta, np.inf, 1.0))


@pytest.fixture
def half_step(team):
    """The rows after a half-step from U."""

    def step(loss, reg, U, V, X):
        operations = CPUOperations(Observed.from_dense(X), team)
        found = U.copy()
        ridge = np.full(len(U), reg)
        operations.half_step(loss, ridge, found, V, None, None, curvature=np.inf, single=False)
        return found

    return step


def test_a_weight_that_is_not_a_number_counts_as_zero(half_step):
    rng = np.random.default_rng(0)
    U = rng.standard_normal((20, 3))
    V = rng.standard_normal((15, 3))
    X = U @ V.T + rng.choice([-1.0, 1.0], (20, 15))
    bad = rng.random(X.shape) < 0.2
    found = half_step(NotFinite(5.0), 0.1, U, V, X + 100 * bad)
    expected = half_step(make_loss("l2"), 0.1, U, V, np.where(bad, np.nan, X))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_an_infinite_weight_gives_a_finite_solution(half_step):
    rng = np.random.default_rng(0)
    U = rng.standard_normal((20, 3))
    V = rng.standard_normal((15, 3))
    X = U @ V.T + rng.choice([-1.0, 1.0], (20, 15))
    exact = (np.arange(20), np.arange(20) % 15)
    X[exact] = (U @ V.T)[exact]
    found = half_step(NotFinite(5.0), 0.1, U, V, X)
    assert np.isfinite(found).all()
    # an entry with an infinite weight is fitted exactly, whatever the others are
    np.testing.assert_allclose((found @ V.T)[exact], X[exact], atol=1e-6)
    assert not np.array_equal(found, U)


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e-6])
def test_an_unknown_that_is_not_determined_is_zero(half_step, scale):
    """Without a ridge, of two proportional factors one is enough."""
    rng = np.random.default_rng(0)
    one = scale * rng.standard_normal((15, 1))
    V = np.hstack([one, one / 3, scale * rng.standard_normal((15, 1))])
    U = rng.standard_normal((40, 3))
    X = U @ V.T + 0.1 * scale * rng.standard_normal((40, 15))
    found = half_step(make_loss("l2"), 0.0, U, V, X)
    assert (found[:, 1] == 0).all()
    expected = np.linalg.lstsq(V[:, [0, 2]], X.T, rcond=None)[0].T
    np.testing.assert_allclose(found[:, [0, 2]], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [511, 512, 513, 1024, 1025])
def test_the_last_entries_of_a_batch_are_summed(team, n):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1, n))
    U = rng.standard_normal((1, 2))
    V = rng.standard_normal((n, 2))
    weights = rng.uniform(0.5, 2, n)
    operations = CPUOperations(Observed.from_dense(X), team)
    loss = make_loss("huber")
    values = loss.value((X - U @ V.T).ravel())
    assert operations.loss_sum(loss, U, V) == pytest.approx(values.sum(), rel=1e-12)
    found = operations.loss_sum(loss, U, V, weights)
    assert found == pytest.approx((weights * values).sum(), rel=1e-12)


def test_sums_over_columns_add_all_blocks_of_rows(team):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40_000, 3))
    U = rng.standard_normal((40_000, 2))
    V = rng.standard_normal((3, 2))
    operations = CPUOperations(Observed.from_dense(X), team)
    assert len(operations.part_bounds(2)) > 2, "there are several blocks"
    by_row, by_column = operations.products(X.ravel(), U, V)
    np.testing.assert_allclose(by_row, X @ V, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(by_column, X.T @ U, rtol=1e-8)
    rows, columns = operations.sums(X.ravel())
    np.testing.assert_allclose(rows, X.sum(axis=1), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(columns, X.sum(axis=0), rtol=1e-8)


def test_sums_of_float32_entries_are_float64(team):
    """Beside 1e8 the ones would be lost in float32."""
    x = np.ones((2, 1001), np.float32)
    x[:, 0] = 1e8
    operations = CPUOperations(Observed.from_dense(x), team)
    rows, columns = operations.sums(x.ravel())
    assert rows.tolist() == [100_001_000.0] * 2
    assert columns[0] == 2e8
    assert columns[1:].tolist() == [2.0] * 1000


def test_norms_and_products_of_float32_are_float64():
    large = np.full((3, 2), 1e25, np.float32)
    assert squared_norm(large) == pytest.approx(6e50, rel=1e-6)
    assert inner_product(large[:, 0], large[:, 1]) == pytest.approx(3e50, rel=1e-6)
    objective = Objective(make_loss("l2"), 2.0)
    assert objective.data_term(large[:, 0]) == pytest.approx(1.5e50, rel=1e-6)
    assert objective.penalty(large, large) == pytest.approx(1.2e51, rel=1e-6)
