"""Numbering of integers from a narrow range, by counting instead of sorting."""

from __future__ import annotations

from robustmf.kernels.jit import kernel


@kernel
def number_present(values, low, number):
    """number[x - low] = rank of x among the distinct values, or -1; return their number.

    ``number`` (int32) must be zeros.
    """
    for t in range(len(values)):
        number[values[t] - low] = 1
    found = 0
    for k in range(len(number)):
        if number[k] == 1:
            number[k] = found
            found += 1
        else:
            number[k] = -1
    return found


@kernel
def look_up(values, low, number, out):
    """Out = number[values - low]."""
    for t in range(len(values)):
        out[t] = number[values[t] - low]
