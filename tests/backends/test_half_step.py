"""Conformance of the half-step: ranks, options, curvature, threads."""

from __future__ import annotations

import numpy as np
import pytest

import oracles
from conftest import INTERPRETED, random_problem
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.data.observed import Observed
from robustmf.kernels import team as team_module
from robustmf.kernels.team import Team
from robustmf.losses import L2, LSP, Huber, Smoothed, Welsch, loss_names, make_loss

TOLERANCE = {np.float64: 1e-12, np.float32: 2e-5}


def oracle(observed, loss, reg, U, V):
    """The half-step with the weights of ``loss`` at (U, V)."""
    e = oracles.residuals(observed, U, V)
    return oracles.weighted_ridge_rows(observed, loss.weight(e), reg, V.astype(float))


def is_interpreted(request):
    """Whether the test runs in Triton's interpreter."""
    return INTERPRETED and "cuda" in request.node.name


def test_a_row_without_entries_becomes_zero_and_never_nan(operations_on):
    observed, U, V = random_problem(6, 5, 3, share=0.5)
    empty = observed.select(observed.rows.group_of_entry() != 2)
    operations = operations_on(empty)
    U = operations.array(U)
    weights = operations.array(np.zeros(empty.n_entries))
    operations.half_step(L2(), 1e-300, U, operations.array(V), weights)
    U = np.asarray(U)
    assert np.all(U[2] == 0)
    assert np.all(np.isfinite(U))


@pytest.mark.parametrize("shifted", [True, False])
def test_shifts_clip_and_one_ridge_parameter_per_row(shifted, operations_on, dtype):
    observed, U, V = random_problem(dtype=dtype)
    rng = np.random.default_rng(1)
    shifts = shifted * rng.standard_normal(len(V)).astype(dtype)
    ridge = (0.1 + rng.random(len(U))).astype(dtype)
    operations = operations_on(observed)
    on = operations.array
    got = on(U.copy())
    given = {"shifts": on(shifts)} if shifted else {}
    operations.half_step(L2(), on(ridge), got, on(V), clip=(-1.0, 1.5), **given)
    values = np.clip(observed.rows.values, -1, 1.5) - shifts[observed.rows.indices]
    moved = observed.with_values(values.astype(dtype))
    wanted = [
        oracles.weighted_ridge_rows(moved, 1.0, float(reg), V)[i] for i, reg in enumerate(ridge)
    ]
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize(
    "rank", [1, 2, 3, 5, 7, 8, 9, 10, 11, 12, 13, 16, 17, 19, 20, 25, 32, 33, 50, 64, 100]
)
def test_every_rank(rank, dtype, operations_on, request):
    """Empty rows, rows with one entry and longer than a block; full and partial vectors."""
    interpreted = is_interpreted(request)
    if interpreted and rank not in (5, 10, 17):
        pytest.skip(
            "Triton's interpreter takes minutes for all ranks; make gpu-test runs them on a GPU"
        )
    rng = np.random.default_rng(rank)
    columns = 24 if interpreted else 700
    dense = rng.standard_normal((23, columns)) * (rng.random((23, 1)) + 0.5)
    dense[rng.random(dense.shape) < 0.7] = np.nan
    dense[[0, 22]] = np.nan
    dense[1, 1:] = np.nan
    dense[1, 0] = 1.0
    dense[5] = rng.standard_normal(columns)
    observed = Observed.from_dense(dense.astype(dtype))
    U, V = (rng.standard_normal((k, rank)).astype(dtype) / np.sqrt(rank) for k in observed.shape)
    U = U.astype(dtype)
    V = V.astype(dtype)
    losses = [Welsch(1.5), Smoothed(1.0, LSP(), 0.1)]
    if not interpreted:
        losses.append(Huber(0.7))
    for loss in losses:
        wanted = oracle(observed, loss, 0.3, U, V)
        operations = operations_on(observed)
        got = operations.array(U.copy())
        operations.half_step(loss, 0.3, got, operations.array(V))
        got = np.asarray(got)
        tolerance = (1e-10 if dtype == np.float64 else 3e-3) * np.abs(wanted).max()
        np.testing.assert_allclose(got, wanted, atol=tolerance)
        assert np.all(got[[0, 22]] == 0)


