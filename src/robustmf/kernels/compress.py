"""Counting sort of entries into compressed rows or columns."""

from __future__ import annotations

import numpy as np

from robustmf.kernels.jit import kernel


@kernel
def count(indices, pointers):
    """pointers[k+1] = number of entries with index < k+1; ``pointers`` must be zeros."""
    for t in range(len(indices)):
        pointers[indices[t] + 1] += 1
    for k in range(len(pointers) - 1):
        pointers[k + 1] += pointers[k]


@kernel
def group_order(indices, pointers, order):
    """Order = the stable permutation that sorts ``indices``."""
    position = pointers[:-1].copy()
    for t in range(len(indices)):
        k = indices[t]
        order[position[k]] = t
        position[k] += 1


@kernel
def scatter(groups, others, values, pointers, out_others, out_values):
    """Coordinate entries (groups, others, values) sorted by group, stable."""
    position = pointers[:-1].copy()
    for t in range(len(groups)):
        k = position[groups[t]]
        out_others[k] = others[t]
        out_values[k] = values[t]
        position[groups[t]] = k + 1


@kernel
def transpose(pointers, indices, values, other_pointers, other_indices, other_values):
    """The same entries compressed along the other axis; ``other_pointers`` are given."""
    position = other_pointers[:-1].copy()
    for i in range(len(pointers) - 1):
        for t in range(pointers[i], pointers[i + 1]):
            k = position[indices[t]]
            other_indices[k] = i
            other_values[k] = values[t]
            position[indices[t]] = k + 1


@kernel
def merge_repeats(pointers, indices, values, mean):
    """Replace entries at one position by their mean or the last one; return the number left."""
    kept = 0
    for i in range(len(pointers) - 1):
        t, end = pointers[i], pointers[i + 1]
        pointers[i] = kept
        while t < end:
            total, count = np.float64(values[t]), 1
            while t + count < end and indices[t + count] == indices[t]:
                total += values[t + count]
                count += 1
            last = values[t + count - 1]
            indices[kept] = indices[t]
            values[kept] = total / count if mean else last
            kept += 1
            t += count
    pointers[len(pointers) - 1] = kept
    return kept


@kernel
def first_repeat(pointers, indices):
    """The first entry whose index equals the one before it in its sorted group, or -1."""
    for i in range(len(pointers) - 1):
        for t in range(pointers[i] + 1, pointers[i + 1]):
            if indices[t] == indices[t - 1]:
                return t
    return -1
