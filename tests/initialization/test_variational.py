"""The search for factors: kernels against formulas, and what it learns."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from robustmf import Observed, RobustMF
from robustmf.datasets import make_synthetic
from robustmf.initialization import variational
from robustmf.initialization.attempts import search_factors
from robustmf.initialization.noise_mixture import OPTIONS, NoiseLevels, NoiseMixture, NoiseModel
from robustmf.initialization.spectral import (
    bethe_hessian_rank,
    clipped,
    equilibrating_scales,
    group_medians,
)
from robustmf.initialization.variational import VariationalSearch
from robustmf.kernels import variational as kernels
from robustmf.kernels.team import Team
from robustmf.losses import Huber, Welsch


def low_rank(m, n, rank, density, noise=0.1, outliers=0.0, seed=0):
    """Observed entries of a matrix of this rank, and the factors."""
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((m, rank))
    V = rng.standard_normal((n, rank))
    i, j = np.nonzero(rng.random((m, n)) < density)
    y = np.einsum("tq,tq->t", U[i], V[j]) + noise * rng.standard_normal(len(i))
    bad = rng.random(len(i)) < outliers
    y[bad] += 5 * rng.choice([-1, 1], bad.sum())
    return Observed.from_indices(i, j, y, (m, n)), U @ V.T


def rmse(model, truth):
    return float(np.sqrt(np.mean((model.row_factors_ @ model.column_factors_.T - truth) ** 2)))


def started(rank=3, seed=0):
    observed, _ = low_rank(20, 15, rank, 0.6, seed=seed)
    search = VariationalSearch(observed, Team(1), 1)
    rng = np.random.default_rng(seed)
    search.start(rng.standard_normal((20, rank)), rng.standard_normal((15, rank)), 0.1)
    search.noise.impose(0.2, 4.0)
    search.expectations()
    return search


def full(packed, doubled):
    """The symmetric matrix of a packed one."""
    rank = int(np.sqrt(2 * len(packed)))
    A = np.zeros((rank, rank))
    a, c = np.tril_indices(rank)
    A[a, c] = packed
    A = A + A.T - np.diag(np.diag(A))
    return np.where(np.eye(rank) > 0, A, A / 2) if doubled else A


def test_posterior_of_a_row_is_that_of_a_bayesian_regression():
    search = started()
    means = search.columns.U.copy()
    moments = [
        full(packed, doubled=True) + np.outer(v, v)
        for packed, v in zip(search.columns.covariances, means, strict=True)
    ]
    search.posteriors(search.rows, search.columns)
    for i in (0, 7):
        entries = search.i == i
        j = search.j[entries]
        y = search.values[entries]
        w = search.weights[entries]
        precision = np.diag(search.precision) + sum(
            a * moments[k] for a, k in zip(w, j, strict=True)
        )
        covariance = np.linalg.inv(precision)
        mean = covariance @ (means[j].T @ (w * y))
        np.testing.assert_allclose(search.rows.U[i], mean, rtol=1e-9)
        found = full(search.rows.covariances[i], doubled=True)
        np.testing.assert_allclose(found, covariance, rtol=1e-6, atol=1e-8)  # single precision


def test_an_entry_is_judged_without_its_own_influence():
    search = started()
    search.sweep()
    before = search.weights.copy()
    search.expectations()
    _, log_shares, centers, variances = search.noise.components()
    for t in (0, 11, 40):
        u = search.rows.U[search.i[t]]
        v = search.columns.U[search.j[t]]
        S = full(search.rows.covariances[search.i[t]], doubled=True)
        T = full(search.columns.covariances[search.j[t]], doubled=True)
        e = search.values[t] - u @ v
        by_row = v @ S @ v + np.trace(S @ T)
        by_column = u @ T @ u
        assert search.energies[t] == pytest.approx(e**2 + by_row + by_column, rel=1e-9)
        w = before[t]
        extra = by_row / (1 - w * by_row) + by_column / (1 - w * by_column)
        e *= 1 + w * extra
        total = variances + extra
        p = np.exp(log_shares - 0.5 * np.log(total) - 0.5 * (e - centers) ** 2 / total)
        p /= p.sum()
        assert search.clean[t] == pytest.approx(p[0], rel=1e-6, abs=1e-12)
        assert search.weights[t] == pytest.approx(float(p @ (1 / variances)), rel=1e-6)


def test_the_balanced_basis_leaves_products_and_has_the_same_diagonal_moments():
    search = started()
    search.posteriors(search.rows, search.columns)
    search.posteriors(search.columns, search.rows)
    product = search.rows.U @ search.columns.U.T
    covariance = full(search.rows.covariances[4], doubled=True)
    predicted = search.columns.U @ covariance @ search.columns.U.T
    search.balance()
    np.testing.assert_allclose(search.rows.U @ search.columns.U.T, product, rtol=1e-8, atol=1e-10)
    moved = full(search.rows.covariances[4], doubled=True)
    np.testing.assert_allclose(
        search.columns.U @ moved @ search.columns.U.T, predicted, rtol=1e-5, atol=1e-6
    )
    for side in (search.rows, search.columns):
        np.testing.assert_allclose(side.second_moment(), np.diag(search.variances), atol=1e-6)


def test_a_row_at_a_wrong_fit_is_found_again_from_subsets():
    """A third of the row's entries agree on another fit, at which the row is."""
    rng = np.random.default_rng(3)
    U = rng.standard_normal((60, 2))
    V = rng.standard_normal((50, 2))
    U[5] = 2.0, 1.0
    wrong = np.array([-1.0, 2.5])
    values = U @ V.T + 0.05 * rng.standard_normal((60, 50))
    values[5, ::3] = V[::3] @ wrong
    search = VariationalSearch(Observed.from_dense(values), Team(1), 1)
    start = U.copy()
    start[5] = wrong
    unit = np.sqrt(search.unit)
    search.start(
        start / (unit * search.row_scale[:, None]), V / (unit * search.column_scale[:, None]), 1e-6
    )
    search.noise.impose(1e-3, 4.0)
    search.expectations()
    assert search.repair() >= 1
    found = search.rows.U[5] * search.row_scale[5] * unit
    np.testing.assert_allclose(found, U[5], atol=0.2)


