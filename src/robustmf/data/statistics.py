"""Robust statistics of values."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

#: Ratio of the standard deviation to the median absolute deviation of a normal distribution.
MAD_TO_SIGMA = 1.4826

#: A code for missing values occurs at least so often, and is further from the other values than
#: this multiple of their range.
_MIN_CODES = 10
_CODE_GAP = 2.0


def suspected_codes(values: NDArray[Any]) -> list[float]:
    """The smallest and the largest value, where it looks like a code for missing values.

    It occurs at least ten times, and is further from all other values than twice their range, as
    −999 among temperatures, or 99 among ratings from −10 to 10.
    """
    found = []
    for extreme in (values.min(), values.max()):
        is_code = values == extreme
        n_equal = int(is_code.sum())
        if n_equal < _MIN_CODES or n_equal == len(values):
            continue
        others = values[~is_code]
        low = float(others.min())
        high = float(others.max())
        gap = max(low - float(extreme), float(extreme) - high)
        if high > low and gap > _CODE_GAP * (high - low):
            found.append(float(extreme))
    return found
