"""Evenly spaced samples of indices and values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def evenly_spaced(n: int, at_most: int) -> NDArray[np.int64]:
    """All of the indices 0, …, n − 1, or ``at_most`` of them, evenly spaced."""
    if n <= at_most:
        return np.arange(n)
    return np.linspace(0, n - 1, at_most).astype(np.int64)


def strided(values: Any, about: int) -> Any:
    """Every k-th of the values: all, or from ``about`` to twice as many.

    A view of an array, in host memory or on a GPU, where indices would need a copy.
    """
    return values[:: max(1, len(values) // about)]