def test_mixture_learns_shares_and_variance():
    rng = np.random.default_rng(0)
    e = np.concatenate((0.3 * rng.standard_normal(9000), 3 + 0.3 * rng.standard_normal(1000)))
    mixture = NoiseMixture(1.0, 20.0)
    mixture.release(1.0)
    for _ in range(60):
        used, log_shares, centers, variances = mixture.components()
        terms = log_shares - 0.5 * np.log(variances) - 0.5 * (e[:, None] - centers) ** 2 / variances
        p = np.exp(terms - terms.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        informative = centers == 0
        energy = float((p[:, informative] * e[:, None] ** 2 / variances[informative]).sum())
        moments = np.array([p.sum(axis=0), e @ p, e**2 @ p])
        mixture.learn(used, moments, energy)
    assert np.sqrt(mixture.variance) == pytest.approx(0.3, rel=0.05)
    assert mixture.outlier_share == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("size", [4.0, 8.0])
def test_theta_falls_with_moderate_outliers_alone(size):
    def model(outliers):
        mixture = NoiseMixture(1.0, 1e4)
        k = int(np.argmin(np.abs(mixture.centers - size)))
        mirrored = int(np.argmin(np.abs(mixture.centers + size)))
        mixture.shares[:] = 0
        mixture.shares[[0, k, mirrored]] = 1 - outliers, outliers / 2, outliers / 2
        return NoiseModel(np.ones(2), np.ones(2), mixture)

    assert model(0.0).theta(Welsch(), 3.0) == 3.0
    assert model(0.2).theta(Welsch(), 3.0) < 2.5


def test_asymptotic_variance_is_that_of_the_textbook():
    gaussian = NoiseMixture(1.0, 1e4)
    # Huber's estimate is 95 % efficient at 1.345
    assert 1 / gaussian.asymptotic_variance(Huber(1.345)) == pytest.approx(0.95, abs=0.003)


def test_levels_follow_the_rows_and_are_equal_where_rows_do_not_differ():
    rng = np.random.default_rng(0)
    m = 200
    count = 40
    step = 0.25
    mixture = NoiseMixture(1.0, 1e4)
    grid = np.arange(-14.0, 40.0, step)
    offsets = step * np.arange(-OPTIONS.level_steps, OPTIONS.level_steps + 1)
    table = mixture.level_table(grid, offsets, 1e-5)
    deviation = {}
    for name, true in (("equal", np.ones(m)), ("different", np.exp(rng.standard_normal(m)))):
        energies = (np.sqrt(true)[:, None] * rng.standard_normal((m, count))).ravel() ** 2
        levels = NoiseLevels(np.zeros(m))
        out = np.empty((m, len(levels.offsets)))
        pointers = np.arange(0, m * count + 1, count)
        for _ in range(10):
            unit = levels.base / levels.values
            scaled = energies / np.repeat(levels.values, count)
            kernels.level_likelihoods(
                0,
                1,
                np.array([0, m]),
                pointers,
                scaled,
                unit,
                table,
                -14.0,
                step,
                out,
            )
            levels.learn(out, np.full(m, count), common=False)
        deviation[name] = np.std(np.log(levels.values))
        if name == "different":
            assert np.corrcoef(np.log(levels.values), np.log(true))[0, 1] > 0.95
    assert deviation["equal"] < 0.1
    assert deviation["different"] > 0.8


def test_scales_equilibrate_and_medians_are_those_of_numpy():
    observed, _ = low_rank(40, 30, 3, 0.7)
    rows = observed.rows
    expected = [np.median(rows.values[a:b]) for a, b in pairwise(rows.pointers)]
    all_kept = np.ones(observed.n_entries, bool)
    found, counts = group_medians(rows, rows.values, all_kept, np.zeros(30))
    np.testing.assert_allclose(found, expected)
    np.testing.assert_array_equal(counts, rows.counts)
    factor = np.exp(2 * np.random.default_rng(1).standard_normal(40))
    scaled = observed.with_values(rows.values * factor[rows.group_of_entry()])
    row_scale, _ = equilibrating_scales(scaled)
    assert np.corrcoef(np.log(row_scale), np.log(factor))[0, 1] > 0.95


@pytest.mark.parametrize("rank", [1, 3, 6])
def test_bethe_hessian_counts_factors(rank):
    observed, _ = low_rank(200, 150, rank, 0.3, outliers=0.1, seed=rank)
    values = clipped(observed.rows.values)
    assert bethe_hessian_rank(observed, values, 30, 0) == rank
    noise = np.random.default_rng(0).standard_normal(len(values))
    assert bethe_hessian_rank(observed, noise, 30, 0) == 0


@pytest.mark.parametrize("rank", [2, 4, 7])
def test_the_rank_is_found(rank):
    observed, truth = low_rank(150, 120, rank, 0.4, outliers=0.1, seed=rank)
    model = RobustMF(random_state=0).fit(observed)
    assert model.rank_ == rank
    assert rmse(model, truth) < 0.1


def test_a_rank_too_high_is_harmless():
    data = make_synthetic(250, random_state=11)
    right, high = (RobustMF(rank, random_state=0).fit(data.train) for rank in (5, 9))
    assert high.row_factors_.shape[1] == 9
    assert (np.abs(high.row_factors_).max(axis=0) > 0).sum() == 5
    errors = [data.test_rmse(m.row_factors_, m.column_factors_) for m in (right, high)]
    assert errors[1] <= 1.02 * errors[0]


def test_scales_of_rows_and_columns_change_little():
    observed, truth = low_rank(200, 150, 4, 0.3, outliers=0.05, seed=5)
    rng = np.random.default_rng(2)
    a = np.exp(rng.standard_normal(200))
    b = np.exp(rng.standard_normal(150))
    rows = observed.rows
    scaled = observed.with_values(rows.values * a[rows.group_of_entry()] * b[rows.indices])
    plain = RobustMF(random_state=0).fit(observed)
    model = RobustMF(random_state=0).fit(scaled)
    product = model.row_factors_ @ model.column_factors_.T / np.outer(a, b)
    error = float(np.sqrt(np.mean((product - truth) ** 2)))
    assert model.rank_ == plain.rank_ == 4
    assert error <= 1.05 * rmse(plain, truth)


def test_one_sided_outliers_and_few_entries():
    rng = np.random.default_rng(4)
    observed, truth = low_rank(300, 300, 4, 0.12, seed=6)
    values = observed.rows.values.copy()
    bad = rng.random(len(values)) < 0.2
    values[bad] += 5
    model = RobustMF(random_state=0).fit(observed.with_values(values))
    assert model.rank_ == 4
    assert rmse(model, truth) < 0.12


def test_noise_alone_has_no_factors():
    """All factors are removed while the noise level is lowered."""
    observed = Observed.from_dense(np.random.default_rng(0).normal(size=(30, 20)))
    with Team(1) as team:
        found = search_factors(observed, 2, team, np.random.default_rng(0))
    assert found is not None
    assert found.U.shape == (30, 0)
    assert 0.85 < found.sigma < 1.15


def test_noise_that_differs_by_row_is_found_beside_outliers():
    rng = np.random.default_rng(0)
    scale = np.where(np.arange(120) % 3 == 0, 0.42, 0.14)
    X = rng.standard_normal((120, 2)) @ rng.standard_normal((2, 100))
    X += scale[:, None] * rng.standard_normal(X.shape)
    X += np.where(rng.random(X.shape) < 0.1, rng.choice([-5.0, 5.0], X.shape), 0.0)
    X[rng.random(X.shape) < 0.5] = np.nan
    found = search_factors(Observed.from_dense(X), None, Team(1), rng)
    levels = found.noise.row_scales
    assert found.U.shape[1] == 2
    assert np.median(levels[::3]) > 2 * np.median(levels[1::3])


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
def test_iterations_stay_at_the_posterior_means_of_rows_with_large_factors():
    """Their ridge is small: the uncertainty of columns that they determine is."""
    rng = np.random.default_rng(1)
    scale = np.exp(1.2 * rng.standard_normal((200, 1)))
    truth = (rng.standard_normal((200, 3)) * scale) @ rng.standard_normal((150, 3)).T
    X = truth + 0.1 * rng.standard_normal(truth.shape)
    X[rng.random(truth.shape) < 0.85] = np.nan
    errors = []
    for iterations in (0, 300):
        model = RobustMF(bias=False, max_iter=iterations, random_state=0).fit(X)
        predicted = model.row_factors_ @ model.column_factors_.T
        errors.append(np.sqrt(np.mean((predicted - truth) ** 2)))
    assert model.rank_ == 3
    assert errors[1] < 1.02 * errors[0]


def test_outliers_by_value_do_not_change_the_scales_of_their_rows():
    """Half of the entries of a row are far off: its scale is that of the others."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 40))
    clean = VariationalSearch(Observed.from_dense(X), Team(1), 1)
    bad = rng.random(X.shape) < 0.3
    bad[5] = np.arange(40) % 20 < 9
    X[bad] += 80 * rng.choice([-1, 1], int(bad.sum()))
    search = VariationalSearch(Observed.from_dense(X), Team(1), 1)
    np.testing.assert_array_equal(search.gross, bad.ravel())
    ratio = search.row_scale / clean.row_scale
    assert (ratio / np.median(ratio)).max() < 1.5


@pytest.mark.parametrize("value", [1e5, 1e9])
def test_one_gross_outlier_does_not_change_the_noise(value):
    """It is beyond all components of the mixture, and far beyond the other values."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 20))
    X += 0.1 * rng.standard_normal(X.shape)
    clean = search_factors(Observed.from_dense(X), None, Team(1), np.random.default_rng(0))
    X[0, 0] = value
    found = search_factors(Observed.from_dense(X), None, Team(1), np.random.default_rng(0))
    assert found.rank == clean.rank == 2
    assert found.sigma == pytest.approx(clean.sigma, rel=0.1)


def test_medians_of_entries_are_those_of_all_columns(monkeypatch):
    """The noise of every other column is ten times as large; there are as many entries of each."""
    options = replace(variational.OPTIONS, sample=1 << 10)
    monkeypatch.setattr(variational, "OPTIONS", options)
    scale = np.where(np.arange(64) % 2 == 0, 1.0, 10.0)
    rng = np.random.default_rng(0)
    observed = Observed.from_dense(scale * rng.standard_normal((64, 64)))
    search = VariationalSearch(observed, Team(1), 0)
    search.energies = np.tile(scale**2, 64)
    assert set(search.energies[search.spaced]) == {1.0, 100.0}