@pytest.mark.parametrize("rank", [3, 9])
def test_entries_without_weight_do_not_change_the_curvature(rank, operations_on):
    """Half of the entries of a row have no weight and lie within the smoothing width."""
    rng = np.random.default_rng(5)
    loss = Smoothed(1.0, LSP(), 0.5)
    U = rng.standard_normal((6, rank))
    V = rng.standard_normal((40, rank))
    X = U @ V.T
    X[:, ::2] += 2 * rng.standard_normal((6, 20))
    observed = Observed.from_dense(X)
    weights = np.tile([1.0, 0.0], 120)
    steps = []
    for entries, given in ((observed, weights), (observed.select(weights > 0), None)):
        operations = operations_on(entries)
        got = operations.array(U.copy())
        given = None if given is None else operations.array(given)
        operations.half_step(loss, 0.3, got, operations.array(V), given, curvature=0.3)
        steps.append(np.asarray(got))
    np.testing.assert_allclose(steps[0], steps[1], atol=1e-12)


@pytest.mark.parametrize(("rank", "columns"), [(3, 30), (9, 30), (9, 1300)])
def test_step_towards_newtons(rank, columns, dtype, operations_on, request):
    """Against its formula: shifts, weights, few or many entries near zero, several blocks."""
    if is_interpreted(request) and columns > 30:
        pytest.skip(
            "Triton's interpreter takes minutes for long rows; short ones have several chunks too"
        )
    share = 0.4 if columns == 30 else 0.9
    observed, U, V = random_problem(n=columns, rank=rank, share=share, dtype=dtype)
    rng = np.random.default_rng(3)
    loss = Smoothed(1.0, LSP(), 0.5)
    shifts = rng.standard_normal(len(V)).astype(dtype)
    weights = (0.1 + rng.random(observed.n_entries)).astype(dtype)
    U[:10] *= 3
    if columns > 30:  # rows whose entries within the smoothing width are all in the first block
        V[200:] *= 10
        U[:10] *= 10
    operations = operations_on(observed)
    shifted = observed.with_values(observed.rows.values - shifts[observed.rows.indices])
    e = oracles.residuals(shifted, U, V).astype(np.float64)
    near_zero = loss.epsilon**2 / (e**2 + loss.epsilon**2)
    enough = 0.3 * rank
    k = enough / np.maximum(oracles.dense(observed, near_zero).sum(1), enough)
    assert k.min() < 0.9 < k.max() == 1
    k = k[observed.rows.group_of_entry()]
    share = k + (1 - k) * near_zero
    moved = observed.with_values((shifted.rows.values + e * (1 / share - 1)).astype(dtype))
    wanted = oracles.weighted_ridge_rows(
        moved, weights * loss.weight(e) * share, 0.3, V.astype(float)
    )
    on = operations.array
    got = on(U.copy())
    operations.half_step(loss, 0.3, got, on(V), on(weights), on(shifts), curvature=0.3)
    tolerance = (1e-10 if dtype == np.float64 else 3e-4) * np.abs(wanted).max()
    np.testing.assert_allclose(np.asarray(got), wanted, atol=tolerance)


@pytest.mark.parametrize("name", [name for name in loss_names() if not make_loss(name).concave])
def test_compiled_weights_are_those_of_the_loss(name, dtype, operations_on):
    observed, U, V = random_problem(dtype=dtype)
    operations = operations_on(observed)
    loss = make_loss(name)
    got = operations.array(U.copy())
    wanted = oracle(observed, loss, 0.3, U, V)
    operations.half_step(loss, 0.3, got, operations.array(V))
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=tolerance, atol=50 * tolerance)


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch, dtype):
    monkeypatch.setattr(team_module, "OPTIONS", team_module.TeamOptions(small_work=0))
    observed, U, V = random_problem(300, 200, 4, dtype=dtype)
    x = np.cos(np.arange(observed.n_entries)).astype(dtype)
    results = []
    for n_jobs in (1, 2, 4):
        with Team(n_jobs) as team:
            operations = CPUOperations(observed, team)
            half = U.copy()
            operations.half_step(Welsch(), 0.1, half, V, np.abs(x))
            results.append(
                [
                    *operations.products(x, U, V),
                    *operations.sums(x),
                    operations.residuals(U, V),
                    *operations.curvatures(U, V),
                    half,
                ]
            )
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))
