"""The segment attack: profiles similar to users who like a segment of items."""

from __future__ import annotations

from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from robustmf.data.observed import Observed
from robustmf.datasets.attacks.attacked import Attacked, Bounds
from robustmf.datasets.attacks.profiles import Profiles, ProfileSettings, item_columns


def segment_attack(
    ratings: Observed,
    segment: ArrayLike,
    targets: ArrayLike | None = None,
    bounds: Bounds | None = None,
    **settings: Unpack[ProfileSettings],
) -> Attacked:
    """Inject profiles with the highest rating for a segment of items and the lowest for fillers.

    The attack affects users who like the segment. Mobasher et al., ACM TOIT 7(4), 2007, use it to
    push; to nuke, only the rating of the targets differs.

    Parameters
    ----------
    ratings : Observed
        Users by items.
    segment : array of int
        Columns of the items that the affected users like, e.g. the popular ones of a genre;
        targets among them are excluded.
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
    selected = np.setdiff1d(item_columns(segment, "segment", ratings.shape[1]), profiles.targets)
    return profiles.inject(
        lambda columns, _: np.full(columns.shape, profiles.low), selected, profiles.high
    )
