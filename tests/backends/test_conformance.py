"""Conformance of the backends: each operation of the contract against a naive oracle.

Sweeps are tested on all backends: CPU, CUDA (on a GPU or in Triton's interpreter) and a Dask
cluster of real processes. Operations on entries are tested on the first two; the Dask backend has
none.
"""

from __future__ import annotations

import importlib.util
import inspect

import numpy as np
import pandas as pd
import pytest

import oracles
from conftest import Root, needs_gpu, random_problem
from robustmf.backends.base import DualPass, EntryOperations, FitPlan, ProblemSize, SolverMemory
from robustmf.backends.biases import BiasModel
from robustmf.backends.registry import get_backend, get_cluster_backend
from robustmf.backends.sweeps import LocalSweeps
from robustmf.data.observed import Observed
from robustmf.losses import L2, LSP, Smoothed, Welsch, loss_names, make_loss

DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]
TOLERANCE = {np.float64: 1e-12, np.float32: 2e-5}


def close(got, wanted, dtype, scale=1.0):
    """Equal up to rounding errors; ``scale`` is the size of the largest terms."""
    np.testing.assert_allclose(
        np.asarray(got), np.asarray(wanted), rtol=TOLERANCE[dtype], atol=scale * TOLERANCE[dtype]
    )


def members(protocol):
    """Names and parameters of what a protocol requires; None for a property."""
    required = {}
    for name, member in vars(protocol).items():
        if name.startswith("_"):
            continue
        function = inspect.isfunction(member)
        required[name] = list(inspect.signature(member).parameters) if function else None
    return required


@pytest.mark.parametrize("protocol", [EntryOperations, DualPass])
def test_operations_have_the_signatures_of_the_contract(protocol, operations_on):
    observed, U, _ = random_problem()
    operations = operations_on(observed)
    subject = operations if protocol is EntryOperations else operations.dual_pass(U.shape[1])
    for name, parameters in members(protocol).items():
        member = inspect.getattr_static(type(subject), name, None)
        if parameters is None:
            assert hasattr(subject, name), name
        elif name == "propagate" and not operations.capabilities.message_passing:
            with pytest.raises(NotImplementedError, match=r"EntryOperations\.host"):
                operations.propagate()
        else:
            assert list(inspect.signature(member).parameters) == parameters, name


@pytest.mark.parametrize("device", DEVICES)
def test_a_backend_observes_entries_and_makes_operations(device, team):
    backend = get_backend(device)
    backend.check_available()
    observed, U, V = random_problem()
    placed = backend.observe(observed)
    operations = backend.operations(placed, team, U.shape[1], SolverMemory())
    assert backend.name == device
    assert operations.capabilities == backend.capabilities
    assert operations.observed is placed
    assert placed.to_host().n_entries == observed.n_entries
    found = operations.residuals(operations.array(U), operations.array(V))
    close(found, oracles.residuals(observed, U, V), np.float64, 10)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_memory_grows_with_the_problem_and_with_what_the_solver_declares(device):
    """Memory can be estimated without the device."""
    backend = get_backend(device)
    small = ProblemSize((2000, 1000), 100_000, 1, 4)
    large = ProblemSize((2000, 1000), 10_000_000, 1, 8)
    plain = FitPlan(SolverMemory())
    dual = FitPlan(SolverMemory(entry_arrays=8, float64_entry_arrays=3, dual_pass=True))
    assert 0 < backend.fit_bytes(small, plain) < backend.fit_bytes(large, plain)
    assert backend.fit_bytes(large, plain) < backend.fit_bytes(large, dual)


@pytest.mark.parametrize("device", ["gpu", "cuda:7", "CPU", "", 0, None, ["cpu"]])
def test_unknown_devices_are_refused(device):
    with pytest.raises(ValueError, match="device must be 'cpu' or 'cuda', got device="):
        get_backend(device)


