"""Parts of the search for factors, one by one: kernels, noise, levels, spectra, bookkeeping."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from robustmf import Observed
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.data.compressed import Compressed
from robustmf.initialization import search as search_module
from robustmf.initialization import spectral, variational
from robustmf.initialization.noise_mixture import (
    OPTIONS as NOISE,
)
from robustmf.initialization.noise_mixture import (
    NoiseLevels,
    NoiseMixture,
    NoiseModel,
    _slope,
)
from robustmf.initialization.variational import OPTIONS, FoundFactors, VariationalSearch
from robustmf.kernels import variational as kernels
from robustmf.kernels.team import Team
from robustmf.losses import SCAD


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
    search.noise.release(0.2)
    search.expectations()
    return search


def symmetric(packed):
    """The matrix of a packed covariance, whose off-diagonal elements are doubled."""
    rank = int(np.sqrt(2 * len(packed)))
    A = np.zeros((rank, rank))
    A[np.tril_indices(rank)] = packed
    return (A + A.T) / 2


# --- kernels ---


def test_weights_and_density_use_levels_and_outliers_have_no_weight():
    search = searching()
    before = search.weights.copy()
    search.expectations()
    used, log_shares, centers, variances = search.noise.components()
    assert (centers != 0).any()
    energy = 0.0
    moments = np.zeros((3, len(used)))
    for t, (i, j) in enumerate(zip(search.i, search.j, strict=True)):
        u, v = search.rows.U[i], search.columns.U[j]
        S = symmetric(search.rows.covariances[i])
        T = symmetric(search.columns.covariances[j])
        level = search.rows.levels.values[i] * search.columns.levels.values[j]
        e = search.values[t] - u @ v
        by_row = v @ S @ v + np.trace(S @ T)
        by_column = u @ T @ u
        assert search.energies[t] == pytest.approx((e**2 + by_row + by_column) / level)
        # an entry that determines its row alone is not divided by zero
        row_part = by_row / max(0.05, 1 - before[t] * by_row)
        column_part = by_column / max(0.05, 1 - before[t] * by_column)
        e = e * (1 + before[t] * (row_part + column_part)) / np.sqrt(level)
        total = variances + (row_part + column_part) / level
        terms = log_shares - 0.5 * ((e - centers) ** 2 / total + np.log(total * level))
        p = np.exp(terms - terms.max())
        assert search.log_densities[t] == pytest.approx(np.log(p.sum()) + terms.max(), rel=1e-6)
        p /= p.sum()
        gain = variances / total
        x = centers + gain * (e - centers)
        outlier = (centers != 0) & (p > 1e-9)
        moments += p * np.array(
            [np.ones_like(p), outlier * x, outlier * (x * x + gain * (total - variances))]
        )
        weight = float((p / variances)[centers == 0].sum())
        assert search.weights[t] == pytest.approx(weight / level, rel=1e-6, abs=1e-12)
        energy += weight * search.energies[t]
    np.testing.assert_allclose(search.sums[1], moments, rtol=1e-6, atol=1e-6)
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
    outer = search.rows.U[:, np.tril_indices(rank)[0]] * search.rows.U[:, np.tril_indices(rank)[1]]
    search.rows.moments[:] = outer
    search.weights[:] = weights
    search.posteriors(search.columns, search.rows)
    i = 4
    entries_of_row = np.flatnonzero(search.i == i)
    count = len(entries_of_row)
    B = np.empty((count, rank))
    spreads = np.empty((count, rank * (rank + 1) // 2))
    kernels._without_entries(
        search.rows.groups.pointers, search.j, search.values, weights, i, search.rows.U,
        search.columns.U, search.columns.covariances, B, spreads, np.empty(rank),
    )  # fmt: skip
    for z, t in enumerate(entries_of_row):
        j = search.j[t]
        others = np.flatnonzero((search.j == j) & (search.i != i))
        U = search.rows.U[search.i[others]]
        w = weights[others]
        covariance = np.linalg.inv(np.diag(search.precision) + (U * w[:, None]).T @ U)
        mean = covariance @ (U.T @ (w * search.values[others]))
        np.testing.assert_allclose(B[z], mean, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(symmetric(spreads[z]), covariance, rtol=1e-7, atol=1e-9)


def test_a_row_changes_only_for_a_gain(monkeypatch):
    def repaired(min_gain):
        search = searching(entries(noise=0.01), covariance=1e-4)
        search.noise.impose(1e-4 * search.spread, search.size)
        search.energies[:] = 0
        monkeypatch.setattr(variational, "OPTIONS", replace(OPTIONS, min_gain=min_gain))
        return search.repair()

    assert repaired(1.0) > 0
    assert repaired(1e12) == 0


# --- the noise distribution ---


def test_imposed_and_released_shares():
    mixture = NoiseMixture(1.0, 100.0)
    mixture.impose(2.0, 2.0)
    assert mixture.variance == 2.0
    assert mixture.shares[:2].tolist() == pytest.approx(
        [1 - NOISE.outlier_share, NOISE.outlier_share]
    )
    mixture.impose(1.0, 16.0)
    assert np.flatnonzero(mixture.shares).tolist() == [0, 2]  # standard deviations 1 and 4
    mixture.impose(1e-30, 1.0)
    assert mixture.shares[NOISE.scales[1] - 1] == NOISE.outlier_share
    mixture.release(1.0)
    assert mixture.shares.sum() == pytest.approx(1)
    assert mixture.shares[0] > 1 - NOISE.outlier_share
    large = np.maximum(mixture.centers**2, mixture.variances) >= 100
    assert large.any()
    assert (mixture.shares[large] == 0).all()
    assert (mixture.shares[~large] > 0).all()


def test_a_component_that_was_not_used_can_return():
    mixture = NoiseMixture(1.0, 100.0)
    mixture.learn(np.array([0]), np.array([[50.0], [0.0], [0.0]]), 25.0)
    assert mixture.variance == pytest.approx(0.5)
    assert mixture.shares.sum() == pytest.approx(1)
    assert (mixture.shares[1:4] > 0).all()


def test_outliers_do_not_count_for_the_variance():
    mixture = NoiseMixture(1.0, 1e4)
    outlier = int(np.flatnonzero(mixture.centers)[0])
    mixture.learn(np.array([0, outlier]), np.array([[80.0, 20.0], [0, 70.0], [0, 250.0]]), 80.0)
    assert mixture.variance == pytest.approx(1.0)
    assert mixture.centers[outlier] == mixture.first_centers[outlier]


def test_free_components_of_outliers_are_learned_within_bounds():
    mixture = NoiseMixture(4.0, 1e6)
    mixture.is_free = True
    near, far = np.flatnonzero(mixture.first_centers > 0)[[0, 8]]
    negative = int(np.flatnonzero(mixture.first_centers < 0)[8])
    used = np.array([0, near, far, negative])
    counts = np.array([70.0, 10.0, 10.0, 10.0])
    means = np.array([0.0, 2.0, 50.0, -60.0])
    squares = means**2 + np.array([0.0, 0.1, 1e4, 36.0])
    mixture.learn(used, np.array([counts, counts * means, counts * squares]), 70.0)
    assert mixture.variance == pytest.approx(4.0)
    # in units of the noise; not nearer than the first, neither narrower nor wider than the bounds
    np.testing.assert_allclose(mixture.centers[used], [0, 3, 25, -30])
    np.testing.assert_allclose(mixture.variances[used], [1, 0.36, 25, 9])
    mixture.release(4.0)
    assert np.array_equal(mixture.centers, mixture.first_centers)
    assert np.array_equal(mixture.variances, mixture.first_variances)


def test_components_with_a_small_share_are_not_learned():
    mixture = NoiseMixture(1.0, 1e6)
    mixture.is_free = True
    outlier = int(np.flatnonzero(mixture.first_centers > 0)[4])
    moments = np.array([[999.0, 1.0], [0.0, 500.0], [0.0, 250_001.0]])
    mixture.learn(np.array([0, outlier]), moments, 999.0)
    assert mixture.centers[outlier] == mixture.first_centers[outlier]


def test_log_density_is_that_of_the_mixture():
    mixture = NoiseMixture(3.0, 1e4)
    mixture.release(3.0)
    log_energy = np.array([-2.0, 0.0, 3.0])
    e = np.exp(log_energy / 2)[:, None]
    density = mixture.shares * np.exp(-0.5 * (e - mixture.centers) ** 2 / mixture.variances)
    expected = np.log((density / np.sqrt(mixture.variances)).sum(axis=1))
    np.testing.assert_allclose(mixture.log_density(log_energy), expected)


def noise_model(row_scales, column_scales, outliers=0.0):
    mixture = NoiseMixture(1.0, 1e4)
    bump = int(np.argmin(np.abs(mixture.centers - 4)))
    mixture.shares[[0, bump]] = 1 - outliers, outliers
    return NoiseModel(np.asarray(row_scales), np.asarray(column_scales), mixture)


def test_scales_that_are_nearly_equal_are_not_used():
    equal = noise_model(np.exp([-0.05, 0.05]), np.ones(3))
    assert equal.scales is None
    different = noise_model(np.ones(2), np.exp([-0.5, 0.0, 0.5]))
    rows, columns = different.scales
    assert len(rows) == 2
    assert len(columns) == 3
    assert len(different.transposed.row_scales) == 3


def test_theta_stays_in_the_domain_of_the_loss():
    theta = noise_model(np.ones(2), np.ones(2), outliers=0.3).theta(SCAD(), 2.6)
    assert 2 < theta <= 2.6


# --- noise levels ---


def test_levels_are_relative_to_the_median_row():
    levels = NoiseLevels(np.zeros(5))
    likelihoods = -0.5 * (levels.offsets - np.array([[0], [2], [4], [6], [8]])) ** 2 * 10.0
    levels.learn(likelihoods, np.full(5, 10), common=False)
    assert np.median(levels.values) == pytest.approx(1)
    ratios = np.log(levels.values) / NOISE.level_step
    np.testing.assert_allclose(ratios, [-4, -2, 0, 2, 4], atol=0.2)


def test_common_levels_are_on_the_regression_line():
    log_scale = np.linspace(-2, 2, 9)
    levels = NoiseLevels(log_scale)
    wanted = np.rint(-2 * log_scale / NOISE.level_step)
    likelihoods = -np.abs(levels.offsets - wanted[:, None])
    levels.learn(likelihoods, np.full(9, 10), common=True)
    np.testing.assert_allclose(np.log(levels.values), -2 * log_scale, atol=0.2)
    assert np.array_equal(levels.base, levels.values)


@pytest.mark.parametrize(("true", "found"), [(-1.5, -1.5), (-7.0, -2.0), (3.0, 0.0)])
def test_slopes_are_between_those_of_equal_and_proportional_noise(true, found):
    x = np.linspace(-1, 1, 7)
    assert _slope(x, 4 + true * x, np.arange(1, 8)) == pytest.approx(found)
    assert _slope(np.ones(7), x, np.arange(1, 8)) == 0


def test_points_of_the_regression_are_weighted_by_entries():
    x = np.array([0.0, 1.0, 2.0])
    y = np.array([0.0, -1.0, 50.0])
    assert _slope(x, y, np.array([10, 10, 0])) == pytest.approx(-1)


# --- spectra ---


def test_scales_of_columns_are_found_and_those_of_equal_rows_are_equal():
    rng = np.random.default_rng(0)
    factor = np.exp(2 * rng.standard_normal(30))
    observed = entries(60, 30, density=0.5)
    scaled = observed.with_values(observed.rows.values * factor[observed.rows.indices])
    row_scale, column_scale = spectral.equilibrating_scales(scaled)
    assert np.corrcoef(np.log(column_scale), np.log(factor))[0, 1] > 0.95
    few = Observed.from_dense(rng.standard_normal((200, 5)))
    row_scale, _ = spectral.equilibrating_scales(few)
    medians = np.median(np.log(np.abs(few.rows.values.reshape(200, 5))), axis=1)
    assert np.std(np.log(row_scale)) < 0.5 * np.std(medians)


def test_medians_of_few_values_are_shrunk():
    counts = np.array([2, 3, 200, 300])
    pointers = np.concatenate([[0], np.cumsum(counts)])
    columns = np.concatenate([np.arange(count) for count in counts])
    groups = Compressed(pointers, columns.astype(np.int32), np.ones(pointers[-1]))
    medians = np.array([3.0, -3.0, 2.0, -2.0])
    found = spectral._shrunk_medians(groups, np.repeat(medians, counts))
    variance = 2 / counts
    between = np.var(medians) - variance.mean()
    np.testing.assert_allclose(found, medians * between / (between + variance))


def test_factors_of_few_entries_are_counted():
    """Hardly more entries per row than are needed to detect a factor."""
    rng = np.random.default_rng(0)
    m = 800
    chosen = rng.choice(m * m, int(1.8 * m), replace=False)
    i, j = np.divmod(chosen, m)
    signs = rng.choice([-1.0, 1.0], (2, m))
    observed = Observed.from_indices(i, j, signs[0][i] * signs[1][j], (m, m))
    assert spectral.bethe_hessian_rank(observed, observed.rows.values, 1, 0) == 1


def test_values_of_which_most_are_equal_are_not_clipped():
    values = np.array([1.0, 1.0, 1.0, 1.0, 7.0])
    assert spectral.clipped(values).tolist() == values.tolist()
    assert spectral.clipped(np.array([0.0, 1.0, 2.0, 3.0, 90.0])).max() < 10


def test_more_factors_than_are_counted_at_first():
    rank = spectral.OPTIONS.first_eigenvalues + 2
    observed = entries(160, 150, rank, density=0.9, seed=1)
    assert spectral.bethe_hessian_rank(observed, observed.rows.values, 40, 0) == rank
    assert spectral.bethe_hessian_rank(observed, observed.rows.values, 5, 0) == 5


def test_spectral_factors_are_singular_vectors():
    observed = entries(12, 9)
    left, right = spectral.spectral_factors(observed, observed.rows.values, 3, 0)
    all_left, all_right = spectral.spectral_factors(observed, observed.rows.values, 9, 0)
    for k in range(3):
        assert abs(left[:, k] @ all_left[:, k]) == pytest.approx(1)
        assert abs(right[:, k] @ all_right[:, k]) == pytest.approx(1)


# --- the search ---


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
    search.noise.variance = 0.2 * search.spread
    assert search.repair() == 0
    assert search.n_repairs == 0


def test_suspects_are_the_worst_rows_and_are_left_alone_after_failures():
    search = searching(entries(40, 30))
    search.clean[:] = 0.875
    search.clean[search.i == 3] = 0.125
    search.clean[search.i == 8] = 0.5
    rows, n_subsets = search._suspects(search.rows)
    assert rows[:2].tolist() == [3, 8]
    assert n_subsets[0] == OPTIONS.max_subsets
    assert n_subsets[1] == np.ceil(2 * np.log(1e-3) / np.log1p(-(0.5**3)))
    for _ in range(OPTIONS.max_failures):
        rows, _ = search._suspects(search.rows)
    assert rows.tolist() == []
    search.clean[search.i == 8] = 0.375
    assert search._suspects(search.rows)[0].tolist() == [8]


def test_a_factor_without_means_is_removed():
    search = searching()
    search.sweep()
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
    a, c = np.tril_indices(5)
    for i in (0, 7):
        covariance = np.zeros((5, 5))
        covariance[:3, :3] = before[i]
        covariance[3:, 3:] = 0.25 * np.eye(2)
        np.testing.assert_allclose(symmetric(side.covariances[i]), covariance)
        second = covariance + np.outer(side.U[i], side.U[i])
        np.testing.assert_allclose(side.moments[i], second[a, c])


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
    before = [
        np.copy(one)
        for one in (search.weights, search.energies, search.clean, search.log_densities)
    ]
    sums = search.sums
    evidence = search.evidence()
    after = (search.weights, search.energies, search.clean, search.log_densities)
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))
    assert search.sums is sums
    cost = sum(side.divergence(search.precision) for side in (search.rows, search.columns))
    search.weights[:] = 0
    search.expectations()
    assert evidence == pytest.approx(search.log_densities.sum() - cost)


def test_the_result_is_in_the_unit_of_the_data():
    observed = entries()
    one = searching(observed).found()
    other = searching(observed.with_values(16 * observed.rows.values)).found()
    np.testing.assert_allclose(other.U @ other.V.T, 16 * one.U @ one.V.T)
    assert other.sigma == pytest.approx(16 * one.sigma)
    assert other.ridge == pytest.approx(16 * one.ridge)
    assert other.log_density == pytest.approx(one.log_density - np.log(16))
    rows = one.noise.row_scales[observed.rows.group_of_entry()]
    columns = one.noise.column_scales[observed.rows.indices]
    assert np.mean(np.log(rows)) == pytest.approx(0, abs=1e-12)
    assert np.mean(np.log(columns)) == pytest.approx(0, abs=1e-12)


def test_sigma_and_scales_are_those_of_an_entry():
    search = searching()
    found = search.found()
    t = 7
    i, j = search.i[t], search.j[t]
    variance = (
        search.noise.variance * search.rows.levels.values[i] * search.columns.levels.values[j]
    )
    level = np.sqrt(variance) * search.unit * search.row_scale[i] * search.column_scale[j]
    scales = found.noise.row_scales[i] * found.noise.column_scales[j]
    assert found.sigma * scales == pytest.approx(level)


@pytest.mark.parametrize(
    ("attempts", "chosen"),
    [
        ([(-2.0, False), (-1.0, False)], -1.0),
        ([(-1.0, False), (-2.0, False)], -1.0),
        ([(-2.0, True), (-1.0, False)], -2.0),
    ],
)
def test_the_best_attempt_is_returned_and_a_clear_one_ends_the_search(
    attempts, chosen, monkeypatch
):
    left = list(attempts)

    def attempt(*_):
        density, is_clear = left.pop(0)
        factors = np.ones((20, 1)), np.ones((15, 1))
        return FoundFactors(*factors, 1.0, SimpleNamespace(), 1.0, -density, density, is_clear)

    monkeypatch.setattr(variational, "_attempt", attempt)
    found = variational.search_factors(entries(), None, Team(1), np.random.default_rng(0))
    assert found.evidence == chosen
    assert len(left) == (1 if attempts[0][1] else 0)


def test_too_few_entries_are_not_searched():
    rng = np.random.default_rng(0)
    few = Observed.from_dense(np.where(np.eye(8) > 0, 1.0, np.nan))
    narrow = Observed.from_dense(rng.standard_normal((20, 3)))
    zeros = Observed.from_dense(np.zeros((8, 8)))
    for observed in (few, narrow, zeros):
        assert variational.search_factors(observed, None, Team(1), rng) is None


def test_the_size_up_to_which_data_are_searched():
    assert search_module.is_searchable(250_000, 1)
    assert not search_module.is_searchable(250_001, 1)
    assert search_module.is_searchable(60_000, 31)
    assert not search_module.is_searchable(60_000, 32)


def test_the_rank_of_a_sample_of_rows(monkeypatch):
    observed = entries(30, 12, density=1.0)
    operations = CPUOperations(observed, Team(1))
    sampled = []

    def search_factors(sample, rank, team, rng):
        sampled.append((sample, rank))
        return SimpleNamespace(U=np.ones((30, 4)))

    monkeypatch.setattr(search_module, "search_factors", search_factors)
    assert search_module.sampled_rank(operations, None) == 1
    assert sampled == []
    options = replace(search_module.OPTIONS, max_entries=150)
    monkeypatch.setattr(search_module, "OPTIONS", options)
    assert search_module.sampled_rank(operations, None) == 4
    ((sample, rank),) = sampled
    assert rank is None
    assert sample.n_entries == 120  # every third row
