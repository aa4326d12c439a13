"""Conformance of the backends: what each of them declares, and the sweeps that all of them have.

The backends are CPU, CUDA (on a GPU or in Triton's interpreter) and a Dask cluster of real
processes. Operations on entries are tested in ``test_conformance_operations.py`` on the backends
that declare them; that the others have none, and refuse what needs them, is tested here.
"""

from __future__ import annotations

import inspect
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from clusters import Own as UserDefined

import oracles
from conftest import BACKENDS, DEVICES, close, members, random_problem
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
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.backends.registry import get_backend, get_cluster_backend
from robustmf.backends.ridge import FactorRidge
from robustmf.data.observed import Observed
from robustmf.initialization import nonnegative
from robustmf.losses import L2, LSP, Welsch, smoothed
from robustmf.solvers.registry import choose_solver, get_solver, solver_names


def backend_of(name):
    return get_cluster_backend() if name == "dask" else get_backend(name)


def test_every_member_of_the_contract_is_used_in_this_suite():
    files = Path(__file__).parent.glob("test_conformance*.py")
    source = "".join(file.read_text(encoding="utf-8") for file in files)
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
        data = observed
        client = {}
        if name == "dask":
            data = [frame]
            client = {"client": request.getfixturevalue("client")}
        if offered:
            assert np.isfinite(model.fit(data, **client).row_factors_).all()
        else:
            with pytest.raises(ValueError, match=f"{parameter} must be .* with client="):
                model.fit(data, **client)


@pytest.mark.parametrize("name", BACKENDS)
def test_non_negative_factors_are_fitted_or_refused(name, request, monkeypatch):
    # few sweeps: Triton's interpreter takes a second for each
    few = replace(nonnegative.OPTIONS, max_sweeps=2, regression=(1, 1, 1))
    monkeypatch.setattr(nonnegative, "OPTIONS", few)
    frame, observed = as_table(random_problem(12, 9, 2)[0])
    model = RobustMF(2, device="cpu" if name == "dask" else name, random_state=0, max_iter=2)
    model.set_params(nonnegative=True, reg=0.3, init="ridge", tol=1e-1)
    if backend_of(name).capabilities.nonnegative:
        model.fit(observed)
        assert min(model.row_factors_.min(), model.column_factors_.min()) >= 0
        assert model.row_factors_.max() > 0
    else:
        client = request.getfixturevalue("client")
        with pytest.raises(ValueError, match="nonnegative=True needs all entries in the memory"):
            model.fit([frame], client=client)


def as_table(entries):
    """Entries as a table, and as one machine reads them from it."""
    rows = entries.rows
    frame = pd.DataFrame({"row": rows.group_of_entry(), "col": rows.indices, "x": rows.values})
    return frame, Observed.from_triplets(frame, row="row", col="col", value="x")


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


@pytest.fixture(params=BACKENDS)
def entries_on(request):
    """Makes the entries of a table on every backend: the backend, and an object with sweeps.

    Weights are a column of the table on a cluster, and an argument of ``sweeps`` elsewhere.
    """

    def make(frame, weight=None):
        backend = backend_of(request.param)
        if request.param == "dask":
            from robustmf.backends.dask import Triplets  # noqa: PLC0415 - an extra
            from robustmf.backends.dask.connection import Connection  # noqa: PLC0415
            from robustmf.backends.dask.loading import load_matrix  # noqa: PLC0415
            from robustmf.backends.dask.sweeps import DaskOperations  # noqa: PLC0415

            client = request.getfixturevalue("client")
            pieces = [frame.iloc[k::3] for k in range(3)]
            data = Triplets(pieces, row="row", col="col", value="x", weight=weight)
            matrix = load_matrix(Connection(client, ""), data, 3, None, 0)
            return backend, DaskOperations(matrix)
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


def as_ridges(kind, counts):
    """The argument ``reg`` and ``reg_by_count`` of sweeps, and the ridge of each factor."""
    if kind == "by_count":
        return 0.02, True, [np.repeat(0.02 * of_side[:, None], 3, 1) for of_side in counts]
    rules = (
        FactorRidge(np.array([0.1, 0.2, 0.3]), np.array([0.01, 0.0, 0.02])),
        FactorRidge(np.array([0.3, 0.1, 0.2]), np.array([0.0, 0.03, 0.01])),
    )
    sides = zip(rules, counts, strict=True)
    return rules, False, [rule.constant + n[:, None] * rule.by_count for rule, n in sides]


