"""The random attack: filler ratings by the law of all ratings."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from robustmf.data.observed import Observed
from robustmf.datasets.attacks.attacked import Attacked, Bounds
from robustmf.datasets.attacks.profiles import Direction, Profiles


def random_attack(
    ratings: Observed,
    targets: ArrayLike | None = None,
    bounds: Bounds | None = None,
    *,
    direction: Direction = "push",
    attack_size: float = 0.05,
    filler_size: float = 0.05,
    random_state: int | np.random.Generator | None = None,
) -> Attacked:
    """Profiles that rate the targets extremely and random items by a normal law with the mean and deviation of all ratings.

    RandomBot of Lam and Riedl (WWW 2004); needs no knowledge of single items.

    Parameters
    ----------
    ratings : Observed
        Users by items.
    targets : array of int, optional
        Columns to push or nuke; by default one, drawn at random.
    bounds : (float, float), optional
        Lowest and highest rating; by default those in the data.
    direction : {"push", "nuke"}
        Whether the targets get the highest or the lowest rating.
    attack_size : float
        Number of profiles, as a share of the users.
    filler_size : float
        Number of filler items in a profile, as a share of the items.
    random_state : int or Generator
        The only source of randomness.

    Examples
    --------
    >>> import numpy as np
    >>> from robustmf import Observed
    >>> from robustmf.datasets import random_attack
    >>> ratings = Observed.from_dense(np.tile([1.0, 2, 3, 4, 5], (40, 4)))
    >>> attacked = random_attack(ratings, targets=[7], attack_size=0.1, filler_size=0.25, random_state=0)
    >>> attacked.ratings.shape, int(attacked.entries.sum())
    ((44, 20), 24)
    """
    profiles = Profiles(ratings, targets, bounds, direction, attack_size, filler_size, random_state)
    return profiles.inject(profiles.around_the_mean)
