"""The bandwagon attack: profiles that also rate popular items."""

from __future__ import annotations

from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from robustmf.data.observed import Observed
from robustmf.datasets.attacks.attacked import Attacked, Bounds, require_fraction
from robustmf.datasets.attacks.profiles import Columns, Profiles, ProfileSettings


def bandwagon_attack(
    ratings: Observed,
    targets: ArrayLike | None = None,
    bounds: Bounds | None = None,
    *,
    popular_size: float = 0.01,
    **settings: Unpack[ProfileSettings],
) -> Attacked:
    """Inject the profiles of :func:`random_attack`, which also rate popular items as many users do.

    To push, each profile gives the most rated items the highest rating. To nuke (the reverse
    bandwagon attack), it gives the lowest rating to the items with the lowest mean among the
    quarter of the items with most ratings. Mobasher et al., ACM TOIT 7(4), 2007.

    Parameters
    ----------
    ratings : Observed
        Users by items.
    targets : array of int, optional
        Columns to push or nuke; by default one, drawn at random.
    bounds : (float, float), optional
        Lowest and highest rating; by default those of the data.
    popular_size : float, default=0.01
        Number of popular items per profile, as a fraction of the number of items.
    **settings
        ``direction``, ``attack_size``, ``filler_size``, ``random_state``: see
        :class:`~robustmf.datasets.attacks.profiles.ProfileSettings`.

    Returns
    -------
    attacked : Attacked
        The ratings after the attack and the ground truth.
    """
    require_fraction("popular_size", popular_size)
    profiles = Profiles(ratings, targets, bounds, **settings)
    popular = _by_popularity(ratings, profiles.targets)
    n_selected = min(max(1, round(popular_size * ratings.shape[1])), len(popular))
    if profiles.direction == "push":
        return profiles.inject(profiles.overall_ratings, popular[:n_selected], profiles.high)
    popular = popular[: max(n_selected, len(popular) // 4)]
    n = ratings.shape[1]
    j = ratings.rows.indices
    means = np.bincount(j, ratings.rows.values, n)[popular] / np.bincount(j, minlength=n)[popular]
    disliked = popular[np.argsort(means, kind="stable")[:n_selected]]
    return profiles.inject(profiles.overall_ratings, disliked, profiles.low)


def _by_popularity(ratings: Observed, excluded: Columns) -> Columns:
    """Return the rated columns, most rated first, without the excluded ones."""
    counts = np.bincount(ratings.rows.indices, minlength=ratings.shape[1])
    counts[excluded] = 0
    order = np.argsort(-counts, kind="stable")
    return order[: np.count_nonzero(counts)].astype(np.int64)
