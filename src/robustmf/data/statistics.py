"""Robust statistics of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

#: Ratio of the standard deviation to the median absolute deviation of a normal distribution.
MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True)
class CodeOptions:
    """What looks like a code for missing values.

    Attributes
    ----------
    min_count : int
        It occurs at least so often.
    gap : float
        It is further from the other values than this multiple of their range.
    """

    min_count: int = 10
    gap: float = 2.0


OPTIONS = CodeOptions()


def suspected_codes(values: NDArray[Any]) -> list[float]:
    """The smallest and the largest value, where it looks like a code for missing values.

    It occurs at least ten times, and is further from all other values than twice their range, as
    −999 among temperatures, or 99 among ratings from −10 to 10.
    """
    found = []
    for extreme in (values.min(), values.max()):
        is_code = values == extreme
        n_equal = int(is_code.sum())
        if n_equal < OPTIONS.min_count or n_equal == len(values):
            continue
        others = values[~is_code]
        low = float(others.min())
        high = float(others.max())
        gap = max(low - float(extreme), float(extreme) - high)
        if high > low and gap > OPTIONS.gap * (high - low):
            found.append(float(extreme))
    return found
