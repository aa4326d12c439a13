"""When sweeps over float64 entries may be computed in float32, which takes about half the time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from robustmf.solvers.objective import Objective


@dataclass(frozen=True)
class PrecisionOptions:
    """Constants of the choice between float32 and float64.

    Attributes
    ----------
    min_entries : int
        With fewer entries all sweeps are computed in float64: there is little to save.
    tolerance : float
        Sweeps in float32 end when they have converged to the fit's own tolerance, or to this one if
        it is larger.
    roundings : int
        The scale within which the loss changes (its smoothing width, or the noise level) must be at
        least this many roundings of a typical value.
    magnitude : float
        The typical size of values, the mean of weights and θ must lie between this and its inverse,
        λ below it: squares and quotients must not overflow either.
    """

    min_entries: int = 200_000
    tolerance: float = 1e-5
    roundings: int = 256
    magnitude: float = 1e6


OPTIONS = PrecisionOptions()


def is_large(dtype: np.dtype[Any], n_entries: int) -> bool:
    """Whether there are enough float64 entries for float32 to save time."""
    return dtype == np.float64 and n_entries >= max(OPTIONS.min_entries, 1)


def least_width(energy: float, weight: float, n_weighted: int, objective: Objective) -> float:
    """The smallest scale of the loss that float32 resolves; infinite where it must not be used.

    Parameters
    ----------
    energy : float
        The sum of the squared values.
    weight : float
        The sum of the entries' weights.
    n_weighted : int
        The number of entries with a positive weight.
    """
    if n_weighted == 0:
        return math.inf
    size = math.sqrt(energy / n_weighted)
    magnitude = OPTIONS.magnitude
    numbers = (size, weight / n_weighted, objective.loss.theta)
    moderate = all(1 / magnitude <= number <= magnitude for number in numbers)
    if not (moderate and objective.reg <= magnitude):
        return math.inf
    return OPTIONS.roundings * float(np.finfo(np.float32).eps) * size
