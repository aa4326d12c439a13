"""Sweeps over the blocks of a cluster conform to those of one machine."""

from __future__ import annotations

import math

import numpy as np
import pytest
from clusters import NAMES, in_pieces, table

from robustmf import Observed
from robustmf.backends.biases import BiasModel
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.backends.dask import Triplets
from robustmf.backends.dask.connection import Connection
from robustmf.backends.dask.loading import load_matrix
from robustmf.backends.dask.sweeps import DaskOperations
from robustmf.backends.sweeps import LocalSweeps
from robustmf.estimator.training import with_weight
from robustmf.losses import make_loss, smoothed

REG = 0.3


@pytest.fixture
def sweeps_of(client, team):
    """Makes the sweeps of one machine and of a cluster for the same entries and model."""

    def make(bias, weighted, reg_by_count, dtype=np.float64):
        frame = table(dtype=dtype)
        observed = Observed.from_triplets(frame, **NAMES)
        weights = None
        if weighted:
            weights = Observed.from_triplets(frame, **NAMES | {"value": "trust"}).rows.values
            observed, weights = with_weight(observed, weights)
        biases = BiasModel(0.2 if bias else None, 1.3)
        local = LocalSweeps(CPUOperations(observed, team), REG, biases, weights, reg_by_count)
        data = Triplets(in_pieces(frame), weight="trust" if weighted else None, **NAMES)
        matrix = load_matrix(Connection(client, ""), data, 3, None, 0)
        return local, DaskOperations(matrix).sweeps(REG, biases, None, reg_by_count)

    return make


def points(width, dtype=np.float64):
    rng = np.random.default_rng(0)
    return [
        tuple(rng.normal(size=(size, width)).astype(dtype) for size in (60, 40)) for _ in range(2)
    ]


def assert_same_measurement(one, other, rtol):
    np.testing.assert_allclose(one.loss_sums, other.loss_sums, rtol=rtol)
    np.testing.assert_allclose(one.weight, other.weight)
    np.testing.assert_allclose(one.penalty, other.penalty, rtol=rtol)
    assert one.n_weighted == other.n_weighted


@pytest.mark.parametrize(
    ("bias", "weighted", "reg_by_count", "dtype", "rtol"),
    [
        (False, False, False, np.float64, 1e-9),
        (True, True, True, np.float64, 1e-9),
        (True, False, False, np.float32, 1e-3),
    ],
)
def test_sweep_and_measure(sweeps_of, bias, weighted, reg_by_count, dtype, rtol):
    local, remote = sweeps_of(bias, weighted, reg_by_count, dtype)
    assert (local.dtype, local.n_entries) == (remote.dtype, remote.n_entries)
    np.testing.assert_allclose(remote.entries_size(), local.entries_size())
    loss = smoothed(make_loss("lsp", 0.7), 0.1)
    losses = [loss, smoothed(make_loss("lsp", 0.7), 0.04)]
    results = []
    for sweeps in (local, remote):
        point, previous = (sweeps.place(*one) for one in points(2 + bias, dtype))
        measured = sweeps.measure(point, losses, single=False)
        options = {"curvature": math.inf, "single": False}
        new, after = sweeps.sweep(point, previous, 0.3, loss, losses, **options)
        results.append((measured, after, [np.asarray(one) for one in new]))
    (measured, after, new), (remote_measured, remote_after, remote_new) = results
    assert_same_measurement(remote_measured, measured, rtol)
    assert_same_measurement(remote_after, after, rtol)
    for one, other in zip(remote_new, new, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * np.abs(other).max())
