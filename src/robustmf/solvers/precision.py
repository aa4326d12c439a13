"""When sweeps over float64 entries may be made in float32: they take little more than half the time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from robustmf.solvers.objective import Objective

#: Fewer entries than this are swept in float64 from the beginning: there is little to save.
_MANY = 200_000

#: Sweeps in float32 end when they have settled to the fit's own tolerance, or to this if it is smaller.
TOLERANCE = 1e-5

#: The loss must not change its course (at its tip, or within the noise) within so many roundings of a value.
_ROUNDINGS = 256

#: The size of values, the mean of weights and θ must lie within this and one over it, λ below it: squares and quotients need room too.
_RANGE = 1e6


def is_large(dtype: np.dtype[Any], entries: int) -> bool:
    """Whether sweeps in float32 are worth a thought."""
    return dtype == np.float64 and entries >= max(_MANY, 1)


def least_width(energy: float, weight: float, entries: int, objective: Objective) -> float:
    """Within what distance a loss may change its course for float32 to do; infinite where it will not do at all.

    ``energy`` is the sum of the squared values, ``weight`` of the entries' weights; ``entries`` counts those with any.
    """
    if entries == 0:
        return math.inf
    size = math.sqrt(energy / entries)
    moderate = all(
        1 / _RANGE <= number <= _RANGE for number in (size, weight / entries, objective.loss.theta)
    )
    return (
        _ROUNDINGS * float(np.finfo(np.float32).eps) * size
        if moderate and objective.reg <= _RANGE
        else math.inf
    )
