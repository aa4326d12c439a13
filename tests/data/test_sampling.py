"""Evenly spaced samples of indices, values and rows."""

import numpy as np
import pytest

from robustmf import Observed
from robustmf.data.sampling import evenly_spaced, strided, strided_rows


@pytest.mark.parametrize(("n", "at_most"), [(0, 3), (1, 1), (5, 5), (5, 9)])
def test_all_indices_if_there_are_few(n, at_most):
    assert evenly_spaced(n, at_most).tolist() == list(range(n))


@pytest.mark.parametrize(("n", "at_most"), [(6, 5), (10, 2), (1000, 7), (10**9, 100)])
def test_a_sample_is_evenly_spaced_between_the_first_and_the_last_index(n, at_most):
    sample = evenly_spaced(n, at_most)
    assert len(sample) == at_most
    assert (sample[0], sample[-1]) == (0, n - 1)
    gaps = np.diff(sample)
    assert gaps.min() >= 1, "indices are distinct and sorted"
    assert gaps.max() - gaps.min() <= 1


@pytest.mark.parametrize(("n", "about", "size"), [(0, 3, 0), (5, 5, 5), (9, 5, 9), (10, 5, 5)])
def test_strided_values_are_a_view(n, about, size):
    values = np.arange(n)
    found = strided(values, about)
    assert len(found) == size
    assert found.base is values


@pytest.mark.parametrize("every", [1, 2, 3, 7, 20])
def test_strided_rows_have_all_their_entries(every):
    X = np.random.default_rng(0).standard_normal((11, 4))
    X[np.random.default_rng(1).random(X.shape) < 0.4] = np.nan
    X[3] = np.nan  # a row without entries keeps its position
    observed = Observed.from_dense(X)
    part, kept = strided_rows(observed, every)
    expected = Observed.from_dense(X[::every])
    assert part.shape == expected.shape
    np.testing.assert_array_equal(part.rows.pointers, expected.rows.pointers)
    np.testing.assert_array_equal(part.rows.indices, expected.rows.indices)
    np.testing.assert_array_equal(part.rows.values, observed.rows.values[kept])
    np.testing.assert_array_equal(part.rows.values, expected.rows.values)
