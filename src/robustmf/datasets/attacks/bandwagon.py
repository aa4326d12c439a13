"""The bandwagon attack: profiles that join the crowd."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from robustmf.data.observed import Observed
from robustmf.datasets.attacks.attacked import Attacked, Bounds, require_share
from robustmf.datasets.attacks.profiles import Columns, Direction, Profiles


def bandwagon_attack(
    ratings: Observed,
    targets: ArrayLike | None = None,
    bounds: Bounds | None = None,
    *,
    direction: Direction = "push",
    attack_size: float = 0.05,
    filler_size: float = 0.05,
    popular_size: float = 0.01,
    random_state: int | np.random.Generator | None = None,
) -> Attacked:
    """As :func:`random_attack`, and each profile also rates well-known items as the crowd does, so as to be close to many users.

    Pushing, these are the most rated items, at the highest rating. Nuking, it is the reverse bandwagon: the least liked of the well-known
    ones (the quarter of the items with most ratings), at the lowest. Mobasher et al., ACM TOIT 7(4), 2007.

    Parameters
    ----------
    popular_size : float
        Number of these items, as a share of the items; the other parameters are those of :func:`random_attack`.
    """
    require_share("popular_size", popular_size)
    profiles = Profiles(ratings, targets, bounds, direction, attack_size, filler_size, random_state)
    known = _by_popularity(ratings, profiles.targets)
    wanted = min(max(1, round(popular_size * ratings.shape[1])), len(known))
    if direction == "push":
        return profiles.inject(profiles.around_the_mean, known[:wanted], profiles.high)
    known = known[: max(wanted, len(known) // 4)]
    j, n = ratings.rows.indices, ratings.shape[1]
    means = np.bincount(j, ratings.rows.values, n)[known] / np.bincount(j, minlength=n)[known]
    return profiles.inject(
        profiles.around_the_mean, known[np.argsort(means, kind="stable")[:wanted]], profiles.low
    )


def _by_popularity(ratings: Observed, without: Columns) -> Columns:
    """The rated columns, most rated first, without the given ones."""
    counts = np.bincount(ratings.rows.indices, minlength=ratings.shape[1])
    counts[without] = 0
    order = np.argsort(-counts, kind="stable")
    return order[: np.count_nonzero(counts)].astype(np.int64)
