"""Curves over seeds: the median as a step function of the time, with the range as a band."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.reproduction.sections import Series

#: Lists of equal length by the name of their quantity.
Curve = dict[str, list[float]]

#: Points of a summarized curve.
_POINTS = 60

#: Significant digits of its points.
_DIGITS = 4


def summarized(
    name: str, curves: Sequence[Curve], x: str, y: str, left: float = 0.0
) -> Series | None:
    """Median over the curves at common values of ``x``, with their range if there are several.

    The value of a curve at x is the last one before x. The median begins where all curves have a
    value and ends at the median of their ends, the greater of two. Points at x = 0 are drawn at
    ``left``; without it they are left out, because the axis is logarithmic.
    """
    cleaned = [c for c in (_positive(curve, x, y, left) for curve in curves) if len(c[0])]
    if not cleaned:
        return None
    begin = max(xs[0] for xs, _ in cleaned)
    end = float(np.quantile([xs[-1] for xs, _ in cleaned], 0.5, method="higher"))
    grid = np.geomspace(begin, max(begin, end), _POINTS)
    at = np.array(
        [ys[np.searchsorted(xs, grid * (1 + 1e-9), side="right") - 1] for xs, ys in cleaned]
    )
    median = Series(name, _digits(grid), _digits(np.median(at, axis=0)))
    if len(cleaned) == 1:
        return median
    return replace(median, low=_digits(at.min(axis=0)), high=_digits(at.max(axis=0)))


def first_positive(curves: Iterable[Curve], x: str) -> float:
    """The smallest positive ``x`` of the curves; 0 where there is none."""
    return min((value for curve in curves for value in curve[x] if value > 0), default=0.0)


def _positive(
    curve: Curve, x: str, y: str, left: float
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """The points that logarithmic axes can show."""
    xs, ys = (np.array(curve[axis], dtype=float) for axis in (x, y))
    xs[xs == 0] = left
    kept = (xs > 0) & (ys > 0)
    return xs[kept], ys[kept]


def _digits(values: NDArray[Any]) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]
