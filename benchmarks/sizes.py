"""Problems of a share of their full size, to try a measurement before it is made."""

from __future__ import annotations

import math

#: No side of a problem is made smaller than this.
_SMALLEST = 60


def side(full: int, scale: float) -> int:
    """Rows or columns where the number of cells is to be ``scale`` times the full one."""
    return min(full, max(_SMALLEST, round(full * math.sqrt(scale))))


def part(full: float, scale: float) -> int:
    """Entries, rows or the like where there are to be ``scale`` times as many."""
    return min(int(full), max(_SMALLEST, round(full * scale)))
