"""Evenly spaced samples of indices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def evenly_spaced(n: int, at_most: int) -> NDArray[np.int64]:
    """All of the indices 0, …, n − 1, or ``at_most`` of them, evenly spaced."""
    if n <= at_most:
        return np.arange(n)
    return np.linspace(0, n - 1, at_most).astype(np.int64)
