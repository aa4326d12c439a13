"""Injected profiles: the common part of the shilling attacks.

A profile rates the target items (highest to push, lowest to nuke), possibly selected items, and
random filler items, which make it similar to a genuine user: Lam and Riedl, "Shilling recommender
systems for fun and profit", WWW 2004; Mobasher, Burke, Bhaumik and Williams, "Toward trustworthy
recommender systems", ACM TOIT 7(4), 2007, from whom the names of the attacks are.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robustmf.data.observed import Compressed, Observed
from robustmf.datasets.attacks.attacked import Attacked, Bounds, rating_bounds, require_fraction

Direction = Literal["push", "nuke"]
Columns = NDArray[np.int64]

#: Returns the ratings of filler items, given their columns (profiles × fillers) and a generator.
FillerRatings = Callable[[Columns, np.random.Generator], NDArray[np.floating[Any]]]


@dataclass(frozen=True)
class ScaleOptions:
    """Constants of the recognition of a discrete rating scale.

    Attributes
    ----------
    max_steps : int
        Data have a discrete scale if the number of different ratings is at most this.
    sample : int
        Number of ratings from which the scale is determined.
    """

    max_steps: int = 100
    sample: int = 1_000_000


_SCALE = ScaleOptions()


class ProfileSettings(TypedDict, total=False):
    """Keyword parameters that all shilling attacks share.

    Parameters
    ----------
    direction : {"push", "nuke"}, default="push"
        Whether the targets get the highest or the lowest rating.
    attack_size : float, default=0.05
        Number of profiles, as a fraction of the number of users.
    filler_size : float, default=0.05
        Number of filler items per profile, as a fraction of the number of items.
    random_state : int, Generator or None, default=None
        Seed of all random draws.
    """

    direction: Direction
    attack_size: float
    filler_size: float
    random_state: int | np.random.Generator | None


class Profiles:
    """Checked parameters of a shilling attack; :meth:`inject` carries it out.

    Parameters
    ----------
    ratings : Observed
        Users by items.
    targets : array of int, optional
        Columns to push or nuke; by default one, drawn at random.
    bounds : (float, float), optional
        Lowest and highest rating; by default those of the data.
    direction : {"push", "nuke"}, default="push"
    attack_size, filler_size : float, default=0.05
    random_state : int, Generator or None, default=None
        See :class:`ProfileSettings`.
    """

    def __init__(
        self,
        ratings: Observed,
        targets: ArrayLike | None,
        bounds: Bounds | None,
        *,
        direction: Direction = "push",
        attack_size: float = 0.05,
        filler_size: float = 0.05,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        if direction not in ("push", "nuke"):
            raise ValueError(f"direction must be 'push' or 'nuke', got direction={direction!r}")
        require_fraction("attack_size", attack_size)
        require_fraction("filler_size", filler_size)
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
        """Append the profiles to the ratings as new rows.

        Parameters
        ----------
        filler_ratings : callable
            Draws the ratings of the filler items.
        selected : array of int, optional
            Columns of further items that all profiles rate.
        selected_rating : float, default=0.0
            Rating of the selected items.
        """
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
                self._to_scale(filler_ratings(fillers, self.rng)),
            ]
        )
        order = np.argsort(columns, axis=1)
        made = _append(
            self.ratings,
            np.take_along_axis(columns, order, 1),
            np.take_along_axis(values, order, 1),
        )
        is_injected = np.arange(made.n_entries) >= self.ratings.n_entries
        is_profile = np.arange(m + self.n_profiles) >= m
        is_target = np.zeros(n, bool)
        is_target[self.targets] = True
        return Attacked(made, is_injected, is_profile, is_target)

    def overall_ratings(
        self, columns: Columns, rng: np.random.Generator
    ) -> NDArray[np.floating[Any]]:
        """Draw filler ratings from a normal distribution with the moments of all ratings."""
        values = self.ratings.rows.values
        return rng.normal(
            values.mean(dtype=np.float64), values.std(dtype=np.float64), columns.shape
        )

    def _to_scale(self, values: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Clip ratings to the bounds and round them to the discrete scale of the data, if any."""
        sample = self.ratings.rows.values[: _SCALE.sample]
        steps = np.union1d(np.unique(sample), (self.low, self.high))
        clipped = np.clip(values, self.low, self.high)
        if len(steps) > _SCALE.max_steps:
            return clipped
        return np.asarray(steps[np.searchsorted((steps[1:] + steps[:-1]) / 2, clipped)])


def item_columns(items: ArrayLike, name: str, n: int) -> Columns:
    """Return distinct column indices below n, at least one, or raise an error."""
    columns = np.atleast_1d(np.asarray(items))
    if columns.dtype.kind not in "iu" or columns.ndim != 1 or not columns.size:
        raise TypeError(f"{name} must be column indices, at least one, got {name}={items!r}")
    if columns.min() < 0 or columns.max() >= n or len(np.unique(columns)) < len(columns):
        raise ValueError(
            f"{name} must be distinct column indices from 0 to {n - 1}, got {name}={items!r}"
        )
    return columns.astype(np.int64)


def _append(ratings: Observed, columns: Columns, values: NDArray[np.floating[Any]]) -> Observed:
    """Append rows of equal length, each with ascending columns."""
    m, n = ratings.shape
    k, length = columns.shape
    rows = ratings.rows
    extended = Compressed(
        np.concatenate([rows.pointers, rows.pointers[-1] + length * np.arange(1, k + 1)]),
        np.concatenate([rows.indices, columns.ravel().astype(np.int32)]),
        np.concatenate([rows.values, values.ravel().astype(ratings.dtype)]),
    )
    return Observed(
        extended,
        (m + k, n),
        None if ratings.row_ids is None else _new_ids(ratings.row_ids, k),
        ratings.column_ids,
    )


def _new_ids(ids: Sequence[Hashable], k: int) -> list[Hashable]:
    """Append k new ids: the next integers after integers, unused names otherwise."""
    if all(isinstance(one, numbers.Integral) and not isinstance(one, bool) for one in ids):
        first = max(int(one) for one in ids) + 1  # type: ignore[call-overload]
        return [*ids, *range(first, first + k)]
    taken = set(ids)
    free = (name for number in count(1) if (name := f"profile {number}") not in taken)
    return [*ids, *islice(free, k)]
