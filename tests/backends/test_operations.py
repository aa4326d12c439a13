"""The operations against their oracles, on both devices and in both precisions; the same bits for any number of threads."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from numba import njit

import oracles
from conftest import INTERPRETED, Root, random_problem
from robustmf import RobustMF
from robustmf.backends.cpu import compiled_loss
from robustmf.backends.cpu.compiled_loss import value_address, weight_address
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.data.observed import Observed
from robustmf.kernels import elementary
from robustmf.kernels import team as team_module
from robustmf.kernels.team import Team
from robustmf.losses import L2, LSP, Huber, Loss, Smoothed, Welsch, loss_names, make_loss

TOLERANCE = {np.float64: 1e-12, np.float32: 2e-5}


def close(got, wanted, dtype, scale=1.0):
    np.testing.assert_allclose(
        np.asarray(got), np.asarray(wanted), rtol=TOLERANCE[dtype], atol=scale * TOLERANCE[dtype]
    )


def test_residuals_products_and_sums(problem, dtype):
    operations, U, V = problem
    observed = operations.observed
    e = operations.residuals(U, V)
    assert e.dtype == dtype
    on_host = operations.host().observed
    close(e, oracles.residuals(on_host, np.asarray(U), np.asarray(V)), dtype, 10)
    x = np.cos(np.arange(observed.n_entries)).astype(dtype)
    X = oracles.dense(on_host, x)
    XV, XtU = operations.products(operations.array(x), U, V)
    close(XV, X @ np.asarray(V), dtype, 10)
    close(XtU, X.T @ np.asarray(U), dtype, 10)
    row_sums, column_sums = operations.sums(operations.array(x))
    close(row_sums, X.sum(1), dtype, 10)
    close(column_sums, X.sum(0), dtype, 10)


def test_curvatures_are_spectral_norms(problem, dtype):
    operations, U, V = problem
    by_row, by_column = operations.curvatures(U, V)
    U, V = np.asarray(U), np.asarray(V)
    seen = oracles.dense(operations.host().observed, 1) > 0
    close(by_row, [np.linalg.norm(V[seen[i]], 2) ** 2 for i in range(len(U))], dtype, 10)
    close(by_column, [np.linalg.norm(U[seen[:, j]], 2) ** 2 for j in range(len(V))], dtype, 10)


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


def test_half_step_without_entries_gives_zero_and_never_nan(operations_on):
    observed, U, V = random_problem(6, 5, 3, share=0.5)
    empty = observed.select(observed.rows.group_of_entry() != 2)
    operations = operations_on(empty)
    U = operations.array(U)
    operations.half_step(
        L2(), 1e-300, U, operations.array(V), operations.array(np.zeros(empty.n_entries))
    )
    U = np.asarray(U)
    assert np.all(U[2] == 0)
    assert np.all(np.isfinite(U))


@pytest.mark.parametrize("name", loss_names())
def test_loss_sum(name, operations_on):
    observed, U, V = random_problem()
    operations, loss = operations_on(observed), make_loss(name)
    weights = 0.1 + np.sin(np.arange(observed.n_entries)) ** 2
    losses = loss.value(oracles.residuals(observed, U, V))
    U, V = operations.array(U), operations.array(V)
    close(operations.loss_sum(loss, U, V), losses.sum(), np.float64)
    close(
        operations.loss_sum(loss, U, V, operations.array(weights)),
        (losses * weights).sum(),
        np.float64,
    )


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("name", loss_names())
def test_loss_sums_to_the_last_digits(name, size, dtype):
    """Rows in one batch and in several; residuals far below θ and far above; any number of threads, bit for bit."""
    rng = np.random.default_rng(0)
    observed = Observed.from_dense((size * rng.standard_normal((30, 1100))).astype(dtype))
    loss, U, V = make_loss(name), np.zeros((30, 3), dtype), np.zeros((1100, 3), dtype)
    weights = rng.random(observed.n_entries).astype(dtype)
    values = loss.value(observed.rows.values.astype(np.longdouble)) * weights
    found = []
    for n_jobs in (1, 3):
        with Team(n_jobs) as team:
            found.append(CPUOperations(observed, team).loss_sum(loss, U, V, weights))
    assert found[0] == found[1]
    # a rounded loss is the difference of two: what it starts at, and what it is lowered by
    lowered = (
        float(loss.base.value(np.array([loss.epsilon]))[0]) if isinstance(loss, Smoothed) else 0.0
    )
    np.testing.assert_allclose(
        found[0], float(values.sum()), rtol=1e-14, atol=1e-15 * lowered * float(weights.sum())
    )


@pytest.mark.parametrize("rank", [3, 20])
def test_loss_sums_of_several_losses(rank, operations_on):
    observed, U, V = random_problem(rank=rank)
    operations, weights = operations_on(observed), 0.1 + np.sin(np.arange(observed.n_entries)) ** 2
    tips = [Smoothed(1.3, LSP(), 0.2), LSP(1.3), Smoothed(1.3, LSP(), 0.1)]
    on = operations.array
    for losses in (tips[:2], tips, [*tips[1:], Welsch(2.0)], [Root(), Root()]):
        values = [loss.value(oracles.residuals(observed, U, V)) for loss in losses]
        close(
            operations.loss_sums(losses, on(U), on(V)),
            [value.sum() for value in values],
            np.float64,
        )
        close(
            operations.loss_sums(losses, on(U), on(V), on(weights)),
            [(value * weights).sum() for value in values],
            np.float64,
        )


def test_half_step_with_shifts_clip_and_a_ridge_a_row(operations_on, dtype):
    observed, U, V = random_problem(dtype=dtype)
    rng = np.random.default_rng(1)
    shifts, ridge = (
        rng.standard_normal(len(V)).astype(dtype),
        (0.1 + rng.random(len(U))).astype(dtype),
    )
    operations = operations_on(observed)
    got = operations.array(U.copy())
    operations.half_step(
        L2(),
        operations.array(ridge),
        got,
        operations.array(V),
        shifts=operations.array(shifts),
        clip=(-1.0, 1.5),
    )
    values = np.clip(observed.rows.values, -1, 1.5) - shifts[observed.rows.indices]
    moved = observed.with_values(values.astype(dtype))
    wanted = [
        oracles.weighted_ridge_rows(moved, 1.0, float(reg), V)[i] for i, reg in enumerate(ridge)
    ]
    close(got, wanted, dtype, 10)


def test_dual_step_and_linearised_loss(problem, dtype):
    """One step of the dual with all it reports, against its formulas."""
    operations, U, V = problem
    observed, rng = operations.host().observed, np.random.default_rng(2)
    i, j = observed.rows.group_of_entry(), observed.rows.indices
    u, v = np.asarray(U, np.float64), np.asarray(V, np.float64)
    e, w, x, before = (rng.standard_normal(len(i)).astype(dtype) for _ in range(4))
    w = np.abs(w)
    dU, dV = (0.1 * rng.standard_normal(A.shape).astype(dtype) for A in (u, v))
    alpha, gamma = (0.5 + rng.random(len(A)).astype(dtype) for A in (u, v))
    z, c = x + 0.3 * (x - before), 0.7 * (alpha[i] + gamma[j])
    rho = e - np.einsum("tq,tq->t", dU[i], v[j]) - np.einsum("tq,tq->t", u[i], dV[j])
    new = np.clip(z + rho / c, -w, w)
    on = operations.array
    x_new, products = (
        on(np.empty_like(x)),
        (on(np.empty_like(u, dtype)), on(np.empty_like(v, dtype))),
    )
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
    close(
        found,
        (np.sum(c * (new - z) ** 2), np.dot(new, e), np.sum(c * (z - new) * (new - x))),
        dtype,
        300,
    )
    sums = operations.linearised_loss(on(e), on(w), U, V, on(dU), on(dV), on(x))
    close(sums, (np.sum(w * np.abs(rho)), np.sum(w * np.abs(rho) - x * rho)), dtype, 300)


def test_repair_frees_a_row_that_its_outliers_hold(operations_on):
    """A row with a third of its entries off by as much stays with them under sweeps; subsets of its entries find the rest."""
    rng = np.random.default_rng(0)
    U, V = rng.standard_normal((30, 2)), rng.standard_normal((40, 2))
    X = U @ V.T + 0.01 * rng.standard_normal((30, 40))
    wrong = rng.standard_normal(2) * 2
    X[3, :14] = V[:14] @ wrong
    operations = operations_on(Observed.from_dense(X))
    held = U.copy()
    held[3] = wrong
    on = operations.array
    factors, columns = on(held), on(V)
    shares = np.asarray(operations.explained_shares(factors, columns, 0.1))
    assert shares[3] < 0.5
    assert np.median(shares) > 0.9
    changed = operations.repair_rows(
        factors, columns, 1e-3, 0.1, on(np.array([3, 5])), on(np.array([30, 30])), 7
    )
    assert np.asarray(changed).tolist() == [True, False]
    np.testing.assert_allclose(np.asarray(factors)[3], U[3], atol=0.05)
    np.testing.assert_array_equal(np.asarray(factors)[5], held[5])


def test_results_do_not_depend_on_threads(monkeypatch, dtype):
    monkeypatch.setattr(team_module, "_SMALL_WORK", 0)
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


def half_step_oracle(observed, loss, reg, U, V):
    e = oracles.residuals(observed, U, V)
    return oracles.weighted_ridge_rows(observed, loss.weight(e), reg, V.astype(float))


@pytest.mark.parametrize(
    "rank", [1, 2, 3, 5, 7, 8, 9, 10, 11, 12, 13, 16, 17, 19, 20, 25, 32, 33, 50, 64, 100]
)
def test_half_step_at_every_rank(rank, dtype, operations_on, request):
    """Rows without entries, with one, and longer than a block; ranks that fill a vector, and that do not."""
    interpreted = INTERPRETED and "cuda" in request.node.name
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
    U, V = U.astype(dtype), V.astype(dtype)
    for loss in (
        (Welsch(1.5), Smoothed(1.0, LSP(), 0.1))
        if interpreted
        else (Welsch(1.5), Huber(0.7), Smoothed(1.0, LSP(), 0.1))
    ):
        wanted = half_step_oracle(observed, loss, 0.3, U, V)
        operations = operations_on(observed)
        got = operations.array(U.copy())
        operations.half_step(loss, 0.3, got, operations.array(V))
        got = np.asarray(got)
        np.testing.assert_allclose(
            got, wanted, atol=(1e-10 if dtype == np.float64 else 3e-3) * np.abs(wanted).max()
        )
        assert np.all(got[[0, 22]] == 0)


@pytest.mark.parametrize("rank", [3, 9])
def test_entries_without_weight_do_not_bend_the_half_step(rank, operations_on):
    """Half of a row without weight, and at the tip."""
    rng, loss = np.random.default_rng(5), Smoothed(1.0, LSP(), 0.5)
    U, V = rng.standard_normal((6, rank)), rng.standard_normal((40, rank))
    X = U @ V.T
    X[:, ::2] += 2 * rng.standard_normal((6, 20))
    observed = Observed.from_dense(X)
    weights = np.tile([1.0, 0.0], 120)
    steps = []
    for entries, given in ((observed, weights), (observed.select(weights > 0), None)):
        operations = operations_on(entries)
        got = operations.array(U.copy())
        operations.half_step(
            loss,
            0.3,
            got,
            operations.array(V),
            None if given is None else operations.array(given),
            curvature=0.3,
        )
        steps.append(np.asarray(got))
    np.testing.assert_allclose(steps[0], steps[1], atol=1e-12)


@pytest.mark.parametrize(("rank", "columns"), [(3, 30), (9, 30), (9, 1300)])
def test_half_step_towards_newtons(rank, columns, dtype, operations_on, request):
    """Against its formula, row by row: with shifts, sample weights, rows with few or many entries at the tip, and of several blocks."""
    if INTERPRETED and "cuda" in request.node.name and columns > 30:
        pytest.skip(
            "Triton's interpreter takes minutes for long rows; on the card the short ones have several chunks"
        )
    observed, U, V = random_problem(
        n=columns, rank=rank, share=0.4 if columns == 30 else 0.9, dtype=dtype
    )
    rng, loss = np.random.default_rng(3), Smoothed(1.0, LSP(), 0.5)
    shifts, weights = (
        rng.standard_normal(len(V)).astype(dtype),
        (0.1 + rng.random(observed.n_entries)).astype(dtype),
    )
    U[:10] *= 3
    if columns > 30:  # rows whose entries at the tip are all in their first block
        V[200:] *= 10
        U[:10] *= 10
    operations, moved = (
        operations_on(observed),
        observed.with_values(observed.rows.values - shifts[observed.rows.indices]),
    )
    e = oracles.residuals(moved, U, V).astype(np.float64)
    at_tip = loss.epsilon**2 / (e**2 + loss.epsilon**2)
    enough = 0.3 * rank
    least = enough / np.maximum(oracles.dense(observed, at_tip).sum(1), enough)
    assert least.min() < 0.9 < least.max() == 1
    least = least[observed.rows.group_of_entry()]
    share = least + (1 - least) * at_tip
    bent = observed.with_values((moved.rows.values + e * (1 / share - 1)).astype(dtype))
    wanted = oracles.weighted_ridge_rows(
        bent, weights * loss.weight(e) * share, 0.3, V.astype(float)
    )
    got = operations.array(U.copy())
    operations.half_step(
        loss,
        0.3,
        got,
        operations.array(V),
        operations.array(weights),
        operations.array(shifts),
        curvature=0.3,
    )
    np.testing.assert_allclose(
        np.asarray(got),
        wanted,
        atol=(1e-10 if dtype == np.float64 else 3e-4) * np.abs(wanted).max(),
    )


@pytest.mark.parametrize("name", [name for name in loss_names() if not make_loss(name).concave])
def test_compiled_weights_are_the_losses_own(name, dtype, operations_on):
    observed, U, V = random_problem(dtype=dtype)
    operations, loss = operations_on(observed), make_loss(name)
    got = operations.array(U.copy())
    assert weight_address(loss, np.dtype(dtype)) is not None
    wanted = half_step_oracle(observed, loss, 0.3, U, V)
    operations.half_step(loss, 0.3, got, operations.array(V))
    close(got, wanted, dtype, 50)


def test_losses_traced_or_not_have_the_same_sums():
    class Awkward(Welsch):
        def _value(self, a):
            return super()._value(np.asarray(a))

    class Public(Welsch):
        def value(self, residual):
            return self.theta**2 * (1 - np.exp(-0.5 * (residual / self.theta) ** 2))

    observed, U, V = random_problem()
    with Team(1) as team:
        operations = CPUOperations(observed, team)
        assert value_address(Awkward(1.3), np.dtype(np.float64)) is None
        assert value_address(Welsch(1.3), np.dtype(np.float64)) is not None
        sums = [
            operations.loss_sum(loss, U, V) for loss in (Welsch(1.3), Awkward(1.3), Public(1.3))
        ]
    np.testing.assert_allclose(sums[1:], sums[0], rtol=1e-14)


def test_a_loss_that_cannot_be_compiled_gives_the_same_step(operations_on):
    class Awkward(Welsch):
        @staticmethod
        def weight_formula(a, rate):
            return np.array([float(str(x)) for x in np.exp(-rate * a * a).ravel()]).reshape(
                np.shape(a)
            )

    class Bare(Welsch):
        weight_formula = None

        def _derivative(self, a):
            return a * np.exp(-0.5 * (a / self.theta) ** 2)

    observed, U, V = random_problem()
    operations, results = operations_on(observed), []
    for loss in (Welsch(1.3), Awkward(1.3), Bare(1.3)):
        got = operations.array(U.copy())
        operations.half_step(loss, 0.3, got, operations.array(V))
        results.append(np.asarray(got))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-9)
    np.testing.assert_allclose(results[2], results[0], rtol=1e-9)


def _welsch_in_numpy_alone(a):
    if not isinstance(a, np.ndarray):
        raise RuntimeError("arrays only")
    return 1 - np.exp(-0.5 * a * a)


@pytest.mark.parametrize(
    "helper",
    [njit(lambda a: 1 - np.exp(-0.5 * a * a)), _welsch_in_numpy_alone],
    ids=["compiled", "refuses"],
)
def test_a_loss_may_call_what_cannot_be_traced(helper, operations_on):
    class Own(Welsch):
        weight_formula = staticmethod(partial(lambda helper, a, rate: 1 - helper(a), helper))

        def _value(self, a):
            return helper(a)

    observed, U, V = random_problem()
    operations, steps, sums = operations_on(observed), [], []
    for loss in (Welsch(), Own()):
        got = operations.array(U.copy())
        operations.half_step(loss, 0.3, got, operations.array(V))
        steps.append(np.asarray(got))
        sums.append(operations.loss_sum(loss, operations.array(U), operations.array(V)))
    np.testing.assert_allclose(steps[1], steps[0], rtol=1e-9)
    np.testing.assert_allclose(sums[1], sums[0], rtol=1e-12)
    if operations.capabilities.host_arrays:
        RobustMF(3, loss=Own(), theta=None, solver="irls", init=(U, V)).fit(observed)


def test_a_weight_follows_the_numbers_that_its_formula_reads(operations_on):
    class Own(Loss):
        name = "own"
        scale = 1.0

        @staticmethod
        def weight_formula(a, theta):
            return 1 / (1 + Own.scale * a * a)

    observed, U, V = random_problem()
    for Own.scale in (1.0, 9.0):
        operations = operations_on(observed)
        got = operations.array(U.copy())
        operations.half_step(Own(), 0.3, got, operations.array(V))
        close(got, half_step_oracle(observed, Own(), 0.3, U, V), np.float64, 10)


@pytest.mark.parametrize(
    "formula",
    [
        lambda a, p: np.power(a, 2, where=a > 1, out=np.zeros_like(a)),
        lambda a, p: np.power(a, 2, dtype=np.float32),
        lambda a, p: np.maximum(p, a),
        np.maximum,
        lambda a, p: np.minimum(p, a),
        np.minimum,
        lambda a, p: np.clip(a, 0.5, p),
        lambda a, p: np.clip(p, 0.5, a),
    ],
)
def test_a_traced_formula_means_what_numpy_means(formula, operations_on):
    """Options are not dropped; NaN stays NaN."""

    class Own(Loss):
        name = "own"

        def _value(self, a):
            return formula(a, self.theta)

    values = np.array([[0.0, 0.7, 1.9, 4.0]])
    operations = operations_on(Observed.from_dense(values))
    for V in (np.zeros(4), np.array([0, np.nan, 0, 0])):
        got = operations.loss_sum(
            Own(1.7), operations.array(np.ones((1, 1))), operations.array(V[:, None])
        )
        np.testing.assert_allclose(
            got, Own(1.7).value(values - V).sum(dtype=np.float64), rtol=1e-14
        )


def test_machine_code_is_kept_under_the_flags_that_made_it(monkeypatch):
    before = compiled_loss._name(("return a",), 0, np.dtype(np.float64))
    monkeypatch.setattr(compiled_loss, "FASTMATH", {"reassoc"})
    assert compiled_loss._name(("return a",), 0, np.dtype(np.float64)) != before


@pytest.mark.parametrize(
    ("kind", "most", "error"), [(np.float32, 80.0, 2.5e-7), (np.float64, 700.0, 5e-16)]
)
@pytest.mark.parametrize("name", ["exp", "expm1", "log1p"])
def test_elementary_functions(name, kind, most, error):
    """Against NumPy in a wider type, near 0 too, and where there is nothing to compute."""
    function = getattr(
        elementary, name + ("" if name == "exp" else "_") + ("32" if kind is np.float32 else "64")
    )
    sizes = np.concatenate((np.linspace(0, most, 20001), np.geomspace(1e-30, most, 2000))).astype(
        kind
    )
    x = np.concatenate((sizes, sizes[sizes < 1] * kind(-0.999) if name == "log1p" else -sizes))
    got = np.array([function(v) for v in x], np.longdouble)
    np.testing.assert_allclose(
        got, getattr(np, name)(x.astype(np.longdouble)), rtol=error, atol=np.finfo(kind).tiny
    )
    with np.errstate(all="ignore"):
        for edge in (np.inf, -np.inf, np.nan, -1.0, -2.0, 1e30):
            np.testing.assert_allclose(
                function(kind(edge)), getattr(np, name)(kind(edge)), rtol=error
            )
