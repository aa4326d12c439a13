"""Robust statistics of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.sampling import strided

#: Ratio of the standard deviation to the median absolute deviation of a normal distribution.
MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True)
class CodeOptions:
    """What looks like a code for missing values.

    Attributes
    ----------
    min_count : int
        It occurs at least so often.
    central : (float, float)
        Quantiles of the other values between which most of them lie. Their smallest and largest are
        not used, because a table with bad entries has some far off.
    gap : float
        It is further from these quantiles than this multiple of the distance between them.
    near : float
        Values in the half of that gap that is nearer to the code are at most this multiple of its
        number. The largest value of a distribution with long tails has more neighbours.
    max_values : int
        Number of values that quantiles are computed from, evenly spaced.
    """

    min_count: int = 10
    central: tuple[float, float] = (0.05, 0.95)
    gap: float = 2.0
    near: float = 0.1
    max_values: int = 1_000_000


OPTIONS = CodeOptions()


def suspected_codes(values: NDArray[Any]) -> list[float]:
    """The smallest and the largest value, where it looks like a code for missing values.

    It occurs at least ten times, and far from most other values, with hardly any between: as −999
    among temperatures, or 99 among ratings from −10 to 10.
    """
    found = []
    for extreme in (values.min(), values.max()):
        is_code = values == extreme
        n_equal = int(is_code.sum())
        if n_equal < OPTIONS.min_count or n_equal == len(values):
            continue
        others = values[~is_code]
        low, high = np.quantile(strided(others, OPTIONS.max_values), OPTIONS.central)
        gap = max(low - float(extreme), float(extreme) - high)
        if not gap > OPTIONS.gap * (high - low) > 0:
            continue
        n_near = int((np.abs(others - extreme) < gap / 2).sum())
        if n_near <= OPTIONS.near * n_equal:
            found.append(float(extreme))
    return found
