"""The love/hate attack of the paper."""

from __future__ import annotations

from typing import Literal

import numpy as np

from robustmf.data.observed import Observed
from robustmf.datasets.attacks.attacked import Attacked, Bounds, rating_bounds, require_fraction


def love_hate(
    ratings: Observed,
    bounds: Bounds | None = None,
    *,
    share: float = 0.03,
    per: Literal["item", "rating"] = "item",
    random_state: int | np.random.Generator | None = None,
) -> Attacked:
    """Set all ratings of a few items to the lowest or the highest rating with equal probability.

    As in section 4.2 of "Scalable Robust Matrix Factorization with Nonconvex Loss" (NeurIPS 2018):
    3 % of the items; "for each selected item, all its observed ratings are set to either the
    minimum or maximum with equal possibilities".

    Parameters
    ----------
    ratings : Observed
        Users by items.
    bounds : (float, float), optional
        Lowest and highest rating; by default those of the data.
    share : float, default=0.03
        Fraction of the rated items that are attacked; at least one item is.
    per : {"item", "rating"}, default="item"
        Whether the extreme is drawn once per item or, the other interpretation of the paper, once
        per rating.
    random_state : int, Generator or None, default=None
        Seed of all random draws.

    Returns
    -------
    attacked : Attacked
        The ratings after the attack and the ground truth.

    Examples
    --------
    >>> import numpy as np
    >>> from robustmf import Observed
    >>> from robustmf.datasets import love_hate
    >>> ratings = Observed.from_dense(np.full((5, 20), 3.0))
    >>> attacked = love_hate(ratings, (1, 5), share=0.1, random_state=0)
    >>> int(attacked.columns.sum()), int(attacked.entries.sum())
    (2, 10)
    """
    low, high = rating_bounds(ratings, bounds)
    require_fraction("share", share)
    if per not in ("item", "rating"):
        raise ValueError(f"per must be 'item' or 'rating', got per={per!r}")
    rng = np.random.default_rng(random_state)
    m, n = ratings.shape
    rated = np.flatnonzero(np.bincount(ratings.rows.indices, minlength=n))
    columns = np.zeros(n, bool)
    columns[rng.choice(rated, max(1, round(share * len(rated))), replace=False)] = True
    entries = columns[ratings.rows.indices]
    item_is_high = rng.random(n) < 0.5
    is_high = (
        item_is_high[ratings.rows.indices[entries]]
        if per == "item"
        else rng.random(int(entries.sum())) < 0.5
    )
    values = ratings.rows.values.copy()
    values[entries] = np.where(is_high, high, low)
    return Attacked(ratings.with_values(values), entries, np.zeros(m, bool), columns)
