"""The operations against their oracles, in both precisions; the same bits for any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

import oracles
from conftest import random_problem
from robustmf.kernels import team as team_module
from robustmf.kernels.team import Team, block_bounds
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
    operations.half_step(weights, 0.3, U, V)
    close(U, oracles.weighted_ridge_rows(operations.observed, weights, 0.3, V), dtype, 10)
    transposed = operations.transposed
    other = weights[operations.observed.column_order]
    transposed.half_step(other, 0.3, V, U)
    close(V, oracles.weighted_ridge_rows(transposed.observed, other, 0.3, U), dtype, 10)


def test_half_step_without_entries_gives_zero_and_never_nan(team):
    observed, U, V = random_problem(6, 5, 3, share=0.5)
    empty = observed.select(observed.rows.group_of_entry() != 2)
    operations = Operations(empty, team)
    operations.half_step(np.zeros(empty.n_entries), 1e-300, U, V)
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
            operations.half_step(np.abs(x), 0.1, half, V)
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


def test_errors_in_threads_reach_the_caller(monkeypatch):
    monkeypatch.setattr(team_module, "_SMALL_WORK", 0)

    def failing(first, last):
        raise RuntimeError("from a thread")

    with Team(2) as team, pytest.raises(RuntimeError, match="from a thread"):
        team.run(failing, 8, 1)


@pytest.mark.parametrize("n_jobs", [0, -2, 1.5, True, "two"])
def test_bad_n_jobs(n_jobs):
    with pytest.raises(ValueError, match="n_jobs must be a positive integer"):
        Team(n_jobs)
