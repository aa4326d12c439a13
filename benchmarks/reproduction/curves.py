"""Curves over seeds: the median as a step function of the time, with the range as a band."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.reproduction.sections import Series

#: Points of a summarized curve.
_POINTS = 60

#: Significant digits of its points.
_DIGITS = 4


def summarized(
    name: str, curves: Sequence[dict[str, list[float]]], x: str, y: str, log_x: bool = True
) -> Series | None:
    """Median, minimum and maximum over the curves at common values of ``x``.

    The value of a curve at x is the last one before x. The median begins where all curves have a
    value and ends at the median of their ends.
    """
    cleaned = [c for c in (_positive(curve, x, y) for curve in curves) if len(c[0])]
    if not cleaned:
        return None
    begin = max(xs[0] for xs, _ in cleaned)
    end = max(float(np.median([xs[-1] for xs, _ in cleaned])), begin)
    if len(cleaned) == 1:
        xs, ys = cleaned[0]
        return Series(name, _digits(xs), _digits(ys))
    grid = np.geomspace(begin, end, _POINTS) if log_x else np.linspace(begin, end, _POINTS)
    at = np.array(
        [ys[np.searchsorted(xs, grid * (1 + 1e-9), side="right") - 1] for xs, ys in cleaned]
    )
    return Series(
        name,
        _digits(grid),
        _digits(np.median(at, axis=0)),
        _digits(at.min(axis=0)),
        _digits(at.max(axis=0)),
    )


def _positive(
    curve: dict[str, list[float]], x: str, y: str
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """The points that logarithmic axes can show."""
    xs, ys = (np.array(curve[axis], dtype=float) for axis in (x, y))
    kept = (xs > 0) & (ys > 0)
    return xs[kept], ys[kept]


def _digits(values: NDArray[Any]) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]
