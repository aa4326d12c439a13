"""The random attack: filler ratings from the distribution of all ratings."""

from __future__ import annotations

from typing import Unpack

from numpy.typing import ArrayLike

from robustmf.data.observed import Observed
from robustmf.datasets.attacks.attacked import Attacked, Bounds
from robustmf.datasets.attacks.profiles import Profiles, ProfileSettings


def random_attack(
    ratings: Observed,
    targets: ArrayLike | None = None,
    bounds: Bounds | None = None,
    **settings: Unpack[ProfileSettings],
) -> Attacked:
    """Inject profiles with ratings of random items from a normal distribution.

    Its mean and standard deviation are those of all ratings; no knowledge of single items is
    needed. RandomBot of Lam and Riedl (WWW 2004).

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

    Examples
    --------
    >>> import numpy as np
    >>> from robustmf import Observed
    >>> from robustmf.datasets import random_attack
    >>> ratings = Observed.from_dense(np.tile([1.0, 2, 3, 4, 5], (40, 4)))
    >>> attacked = random_attack(ratings, [7], attack_size=0.1, filler_size=0.25, random_state=0)
    >>> attacked.ratings.shape, int(attacked.entries.sum())
    ((44, 20), 24)
    """
    profiles = Profiles(ratings, targets, bounds, **settings)
    return profiles.inject(profiles.overall_ratings)
