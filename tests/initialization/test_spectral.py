"""Spectra of the search for factors: scales, ranks, singular vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

from robustmf import Observed
from robustmf.data.compressed import Compressed
from robustmf.initialization import spectral


def entries(m=20, n=15, rank=3, density=0.7, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    X += noise * rng.standard_normal((m, n))
    X[rng.random((m, n)) > density] = np.nan
    return Observed.from_dense(X)


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
    kept = np.ones(pointers[-1], bool)
    found = spectral._shrunk_medians(groups, np.repeat(medians, counts), kept, np.zeros(300))
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


def test_scales_without_some_entries_are_those_of_the_others():
    observed = entries(60, 30, density=0.5)
    rng = np.random.default_rng(1)
    kept = rng.random(observed.n_entries) < 0.8
    found = spectral.equilibrating_scales(observed, kept)
    expected = spectral.equilibrating_scales(observed.select(kept))
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("density", [0.2, 0.5])
@pytest.mark.parametrize("shape", [(150, 120), (40, 300)])
def test_the_count_is_that_of_negative_eigenvalues_of_the_bethe_hessian(shape, density):
    """Of factors of all strengths, some of which are at the limit of detection."""
    m, n = shape
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((m, 8)) * np.geomspace(1, 0.05, 8) @ rng.standard_normal((8, n))
        X += 0.3 * rng.standard_normal((m, n))
        X[rng.random((m, n)) > density] = np.nan
        observed = Observed.from_dense(X)
        x = observed.rows.values / np.sqrt(np.mean(observed.rows.values**2))

        def transition(beta, x=x):
            return (np.tanh(beta * x) ** 2).sum() / np.sqrt(m * n) - 1

        beta = brentq(transition, 1e-6, 50)
        A = np.zeros((m, n))
        i = observed.rows.group_of_entry()
        A[i, observed.rows.indices] = np.sinh(2 * beta * x) / 2
        degree = np.zeros((m, n))
        degree[i, observed.rows.indices] = np.sinh(beta * x) ** 2
        diagonal = 1 + np.concatenate([degree.sum(axis=1), degree.sum(axis=0)])
        H = np.diag(diagonal) - np.block([[np.zeros((m, m)), A], [A.T, np.zeros((n, n))]])
        expected = int((np.linalg.eigvalsh(H) < 0).sum())
        assert 1 < expected < 12
        assert spectral.bethe_hessian_rank(observed, observed.rows.values, 50, seed) == expected


def test_more_factors_than_the_first_steps_show(monkeypatch):
    rank = 14
    monkeypatch.setattr(spectral, "OPTIONS", replace(spectral.OPTIONS, first_steps=rank - 2))
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