def test_the_cluster_backend_declares_that_it_has_no_operations_on_entries():
    backend = get_cluster_backend()
    if importlib.util.find_spec("distributed") is not None:
        backend.check_available()
    assert backend.name == "dask"
    assert not backend.capabilities.entry_operations


def test_ranks_above_the_maximum_are_refused(team):
    observed, _, _ = random_problem()
    assert get_backend("cpu").capabilities.allows_rank(10_000)
    backend = get_backend("cuda")
    assert backend.capabilities.allows_rank(128)
    with pytest.raises(ValueError, match="fits ranks up to 128, a bias counted as one; got 129"):
        backend.operations(observed, team, 129, SolverMemory())


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


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_gpu), "dask"])
def sweeps_on(request):
    """Makes the sweeps of every backend over the entries of a table."""

    def make(frame, reg, biases):
        if request.param == "dask":
            from robustmf.backends.dask import Triplets  # noqa: PLC0415 - an extra
            from robustmf.backends.dask.connection import Connection  # noqa: PLC0415
            from robustmf.backends.dask.matrix import load_matrix  # noqa: PLC0415
            from robustmf.backends.dask.sweeps import DaskSweeps, Terms  # noqa: PLC0415

            client = request.getfixturevalue("client")
            data = Triplets([frame.iloc[k::3] for k in range(3)], row="row", col="col", value="x")
            matrix = load_matrix(Connection(client, ""), data, 3, None, 0)
            return DaskSweeps(matrix, Terms(reg, False, biases, (-np.inf, np.inf)))
        backend = get_backend(request.param)
        observed = backend.observe(Observed.from_triplets(frame, row="row", col="col", value="x"))
        operations = backend.operations(
            observed, request.getfixturevalue("team"), 4, SolverMemory()
        )
        return LocalSweeps(operations, reg, biases)

    return make


@pytest.mark.parametrize("bias", [False, True])
def test_a_sweep_solves_for_rows_and_then_for_columns(sweeps_on, bias):
    """On every backend: factors, sums of losses, penalty and counts against the oracles."""
    entries, U, V = random_problem()
    rows = entries.rows
    frame = pd.DataFrame({"row": rows.group_of_entry(), "col": rows.indices, "x": rows.values})
    observed = Observed.from_triplets(frame, row="row", col="col", value="x")
    biases = BiasModel(0.2 if bias else None, 1.0)
    sweeps = sweeps_on(frame, 0.3, biases)
    point = sweeps.place(U, V)
    previous = sweeps.place(0.9 * U, 0.9 * V)
    loss = Welsch(1.5)
    options = {"curvature": np.inf, "single": False}
    new, measured = sweeps.sweep(point, previous, 0.5, loss, [loss], **options)
    new = tuple(np.asarray(factor) for factor in new)
    e = oracles.residuals(observed, *biases.predictors(*new))
    close(measured.loss_sums, [loss.value(e).sum()], np.float64)
    assert measured.weight == measured.n_weighted == observed.n_entries == sweeps.n_entries
    np.testing.assert_array_equal(np.asarray(point[0]), U)
    before = sweeps.measure(point, [loss], single=False)
    e = oracles.residuals(observed, *biases.predictors(U, V))
    close(before.loss_sums, [loss.value(e).sum()], np.float64)
    if not bias:
        own = U + 0.5 * (U - 0.9 * U)
        other = V + 0.5 * (V - 0.9 * V)
        weights = loss.weight(oracles.residuals(observed, own, other))
        own = oracles.weighted_ridge_rows(observed, weights, 0.3, other)
        weights = loss.weight(oracles.residuals(observed.transposed, other, own))
        other = oracles.weighted_ridge_rows(observed.transposed, weights, 0.3, own)
        close(new[0], own, np.float64, 10)
        close(new[1], other, np.float64, 10)
        penalty = 0.15 * ((own**2).sum() + (other**2).sum())
        close(measured.penalty, penalty, np.float64, 10)


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
