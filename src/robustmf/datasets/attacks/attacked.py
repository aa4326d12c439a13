"""The result of an attack, and checks of its parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robustmf.data.observed import Observed

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Attacked:
    """Attacked ratings with the ground truth.

    Attributes
    ----------
    ratings : Observed
        The ratings after the attack. Injected profiles are the last rows.
    entries : ndarray of bool, shape (ratings.n_entries,)
        Which entries, in row order, were set by the attack, including those whose value did not
        change.
    rows : ndarray of bool, shape (m,)
        Which rows are injected profiles.
    columns : ndarray of bool, shape (n,)
        Which columns are the targets of the attack.
    """

    ratings: Observed
    entries: NDArray[np.bool_]
    rows: NDArray[np.bool_]
    columns: NDArray[np.bool_]


def rating_bounds(ratings: Observed, bounds: Bounds | None) -> Bounds:
    """Return the given bounds after a check, or else the smallest and largest rating."""
    if not isinstance(ratings, Observed):
        raise TypeError(
            f"ratings must be Observed, got {type(ratings).__name__}; create it with"
            " Observed.from_dense or from_triplets"
        )
    smallest = float(ratings.rows.values.min())
    largest = float(ratings.rows.values.max())
    low, high = (smallest, largest) if bounds is None else (float(bounds[0]), float(bounds[1]))
    if not low < high:
        raise ValueError(
            f"bounds must be (lowest, highest rating) with lowest < highest, got ({low}, {high})"
        )
    if smallest < low or largest > high:
        raise ValueError(
            f"bounds=({low}, {high}) do not contain the ratings, which range from {smallest} to"
            f" {largest}"
        )
    return low, high


def require_fraction(name: str, value: float) -> None:
    """Raise an error unless the value is a fraction above 0 and at most 1."""
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, got {name}={value!r}")