def ridge_rows(observed, weights, ridges, V):
    """argmin_u Σ w(y − u·v)² + Σ ridge·u², row by row."""
    W = oracles.dense(observed, weights)
    Y = oracles.dense(observed, observed.rows.values)
    rows = zip(W, Y, ridges, strict=True)
    return np.stack(
        [np.linalg.solve((V.T * w) @ V + np.diag(r), V.T @ (w * y)) for w, y, r in rows]
    )


@pytest.mark.parametrize("kind", ["by_count", "by_factor"])
def test_half_steps_with_weights_and_ridges_of_rows_and_factors(entries_on, kind):
    """Both half-steps of a sweep, the norms of the entries, and the penalty, against oracles."""
    entries, U, V = random_problem()
    frame, observed = as_table(entries)
    frame["trust"] = np.random.default_rng(1).integers(0, 3, len(frame)).astype(float)
    s = frame["trust"].to_numpy(copy=True)
    _, placed = entries_on(frame, "trust")
    if not hasattr(placed, "array"):  # a cluster has loaded the entries with a weight only
        observed = observed.select(s > 0)
        s = s[s > 0]
    order = observed.column_order
    counts = [of.rows.counts for of in (observed, observed.transposed)]
    if kind == "by_factor":  # entries count with their weights
        sides = ((observed, s), (observed.transposed, s[order]))
        counts = [np.bincount(of.rows.group_of_entry(), w) for of, w in sides]
    reg, by_count, ridges = as_ridges(kind, counts)
    weights = placed.array(s) if hasattr(placed, "array") else None
    sweeps = placed.sweeps(reg, BiasModel(None, 1.0), weights, by_count)
    values = observed.rows.values
    close(sweeps.entries_size(), ((values**2).sum(), s.sum(), (s > 0).sum()), np.float64)
    point = sweeps.place(U, V)
    loss = Welsch(1.5)
    options = {"curvature": np.inf, "single": False}
    new, measured = sweeps.sweep(point, point, 0.0, loss, [loss], **options)
    own = ridge_rows(observed, s * loss.weight(oracles.residuals(observed, U, V)), ridges[0], V)
    e = oracles.residuals(observed.transposed, V, own)
    other = ridge_rows(observed.transposed, s[order] * loss.weight(e), ridges[1], own)
    close(np.asarray(new[0]), own, np.float64, 10)
    close(np.asarray(new[1]), other, np.float64, 10)
    e = oracles.residuals(observed, own, other)
    close(measured.loss_sums, [(s * loss.value(e)).sum()], np.float64, 10)
    assert (measured.weight, measured.n_weighted) == (s.sum(), (s > 0).sum())
    penalty = sum((r * A**2).sum() for r, A in zip(ridges, (own, other), strict=True)) / 2
    close(measured.penalty, penalty, np.float64, 10)


def test_loss_sums_of_all_kinds_of_losses(entries_on):
    """Smooth, nonsmooth, smoothed and user-defined losses at one point."""
    entries, U, V = random_problem()
    frame, observed = as_table(entries)
    _, placed = entries_on(frame)
    sweeps = placed.sweeps(0.3, BiasModel(None, 1.0))
    e = oracles.residuals(observed, U, V)
    families = ([L2()], [LSP(), smoothed(LSP(), 0.3), smoothed(LSP(), 0.1)], [UserDefined(0.4)])
    for losses in families:
        measured = sweeps.measure(sweeps.place(U, V), losses, single=False)
        close(measured.loss_sums, [loss.value(e).sum() for loss in losses], np.float64, 10)


def test_steps_with_curvature_are_those_of_the_cpu(entries_on, team):
    """A nonsmooth loss, where rows with many entries within the smoothing width step further."""
    entries, U, V = random_problem()
    frame, observed = as_table(entries)
    loss = smoothed(LSP(), 2.0)
    found = []
    for operations in (entries_on(frame)[1], CPUOperations(observed, team)):
        sweeps = operations.sweeps(0.3, BiasModel(0.1, 1.2))
        point = sweeps.place(U, V)
        options = {"curvature": 0.5, "single": False}
        new, _ = sweeps.sweep(point, point, 0.0, loss, [loss], **options)
        plain, _ = sweeps.sweep(point, point, 0.0, loss, [loss], **options | {"curvature": np.inf})
        assert not np.allclose(np.asarray(new[0]), np.asarray(plain[0]), rtol=1e-3)
        found.append([np.asarray(A) for A in new])
    for one, other in zip(*found, strict=True):
        close(one, other, np.float64, 10)
