"""The average attack: filler ratings around each item's own mean."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robustmf.data.observed import Observed
from robustmf.datasets.attacks.attacked import Attacked, Bounds
from robustmf.datasets.attacks.profiles import Columns, Direction, Profiles


def average_attack(
    ratings: Observed,
    targets: ArrayLike | None = None,
    bounds: Bounds | None = None,
    *,
    direction: Direction = "push",
    attack_size: float = 0.05,
    filler_size: float = 0.05,
    random_state: int | np.random.Generator | None = None,
) -> Attacked:
    """As :func:`random_attack`, but each filler item is rated by a normal law with its own mean and deviation.

    AverageBot of Lam and Riedl (WWW 2004). An item with a single rating has deviation 0; one without any counts as an average item.
    """
    profiles = Profiles(ratings, targets, bounds, direction, attack_size, filler_size, random_state)
    means, deviations = _moments(ratings)

    def around_each_mean(columns: Columns, rng: np.random.Generator) -> NDArray[np.floating[Any]]:
        return rng.normal(means[columns], deviations[columns])

    return profiles.inject(around_each_mean)


def _moments(ratings: Observed) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of every column; those of all ratings where it has none."""
    j, values, n = ratings.rows.indices, ratings.rows.values.astype(np.float64), ratings.shape[1]
    counts = np.bincount(j, minlength=n)
    rated = counts > 0
    means, deviations = np.full(n, values.mean()), np.full(n, values.std())
    means[rated] = np.bincount(j, values, n)[rated] / counts[rated]
    deviations[rated] = np.sqrt(
        np.bincount(j, np.square(values - means[j]), n)[rated] / counts[rated]
    )
    return means, deviations
