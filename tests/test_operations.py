"""The operations against their oracles, in both precisions; the same bits for any number of threads."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import oracles
from conftest import random_problem
from robustmf.compiled_loss import weight_address
from robustmf.kernels import team as team_module
from robustmf.kernels.exponential import exp_neg32, exp_neg64
from robustmf.kernels.team import Team, block_bounds
from robustmf.losses import L2, LSP, Huber, Rounded, Welsch, loss_names, make_loss
from robustmf.observed import Observed
from robustmf.operations import Operations

TOLERANCE = {np.float64: 1e-12, np.float32: 2e-5}


def close(got, wanted, dtype, scale=1.0):
    np.testing.assert_allclose(got, wanted, rtol=TOLERANCE[dtype], atol=scale * TOLERANCE[dtype])


def test_residuals_products_and_sums(problem, dtype):
    operations, U, V = problem
    observed = operations.observed
    e = operations.residuals(U, V)
    assert e.dtype == dtype
    close(e, oracles.residuals(observed, U, V), dtype, 10)
    x = np.cos(np.arange(observed.n_entries)).astype(dtype)
    X = oracles.dense(observed, x)
    XV, XtU = operations.products(x, U, V)
    close(XV, X @ V, dtype, 10)
    close(XtU, X.T @ U, dtype, 10)
    row_sums, column_sums = operations.sums(x)
    close(row_sums, X.sum(1), dtype, 10)
    close(column_sums, X.sum(0), dtype, 10)


def test_curvatures_are_spectral_norms(problem, dtype):
    operations, U, V = problem
    observed = operations.observed
    by_row, by_column = operations.curvatures(U, V)
    seen = oracles.dense(observed, 1) > 0
    close(by_row, [np.linalg.norm(V[seen[i]], 2) ** 2 for i in range(len(U))], dtype, 10)
    close(by_column, [np.linalg.norm(U[seen[:, j]], 2) ** 2 for j in range(len(V))], dtype, 10)


def test_half_step_solves_each_row_and_each_column(problem, dtype):
    operations, U, V = problem
    weights = (0.1 + np.sin(np.arange(operations.observed.n_entries)) ** 2).astype(dtype)
    operations.half_step(L2(), 0.3, U, V, weights)
    close(U, oracles.weighted_ridge_rows(operations.observed, weights, 0.3, V), dtype, 10)
    transposed = operations.transposed
    other = weights[operations.observed.column_order]
    transposed.half_step(L2(), 0.3, V, U, other)
    close(V, oracles.weighted_ridge_rows(transposed.observed, other, 0.3, U), dtype, 10)


def test_half_step_without_entries_gives_zero_and_never_nan(team):
    observed, U, V = random_problem(6, 5, 3, share=0.5)
    empty = observed.select(observed.rows.group_of_entry() != 2)
    operations = Operations(empty, team)
    operations.half_step(L2(), 1e-300, U, V, np.zeros(empty.n_entries))
    assert np.all(U[2] == 0)
    assert np.all(np.isfinite(U))


def test_results_do_not_depend_on_threads(monkeypatch, dtype):
    monkeypatch.setattr(team_module, "_SMALL_WORK", 0)
    observed, U, V = random_problem(300, 200, 4, dtype=dtype)
    x = np.cos(np.arange(observed.n_entries)).astype(dtype)
    results = []
    for n_jobs in (1, 2, 4):
        with Team(n_jobs) as team:
            operations = Operations(observed, team)
            half = U.copy()
            operations.half_step(Welsch(), 0.1, half, V, np.abs(x))
            results.append(
                [*operations.products(x, U, V), *operations.sums(x), operations.residuals(U, V), *operations.curvatures(U, V), half]
            )
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("blocks", [1, 3, 64])
def test_blocks_cover_all_rows_once_and_hold_about_the_same(blocks):
    counts = np.random.default_rng(0).integers(0, 50, 1000)
    bounds = block_bounds(np.concatenate(([0], np.cumsum(counts))), blocks)
    assert bounds[0] == 0
    assert bounds[-1] == 1000
    assert np.all(np.diff(bounds) > 0)
    assert len(bounds) <= blocks + 1
    shares = np.add.reduceat(counts, bounds[:-1])
    assert shares.max() <= counts.sum() / blocks + 100


@pytest.mark.parametrize("caller_fails", [True, False])
def test_errors_in_threads_reach_the_caller_when_nobody_works_any_more(monkeypatch, caller_fails):
    monkeypatch.setattr(team_module, "_SMALL_WORK", 0)
    caller, begun, ended = threading.get_ident(), [], []

    def failing(first, last):
        begun.append(first)
        time.sleep(0.02)
        if (threading.get_ident() == caller) == caller_fails:
            ended.append(first)
            raise RuntimeError("from a thread")
        time.sleep(0.05)
        ended.append(first)

    with Team(2) as team:
        with pytest.raises(RuntimeError, match="from a thread"):
            team.run(failing, 16, 1)
        assert sorted(begun) == sorted(ended)
    if caller_fails:
        assert len(begun) <= 2  # no further turn is begun


@pytest.mark.parametrize("n_jobs", [0, -2, 1.5, True, "two"])
def test_bad_n_jobs(n_jobs):
    with pytest.raises(ValueError, match="n_jobs must be a positive integer"):
        Team(n_jobs)


def half_step_oracle(observed, loss, reg, U, V):
    e = oracles.residuals(observed, U, V)
    return oracles.weighted_ridge_rows(observed, loss.weight(e), reg, V.astype(float))


@pytest.mark.parametrize("rank", [1, 2, 3, 5, 7, 8, 10, 16, 17, 32, 33, 64])
def test_half_step_at_every_rank(rank, dtype, team):
    """Rows without entries, with one, and longer than a block; ranks that fill a vector, and that do not."""
    rng = np.random.default_rng(rank)
    dense = rng.standard_normal((23, 700)) * (rng.random((23, 1)) + 0.5)
    dense[rng.random(dense.shape) < 0.7] = np.nan
    dense[[0, 22]] = np.nan
    dense[1, 1:] = np.nan
    dense[1, 0] = 1.0
    dense[5] = rng.standard_normal(700)
    observed = Observed.from_dense(dense.astype(dtype))
    U, V = (rng.standard_normal((k, rank)).astype(dtype) / np.sqrt(rank) for k in observed.shape)
    U, V = U.astype(dtype), V.astype(dtype)
    for loss in (Welsch(1.5), Huber(0.7), Rounded(1.0, LSP(), 0.1)):
        wanted = half_step_oracle(observed, loss, 0.3, U, V)
        got = U.copy()
        Operations(observed, team).half_step(loss, 0.3, got, V)
        np.testing.assert_allclose(got, wanted, atol=(1e-10 if dtype == np.float64 else 3e-3) * np.abs(wanted).max())
        assert np.all(got[[0, 22]] == 0)


@pytest.mark.parametrize("name", [name for name in loss_names() if not make_loss(name).concave])
def test_compiled_weights_are_the_losses_own(name, dtype, team):
    observed, U, V = random_problem(dtype=dtype)
    loss, got = make_loss(name), U.copy()
    assert weight_address(loss, np.dtype(dtype)) is not None
    wanted = half_step_oracle(observed, loss, 0.3, U, V)
    Operations(observed, team).half_step(loss, 0.3, got, V)
    close(got, wanted, dtype, 50)


def test_a_loss_that_numba_cannot_compile_gives_the_same_step(team):
    class Awkward(Welsch):
        @staticmethod
        def weight_formula(a, rate):
            return np.array([float(str(x)) for x in np.exp(-rate * a * a).ravel()]).reshape(np.shape(a))

    class Bare(Welsch):
        weight_formula = None

        def _derivative(self, a):
            return a * np.exp(-0.5 * (a / self.theta) ** 2)

    observed, U, V = random_problem()
    results = []
    for loss in (Welsch(1.3), Awkward(1.3), Bare(1.3)):
        results.append(U.copy())
        Operations(observed, team).half_step(loss, 0.3, results[-1], V)
    np.testing.assert_allclose(results[1], results[0], rtol=1e-9)
    np.testing.assert_allclose(results[2], results[0], rtol=1e-9)


@pytest.mark.parametrize(("function", "kind", "error"), [(exp_neg32, np.float32, 2e-7), (exp_neg64, np.float64, 1e-15)])
def test_fast_exponential(function, kind, error):
    x = np.concatenate((np.linspace(0, 80, 40001), np.geomspace(1e-30, 80, 1000))).astype(kind)
    got = np.array([function(v) for v in x], np.float64)
    np.testing.assert_allclose(got, np.exp(-x.astype(np.float64)), rtol=error)
    assert function(kind(1e30)) == 0
