"""Large data: a block is searched, and the result is extended."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from robustmf import Observed, RobustMF
from robustmf.backends.base import ProblemSize
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.initialization import search
from robustmf.initialization.noise_mixture import NoiseModel
from robustmf.kernels.team import Team


def problem(m=120, n=100, rank=2, noise=0.1, bad=0.1, seed=0):
    """Low-rank values with outliers; later rows and columns have fewer entries."""
    rng = np.random.default_rng(seed)
    clean = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    X = clean + noise * rng.standard_normal((m, n))
    X += np.where(rng.random(X.shape) < bad, rng.choice([-5.0, 5.0], X.shape), 0.0)
    chance = np.linspace(1, 0.4, m)[:, None] * np.linspace(1, 0.4, n)
    X[rng.random(X.shape) > chance] = np.nan
    return clean, X


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of some 2,000 entries."""
    options = replace(search.OPTIONS, max_entries=2000, max_block=2500, min_per_row=1.0)
    monkeypatch.setattr(search, "OPTIONS", options)
    return options


def test_a_block_has_the_rows_and_columns_with_most_entries(small_blocks):
    observed = Observed.from_dense(problem()[1])
    rows, columns = search.dense_block(observed)
    for kept, groups in ((rows, observed.rows), (columns, observed.columns)):
        assert 0 < kept.sum() < len(kept)
        assert groups.counts[kept].min() >= groups.counts[~kept].max()
    assert rows.mean() == pytest.approx(columns.mean(), abs=0.02)
    mask = rows[observed.rows.group_of_entry()] & columns[observed.rows.indices]
    assert small_blocks.max_entries <= mask.sum() <= small_blocks.max_block


def test_a_block_is_larger_where_its_rows_would_have_few_entries(small_blocks, monkeypatch):
    observed = Observed.from_dense(problem()[1])
    smaller = search.dense_block(observed)[0].sum()
    options = replace(small_blocks, min_per_row=45.0, max_block=5000)
    monkeypatch.setattr(search, "OPTIONS", options)
    assert search.dense_block(observed)[0].sum() > smaller


def test_the_entries_of_a_block():
    X = problem(12, 9)[1]
    rng = np.random.default_rng(0)
    rows = rng.random(12) < 0.5
    columns = rng.random(9) < 0.5
    block = search.block_of(Observed.from_dense(X), rows, columns)
    expected = Observed.from_dense(X[np.ix_(rows, columns)])
    np.testing.assert_array_equal(block.rows.pointers, expected.rows.pointers)
    np.testing.assert_array_equal(block.rows.indices, expected.rows.indices)
    np.testing.assert_array_equal(block.rows.values, expected.rows.values)


def test_a_fit_from_a_block_is_as_good_as_one_from_all_entries(monkeypatch):
    clean, X = problem()
    errors = []
    for max_entries in (10**6, 2000):
        options = replace(search.OPTIONS, max_entries=max_entries, max_block=2500, min_per_row=1)
        monkeypatch.setattr(search, "OPTIONS", options)
        model = RobustMF(random_state=0).fit(X)
        assert model.rank_ == 2
        filled = model.inverse_transform(model.row_factors_)
        errors.append(np.sqrt(np.mean((filled - clean) ** 2)))
    assert errors[0] < 0.05
    assert errors[1] < 1.02 * errors[0]


def test_factors_outside_of_the_block_and_their_noise(small_blocks, monkeypatch):
    monkeypatch.setattr(search, "OPTIONS", replace(small_blocks, max_entries=6000, max_block=7000))
    clean, X = problem(200, 160, bad=0.0)
    scale = np.where(np.arange(200) % 3 == 0, 0.5, 0.0)
    noisy = X + scale[:, None] * np.random.default_rng(1).standard_normal(X.shape)
    operations = CPUOperations(Observed.from_dense(noisy), Team(1))
    found = search.searched_factors(operations, None, np.random.default_rng(0))
    rows, columns = search.dense_block(operations.observed)
    error = np.abs(found.U @ found.V.T - clean)
    assert np.median(error[~rows][:, ~columns]) < 0.15
    levels = found.noise.row_scales[~rows]
    loud = scale[~rows] > 0
    assert np.median(levels[loud]) > 1.8 * np.median(levels[~loud])
    assert len(found.ridges[0].constant) == found.rank
    assert found.ridges[0].rows is None


def test_noise_levels_of_rows_outside_of_the_block_are_shrunk_where_they_have_few_entries():
    """Relative to the rows of the block, whose mean residual is not one."""
    sizes = np.array([2.0, 3.0, 4.0, 0.5, 1.0, 1e-9])
    X = sizes[:, None] * np.where(np.arange(8) % 2 == 0, 1.0, -1.0)
    X[4, 2:] = np.nan
    observed = Observed.from_dense(X)
    rows = np.arange(6) < 3
    columns = np.ones(8, bool)
    found = SimpleNamespace(
        sigma=1.0, noise=NoiseModel(np.array([0.5, 1.0, 2.0]), np.ones(8), None)
    )
    operations = CPUOperations(observed, Team(1))
    noise = search._extended_noise(
        operations, found, rows, columns, np.zeros((6, 1)), np.zeros((8, 1))
    )
    # the mean residuals of the block's rows, in units of their levels, are 4, 3 and 2
    weight = np.array([8, 2, 8]) / (np.array([8, 2, 8]) + search.OPTIONS.prior_entries)
    relative = np.maximum(np.array([0.5, 1.0, 1e-9]) / 3, search.OPTIONS.least_level)
    np.testing.assert_allclose(noise.row_scales, [0.5, 1, 2, *relative**weight])
    np.testing.assert_array_equal(noise.column_scales, np.ones(8))


def test_the_size_that_is_searched():
    size = ProblemSize((4000, 1000), 1_000_000, 5, 8)
    assert search.searched_size(replace(size, n_entries=250_000)).shape == (4000, 1000)
    block = search.searched_size(replace(size, n_entries=4_000_000))
    assert block.n_entries == 1_000_000
    assert block.shape == (2000, 500)
