"""Entries that are held out of a fit.

:func:`select_by_hash` orders the entries by a hash of their row, their column and a seed, and holds
out the first. At least one entry of every row and of every column is retained, and so are entries
of weight 0.

For ``validation_fraction`` rows and columns are hashed by their ids: a cluster, where no process
has all entries, holds out the same ones as one machine, each block among its own. The steps are
public functions for that reason. Entries on which λ is chosen are selected by indices: that is part
of a default fit, whose result must not depend on the names of rows and columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.compressed import Coordinates
from robustmf.data.hashing import Hashes, hash_ids, mix
from robustmf.data.ids import compact_ids
from robustmf.data.observed import Observed

Array = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]

#: The key of an entry that is retained, larger than all others.
RETAINED = np.uint64((1 << 64) - 1)


@dataclass(frozen=True)
class BlockSizes:
    """Sizes of the blocks that bound the temporary memory.

    Attributes
    ----------
    keys : int
        Keys computed at once.
    entries : int
        Entries predicted at once, whose factors are gathered.
    """

    keys: int = 1 << 16
    entries: int = 1 << 18


_BLOCKS = BlockSizes()


def holdout_seed(rng: np.random.Generator) -> int:
    """The seed of :func:`select_by_hash`, from a generator whose own stream is not advanced.

    ``rng`` is that of the first initialization, so that the selection does not depend on their
    number.
    """
    return int(rng.spawn(1)[0].integers(1 << 62))


def holdout_size(fraction: float, n_entries: int) -> int:
    """The number of entries to hold out, unless too many have to be retained."""
    return max(1, round(fraction * n_entries))


def nothing_to_hold_out(fraction: float) -> ValueError:
    """The error if all entries have to be retained."""
    return ValueError(
        f"validation_fraction={fraction!r} finds no entry to hold out: "
        "each is the only one of its row or column; use validation_fraction=None"
    )


def select_by_hash(
    observed: Observed,
    weights: Array | None,
    fraction: float,
    seed: int,
    *,
    by_ids: bool = True,
) -> Mask:
    """Select a random ``fraction`` of the entries.

    Parameters
    ----------
    observed : Observed
        The entries, on the host.
    weights : array over the entries, or None
    fraction : float
    seed : int
    by_ids : bool, default=True
        Identify rows and columns by their ids, where there are any, and not by their indices.

    Returns
    -------
    array of bool over the entries
        The entries to hold out.
    """
    rows = observed.rows
    m, n = observed.shape
    row_hashes = _hash_side(observed.row_ids if by_ids else None, m)
    column_hashes = _hash_side(observed.column_ids if by_ids else None, n)
    entries = Coordinates(rows.group_of_entry(), rows.indices, rows.values, weights)
    keys = entry_keys(entries, seeded(row_hashes, seed), column_hashes)
    largest_by_row = largest_keys(keys, entries.rows, m)
    largest_by_column = largest_keys(keys, entries.columns, n)
    mark_retained(keys, entries, largest_by_row, largest_by_column)
    last = holdout_size(fraction, len(keys)) - 1
    selected = select_up_to(keys, np.partition(keys, last)[last])
    if not selected.any():
        raise nothing_to_hold_out(fraction)
    return selected


def _hash_side(ids: Any, size: int) -> Hashes:
    """The hashes of the ids of all rows or columns, or of their indices without ids."""
    return hash_ids(np.arange(size) if ids is None else compact_ids(list(ids)))


def seeded(hashes: Hashes, seed: int) -> Hashes:
    """The hashes of the rows combined with the seed; the hashes of the columns are used as are."""
    return mix(hashes ^ np.uint64(seed))


def entry_keys(entries: Coordinates, row_hashes: Hashes, column_hashes: Hashes) -> Hashes:
    """The key of every entry, from the hashes of its row and its column; 0 if its weight is 0."""
    keys = np.empty(len(entries.values), np.uint64)
    for block in _blocks(len(keys), _BLOCKS.keys):
        keys[block] = mix(row_hashes[entries.rows[block]] ^ column_hashes[entries.columns[block]])
    if entries.weights is not None:
        keys[entries.weights == 0] = 0
    return keys


def largest_keys(keys: Hashes, group: NDArray[np.integer[Any]], n_groups: int) -> Hashes:
    """The largest key of each row (or column); 0 for one without entries."""
    largest = np.zeros(n_groups, np.uint64)
    np.maximum.at(largest, group, keys)
    return largest


def mark_retained(
    keys: Hashes, entries: Coordinates, largest_by_row: Hashes, largest_by_column: Hashes
) -> None:
    """Mark in ``keys`` the largest one of each row and column, and those of weight 0."""
    for block in _blocks(len(keys), _BLOCKS.keys):
        part = keys[block]
        retained = (
            (part == 0)
            | (part == largest_by_row[entries.rows[block]])
            | (part == largest_by_column[entries.columns[block]])
        )
        part[retained] = RETAINED


def select_up_to(keys: Hashes, last: np.uint64) -> Mask:
    """The entries with keys up to ``last`` that are not retained."""
    return (keys <= last) & (keys < RETAINED)


class Holdout(Coordinates):
    """Entries that a fit does not see."""

    def error_sums(self, U: Array, V: Array, bounds: tuple[float, float]) -> tuple[float, float]:
        """Σ s·|error| and Σ s for the predictions UVᵀ clipped to ``bounds``; s are the weights."""
        total = 0.0
        for block in _blocks(len(self.values), _BLOCKS.entries):
            predicted = np.einsum("tq,tq->t", U[self.rows[block]], V[self.columns[block]])
            error = np.abs(self.values[block] - np.clip(predicted, *bounds))
            if self.weights is not None:
                error = error * self.weights[block]
            total += float(error.sum(dtype=np.float64))
        if self.weights is None:
            return total, float(len(self.values))
        return total, float(self.weights.sum(dtype=np.float64))

    def error(self, U: Array, V: Array, bounds: tuple[float, float]) -> float:
        """The (weighted) mean absolute error, which a few gross outliers do not dominate."""
        total, weight = self.error_sums(U, V, bounds)
        return total / weight


def hold_out(
    observed: Observed, weights: Array | None, selected: Any
) -> tuple[Observed, Array | None, Holdout]:
    """Split the entries into those to fit, with their weights, and the selected ones.

    ``selected`` is a mask over the entries, on the same device.
    """
    rows = observed.rows
    positions = np.flatnonzero(selected)
    holdout = Holdout.of(rows, weights, positions)
    holdout = replace(holdout, rows=holdout.rows.astype(np.int32))
    kept_weights = None if weights is None else weights[~selected]
    return observed.select(~selected), kept_weights, holdout


def _blocks(n: int, size: int) -> Iterator[slice]:
    return (slice(low, low + size) for low in range(0, n, size))
