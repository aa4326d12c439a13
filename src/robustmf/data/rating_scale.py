"""Recognition of values on a bounded discrete scale, such as ratings from 1 to 5."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import pdtr

from robustmf.data.sampling import strided
from robustmf.validation import UNBOUNDED


@dataclass(frozen=True)
class RatingScaleOptions:
    """Constants of the recognition.

    Attributes
    ----------
    least_share : float
        A value is a level of the scale if it has this share of the entries. Values that occur by
        accident, as those of continuous data and stray ones, are no levels.
    coverage : float
        Share of the entries that the levels must have together; the others may be outliers.
    levels : (int, int)
        Range of the number of levels. The continuation beyond an end is extrapolated from three.
    standard_errors : float
        The logarithm of the number of entries beyond an end is taken so many standard errors
        lower than extrapolated, because the counts that it is extrapolated from are random, too.
    significance : float
        An end is one of the scale if so few entries beyond it have at most this probability.
    max_values : int
        Number of values that are examined, evenly spaced.
    """

    least_share: float = 1e-3
    coverage: float = 0.95
    levels: tuple[int, int] = (3, 101)
    standard_errors: float = 1.0
    significance: float = 1e-6
    max_values: int = 1_000_000


OPTIONS = RatingScaleOptions()


def rating_scale(values: NDArray[Any]) -> tuple[float, float]:
    """The ends (low, high) of the discrete scale that the values are on; infinite where none is.

    The levels are values with many entries, evenly spaced. Counts and rounded measurements have
    levels too, and a scale is told from them by its ends alone: the entries one step beyond an end
    are significantly fewer than extrapolated from the last three levels. The extrapolation is
    quadratic in the logarithm of the counts, which is exact for a normal distribution, so that
    levels that become rare are no end, however many entries there are.

    Each end is judged by itself. Low ratings may be rare (half stars of MovieLens) while the
    highest are frequent, and then only the upper end shows; the number of entries at one end
    contains no information about the other. In the same way counts end at 0 and have no upper end.
    """
    sample = np.asarray(strided(values, OPTIONS.max_values), np.float64)
    distinct, counts = np.unique(sample, return_counts=True)
    total = int(counts.sum())
    is_level = counts >= max(OPTIONS.least_share * total, 1)
    levels = distinct[is_level]
    least, most = OPTIONS.levels
    if len(levels) < least:
        return UNBOUNDED
    gap = float(np.diff(levels).min())
    # The longest run of neighbours: a frequent code far off, such as 99, is not part of the scale.
    runs = np.split(np.arange(len(levels)), np.flatnonzero(np.diff(levels) > 1.001 * gap) + 1)
    run = max(runs, key=lambda one: int(counts[is_level][one].sum()))
    on_levels = counts[is_level][run]
    if not least <= len(run) <= most or on_levels.sum() < OPTIONS.coverage * total:
        return UNBOUNDED
    low = float(levels[run[0]])
    high = float(levels[run[-1]])
    below = counts[(distinct < low - 0.5 * gap) & (distinct > low - 1.5 * gap)].sum()
    above = counts[(distinct > high + 0.5 * gap) & (distinct < high + 1.5 * gap)].sum()
    return (
        low if _ends(on_levels[:3], int(below)) else -np.inf,
        high if _ends(on_levels[:-4:-1], int(above)) else np.inf,
    )


def _ends(counts: NDArray[np.int64], beyond: int) -> bool:
    """Whether a scale ends, from the counts of its last three levels and of one level beyond."""
    last, second, third = counts.astype(np.float64)
    step = np.log(last / second)
    error = 1 / last + 1 / second
    bend = step - np.log(second / third)
    if bend < 0:  # the counts decrease faster and faster
        step += bend
        error = 4 / last + 9 / second + 1 / third
    least_step = min(0.0, step - OPTIONS.standard_errors * np.sqrt(error))
    return bool(pdtr(beyond, last * np.exp(least_step)) < OPTIONS.significance)
