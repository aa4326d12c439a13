"""Medians by selection, against those by sorting."""

from __future__ import annotations

import numpy as np
import pytest

import oracles
from robustmf.kernels.medians import group_medians


def medians(pointers, values):
    work = np.empty(max(np.diff(pointers), default=0), values.dtype)
    out = np.full(len(pointers) - 1, np.nan)
    group_medians(pointers, values, work, out)
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
