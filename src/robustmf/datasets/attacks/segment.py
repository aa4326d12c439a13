"""The segment attack: profiles that pose as lovers of one kind of item."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from robustmf.data.observed import Observed
from robustmf.datasets.attacks.attacked import Attacked, Bounds
from robustmf.datasets.attacks.profiles import Direction, Profiles, item_columns


def segment_attack(
    ratings: Observed,
    segment: ArrayLike,
    targets: ArrayLike | None = None,
    bounds: Bounds | None = None,
    *,
    direction: Direction = "push",
    attack_size: float = 0.05,
    filler_size: float = 0.05,
    random_state: int | np.random.Generator | None = None,
) -> Attacked:
    """Profiles that give the highest rating to a segment of items and the lowest to the fillers, to reach the users who like the segment.

    Mobasher et al., ACM TOIT 7(4), 2007, who push with it; nuking differs in the rating of the targets alone.

    Parameters
    ----------
    segment : array of int
        Columns of the items that the users to be reached like, e.g. the popular ones of a genre; targets among them are left out. The
        other parameters are those of :func:`random_attack`.
    """
    profiles = Profiles(ratings, targets, bounds, direction, attack_size, filler_size, random_state)
    selected = np.setdiff1d(item_columns(segment, "segment", ratings.shape[1]), profiles.targets)
    return profiles.inject(
        lambda columns, _: np.full(columns.shape, profiles.low), selected, profiles.high
    )
