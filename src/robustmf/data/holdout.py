"""Which entries are set aside: by a hash of their place, so that many machines choose as one does, each for its own entries.

Of every row and of every column the entry with the largest key stays. Of the others those with the smallest keys are set aside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.hashing import Hashes, hash_ids, mix
from robustmf.data.ids import compact_ids
from robustmf.data.observed import Compressed, Observed

Array = NDArray[np.floating[Any]]

#: The key of an entry that is not to be set aside.
_STAYS = np.uint64((1 << 64) - 1)

#: Entries looked at in one go.
_SLICE = 1 << 16

#: Entries predicted at once, which bounds the memory of gathered factors.
_ERROR_SLICE = 1 << 18


def aside_seed(first_start: np.random.Generator) -> int:
    """What decides, with their ids, which entries are set aside: the same however many starts there are; nothing is drawn from theirs."""
    return int(first_start.spawn(1)[0].integers(1 << 62))


def n_aside(fraction: float, n_entries: int) -> int:
    """How many are to be set aside, if so many may be."""
    return max(1, round(fraction * n_entries))


def none_aside(fraction: float) -> ValueError:
    """The error where none may be."""
    return ValueError(
        f"validation_fraction={fraction!r} finds no entry to set aside: each is the only one of its row or column; "
        "use validation_fraction=None"
    )


def row_codes(of_ids: Hashes, seed: int) -> Hashes:
    """What rows bring to the keys of their entries, from the hashes of their ids; columns bring the hashes themselves."""
    return mix(of_ids ^ np.uint64(seed))


def place_keys(rows: Compressed, own: Hashes, other: Hashes, weights: Array | None) -> Hashes:
    """The keys of the entries, from what each row (of the side ``own``) and column brings; 0 for those of weight 0."""
    keys, group = np.empty(len(rows.indices), np.uint64), rows.group_of_entry()
    for part in _slices(keys):
        keys[part] = mix(own[group[part]] ^ other[rows.indices[part]])
    if weights is not None:
        keys[weights == 0] = 0
    return keys


def largest_keys(keys: Hashes, group: NDArray[np.int32], n_groups: int) -> Hashes:
    """The largest key of each row (or column); 0 where there is none."""
    largest = np.zeros(n_groups, np.uint64)
    np.maximum.at(largest, group, keys)
    return largest


def mark_those_that_stay(
    keys: Hashes, rows: Compressed, own_largest: Hashes, other_largest: Hashes
) -> None:
    """In place."""
    group = rows.group_of_entry()
    for part in _slices(keys):
        some = keys[part]
        stay = (
            (some == 0)
            | (some == own_largest[group[part]])
            | (some == other_largest[rows.indices[part]])
        )
        some[stay] = _STAYS


def up_to(keys: Hashes, last: np.uint64) -> NDArray[np.bool_]:
    """Those that are set aside, if ``last`` is the key of the last of them."""
    return (keys <= last) & (keys < _STAYS)


def select_by_hash(
    observed: Observed, weights: Array | None, fraction: float, seed: int
) -> NDArray[np.bool_]:
    """Which entries are set aside: a random ``fraction``, by the ids of their rows and columns, or by their numbers without ids."""
    rows, (m, n) = observed.rows, observed.shape
    own, other = (
        hash_ids(np.arange(size) if ids is None else compact_ids(list(ids)))
        for size, ids in zip((m, n), (observed.row_ids, observed.column_ids), strict=True)
    )
    keys = place_keys(rows, row_codes(own, seed), other, weights)
    mark_those_that_stay(
        keys,
        rows,
        largest_keys(keys, rows.group_of_entry(), m),
        largest_keys(keys, rows.indices, n),
    )
    last = n_aside(fraction, len(keys)) - 1
    chosen = up_to(keys, np.partition(keys, last)[last])
    if not chosen.any():
        raise none_aside(fraction)
    return chosen


def _slices(keys: Hashes) -> list[slice]:
    return [slice(low, low + _SLICE) for low in range(0, len(keys), _SLICE)]


def select_by_permutation(
    observed: Observed, weights: Array | None, fraction: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Select a random ``fraction`` of the entries by a random permutation, whatever their ids.

    One entry of every row and column stays, and so do entries of weight 0.
    """
    rows = observed.rows
    n_entries = observed.n_entries
    index_type = np.int32 if n_entries <= np.iinfo(np.int32).max else np.int64
    order = rng.permutation(np.arange(n_entries, dtype=index_type))
    free = np.ones(n_entries, bool) if weights is None else weights > 0
    for index, size in zip((rows.group_of_entry(), rows.indices), observed.shape, strict=True):
        # of each row (column), the last one in random order among those that may be held out
        stays = np.full(size, -1)
        movable = order[free[order]]
        stays[index[movable]] = movable
        free[stays[stays >= 0]] = False
    selected = np.zeros(n_entries, bool)
    selected[order[free[order]][: n_aside(fraction, n_entries)]] = True
    return selected


@dataclass(frozen=True)
class Holdout:
    """Entries that a fit does not see.

    Attributes
    ----------
    rows, columns : array of int
        Their indices.
    values : array
    weights : array or None
    """

    rows: NDArray[np.int32]
    columns: NDArray[np.int32]
    values: Array
    weights: Array | None

    def error_sums(self, U: Array, V: Array, bounds: tuple[float, float]) -> tuple[float, float]:
        """Σ s·|error| and Σ s for the predictions UVᵀ clipped to ``bounds``; s are the weights."""
        total = 0.0
        for low in range(0, len(self.values), _ERROR_SLICE):
            part = slice(low, low + _ERROR_SLICE)
            predicted = np.einsum("tq,tq->t", U[self.rows[part]], V[self.columns[part]])
            error = np.abs(self.values[part] - np.clip(predicted, *bounds))
            if self.weights is not None:
                error = error * self.weights[part]
            total += float(error.sum(dtype=np.float64))
        if self.weights is None:
            return total, float(len(self.values))
        return total, float(self.weights.sum(dtype=np.float64))

    def error(self, U: Array, V: Array, bounds: tuple[float, float]) -> float:
        """The (weighted) mean absolute error, in which a few gross outliers do not decide."""
        total, weight = self.error_sums(U, V, bounds)
        return total / weight


def hold_out(
    observed: Observed, weights: Array | None, selected: Any
) -> tuple[Observed, Array | None, Holdout]:
    """Split the entries into those to fit, with their weights, and the selected ones.

    ``selected`` is a mask over the entries, in the memory of the entries.
    """
    rows = observed.rows
    positions = np.flatnonzero(selected)
    row = np.searchsorted(rows.pointers, positions, side="right") - 1
    holdout = Holdout(
        row.astype(np.int32),
        rows.indices[positions],
        rows.values[positions],
        None if weights is None else weights[positions],
    )
    kept_weights = None if weights is None else weights[~selected]
    return observed.select(~selected), kept_weights, holdout
