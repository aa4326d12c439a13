"""The block of large data that is searched, and its extension to all rows and columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import oracles
from robustmf import Observed
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.initialization import blocks
from robustmf.initialization import search as search_module
from robustmf.initialization.attempts import search_factors
from robustmf.kernels.team import Team


def entries():
    """Entries of a matrix of rank 2 with noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 2)) @ rng.standard_normal((2, 90))
    X += 0.1 * rng.standard_normal(X.shape)
    X[rng.random(X.shape) > 0.6] = np.nan
    return Observed.from_dense(X)


def test_too_few_entries_are_not_searched():
    rng = np.random.default_rng(0)
    few = Observed.from_dense(np.where(np.eye(8) > 0, 1.0, np.nan))
    narrow = Observed.from_dense(rng.standard_normal((20, 1)))
    zeros = Observed.from_dense(np.zeros((8, 8)))
    for observed in (few, narrow, zeros):
        assert search_factors(observed, None, Team(1), rng) is None


def test_large_data_are_searched_in_a_block(monkeypatch):
    """A part is searched first; the block of data above the limit is extended to all."""
    observed = entries()
    operations = CPUOperations(observed, Team(1))
    searched = []
    search_factors = search_module.search_factors

    def recorded(part, rank, team, rng):
        searched.append(part.shape)
        return search_factors(part, rank, team, rng)

    monkeypatch.setattr(search_module, "search_factors", recorded)
    for limit in (observed.n_entries, observed.n_entries // 2):
        options = replace(blocks.OPTIONS, max_entries=limit, min_per_row=10.0, coarse_entries=3000)
        monkeypatch.setattr(search_module, "BLOCKS", options)
        found = search_module.searched_factors(operations, None, np.random.default_rng(0))
        assert found.rank == 2
        assert found.U.shape == (120, 2)
        residual = oracles.residuals(observed, found.U, found.V)
        assert np.median(np.abs(residual)) < 0.1
    assert searched[0][0] == searched[0][1] < 90  # before all rows and columns
    assert searched[1][0] == searched[1][1] < 90


def test_rows_without_entries_in_the_block_are_fitted_to_the_other_columns(monkeypatch):
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((120, 2)) @ rng.standard_normal((2, 90))
    density = np.where(np.arange(90) < 60, 0.9, 0.4) * np.ones((120, 1))
    density[7] = np.arange(90) >= 60
    noisy = truth + 0.05 * rng.standard_normal(truth.shape)
    observed = Observed.from_dense(np.where(rng.random(truth.shape) < density, noisy, np.nan))
    options = replace(blocks.OPTIONS, max_entries=3_000, coarse_entries=1_000)
    monkeypatch.setattr(search_module, "BLOCKS", options)
    operations = CPUOperations(observed, Team(1))
    coarse, _ = search_module.nested_blocks(operations, 2)
    assert not coarse.rows[7]
    assert not coarse.columns[60:].any()
    found = search_module.searched_factors(operations, 2, np.random.default_rng(0))
    np.testing.assert_allclose(found.U[7] @ found.V.T, truth[7], atol=0.2)
