"""Injected profiles: what the shilling attacks share.

A profile rates the target items (highest to push, lowest to nuke), perhaps a few selected items, and random filler items, so as to look
like a user: Lam and Riedl, "Shilling recommender systems for fun and profit", WWW 2004; Mobasher, Burke, Bhaumik and Williams, "Toward
trustworthy recommender systems", ACM TOIT 7(4), 2007, whose names for the attacks these are.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Hashable, Sequence
from itertools import count, islice
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robustmf.data.observed import Compressed, Observed
from robustmf.datasets.attacks.attacked import Attacked, Bounds, rating_bounds, require_share

Direction = Literal["push", "nuke"]
Columns = NDArray[np.int64]
#: Ratings of filler items, for their columns (profiles, fillers) and a generator.
FillerRatings = Callable[[Columns, np.random.Generator], NDArray[np.floating[Any]]]


class Profiles:
    """The settings that all shilling attacks have, checked; :meth:`inject` makes the attack."""

    def __init__(
        self,
        ratings: Observed,
        targets: ArrayLike | None,
        bounds: Bounds | None,
        direction: Direction,
        attack_size: float,
        filler_size: float,
        random_state: int | np.random.Generator | None,
    ) -> None:
        if direction not in ("push", "nuke"):
            raise ValueError(f"direction must be 'push' or 'nuke', got direction={direction!r}")
        require_share("attack_size", attack_size)
        require_share("filler_size", filler_size)
        self.ratings = ratings
        self.low, self.high = rating_bounds(ratings, bounds)
        self.direction = direction
        self.rng = np.random.default_rng(random_state)
        m, n = ratings.shape
        self.targets = (
            self.rng.integers(n, size=1) if targets is None else item_columns(targets, "targets", n)
        )
        self.n_profiles = max(1, round(attack_size * m))
        self.n_fillers = max(1, round(filler_size * n))

    def inject(
        self,
        filler_ratings: FillerRatings,
        selected: Columns | None = None,
        selected_rating: float = 0.0,
    ) -> Attacked:
        """The ratings with the profiles as new rows: targets, ``selected`` items at ``selected_rating``, fillers by ``filler_ratings``."""
        m, n = self.ratings.shape
        selected = np.empty(0, np.int64) if selected is None else selected
        fixed = np.concatenate([self.targets, selected])
        free = np.setdiff1d(np.arange(n), fixed)
        n_fillers = min(self.n_fillers, len(free))
        fillers = np.stack(
            [self.rng.choice(free, n_fillers, replace=False) for _ in range(self.n_profiles)]
        )
        target_rating = self.high if self.direction == "push" else self.low
        known = np.concatenate(
            [np.full(len(self.targets), target_rating), np.full(len(selected), selected_rating)]
        )
        columns = np.hstack([np.tile(fixed, (self.n_profiles, 1)), fillers])
        values = np.hstack(
            [
                np.tile(known, (self.n_profiles, 1)),
                self._on_scale(filler_ratings(fillers, self.rng)),
            ]
        )
        order = np.argsort(columns, axis=1)
        made = _append(
            self.ratings,
            np.take_along_axis(columns, order, 1),
            np.take_along_axis(values, order, 1),
        )
        rows, aimed = np.arange(m + self.n_profiles) >= m, np.zeros(n, bool)
        aimed[self.targets] = True
        return Attacked(made, np.arange(made.n_entries) >= self.ratings.n_entries, rows, aimed)

    def around_the_mean(
        self, columns: Columns, rng: np.random.Generator
    ) -> NDArray[np.floating[Any]]:
        """Filler ratings by the law of all ratings: normal, with their mean and deviation."""
        values = self.ratings.rows.values
        return rng.normal(
            values.mean(dtype=np.float64), values.std(dtype=np.float64), columns.shape
        )

    def _on_scale(self, values: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Within the bounds, and where the data have a scale of few steps, on it: a rating of 3.27 stars would betray itself."""
        steps = np.union1d(np.unique(self.ratings.rows.values[:1_000_000]), (self.low, self.high))
        clipped = np.clip(values, self.low, self.high)
        if len(steps) > 100:
            return clipped
        return np.asarray(steps[np.searchsorted((steps[1:] + steps[:-1]) / 2, clipped)])


def item_columns(items: ArrayLike, name: str, n: int) -> Columns:
    """Different column numbers below n, at least one, or an error that says so."""
    columns = np.atleast_1d(np.asarray(items))
    if columns.dtype.kind not in "iu" or columns.ndim != 1 or not columns.size:
        raise TypeError(f"{name} must be column numbers, at least one, got {name}={items!r}")
    if columns.min() < 0 or columns.max() >= n or len(np.unique(columns)) < len(columns):
        raise ValueError(
            f"{name} must be different column numbers in 0 … {n - 1}, got {name}={items!r}"
        )
    return columns.astype(np.int64)


def _append(ratings: Observed, columns: Columns, values: NDArray[np.floating[Any]]) -> Observed:
    """The ratings with further rows, all of one length, columns ascending in each."""
    (m, n), (k, length), rows = ratings.shape, columns.shape, ratings.rows
    grown = Compressed(
        np.concatenate([rows.pointers, rows.pointers[-1] + length * np.arange(1, k + 1)]),
        np.concatenate([rows.indices, columns.ravel().astype(np.int32)]),
        np.concatenate([rows.values, values.ravel().astype(ratings.dtype)]),
    )
    return Observed(
        grown,
        (m + k, n),
        None if ratings.row_ids is None else _new_ids(ratings.row_ids, k),
        ratings.column_ids,
    )


def _new_ids(ids: Sequence[Hashable], k: int) -> list[Hashable]:
    """Ids for k more rows: the next numbers after integers, else names that are not taken."""
    if all(isinstance(one, numbers.Integral) and not isinstance(one, bool) for one in ids):
        first = max(int(one) for one in ids) + 1  # type: ignore[call-overload]
        return [*ids, *range(first, first + k)]
    taken = set(ids)
    free = (name for number in count(1) if (name := f"profile {number}") not in taken)
    return [*ids, *islice(free, k)]
