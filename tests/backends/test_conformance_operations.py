"""Conformance of the operations on entries: each of the contract against a naive oracle.

They are tested on the CPU and with CUDA (on a GPU or in Triton's interpreter).
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import oracles
from conftest import Root, close, members, random_problem
from robustmf.backends.base import DualPass, EntryOperations
from robustmf.data.observed import Observed
from robustmf.kernels.loss_sums import BATCH
from robustmf.losses import L2, LSP, Smoothed, Welsch, loss_names, make_loss


@pytest.mark.parametrize("protocol", [EntryOperations, DualPass])
def test_operations_have_the_signatures_of_the_contract(protocol, operations_on):
    observed, U, _ = random_problem()
    operations = operations_on(observed)
    subject = operations if protocol is EntryOperations else operations.dual_pass(U.shape[1])
    for name, parameters in members(protocol).items():
        member = inspect.getattr_static(type(subject), name, None)
        if parameters is None:
            assert hasattr(subject, name), name
        else:
            assert list(inspect.signature(member).parameters) == parameters, name


def test_residuals_products_and_sums(problem, dtype):
    operations, U, V = problem
    e = operations.residuals(U, V)
    assert e.dtype == dtype
    observed = operations.host().observed
    close(e, oracles.residuals(observed, np.asarray(U), np.asarray(V)), dtype, 10)
    x = np.cos(np.arange(observed.n_entries)).astype(dtype)
    X = oracles.dense(observed, x)
    XV, XtU = operations.products(operations.array(x), U, V)
    close(XV, X @ np.asarray(V), dtype, 10)
    close(XtU, X.T @ np.asarray(U), dtype, 10)
    row_sums, column_sums = operations.sums(operations.array(x))
    close(row_sums, X.sum(1), dtype, 10)
    close(column_sums, X.sum(0), dtype, 10)


def test_residuals_with_shifts(problem, dtype):
    operations, U, V = problem
    observed = operations.host().observed
    shifts = np.sin(np.arange(len(V))).astype(dtype)
    e = operations.residuals(U, V, operations.array(shifts))
    plain = oracles.residuals(observed, np.asarray(U), np.asarray(V))
    close(e, plain - shifts[observed.rows.indices], dtype, 10)


def test_transposed_operations_exchange_rows_and_columns(problem, dtype):
    operations, U, V = problem
    transposed = operations.transposed
    assert transposed.transposed is operations
    assert transposed.observed.shape == operations.observed.shape[::-1]
    observed = operations.host().observed.transposed
    wanted = oracles.residuals(observed, np.asarray(V), np.asarray(U))
    close(transposed.residuals(V, U), wanted, dtype, 10)


def test_operations_on_other_entries(problem, dtype):
    operations, U, V = problem
    values = np.cos(np.arange(operations.observed.n_entries)).astype(dtype)
    other = operations.on(operations.observed.with_values(operations.array(values)))
    assert type(other) is type(operations)
    wanted = oracles.residuals(other.host().observed, np.asarray(U), np.asarray(V))
    close(other.residuals(U, V), wanted, dtype, 10)
    np.testing.assert_array_equal(other.host().observed.rows.values, values)


def test_curvatures_are_squared_spectral_norms(problem, dtype):
    operations, U, V = problem
    by_row, by_column = operations.curvatures(U, V)
    U = np.asarray(U)
    V = np.asarray(V)
    seen = oracles.dense(operations.host().observed, 1) > 0
    close(by_row, [np.linalg.norm(V[seen[i]], 2) ** 2 for i in range(len(U))], dtype, 10)
    close(by_column, [np.linalg.norm(U[seen[:, j]], 2) ** 2 for j in range(len(V))], dtype, 10)


def test_explained_shares_are_mean_welsch_weights(problem, dtype):
    operations, U, V = problem
    observed = operations.host().observed
    wanted = oracles.mean_weights(observed, np.asarray(U), np.asarray(V), 0.5 / 0.8**2)
    close(operations.explained_shares(U, V, 0.8), wanted, dtype, 10)


@pytest.mark.parametrize("name", loss_names())
def test_loss_sum(name, operations_on):
    observed, U, V = random_problem()
    operations = operations_on(observed)
    loss = make_loss(name)
    weights = 0.1 + np.sin(np.arange(observed.n_entries)) ** 2
    losses = loss.value(oracles.residuals(observed, U, V))
    U = operations.array(U)
    V = operations.array(V)
    close(operations.loss_sum(loss, U, V), losses.sum(), np.float64)
    weighted = operations.loss_sum(loss, U, V, operations.array(weights))
    close(weighted, (losses * weights).sum(), np.float64)


@pytest.mark.parametrize("rank", [3, 20])
def test_loss_sums_of_several_losses(rank, operations_on):
    observed, U, V = random_problem(rank=rank)
    operations = operations_on(observed)
    weights = 0.1 + np.sin(np.arange(observed.n_entries)) ** 2
    widths = [Smoothed(1.3, LSP(), 0.2), LSP(1.3), Smoothed(1.3, LSP(), 0.1)]
    on = operations.array
    for losses in (widths[:2], widths, [*widths[1:], Welsch(2.0)], [Root(), Root()]):
        values = [loss.value(oracles.residuals(observed, U, V)) for loss in losses]
        plain = operations.loss_sums(losses, on(U), on(V))
        close(plain, [value.sum() for value in values], np.float64)
        weighted = operations.loss_sums(losses, on(U), on(V), on(weights))
        close(weighted, [(value * weights).sum() for value in values], np.float64)


def test_weights_of_losses_beyond_a_batch_of_entries(operations_on):
    """The kernel of the CPU sums in batches, within a row and across rows."""
    observed, U, V = random_problem(8, 700, share=0.5)
    assert observed.n_entries > 4 * BATCH
    operations = operations_on(observed)
    weights = np.linspace(0.1, 5, observed.n_entries)
    losses = LSP().value(oracles.residuals(observed, U, V))
    on = operations.array
    (weighted,) = operations.loss_sums([LSP()], on(U), on(V), on(weights))
    close(weighted, (losses * weights).sum(), np.float64)


def test_sums_of_single_precision_are_accumulated_in_double(operations_on):
    observed = Observed.from_dense(np.ones((1, 50_000), np.float32))
    operations = operations_on(observed)
    x = np.full(observed.n_entries, 0.1, np.float32)
    row_sums, _ = operations.sums(operations.array(x))
    assert float(row_sums[0]) == pytest.approx(x.sum(dtype=np.float64), rel=2e-7)


def test_repair_improves_a_row_that_fits_its_outliers(operations_on):
    """Sweeps do not move a row with a third of consistent outliers; subsets of its entries do."""
    rng = np.random.default_rng(0)
    U = rng.standard_normal((30, 2))
    V = rng.standard_normal((40, 2))
    X = U @ V.T + 0.01 * rng.standard_normal((30, 40))
    wrong = rng.standard_normal(2) * 2
    X[3, :14] = V[:14] @ wrong
    operations = operations_on(Observed.from_dense(X))
    before = U.copy()
    before[3] = wrong
    on = operations.array
    factors = on(before)
    columns = on(V)
    shares = np.asarray(operations.explained_shares(factors, columns, 0.1))
    assert shares[3] < 0.5
    assert np.median(shares) > 0.9
    changed = operations.repair_rows(
        factors, columns, 1e-3, 0.1, on(np.array([3, 5])), on(np.array([30, 30])), 7
    )
    assert np.asarray(changed).tolist() == [True, False]
    np.testing.assert_allclose(np.asarray(factors)[3], U[3], atol=0.05)
    np.testing.assert_array_equal(np.asarray(factors)[5], before[5])


def test_dual_step_and_linearised_loss(problem, dtype):
    """One step on the dual and the sums that it returns, against their formulas."""
    operations, U, V = problem
    observed = operations.host().observed
    rng = np.random.default_rng(2)
    i = observed.rows.group_of_entry()
    j = observed.rows.indices
    u = np.asarray(U, np.float64)
    v = np.asarray(V, np.float64)
    e, w, x, before = (rng.standard_normal(len(i)).astype(dtype) for _ in range(4))
    w = np.abs(w)
    dU, dV = (0.1 * rng.standard_normal(A.shape).astype(dtype) for A in (u, v))
    alpha, gamma = (0.5 + rng.random(len(A)).astype(dtype) for A in (u, v))
    z = x + 0.3 * (x - before)
    c = 0.7 * (alpha[i] + gamma[j])
    rho = e - np.einsum("tq,tq->t", dU[i], v[j]) - np.einsum("tq,tq->t", u[i], dV[j])
    new = np.clip(z + rho / c, -w, w)
    on = operations.array
    x_new = on(np.empty_like(x))
    products = (on(np.empty_like(u, dtype)), on(np.empty_like(v, dtype)))
    found = operations.dual_pass(U.shape[1]).step(
        on(e),
        on(w),
        (on(alpha), on(gamma)),
        0.3,
        0.7,
        (U, V),
        (on(dU), on(dV)),
        on(x),
        on(before),
        x_new,
        products,
    )
    close(x_new, new, dtype, 10)
    X = oracles.dense(observed, new)
    close(products[0], X @ v, dtype, 30)
    close(products[1], X.T @ u, dtype, 30)
    wanted = (np.sum(c * (new - z) ** 2), np.dot(new, e), np.sum(c * (z - new) * (new - x)))
    close(found, wanted, dtype, 300)
    sums = operations.linearised_loss(on(e), on(w), U, V, on(dU), on(dV), on(x))
    close(sums, (np.sum(w * np.abs(rho)), np.sum(w * np.abs(rho) - x * rho)), dtype, 300)


@pytest.mark.parametrize("side", [0, 1])
def test_dual_quadratics_and_extrapolation(problem, dtype, side):
    operations, U, V = problem
    rng = np.random.default_rng(3)
    shape = (U, V)[side].shape
    pull, products, other = (rng.standard_normal(shape).astype(dtype) for _ in range(3))
    inverse = (0.5 + rng.random(shape[0])).astype(dtype)
    on = operations.array
    dual_pass = operations.dual_pass(U.shape[1])
    found = dual_pass.quadratics(side, on(inverse), on(pull), on(products), on(other))
    wanted = [
        0.5 * (inverse[:, None] * (products - pull) ** 2).sum(),
        (inverse[:, None] * (products - other) ** 2).sum(),
    ]
    close(found, wanted, dtype, 300)
    at_z = on(np.empty(shape, dtype))
    increments = on(np.empty(shape, dtype))
    dual_pass.extrapolate(
        side, on(inverse), on(pull), on(products), on(other), 0.3, at_z, increments
    )
    wanted_at_z = products + 0.3 * (products - other)
    close(at_z, wanted_at_z, dtype, 10)
    close(increments, inverse[:, None] * (wanted_at_z - pull), dtype, 10)


def test_half_step_solves_each_row_and_each_column(problem, dtype):
    operations, U, V = problem
    observed = operations.host().observed
    weights = (0.1 + np.sin(np.arange(observed.n_entries)) ** 2).astype(dtype)
    operations.half_step(L2(), 0.3, U, V, operations.array(weights))
    close(U, oracles.weighted_ridge_rows(observed, weights, 0.3, np.asarray(V)), dtype, 10)
    transposed = operations.transposed
    other = weights[np.asarray(operations.observed.column_order)]
    transposed.half_step(L2(), 0.3, V, U, operations.array(other))
    close(V, oracles.weighted_ridge_rows(observed.transposed, other, 0.3, np.asarray(U)), dtype, 10)


@pytest.mark.parametrize("rank", [1, 4, 9])
def test_non_negative_half_steps_end_at_the_least_squares_solution(rank, operations_on, dtype):
    observed, U, V = random_problem(10, 24, rank, share=0.8, dtype=dtype)
    operations = operations_on(observed)
    weights = (0.1 + np.sin(np.arange(observed.n_entries)) ** 2).astype(dtype)
    on = operations.array
    U = on(np.abs(U))
    V = on(V)
    weights = on(weights)
    wanted = oracles.nonnegative_ridge_rows(observed, np.asarray(weights), 0.3, np.asarray(V))
    assert (wanted == 0).any()
    assert rank == 1 or (wanted > 0).any(axis=1).mean() > 0.5
    for _ in range(5):
        operations.half_step(L2(), 0.3, U, V, weights, nonnegative=True)
        assert np.asarray(U).min() >= 0
    close(U, wanted, dtype, 10)


def test_a_non_negative_half_step_lowers_the_objective_in_every_row(problem, dtype):
    operations, U, V = problem
    observed = operations.host().observed
    U = operations.array(np.abs(np.asarray(U)))
    loss = Welsch(0.7)

    def objectives():
        losses = loss.value(oracles.residuals(observed, np.asarray(U), np.asarray(V)))
        penalty = 0.15 * (np.asarray(U, float) ** 2).sum(axis=1)
        return oracles.dense(observed, losses).sum(axis=1) + penalty

    before = objectives()
    first = before.sum()
    for _ in range(3):
        operations.half_step(loss, 0.3, U, V, nonnegative=True)
        after = objectives()
        assert np.all(after <= before + (1e-12 if dtype == np.float64 else 1e-5) * first)
        before = after
    assert before.sum() < 0.95 * first
