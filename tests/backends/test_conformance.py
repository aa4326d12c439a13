"""Conformance of the backends: each operation of the contract against a naive oracle.

The backends are CPU, CUDA (on a GPU or in Triton's interpreter) and a Dask cluster of real
processes. All of them have capabilities and sweeps. Operations on entries are tested on those that
declare them; that the others have none, and refuse what needs them, is tested too.
"""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import oracles
from conftest import Root, needs_gpu, random_problem
from robustmf import RobustMF
from robustmf.backends.base import (
    Backend,
    Capabilities,
    DualPass,
    EntryOperations,
    FitPlan,
    LocalBackend,
    ProblemSize,
    SolverMemory,
    Sweeps,
)
from robustmf.backends.biases import BiasModel
from robustmf.backends.registry import get_backend, get_cluster_backend
from robustmf.data.observed import Observed
from robustmf.losses import L2, LSP, Smoothed, Welsch, loss_names, make_loss
from robustmf.solvers.registry import choose_solver, get_solver, solver_names

DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]
BACKENDS = [*DEVICES, "dask"]
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


def backend_of(name):
    return get_cluster_backend() if name == "dask" else get_backend(name)


def test_every_member_of_the_contract_is_used_in_this_suite():
    source = Path(__file__).read_text(encoding="utf-8")
    for protocol in (Backend, LocalBackend, EntryOperations, DualPass, Sweeps):
        for name in members(protocol):
            assert f".{name}" in source, (protocol, name)
    for field in fields(Capabilities):
        assert f".{field.name}" in source, field.name


@pytest.mark.parametrize("name", BACKENDS)
def test_a_backend_is_available_and_declares_its_capabilities(name):
    backend = backend_of(name)
    backend.check_available()
    assert backend.name == name
    capabilities = backend.capabilities
    assert isinstance(capabilities, Capabilities)
    for member, parameters in members(LocalBackend).items():
        offered = getattr(type(backend), member, None)
        assert (offered is not None) == capabilities.entry_operations, member
        if offered is not None:
            assert list(inspect.signature(offered).parameters) == parameters, member
    if not capabilities.entry_operations:  # what consists of such operations is not offered either
        assert not capabilities.host_arrays
        assert not capabilities.message_passing
    assert capabilities.allows_rank(10_000) == (capabilities.max_rank is None)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("solver", solver_names())
def test_solvers_are_refused_where_their_requirements_are_not_declared(name, solver):
    capabilities = backend_of(name).capabilities
    spec = get_solver(solver)
    offered = (capabilities.entry_operations or not spec.requires_entry_operations) and (
        capabilities.host_arrays or not spec.requires_host_arrays
    )
    problem = ((30, 20), 300, 2, LSP())
    options = {"plain_model": True, "capabilities": capabilities}
    assert spec.is_possible(**options) == offered
    if offered:
        assert choose_solver(solver, *problem, **options).spec is spec
    else:
        with pytest.raises(ValueError, match=f"solver='{solver}' needs "):
            choose_solver(solver, *problem, **options)
    chosen = choose_solver("auto", *problem, **options).spec
    assert chosen.is_possible(**options)


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
@pytest.mark.parametrize("name", BACKENDS)
def test_several_initializations_and_certificates_are_fitted_or_refused(name, request):
    """A fit by each backend through the estimator."""
    frame, observed = as_table(random_problem()[0])
    capabilities = backend_of(name).capabilities
    settings = {"loss": "lsp", "reg": 0.3, "random_state": 0, "max_iter": 2, "tol": 1e-1}
    requests = {
        "n_init": (2, capabilities.several_initializations),
        "certify": (True, capabilities.entry_operations),
    }
    for parameter, (value, offered) in requests.items():
        model = RobustMF(2, device="cpu" if name == "dask" else name, **settings)
        model.set_params(**{parameter: value})
        data, client = observed, {}
        if name == "dask":
            data, client = [frame], {"client": request.getfixturevalue("client")}
        if offered:
            assert np.isfinite(model.fit(data, **client).row_factors_).all()
        else:
            with pytest.raises(ValueError, match=f"{parameter} must be .* with client="):
                model.fit(data, **client)


def as_table(entries):
    """Entries as a table, and as one machine reads them from it."""
    rows = entries.rows
    frame = pd.DataFrame({"row": rows.group_of_entry(), "col": rows.indices, "x": rows.values})
    return frame, Observed.from_triplets(frame, row="row", col="col", value="x")


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
    assert operations.team is team
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


def test_workers_of_a_cluster_compute_on_the_cpu():
    with pytest.raises(ValueError, match="device must be 'cpu' with client=, got device='cuda'"):
        get_cluster_backend("cuda")


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


