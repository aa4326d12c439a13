"""A piece of the input, cut by the blocks that its entries belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.dask.identity import bytes_of
from robustmf.data.hashing import hash_ids
from robustmf.data.ids import Ids, Vocabulary, compact_ids, take_ids
from robustmf.data.tables import triplet_columns


@dataclass(frozen=True)
class Columns:
    """Names of the columns of a table of entries; ``weight`` is None where entries have none."""

    row: Any
    col: Any
    value: Any
    weight: Any = None


@dataclass(frozen=True)
class Part:
    """Entries of one piece for one block: numbers of their own side's and the other side's ids, values, weights."""

    own_ids: Ids
    own: NDArray[np.int32]
    other_ids: Ids
    other: NDArray[np.int32]
    values: NDArray[Any]
    weights: NDArray[Any] | None

    def __sizeof__(self) -> int:
        """Bytes, for Dask, which weighs by them where a task shall run."""
        return bytes_of(
            self.own_ids, self.own, self.other_ids, self.other, self.values, self.weights
        )


def split(table: Any, columns: Columns, blocks: tuple[int, int]) -> tuple[list[Part], list[Part]]:
    """The entries of a table by row blocks, and again by column blocks; an id's hash says which block is its own."""
    rows, cols, values = triplet_columns(table, columns.row, columns.col, columns.value)
    weights = (
        None
        if columns.weight is None
        else _weights(
            triplet_columns(table, columns.row, columns.col, columns.weight, "weights")[2]
        )
    )
    i, row_vocabulary = Vocabulary.encode(rows, "row")
    j, column_vocabulary = Vocabulary.encode(cols, "col")
    sides = (i, compact_ids(row_vocabulary.ids)), (j, compact_ids(column_vocabulary.ids))
    return (
        _routed(*sides[0], *sides[1], values, weights, blocks[0]),
        _routed(*sides[1], *sides[0], values, weights, blocks[1]),
    )


def _weights(given: NDArray[Any]) -> NDArray[Any]:
    if given.dtype.kind not in "iuf":
        raise TypeError(f"weights must hold numbers, got dtype {given.dtype}")
    if not (np.isfinite(given).all() and (given >= 0).all()):
        raise ValueError("weights must be finite and >= 0")
    return given


def _routed(
    own: NDArray[Any],
    own_ids: Ids,
    other: NDArray[Any],
    other_ids: Ids,
    values: NDArray[Any],
    weights: NDArray[Any] | None,
    blocks: int,
) -> list[Part]:
    block_of_id = (hash_ids(own_ids) % np.uint64(blocks)).astype(np.uint16)
    ids_by_block, id_bounds = _grouped(block_of_id, blocks)
    place = np.empty(len(own_ids), np.int32)
    place[ids_by_block] = np.arange(len(own_ids)) - np.repeat(id_bounds[:-1], np.diff(id_bounds))
    by_block, bounds = _grouped(block_of_id[own], blocks)
    parts = []
    for block in range(blocks):
        chosen = by_block[bounds[block] : bounds[block + 1]]
        others = other[chosen]
        used = np.zeros(len(other_ids), bool)
        used[others] = True
        number = np.cumsum(used, dtype=np.int32) - np.int32(1)
        parts.append(
            Part(
                take_ids(own_ids, ids_by_block[id_bounds[block] : id_bounds[block + 1]]),
                place[own[chosen]],
                take_ids(other_ids, np.flatnonzero(used)),
                number[others],
                values[chosen],
                None if weights is None else weights[chosen],
            )
        )
    return parts


def _grouped(
    groups: NDArray[np.uint16], n_groups: int
) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Positions group by group, in order within each, and where each group begins and ends."""
    bounds = np.concatenate(([0], np.cumsum(np.bincount(groups, minlength=n_groups))))
    return np.argsort(groups, kind="stable"), bounds
