"""Parts of the search for factors, one by one: kernels and bookkeeping."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numba import njit

from robustmf import Observed
from robustmf.initialization import variational
from robustmf.initialization.variational import VariationalSearch
from robustmf.initialization.variational_options import OPTIONS
from robustmf.kernels import variational as kernels
from robustmf.kernels.team import Team


@cache
def called(function):
    """A function that is compiled into kernels, as one that can be called."""

    @njit
    def call(*arguments):
        return function(*arguments)

    return call


def entries(m=20, n=15, rank=3, density=0.7, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    X += noise * rng.standard_normal((m, n))
    X[rng.random((m, n)) > density] = np.nan
    return Observed.from_dense(X)


def searching(observed=None, rank=3, covariance=0.1):
    """A search at random factors, with noise levels that differ."""
    observed = entries() if observed is None else observed
    search = VariationalSearch(observed, Team(1), 1)
    rng = np.random.default_rng(5)
    m, n = observed.shape
    search.start(rng.standard_normal((m, rank)), rng.standard_normal((n, rank)), covariance)
    search.rows.levels.values = np.exp(rng.standard_normal(m))
    search.columns.levels.values = np.exp(rng.standard_normal(n))
    search.rows.levels.base = np.exp(0.5 * rng.standard_normal(m))
    search.columns.levels.base = np.exp(0.5 * rng.standard_normal(n))
    search.noise.release(0.2)
    search.expectations()
    return search


def symmetric(packed):
    """The matrix of a packed covariance, whose off-diagonal elements are doubled."""
    rank = int(np.sqrt(2 * len(packed)))
    A = np.zeros((rank, rank))
    A[np.tril_indices(rank)] = packed
    return (A + A.T) / 2


def log_density(e, log_shares, centers, variances):
    """Log density of a mixture of normal distributions."""
    return np.logaddexp.reduce(
        log_shares - 0.5 * ((e - centers) ** 2 / variances + np.log(variances))
    )


def information(e, log_shares, centers, variances, step=1e-3):
    """The derivative of the log density of a mixture, and its negative second derivative."""
    low, middle, high = (
        log_density(e + d, log_shares, centers, variances) for d in (-step, 0.0, step)
    )
    return (high - low) / (2 * step), (2 * middle - low - high) / step**2


def of_outliers(e, probability, extra, mixture):
    """The weight and the mean of an outlier: a mixture has the information of its curvature."""
    slope, known = information(e, *mixture)
    if known * probability <= 1e-4:
        return 0.0, 0.0
    return probability * known / max(0.05, 1 - extra * known), e + slope / known


@pytest.mark.parametrize("learned", [False, True])
def test_weights_and_density_of_entries(learned):  # noqa: PLR0915
    search = searching()
    search.noise.is_free = learned
    search.expectations()
    before = search.weights.copy()
    targets = search.targets.copy()
    assert np.array_equal(targets, search.values) is not learned
    search.expectations()
    used, log_shares, centers, variances = search.noise.components()
    assert (centers != 0).any()
    is_noise = (centers == 0) & (variances <= 10 * variances[0])
    energy = 0.0
    n_informative = 0
    moments = np.zeros((3, len(used)))
    for t, (i, j) in enumerate(zip(search.i, search.j, strict=True)):
        u = search.rows.U[i]
        v = search.columns.U[j]
        S = symmetric(search.rows.covariances[i])
        T = symmetric(search.columns.covariances[j])
        level = search.rows.levels.values[i] * search.columns.levels.values[j]
        e = search.values[t] - u @ v
        by_row = v @ S @ v + np.trace(S @ T)
        by_column = u @ T @ u
        assert search.energies[t] == pytest.approx((e**2 + by_row + by_column) / level)
        # an entry that determines its row alone is not divided by zero
        others = sum(part / max(0.05, 1 - before[t] * part) for part in (by_row, by_column))
        e = (e + before[t] * others * (targets[t] - u @ v)) / np.sqrt(level)
        base = search.rows.levels.base[i] * search.columns.levels.base[j]
        units = np.where(is_noise, 1.0, base / level)  # the noise alone has the levels
        total = variances * units + others / level
        means = centers * np.sqrt(units)
        terms = log_shares - 0.5 * ((e - means) ** 2 / total + np.log(total * level))
        p = np.exp(terms - terms.max())
        assert search.log_densities[t] == pytest.approx(np.log(p.sum()) + terms.max(), rel=1e-6)
        p /= p.sum()
        gain = variances * units / total
        x = (means + gain * (e - means)) / np.sqrt(units)
        outlier = centers != 0
        square = x * x + gain * others / level / units
        moments += p * np.array([np.ones_like(p), outlier * x, outlier * square])
        assert search.reliability[t] == pytest.approx(float(p[is_noise].sum()), abs=1e-6)
        weight = float((p / (variances * units))[centers == 0].sum())
        energy += weight * search.energies[t]
        informative, shift = 0.0, 0.0
        if learned:
            mixture = (log_shares[outlier], means[outlier], total[outlier])
            informative, shift = of_outliers(e, p[outlier].sum(), others / level, mixture)
        total_weight = weight + informative
        assert search.weights[t] == pytest.approx(total_weight / level, rel=1e-2, abs=2e-3)
        offset = informative * shift / total_weight * np.sqrt(level)
        assert search.values[t] - search.targets[t] == pytest.approx(offset, rel=2e-2, abs=2e-2)
        n_informative += informative > 0.1
    assert bool(n_informative) is learned
    expected = moments if learned else moments * np.array([[1.0], [0.0], [0.0]])
    np.testing.assert_allclose(search.sums[1], expected, rtol=1e-6, atol=1e-6)
    assert search.sums[2] == pytest.approx(energy)
    assert np.array_equal(search.sums[0], used)


def test_high_leverage_occurs_in_the_test_of_weights():
    search = searching()
    leverage = [
        search.weights[t] * (v @ symmetric(search.rows.covariances[i]) @ v)
        for t, (i, v) in enumerate(zip(search.i, search.columns.U[search.j], strict=True))
    ]
    assert max(leverage) > 0.95


def test_columns_without_an_entry_are_regressions_without_it():
    """The posterior of a column, from which one of its entries is removed."""
    search = searching()
    rank = search.rank
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 2, len(search.values))
    search.rows.covariances[:] = 0
    search.weights[:] = weights
    search.posteriors(search.columns, search.rows)
    i = 4
    entries_of_row = np.flatnonzero(search.i == i)
    count = len(entries_of_row)
    B = np.empty((count, rank))
    covariances = np.empty((count, rank * (rank + 1) // 2))
    called(kernels._without_entries)(
        search.rows.groups.pointers,
        search.j,
        search.values,
        weights,
        i,
        search.rows.U,
        search.columns.U,
        search.columns.covariances,
        B,
        covariances,
        np.empty(rank),
    )
    for z, t in enumerate(entries_of_row):
        j = search.j[t]
        others = np.flatnonzero((search.j == j) & (search.i != i))
        U = search.rows.U[search.i[others]]
        w = weights[others]
        covariance = np.linalg.inv(np.diag(search.precision) + (U * w[:, None]).T @ U)
        mean = covariance @ (U.T @ (w * search.values[others]))
        # covariances have single precision
        np.testing.assert_allclose(B[z], mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(symmetric(covariances[z]), covariance, rtol=1e-4, atol=1e-5)


def test_subsets_are_compared_by_the_cost_of_outliers_of_their_size():
    rng = np.random.default_rng(0)
    B = rng.standard_normal((6, 2))
    u = np.array([0.7, -1.2])
    precision = np.array([0.5, 2.0])
    # noise, outliers with mean 4, and others, which count the same
    components = (np.log([0.8, 0.1, 1e-3]), np.array([0.0, 4.0, 0.0]), np.array([0.9, 0.4, 40.0]))
    level = np.array([1.0, 4.0, 0.25, 1.0, 4.0, 1.0])
    base = np.array([1.0, 1.0, 0.25, 0.5, 4.0, 2.0])
    costs = np.empty((6, 1, 3))
    lowest = min(
        called(kernels._outlier_costs)(level[t], base[t], 0.1, *components, costs[t])
        for t in range(6)
    )
    largest = called(kernels._largest_cost)(*components)
    assert largest == pytest.approx(1 + 2 * np.log(800) + np.log(40 / 0.9))
    e = np.array([0.1, -1.4, 1.0, 4.2, 8.5, -5.9])
    v = 0.9 * level + 0.1
    own = 0.4 * base + 0.1
    with_mean = 2 * np.log(8) + np.log(own / v) + (e - 4 * np.sqrt(base)) ** 2 / own
    expected = np.minimum(np.minimum(e**2 / v, with_mean), largest)
    w = np.full(6, np.nan)
    total = called(kernels._subset_cost)(
        B, B @ u + e, 1 / v, costs, (lowest, largest), precision, u, np.inf, w
    )
    np.testing.assert_allclose(w, np.where([1, 1, 1, 0, 0, 0], 1 / v, 0))
    assert total == pytest.approx(precision @ u**2 + expected.sum())


def test_subsets_in_lanes_are_ridge_regressions_and_cost_what_single_ones_do():
    rng = np.random.default_rng(0)
    n, r, lanes = 30, 3, kernels.LANES
    B = rng.standard_normal((n, r))
    y = rng.standard_normal(n)
    scales = rng.random(n) + 0.5
    precision = np.array([0.5, 2.0, 1.0])
    entries = np.empty((r, lanes), np.int64)
    fits = np.empty((r, lanes))
    workspace = (entries, np.empty((r + 2, lanes)), np.empty(lanes), np.empty((r, r, lanes)), fits)
    called(kernels._subsets)(B, scales, y, precision, np.arange(n), np.uint64(7), *workspace)
    assert len({tuple(subset) for subset in entries.T}) == lanes
    costs = np.array([[[1.0, 2.0, 3.0], [1.5, -2.0, 3.5]]] * n)
    bounds = (3.0, 4.0)
    e, least, totals = np.empty((3, lanes))
    called(kernels._lane_costs)(
        B, y, scales, costs, bounds, precision, fits, np.inf, e, least, totals
    )
    single = np.empty(lanes)
    for z in range(lanes):
        t = entries[:, z]
        assert len(set(t)) == r
        A = np.diag(precision) + (B[t] * scales[t, None]).T @ B[t]
        np.testing.assert_allclose(fits[:, z], np.linalg.solve(A, B[t].T @ (scales[t] * y[t])))
        single[z] = called(kernels._subset_cost)(
            B, y, scales, costs, bounds, precision, fits[:, z].copy(), np.inf, np.empty(n)
        )
    np.testing.assert_allclose(totals, single)
    limit = 0.9 * single.min()
    called(kernels._lane_costs)(
        B, y, scales, costs, bounds, precision, fits, limit, e, least, totals
    )
    assert (totals >= limit).all()
    assert totals.min() < single.min()


def test_outliers_have_the_base_level_in_the_posterior_of_a_row():
    rng = np.random.default_rng(0)
    B = rng.standard_normal((4, 2))
    covariances = np.tile([0.2, 0.0, 0.1], (4, 1))
    u = np.array([0.7, -1.2])
    y = B @ u + np.array([0.1, -3.0, 7.0, 40.0])
    shares = np.array([0.8, 0.15, 0.05])
    centers = np.array([0.0, 6.0, 0.0])
    variances = np.array([0.9, 2.0, 400.0])
    level = np.array([1.0, 4.0, 9.0, 0.5])
    base = np.array([1.0, 1.0, 2.0, 2.0])
    precision = np.array([0.5, 2.0])
    w = np.empty(4)
    batch = kernels._BATCH
    e, extra, density, weights = np.empty((4, batch))
    workspace = (e, extra, *np.ones((2, 2, batch)), np.empty((3, batch)), density, weights)
    total = called(kernels._log_posterior)(
        B, covariances, y, level, base, u, precision, np.log(shares), centers, variances,
        w, np.empty(3), workspace,
    )  # fmt: skip
    expected = -0.5 * precision @ u**2
    extra = covariances @ np.array([u[0] ** 2, u[0] * u[1], u[1] ** 2])
    for t in range(4):
        own = np.array([level[t], base[t], base[t]])
        v = variances * own + extra[t]
        terms = shares * np.exp(-0.5 * (y[t] - B[t] @ u - centers * np.sqrt(own)) ** 2 / v)
        terms *= np.sqrt(level[t] / v)  # densities are in units of the level
        expected += np.log(terms.sum())
        assert w[t] == pytest.approx((terms / terms.sum() / v)[[0, 2]].sum())
    assert total == pytest.approx(expected)


def test_a_row_changes_only_for_a_gain(monkeypatch):
    def repaired(min_gain):
        search = searching(entries(noise=0.01), covariance=1e-4)
        search.noise.impose(1e-4 * search.value_variance, search.size)
        search.energies[:] = 0
        monkeypatch.setattr(variational, "OPTIONS", replace(OPTIONS, min_gain=min_gain))
        return search.repair()

    assert repaired(1.0) > 0
    assert repaired(1e12) == 0


def test_weak_factors_keep_a_prior_variance_during_annealing():
    search = searching()
    search.sweep()
    search.variances = np.array([4.0, 1.0, 1e-6])
    search.learn_precision(0.1)
    np.testing.assert_allclose(search.precision, [1 / 4, 1, 1 / 0.4])
    search.learn_precision(0.0)
    np.testing.assert_allclose(search.precision, [1 / 4, 1, 1e6])


def test_there_is_nothing_to_repair_where_the_noise_is_large():
    search = searching()
    search.noise.variance = 0.2 * search.value_variance
    assert search.repair() == 0
    assert search.n_repairs == 0


def test_suspects_are_the_worst_rows_and_are_left_alone_after_failures():
    search = searching(entries(40, 30))
    search.rows.levels.base = search.rows.levels.values
    search.clean[:] = 0.875
    search.clean[search.i == 3] = 0.125
    search.clean[search.i == 8] = 0.5
    rows, n_subsets = search._suspects(search.rows, 300)
    assert rows[:2].tolist() == [3, 8]
    assert n_subsets[0] == 300
    assert n_subsets[1] == np.ceil(2 * np.log(1e-3) / np.log1p(-(0.5**3)))
    for _ in range(OPTIONS.max_failures):
        rows, _ = search._suspects(search.rows, 300)
    assert rows.tolist() == []
    search.clean[search.i == 8] = 0.375
    assert search._suspects(search.rows, 300)[0].tolist() == [8]


def test_a_row_that_looks_noisy_is_suspect_although_its_level_explains_it():
    search = searching(entries(40, 30))
    search.clean[:] = 0.875
    levels = search.rows.levels
    levels.values = levels.base.copy()
    levels.values[5] *= 100.0
    rows, n_subsets = search._suspects(search.rows, 1000)
    assert rows[0] == 5
    assert n_subsets[0] == 1000  # a tenth of its entries would be clean with the common level


def test_a_noisy_row_in_a_poor_maximum_is_repaired_and_loses_its_level():
    """Its own noise level confirms a fit in which every entry is far off."""
    rng = np.random.default_rng(3)
    U = rng.standard_normal((60, 3))
    V = rng.standard_normal((50, 3))
    X = U @ V.T + 0.05 * rng.standard_normal((60, 50))
    X[7, :20] += 6 * rng.choice([-1, 1], 20)
    search = VariationalSearch(Observed.from_dense(X), Team(1), 1)
    root = np.sqrt(search.unit)
    row_unit = root * search.row_scale[:, None]
    column_unit = root * search.column_scale[:, None]
    search.start(U / row_unit, V / column_unit, 1e-4)
    search.noise.release((0.05 / search.unit) ** 2)
    search.expectations()
    for _ in range(6):
        search.learning_sweep()
    right = search.rows.U[7].copy()
    search.rows.U[7] = [1.0, -1.0, 1.0]
    levels = search.rows.levels
    levels.values = levels.base.copy()
    levels.values[7] *= 2000.0
    search.expectations()
    assert search.repair(last=True) >= 1
    assert levels.values[7] == levels.base[7]
    np.testing.assert_allclose(search.rows.U[7], right, atol=0.1)


@pytest.mark.parametrize("number", [0, 3])
def test_a_noisy_row_that_is_fitted_to_a_few_entries_receives_a_higher_level(number, monkeypatch):
    """The other entries look like outliers; with a level of their size there is one maximum."""
    rng = np.random.default_rng(4)
    U = rng.standard_normal((60, 3))
    V = rng.standard_normal((50, 3))
    X = U @ V.T + 0.05 * rng.standard_normal((60, 50))
    X[7] += rng.standard_normal(50)
    search = VariationalSearch(Observed.from_dense(X), Team(1), 1)
    root = np.sqrt(search.unit)
    row_unit = root * search.row_scale[:, None]
    search.start(U / row_unit, V / (root * search.column_scale[:, None]), 1e-4)
    search.noise.release((0.05 / search.unit) ** 2)
    search.expectations()
    for _ in range(6):
        search.learning_sweep()
    search.levels_are_learned = True
    levels = search.rows.levels
    levels.prior[:] = 1 / len(levels.prior)
    levels.values = levels.base.copy()
    levels.values[7] *= 10.0
    fitted = search.values.reshape(60, 50)[7]
    some = np.argsort(np.abs(X[7] - (U @ V.T)[7]))[-6:]
    search.rows.U[7] = np.linalg.lstsq(search.columns.U[some], fitted[some])[0]
    search.expectations()
    monkeypatch.setattr(variational, "OPTIONS", replace(OPTIONS, raised_levels=number))
    monkeypatch.setattr(search, "_suspects", lambda *_: (np.array([7]), np.array([0])))
    before = search.rows.U[7].copy()
    search.repair()
    right = np.linalg.lstsq(search.columns.U, fitted)[0]
    error = np.linalg.norm(search.rows.U[7] - right) / np.linalg.norm(before - right)
    if number:
        assert levels.values[7] > 100 * levels.base[7]
        assert error < 0.3
    else:
        assert levels.values[7] == pytest.approx(10 * levels.base[7])


def test_a_factor_without_means_is_removed():
    search = searching()
    search.sweep()
    sizes = [np.sqrt(np.mean(side.U**2, axis=0)) for side in search.sides]
    search.variances = sizes[0] * sizes[1]
    search.rows.U[:, 1] *= 1e-3
    kept = search.columns.U[:, [0, 2]].copy()
    search.prune()
    assert search.rank == 2
    np.testing.assert_allclose(search.columns.U, kept)
    assert len(search.precision) == len(search.variances) == 2


def test_factors_that_are_added_are_independent_of_the_others():
    side = searching().rows
    side.covariances[:] = np.arange(6.0)
    before = [symmetric(packed) for packed in side.covariances]
    added = np.random.default_rng(0).standard_normal((20, 2))
    side.extend(added, 0.25)
    assert np.array_equal(side.U[:, 3:], added)
    for i in (0, 7):
        covariance = np.zeros((5, 5))
        covariance[:3, :3] = before[i]
        covariance[3:, 3:] = 0.25 * np.eye(2)
        np.testing.assert_allclose(symmetric(side.covariances[i]), covariance)


def test_the_divergence_is_that_of_gaussian_distributions():
    search = searching()
    search.sweep()
    precision = np.array([0.5, 1.0, 3.0])
    expected = 0.0
    for mean, packed in zip(search.rows.U, search.rows.covariances, strict=True):
        S = symmetric(packed)
        expected += 0.5 * (
            np.trace(np.diag(precision) @ S)
            + mean @ (precision * mean)
            - 3
            - np.linalg.slogdet(S)[1]
            - np.log(precision).sum()
        )
    assert search.rows.divergence(precision) == pytest.approx(expected)


def test_the_evidence_leaves_the_state_of_the_search():
    search = searching()
    search.sweep()
    search.expectations()
    names = ("weights", "energies", "clean", "log_densities")
    before = {name: getattr(search, name).copy() for name in names}
    sums = search.sums
    evidence = search.evidence()
    assert all(np.array_equal(getattr(search, name), one) for name, one in before.items())
    assert search.sums is sums
    cost = sum(side.divergence(search.precision) for side in (search.rows, search.columns))
    search.weights[:] = 0
    search.expectations()
    # the density of values in the unit of the data
    scales = search.row_scale[search.i] * search.column_scale[search.j] * search.unit
    assert evidence == pytest.approx(search.log_densities.sum() - np.log(scales).sum() - cost)


def test_the_result_is_in_the_unit_of_the_data():
    observed = entries()
    one = searching(observed).found()
    other = searching(observed.with_values(16 * observed.rows.values)).found()
    np.testing.assert_allclose(other.U @ other.V.T, 16 * one.U @ one.V.T)
    assert other.sigma == pytest.approx(16 * one.sigma)
    assert other.ridge == pytest.approx(16 * one.ridge)
    np.testing.assert_allclose(other.residuals, 16 * one.residuals)
    rows = one.noise.row_scales[observed.rows.group_of_entry()]
    columns = one.noise.column_scales[observed.rows.indices]
    assert np.mean(np.log(rows)) == pytest.approx(0, abs=1e-12)
    assert np.mean(np.log(columns)) == pytest.approx(0, abs=1e-12)


def test_sigma_and_scales_are_those_of_an_entry():
    search = searching()
    found = search.found()
    i = search.i[7]
    j = search.j[7]
    variance = (
        search.noise.variance * search.rows.levels.values[i] * search.columns.levels.values[j]
    )
    level = np.sqrt(variance) * search.unit * search.row_scale[i] * search.column_scale[j]
    scales = found.noise.row_scales[i] * found.noise.column_scales[j]
    assert found.sigma * scales == pytest.approx(level)


def test_a_row_that_determines_its_columns_takes_longer_steps():
    """One row without noise among noisy ones: it and its columns alternate slowly."""
    rng = np.random.default_rng(2)
    U = rng.standard_normal((30, 2))
    V = rng.standard_normal((40, 2))
    U[0] *= 8
    observed = Observed.from_dense(U @ V.T + rng.standard_normal((30, 40)))
    search = VariationalSearch(observed, Team(1), 1, (0.0, 0.0))
    root = np.sqrt(search.unit)
    search.start(U / root, V / root, 1e-2)
    search.noise.impose(1 / search.unit**2, 16.0)
    search.expectations()
    search.sweep()
    before = search.rows.U.copy()
    # of the precision of a column so much is of one row's entry
    a, c = np.tril_indices(2)
    leverages = np.empty(30)
    weights = search.weights.reshape(30, 40)
    for i in range(30):
        outer = before[i, a] * before[i, c]
        leverages[i] = np.mean(weights[i] * (search.columns.covariances @ outer))
    leverages = np.minimum(leverages, 1.0)
    search.posteriors(search.rows, search.columns)
    step = search.rows.U - before
    search.rows.U = before.copy()
    search.posteriors(search.rows, search.columns, relaxed=True)
    typical = 2 * 40 / 1200
    direct = np.clip((1 - leverages) / (1 - typical), 0.05, 1)
    assert 0.3 < leverages[0] < 1
    longer = 1 / (1 - 0.8 * (1 - direct))
    moved = search.rows.U - before
    np.testing.assert_allclose(moved, step * longer[:, None], rtol=1e-5, atol=1e-12)
    packed = search.rows.covariances[0]
    precision = np.linalg.inv([[packed[0], packed[1] / 2], [packed[1] / 2, packed[2]]])
    gain = 0.5 * step[0] @ precision @ step[0]
    assert search.rows.remaining[0] == pytest.approx(gain * (1 / direct[0] - 1), rel=1e-4)


@pytest.mark.parametrize("slow", [0.05, 0.2])
def test_sweeps_continue_while_a_row_converges_slowly(slow, monkeypatch):
    search = searching()
    sweeps = []

    def learning_sweep(*_, **__):
        sweeps.append(1)
        search.rows.remaining[3] = slow
        return 0.0

    monkeypatch.setattr(search, "learning_sweep", learning_sweep)
    monkeypatch.setattr(search, "repair", lambda: 0)
    monkeypatch.setattr(search, "prune", lambda: None)
    search.settle()
    # one repair after four sweeps, then at least six sweeps, and at most forty
    assert len(sweeps) == (4 + 6 + 1 if slow < 0.1 else 4 + 40 + 1)
