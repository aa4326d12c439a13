"""What every attack returns, and the scale it plays on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robustmf.data.observed import Observed

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Attacked:
    """Attacked ratings and the truth about them.

    Attributes
    ----------
    ratings : Observed
        The ratings after the attack. Profiles that were injected are its last rows.
    entries : ndarray of bool, shape (ratings.n_entries,)
        Which entries, in row order, the attack wrote: also those that it set to the value they had.
    rows : ndarray of bool, shape (m,)
        Which rows are injected profiles.
    columns : ndarray of bool, shape (n,)
        Which columns the attack is aimed at.
    """

    ratings: Observed
    entries: NDArray[np.bool_]
    rows: NDArray[np.bool_]
    columns: NDArray[np.bool_]


def rating_bounds(ratings: Observed, bounds: Bounds | None) -> Bounds:
    """The given bounds, checked, or else the smallest and largest rating."""
    if not isinstance(ratings, Observed):
        raise TypeError(
            f"ratings must be Observed, got {type(ratings).__name__}; make them with Observed.from_dense or from_triplets"
        )
    smallest, largest = float(ratings.rows.values.min()), float(ratings.rows.values.max())
    low, high = (smallest, largest) if bounds is None else (float(bounds[0]), float(bounds[1]))
    if not low < high:
        raise ValueError(
            f"bounds must be (lowest, highest rating) with lowest < highest, got ({low}, {high})"
        )
    if smallest < low or largest > high:
        raise ValueError(
            f"bounds=({low}, {high}) do not hold the ratings, which go from {smallest} to {largest}"
        )
    return low, high


def require_share(name: str, value: float) -> None:
    """A share above 0 and up to 1, or an error that says so."""
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be a share above 0 and up to 1, got {name}={value!r}")
