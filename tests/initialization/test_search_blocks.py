"""Large data: a small block is searched, then a larger one, and the result is extended."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from robustmf import Observed, RobustMF
from robustmf.backends.base import ProblemSize
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.initialization import blocks, model_choice, search
from robustmf.initialization.blocks import Block, DensityOrder, block_of
from robustmf.initialization.noise_mixture import NoiseModel
from robustmf.initialization.variational import VariationalSearch
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


def with_options(monkeypatch, **changed):
    """Other sizes of blocks."""
    monkeypatch.setattr(search, "BLOCKS", replace(blocks.OPTIONS, **changed))


def operations_on(X):
    return CPUOperations(Observed.from_dense(X), Team(1))


def test_a_block_has_the_rows_and_columns_with_most_entries():
    observed = Observed.from_dense(problem(300, 80)[1])
    block = DensityOrder(observed).block(2000, 1.0, 2500)
    sides = ((block.rows, observed.rows), (block.columns, observed.columns))
    for kept, groups in sides:
        assert 0 < kept.sum() < len(kept)
        assert groups.counts[kept].min() >= groups.counts[~kept].max()
    assert block.rows.sum() == pytest.approx(block.columns.sum(), rel=0.1)
    assert 2000 <= block.of(observed).n_entries <= 2500


def test_a_block_of_a_long_table_has_all_its_columns():
    observed = Observed.from_dense(problem(300, 20)[1])
    block = DensityOrder(observed).block(2000, 1.0, 2500)
    assert block.columns.all()
    assert not block.rows.all()


def test_rows_with_equal_numbers_of_entries_are_taken_from_everywhere():
    block = DensityOrder(Observed.from_dense(np.ones((400, 100)))).block(10_000, 1.0, 20_000)
    assert block.columns.all()
    assert 100 <= block.rows.sum() <= 200
    assert 0.35 < block.rows[200:].sum() / block.rows.sum() < 0.65


def test_a_block_is_larger_where_its_rows_would_have_few_entries():
    order = DensityOrder(Observed.from_dense(problem()[1]))
    smaller = order.block(2000, 1.0, 5000).rows.sum()
    larger = order.block(2000, 45.0, 5000)
    assert larger.rows.sum() > smaller
    entries = larger.of(larger.observed)
    assert entries.n_entries / max(entries.shape) >= 45


def test_a_block_of_everything_is_the_whole():
    observed = Observed.from_dense(problem(40, 30)[1])
    assert DensityOrder(observed).block(10**6, 1.0, 10**6).is_whole


def test_rows_and_columns_of_a_square_table_are_chosen_independently():
    block = DensityOrder(Observed.from_dense(np.ones((300, 300)))).block(5000, 1.0, 10_000)
    assert 0 < (block.rows & block.columns).sum() < 0.6 * block.rows.sum()


def test_the_entries_of_a_block():
    X = problem(12, 9)[1]
    X[4] = np.nan
    rng = np.random.default_rng(0)
    rows = rng.random(12) < 0.5
    rows[4] = True
    columns = rng.random(9) < 0.5
    block = block_of(Observed.from_dense(X), rows, columns)
    expected = Observed.from_dense(X[np.ix_(rows, columns)])
    np.testing.assert_array_equal(block.rows.pointers, expected.rows.pointers)
    np.testing.assert_array_equal(block.rows.indices, expected.rows.indices)
    np.testing.assert_array_equal(block.rows.values, expected.rows.values)


def test_entries_in_parts_have_their_rows(monkeypatch):
    X = problem(12, 9)[1]
    X[4] = np.nan
    observed = Observed.from_dense(X)
    monkeypatch.setattr(blocks, "OPTIONS", replace(blocks.OPTIONS, batch=7))
    parts, rows, counts = zip(*blocks.parts(observed), strict=True)
    assert [part.start for part in parts] == list(range(0, observed.n_entries, 7))
    assert parts[-1].stop == observed.n_entries
    every_row = np.arange(12)
    found = [np.repeat(every_row[own], n) for own, n in zip(rows, counts, strict=True)]
    np.testing.assert_array_equal(np.concatenate(found), observed.rows.group_of_entry())


def test_blocks_are_chosen_where_the_entries_are(operations_on):
    """The same blocks with the same entries on every device; of the rest the host has no copy."""
    observed = Observed.from_dense(problem()[1])
    placed = operations_on(observed).observed
    orders = [DensityOrder(entries) for entries in (observed, placed)]
    np.testing.assert_array_equal(orders[0].n_entries, orders[1].n_entries)
    expected, found = (order.block(1000, 1.0, 2000).with_others() for order in orders)
    np.testing.assert_array_equal(found.rows, expected.rows)
    np.testing.assert_array_equal(found.columns, expected.columns)
    inside = found.of(placed)
    assert type(inside) is type(placed)
    assert inside.shape == expected.of(observed).shape
    for name in ("pointers", "indices", "values"):
        own, wanted = (getattr(block.rows, name) for block in (inside, expected.of(observed)))
        assert own.dtype == wanted.dtype
        np.testing.assert_array_equal(np.asarray(own), wanted)


@pytest.mark.parametrize("with_rows", [True, False])
def test_scaled_entries_keep_their_columns(operations_on, with_rows):
    """Entries by columns that are known are divided too, with the bits of a new transposition."""
    observed = operations_on(Observed.from_dense(problem(30, 20)[1])).observed
    rng = np.random.default_rng(0)
    scales = [observed.placed(rng.uniform(0.5, 2, size)) for size in observed.shape]
    if not with_rows:
        scales[0] = None
    expected = observed.divided(*scales)
    assert expected._columns is None
    known = observed.columns
    found = observed.divided(*scales)
    assert found._columns is not None
    assert found.columns.indices is known.indices
    for name in ("pointers", "indices", "values"):
        own, wanted = (getattr(entries.columns, name) for entries in (found, expected))
        np.testing.assert_array_equal(np.asarray(own), np.asarray(wanted))
        own, wanted = (getattr(entries.rows, name) for entries in (found, expected))
        np.testing.assert_array_equal(np.asarray(own), np.asarray(wanted))


def test_noise_levels_of_other_rows_are_those_of_their_clipped_residuals(operations_on):
    """On every device the same as from a loop over the entries."""
    observed = Observed.from_dense(problem(60, 40)[1])
    rng = np.random.default_rng(1)
    U, V = rng.standard_normal((60, 2)), rng.standard_normal((40, 2))
    rows, columns = np.arange(60) < 30, np.arange(40) < 20
    noise = SimpleNamespace(
        row_scales=rng.uniform(0.5, 2, 30),
        column_scales=rng.uniform(0.5, 2, 20),
        scales=(1.0, 1.0),
        mixture=None,
    )
    found = SimpleNamespace(sigma=0.7, noise=noise)
    operations = operations_on(observed)
    extended = search._extended_noise(
        operations, found, rows, columns, operations.array(U), operations.array(V)
    )
    own = np.ones(60)
    own[rows] = noise.row_scales
    other = np.ones(40)
    other[columns] = noise.column_scales
    sizes = [[] for _ in range(60)]
    i, j, values = observed.rows.group_of_entry(), observed.rows.indices, observed.rows.values
    for a, b, x in zip(i, j, values, strict=True):
        size = abs(x - U[a] @ V[b]) / (0.7 * own[a] * other[b])
        sizes[a].append(min(size, search.OPTIONS.cutoff))
    means = np.array([np.mean(size) for size in sizes])
    counts = observed.rows.counts
    weight = counts / (counts + search.OPTIONS.prior_entries)
    expected = (means / np.median(means[rows])) ** weight
    np.testing.assert_allclose(extended.row_scales[~rows], expected[~rows], rtol=1e-10)
    np.testing.assert_array_equal(extended.row_scales[rows], noise.row_scales)


@pytest.mark.parametrize("coarse_entries", [600, 1500, 100_000])
def test_a_fit_from_blocks_is_as_good_as_one_from_all_entries(coarse_entries, monkeypatch):
    clean, X = problem()
    errors = []
    for max_entries in (10**6, 3000):
        with_options(
            monkeypatch,
            max_entries=max_entries,
            max_block=4000,
            min_per_row=1.0,
            coarse_entries=coarse_entries,
        )
        model = RobustMF(random_state=0).fit(X)
        assert model.rank_ == 2
        filled = model.inverse_transform(model.row_factors_)
        errors.append(np.sqrt(np.mean((filled - clean) ** 2)))
    assert errors[0] < 0.05
    assert errors[1] < 1.02 * errors[0]


def test_the_small_block_determines_the_factors_that_it_shows(monkeypatch):
    """With more factors it has more entries, or there is none."""
    with_options(monkeypatch, coarse_entries=1000, min_per_row=5.0)
    sizes = []
    for rank in (1, 3, 6):
        operations = operations_on(problem(300, 250, rank=rank, bad=0.0)[1])
        observed = search.nested_blocks(operations, None)[0].of(operations.observed)
        shown = search.shown_factors(observed, None, operations.team)
        assert observed.n_entries >= 4 * shown * sum(observed.shape)
        sizes.append(observed.n_entries)
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1] < operations.observed.n_entries / 2
    with_options(monkeypatch, coarse_entries=1000, min_per_row=5.0, entries_per_parameter=100.0)
    coarse, block = search.nested_blocks(operations, None)
    assert coarse is block


def test_factors_that_the_small_block_does_not_determine_are_searched_for_anew(monkeypatch):
    with_options(monkeypatch, coarse_entries=1000, min_per_row=5.0)
    operations = operations_on(problem(300, 250, bad=0.0)[1])
    refined = []
    monkeypatch.setattr(search, "refined", lambda *_: refined.append(1))
    for enough in (True, False):
        with monkeypatch.context() as patched:
            patched.setattr(search, "is_determined", lambda *_, enough=enough: enough)
            found = search.searched_factors(operations, None, np.random.default_rng(0))
        assert found.rank == 2
    assert refined == [1]
    found = search.search_entries(operations, None, np.random.default_rng(0))
    assert search.is_determined(found, operations.observed)
    few = block_of(operations.observed, np.arange(300) < 10, np.arange(250) < 10)
    assert not search.is_determined(found, few)
    without = replace(found, U=found.U[:, :0], V=found.V[:, :0])
    assert not search.is_determined(without, operations.observed)


def weak_factors(seed=0):
    """Two strong factors, and one that only many rows and columns show."""
    rng = np.random.default_rng(seed)
    scales = [1.0, 1.0, 0.2]
    U, V = rng.standard_normal((500, 3)) * scales, rng.standard_normal((400, 3))
    X = U @ V.T + rng.standard_normal((500, 400))
    X[rng.random(X.shape) > 0.25] = np.nan
    return X


def test_factors_that_the_small_block_does_not_show_are_found(monkeypatch):
    X = weak_factors()
    ranks = []
    for coarse_entries in (2500, 10**6):
        with_options(monkeypatch, coarse_entries=coarse_entries, entries_per_parameter=1.0)
        found = search.searched_factors(operations_on(X), None, np.random.default_rng(0))
        ranks.append(found.rank)
    assert ranks == [3, 3]
    part = search.nested_blocks(operations_on(X), None)[0]
    assert part.is_whole
    with_options(monkeypatch, coarse_entries=2500, entries_per_parameter=1.0)
    part = search.nested_blocks(operations_on(X), None)[0]
    operations = operations_on(part.of(Observed.from_dense(X)).to_dense())
    assert search.search_entries(operations, None, np.random.default_rng(0)).rank < 3


def test_the_result_of_the_small_block_is_extended_where_the_larger_shows_no_more(monkeypatch):
    """Only where the larger one is itself a part of the entries."""
    monkeypatch.setattr(VariationalSearch, "grow", lambda *_: False)
    operations = operations_on(problem(300, 250, bad=0.0)[1])
    rng = np.random.default_rng(0)
    for max_entries, expected in ((15_000, None), (10**6, 2)):
        with_options(monkeypatch, coarse_entries=5_000, max_entries=max_entries, min_per_row=10.0)
        coarse, block = search.nested_blocks(operations, None)
        assert coarse is not block
        part, inside = (operations.on(one.of(operations.observed)) for one in (coarse, block))
        found = search.search_entries(part, None, rng)
        better = search.refined(inside, found, coarse, block, None, rng)
        assert (None if better is None else better.rank) == expected


def test_factors_of_less_active_rows_are_found(monkeypatch):
    """The rows with most entries have other factors than the others."""
    rng = np.random.default_rng(0)
    U = rng.standard_normal((400, 2))
    active = np.arange(400) < 100
    U[active, 1] = 0
    U[~active, 0] = 0
    clean = U @ rng.standard_normal((2, 100))
    X = clean + 0.1 * rng.standard_normal(clean.shape)
    X[rng.random(X.shape) > np.where(active, 0.9, 0.3)[:, None]] = np.nan
    with_options(monkeypatch, max_entries=5000, min_per_row=10.0, coarse_entries=1500)
    coarse, block = search.nested_blocks(operations_on(X), None)
    assert not coarse.rows[~active].any()
    assert block.rows[~active].any()
    found = search.searched_factors(operations_on(X), None, np.random.default_rng(0))
    assert found.rank == 2
    assert np.sqrt(np.mean((found.U @ found.V.T - clean) ** 2)) < 0.1


def test_a_small_block_without_factors_does_not_decide(monkeypatch):
    """What it does not show is searched for in all entries."""
    compared = []
    compare = model_choice._compared

    def recorded(operations, *arguments):
        found = compare(operations, *arguments)
        compared.append((operations.observed.n_entries, found.chosen.factors.rank))
        return found

    monkeypatch.setattr(model_choice, "_compared", recorded)
    monkeypatch.setattr(search, "shown_factors", lambda *_: 0)
    with_options(monkeypatch, coarse_entries=1000, min_per_row=10.0)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 1)) @ rng.standard_normal((1, 160)) * 0.2
    X += rng.standard_normal(X.shape)
    model = RobustMF(random_state=0).fit(X)
    assert [rank for _, rank in compared] == [0, 1]
    assert model.rank_ == 1
    compared.clear()
    model = RobustMF(random_state=0).fit(rng.standard_normal((200, 160)))
    assert compared[-1] == (32_000, 0)
    assert len(compared) == 2
    assert model.rank_ == 0


def test_factors_outside_of_the_block_and_their_noise(monkeypatch):
    clean, X = problem(200, 160, bad=0.0)
    scale = np.where(np.arange(200) % 3 == 0, 0.5, 0.0)
    noisy = X + scale[:, None] * np.random.default_rng(1).standard_normal(X.shape)
    operations = operations_on(noisy)
    with_options(
        monkeypatch, max_entries=3000, max_block=3500, min_per_row=1.0, coarse_entries=7000
    )
    coarse, block = search.nested_blocks(operations, None)
    assert coarse is block
    found = search.searched_factors(operations, None, np.random.default_rng(0))
    error = np.abs(found.U @ found.V.T - clean)
    rows = block.rows
    assert np.median(error[~rows][:, ~block.columns]) < 0.15
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
    assert blocks.searched_size(replace(size, n_entries=250_000)).shape == (4000, 1000)
    block = blocks.searched_size(replace(size, n_entries=4_000_000))
    assert block.n_entries == 4_000_000
    assert block.shape == (4000, 1000)
    sparse = blocks.searched_size(replace(size, shape=(8000, 8000), n_entries=16_000_000))
    assert sparse.n_entries == 4_000_000
    assert sparse.shape == (4000, 4000)
    long = blocks.searched_size(replace(size, shape=(80_000, 100), n_entries=8_000_000))
    assert long.shape == (40_000, 100)
    assert Block(Observed.from_dense(np.ones((2, 2))), None, None).is_whole


@pytest.mark.parametrize("shape", [(20, 300), (300, 20)])
def test_the_average_row_of_a_block_is_one_of_its_longer_side(shape):
    """The block of a long table has all of its few columns, and more rows."""
    observed = Observed.from_dense(problem(*shape)[1])
    order = DensityOrder(observed)
    block = order.block(1000, 10.0, 6000)
    entries = block.of(observed)
    assert max(entries.shape) > min(entries.shape)
    level = int(max(order.levels[1][block.columns].max(), order.levels[0][block.rows].max()))
    assert order.per_row[level] == pytest.approx(entries.n_entries / max(entries.shape))


@pytest.mark.parametrize("grown", [False, True])
def test_a_larger_block_that_shows_more_factors_is_searched(grown, monkeypatch):
    operations = operations_on(problem(300, 250, bad=0.0)[1])
    with_options(monkeypatch, coarse_entries=5_000, max_entries=15_000, min_per_row=10.0)
    coarse, block = search.nested_blocks(operations, None)
    part, inside = (operations.on(one.of(operations.observed)) for one in (coarse, block))
    rng = np.random.default_rng(0)
    found = search.search_entries(part, None, rng)
    monkeypatch.setattr(VariationalSearch, "grow", lambda *_: grown)
    better = search.refined(inside, found, coarse, block, None, rng)
    assert (better is not None) == grown
