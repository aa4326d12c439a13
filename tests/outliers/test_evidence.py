"""Evidence against groups: which kinds apply, and what single entries can do."""

from __future__ import annotations

import numpy as np
import pytest

from robustmf.outliers.evidence import (
    OPTIONS,
    Groups,
    _misfit,
    _own_evidence,
    _quantile_line,
    _suspicious_neighbours,
    _variance_tails,
)


def groups(values, z=None):
    """The entries of a complete matrix by rows."""
    m, n = values.shape
    i, j = np.divmod(np.arange(m * n), n)
    residuals = np.zeros(m * n) if z is None else z.ravel()
    return Groups(i, j, m, n, values.ravel(), residuals)


def test_uniform_values_are_evidence_on_rating_scales_only():
    """Rows of measurements whose factors are small have similar values, and are clean."""
    rng = np.random.default_rng(0)
    measured = rng.standard_normal((40, 12))
    rated = np.clip(np.rint(3 + measured), 1, 5)
    assert set(_own_evidence(groups(measured))) == {"misfit", "co-occurrence"}
    assert set(_own_evidence(groups(rated))) == {"misfit", "co-occurrence", "uniformity"}


def test_one_outlier_counts_as_a_large_residual_whatever_its_size():
    z = np.random.default_rng(0).standard_normal((40, 12))
    tails = []
    for size in (OPTIONS.winsor, 1e6):
        z[3, 4] = size
        tails.append(_misfit(groups(z, z), np.full(40, 12.0)))
    np.testing.assert_array_equal(tails[0], tails[1])


def test_groups_without_entries_in_suspicious_ones_have_no_evidence():
    values = np.zeros((6, 8))
    entries = groups(values)
    kept = ~((entries.i == 2) & (entries.j < 2))
    part = Groups(entries.i[kept], entries.j[kept], 6, 8, entries.values[kept], entries.z[kept])
    tail = _suspicious_neighbours(part, np.arange(8) < 2)["suspicious neighbours"]
    assert tail[2] == 1
    assert (np.delete(tail, 2) < 1).all()


@pytest.mark.parametrize("level", [0.5, 0.7, 0.9])
def test_a_quantile_line_has_this_share_of_the_values_below_it(level):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 3, 4000)
    y = 2 * x + (1 + x) * rng.exponential(size=4000)
    line = _quantile_line(x, y, level)
    for part in (x < 1, x > 2):
        assert np.mean(y[part] < line(x)[part]) == pytest.approx(level, abs=0.05)


def test_variances_of_groups_with_equal_noise_vary_by_chance_only():
    freedom = np.full(4000, 9.0)
    variance = np.random.default_rng(0).chisquare(9, 4000) / 9
    tails = _variance_tails(variance, freedom)
    assert tails.typical == pytest.approx(1, rel=0.05)
    assert np.mean(tails.large < 0.02) == pytest.approx(0.02, abs=0.006)
    assert np.mean(tails.small < 0.02) == pytest.approx(0.02, abs=0.006)
