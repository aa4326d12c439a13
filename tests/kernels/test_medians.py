"""Medians by selection, against those by sorting."""

from __future__ import annotations

import numpy as np
import pytest

import oracles
from robustmf.kernels.medians import group_medians


def medians(pointers, values, indices=None, offsets=None, kept=None):
    """Medians by the kernel; without offsets and with all entries unless these are given."""
    work = np.empty(max(np.diff(pointers), default=0), values.dtype)
    out = np.full(len(pointers) - 1, np.nan)
    counts = np.full(len(out), -1)
    if indices is None:
        indices = np.zeros(len(values), np.int32)
        offsets = np.zeros(1, values.dtype)
    kept = np.ones(len(values), bool) if kept is None else kept
    group_medians(pointers, indices, values, offsets, kept, work, counts, out)
    np.testing.assert_array_equal(counts, np.diff(np.append(0, np.cumsum(kept))[pointers]))
    return out


@pytest.mark.parametrize("kind", ["distinct", "equal", "few", "ascending", "descending"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_medians_are_those_of_sorted_groups(kind, dtype):
    rng = np.random.default_rng(0)
    counts = np.concatenate(([0, 1, 2, 3, 0], rng.integers(0, 60, 50), [2000, 0]))
    pointers = np.concatenate(([0], np.cumsum(counts)))
    values = {
        "distinct": rng.standard_normal(pointers[-1]),
        "equal": np.full(pointers[-1], -2.5),
        "few": rng.integers(0, 3, pointers[-1]),
        "ascending": np.arange(pointers[-1]),
        "descending": -np.arange(pointers[-1]),
    }[kind].astype(dtype)
    before = values.copy()
    np.testing.assert_array_equal(medians(pointers, values), oracles.medians(pointers, values))
    np.testing.assert_array_equal(values, before)


def test_infinite_values_are_ordered():
    values = np.array([np.inf, 1.0, -np.inf, 2.0, np.inf])
    np.testing.assert_array_equal(medians(np.array([0, 3, 5]), values), [1.0, np.inf])


def test_offsets_are_subtracted_and_entries_left_out():
    rng = np.random.default_rng(1)
    pointers = np.array([0, 7, 7, 12, 40])
    values = rng.standard_normal(40)
    indices = rng.integers(0, 5, 40).astype(np.int32)
    offsets = rng.standard_normal(5)
    kept = rng.random(40) < 0.5
    kept[7:12] = False
    starts = np.append(0, np.cumsum(kept))[pointers]
    expected = oracles.medians(starts, (values - offsets[indices])[kept])
    np.testing.assert_array_equal(medians(pointers, values, indices, offsets, kept), expected)