@pytest.fixture(params=BACKENDS)
def entries_on(request):
    """Makes the entries of a table on every backend: the backend, and an object with sweeps."""

    def make(frame):
        backend = backend_of(request.param)
        if request.param == "dask":
            from robustmf.backends.dask import Triplets  # noqa: PLC0415 - an extra
            from robustmf.backends.dask.connection import Connection  # noqa: PLC0415
            from robustmf.backends.dask.matrix import load_matrix  # noqa: PLC0415
            from robustmf.distributed.fitting import ClusterEntries  # noqa: PLC0415

            client = request.getfixturevalue("client")
            data = Triplets([frame.iloc[k::3] for k in range(3)], row="row", col="col", value="x")
            matrix = load_matrix(Connection(client, ""), data, 3, None, 0)
            return backend, ClusterEntries(matrix, (-np.inf, np.inf))
        observed = backend.observe(Observed.from_triplets(frame, row="row", col="col", value="x"))
        team = request.getfixturevalue("team")
        return backend, backend.operations(observed, team, 4, SolverMemory())

    return make


def test_sweeps_have_the_signatures_of_the_contract(entries_on):
    frame, observed = as_table(random_problem()[0])
    backend, entries = entries_on(frame)
    make = type(entries).sweeps
    assert list(inspect.signature(make).parameters) == members(EntryOperations)["sweeps"]
    sweeps = entries.sweeps(0.3, BiasModel(None, 1.0))
    for name, parameters in members(Sweeps).items():
        member = inspect.getattr_static(type(sweeps), name, None)
        if parameters is None:
            assert hasattr(sweeps, name), name
        else:
            assert list(inspect.signature(member).parameters) == parameters, name
    assert entries.capabilities == backend.capabilities
    assert (sweeps.dtype, sweeps.n_entries) == (observed.dtype, observed.n_entries)
    assert sweeps.supports_single == backend.capabilities.float32_sweeps
    squares = float((observed.rows.values**2).sum())
    close(sweeps.entries_size(), (squares, observed.n_entries, observed.n_entries), np.float64)


@pytest.mark.parametrize("bias", [False, True])
def test_a_sweep_solves_for_rows_and_then_for_columns(entries_on, bias):
    """On every backend: factors, sums of losses, penalty and counts against the oracles."""
    entries, U, V = random_problem()
    frame, observed = as_table(entries)
    biases = BiasModel(0.2 if bias else None, 1.0)
    backend, placed = entries_on(frame)
    sweeps = placed.sweeps(0.3, biases)
    point = sweeps.place(U, V)
    assert isinstance(point[0], np.ndarray) == backend.capabilities.host_arrays
    assert (point[0].shape, point[0].dtype) == (U.shape, U.dtype)
    previous = sweeps.place(0.9 * U, 0.9 * V)
    for found, wanted in zip(sweeps.predictors(point), biases.predictors(U, V), strict=True):
        np.testing.assert_array_equal(np.asarray(found), wanted)
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


def test_sweeps_in_single_precision_are_rounded_ones_or_the_same(entries_on):
    """``single`` is ignored without the capability ``float32_sweeps``."""
    entries, U, V = random_problem()
    frame, _ = as_table(entries)
    backend, placed = entries_on(frame)
    sweeps = placed.sweeps(0.3, BiasModel(None, 1.0))
    point = sweeps.place(U, V)
    found = []
    for single in (False, True):
        options = {"curvature": np.inf, "single": single}
        new, measured = sweeps.sweep(point, point, 0.0, Welsch(1.5), [Welsch(1.5)], **options)
        found.append((np.asarray(new[0]), measured.loss_sums[0]))
    (exact, total), (rounded, rounded_total) = found
    assert rounded.dtype == np.float64
    assert np.array_equal(exact, rounded) != backend.capabilities.float32_sweeps
    np.testing.assert_allclose(rounded, exact, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(rounded_total, total, rtol=1e-4)


def test_propagation_weighs_every_entry_as_inlier_and_as_outlier(problem, dtype):
    """The weights of the two components of every entry add up to 1; the formulas are in baselines.

    Backends without ``message_passing`` offer it on the host.
    """
    operations, U, V = problem
    if not operations.capabilities.message_passing:
        operations = operations.host()
        U, V = (operations.array(np.asarray(A)) for A in (U, V))
    n_entries = operations.observed.n_entries
    covariances = [np.tile(0.1 * np.eye(A.shape[1]), (len(A), 1, 1)) for A in (U, V)]
    weights = [np.full(n_entries, 0.5) for _ in range(2)]
    before = U.copy()
    sums = operations.propagate(
        U, covariances[0], V, covariances[1], np.arange(n_entries), *weights, 1.0, 0.1, 25.0, 0.1
    )
    assert np.shape(sums) == (4,)
    np.testing.assert_allclose(sums[0] + sums[2], n_entries, rtol=1e-5)
    assert np.isfinite(U).all()
    assert not np.array_equal(U, before)


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
