"""Medians of groups of numbers, by selection instead of sorting."""

from __future__ import annotations

from robustmf.kernels.jit import inlined, kernel


@inlined
def _select(x, size, k):
    """Reorder the first ``size`` numbers such that x[k] is the k-th, and those before not larger.

    Quickselect, with the middle element as pivot.
    """
    low, high = 0, size - 1
    while low < high:
        pivot = x[(low + high) // 2]
        a, b = low, high
        while a <= b:
            while x[a] < pivot:
                a += 1
            while x[b] > pivot:
                b -= 1
            if a <= b:
                x[a], x[b] = x[b], x[a]
                a += 1
                b -= 1
        if k <= b:
            high = b
        elif k >= a:
            low = a
        else:
            break


@kernel
def group_medians(pointers, indices, values, offsets, kept, work, counts, out):
    """Out ← the median of each group's values less the offsets of their indices, 0 for none.

    ``kept`` is False for entries that are left out, and ``counts`` receives the number of the
    others. ``work`` has room for the values of the largest group. The values must not be NaN.
    """
    for i in range(out.size):
        count = 0
        for t in range(pointers[i], pointers[i + 1]):
            work[count] = values[t] - offsets[indices[t]]
            count += kept[t]
        counts[i] = count
        if count == 0:
            out[i] = 0
            continue
        middle = count // 2
        _select(work, count, middle)
        lower = work[middle]
        if count % 2 == 0:
            lower = work[0]
            for t in range(1, middle):
                lower = max(lower, work[t])
        out[i] = (lower + work[middle]) / 2
