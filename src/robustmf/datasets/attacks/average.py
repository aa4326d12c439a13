"""The average attack: filler ratings around the mean of each item."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robustmf.data.observed import Observed
from robustmf.datasets.attacks.attacked import Attacked, Bounds
from robustmf.datasets.attacks.profiles import Columns, Profiles, ProfileSettings


def average_attack(
    ratings: Observed,
    targets: ArrayLike | None = None,
    bounds: Bounds | None = None,
    **settings: Unpack[ProfileSettings],
) -> Attacked:
    """Inject profiles with ratings of random items from a normal distribution per item.

    Its mean and standard deviation are those of the item. An item with a single rating has standard
    deviation 0; an item without ratings has the moments of all ratings. AverageBot of Lam and
    Riedl (WWW 2004).

    Parameters
    ----------
    ratings : Observed
        Users by items.
    targets : array of int, optional
        Columns to push or nuke; by default one, drawn at random.
    bounds : (float, float), optional
        Lowest and highest rating; by default those of the data.
    **settings
        ``direction``, ``attack_size``, ``filler_size``, ``random_state``: see
        :class:`~robustmf.datasets.attacks.profiles.ProfileSettings`.

    Returns
    -------
    attacked : Attacked
        The ratings after the attack and the ground truth.
    """
    profiles = Profiles(ratings, targets, bounds, **settings)
    means, deviations = _moments(ratings)

    def item_ratings(columns: Columns, rng: np.random.Generator) -> NDArray[np.floating[Any]]:
        return rng.normal(means[columns], deviations[columns])

    return profiles.inject(item_ratings)


def _moments(ratings: Observed) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation per column; those of all ratings for empty columns."""
    n = ratings.shape[1]
    j = ratings.rows.indices
    values = ratings.rows.values.astype(np.float64)
    counts = np.bincount(j, minlength=n)
    rated = counts > 0
    means = np.full(n, values.mean())
    deviations = np.full(n, values.std())
    means[rated] = np.bincount(j, values, n)[rated] / counts[rated]
    deviations[rated] = np.sqrt(
        np.bincount(j, np.square(values - means[j]), n)[rated] / counts[rated]
    )
    return means, deviations
