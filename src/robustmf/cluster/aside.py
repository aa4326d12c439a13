"""Entries set aside to see when to stop: chosen by the hash of their place, so that row and column blocks agree without asking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.cluster.identity import Hashes, Ids, hashes, mixed
from robustmf.observed import Compressed

Array = NDArray[np.floating[Any]]

#: Entries looked at in one go.
_SLICE = 1 << 18


@dataclass(frozen=True)
class Aside:
    """Entries that the fit does not see: rows of their block, places in its sections, values, weights."""

    rows: NDArray[np.int32]
    places: NDArray[np.int32]
    values: Array
    weights: Array | None

    def error_sums(self, own: Array, other: Array, bounds: tuple[float, float]) -> tuple[float, float]:
        """Σ s|error| and Σ s of the predictions own·other, clipped to ``bounds``."""
        total = 0.0
        for low in range(0, len(self.values), _SLICE):
            part = slice(low, low + _SLICE)
            predicted = np.einsum("tq,tq->t", own[self.rows[part]], other[self.places[part]])
            error = np.abs(self.values[part] - np.clip(predicted, *bounds))
            total += float((error if self.weights is None else error * self.weights[part]).sum(dtype=np.float64))
        return total, float(len(self.values) if self.weights is None else self.weights.sum(dtype=np.float64))


@dataclass(frozen=True)
class Choice:
    """Which entries of a block of this side are set aside: a random ``fraction``, but one entry of every row and of every column stays.

    ``own_stays`` has for every row of the block the hash of the column id whose entry stays; ``other_stays`` for every wanted id of the
    other side, block by block, that of the own id.
    """

    fraction: float
    seed: int
    side: int
    own_stays: Hashes
    other_stays: Sequence[Hashes]

    def mask(self, ids: Ids, rows: Compressed, weights: Array | None, wanted: Sequence[Ids]) -> NDArray[np.bool_]:
        """True for the entries to set aside."""
        own, other = hashes(ids)[rows.group_of_entry()], _hashes_of_all(wanted)[rows.indices]
        chance = mixed(_place_hash(own, other, self.side, self.seed))
        chosen = chance < np.uint64(int(self.fraction * 2.0**64))
        chosen &= self.own_stays[rows.group_of_entry()] != other
        chosen &= np.concatenate(self.other_stays)[rows.indices] != own
        return chosen if weights is None else chosen & (weights > 0)


def stays(ids: Ids, rows: Compressed, weights: Array | None, wanted: Sequence[Ids], side: int, seed: int) -> Hashes:
    """For every row of a block the hash of the other side's id whose entry is never set aside; 0 where there is none to keep."""
    group, other = rows.group_of_entry(), _hashes_of_all(wanted)[rows.indices]
    rank = _place_hash(hashes(ids)[group], other, side, seed)
    if weights is not None:
        kept = weights > 0
        group, other, rank = group[kept], other[kept], rank[kept]
    order = np.lexsort((rank, group))
    firsts = np.flatnonzero(np.diff(group[order], prepend=-1))
    out = np.zeros(len(rows), np.uint64)
    out[group[order][firsts]] = other[order][firsts]
    return out


def set_aside(entries: Compressed, weights: Array | None, mask: NDArray[np.bool_]) -> tuple[Compressed, Array | None, Aside]:
    """The entries without those of the mask, and these."""
    pointers = np.concatenate(([0], np.cumsum(~mask)))[entries.pointers].astype(np.int64)
    aside = Aside(entries.group_of_entry()[mask], entries.indices[mask], entries.values[mask], None if weights is None else weights[mask])
    left = Compressed(pointers, entries.indices[~mask], entries.values[~mask])
    return left, None if weights is None else weights[~mask], aside


def _hashes_of_all(wanted: Sequence[Ids]) -> Hashes:
    return np.concatenate([hashes(ids) for ids in wanted])


def _place_hash(own: Hashes, other: Hashes, side: int, seed: int) -> Hashes:
    """The same for a place, whichever side asks."""
    row, column = (own, other) if side == 0 else (other, own)
    return mixed(mixed(row ^ np.uint64(seed)) ^ column)
