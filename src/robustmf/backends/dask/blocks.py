"""Blocks of rows or, with the roles of rows and columns exchanged, of columns.

Rows belong to blocks by the hash of their id. The columns of a block's entries are indices into its
*sections*, one per block of the other side, laid end to end: either all rows of that block's
factors, or those rows that the block needs. Rows are numbered over all blocks, one block after the
other; this is their *global index*.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.dask.source import Columns, ParquetPiece
from robustmf.data.hashing import hash_ids
from robustmf.data.holdout import Holdout, hold_out
from robustmf.data.ids import (
    SIDE_NAMES,
    Ids,
    Vocabulary,
    as_list,
    compact_ids,
    merge_ids,
    take_ids,
)
from robustmf.data.observed import Compressed, Duplicates, Observed
from robustmf.data.tables import triplet_columns
from robustmf.exceptions import DuplicateEntryError

Array = NDArray[np.floating[Any]]

#: Approximate bytes of an id that is a Python object, with its position in a list.
_ID_BYTES = 80

#: A block that needs more than this share of another block's factors receives all of them.
WHOLE_SHARE = 0.5


def bytes_of(*parts: Any) -> int:
    """Approximate bytes of arrays and lists of ids; Dask schedules tasks by them."""
    return sum(
        part.nbytes if isinstance(part, np.ndarray) else _ID_BYTES * len(part)
        for part in parts
        if part is not None
    )


@dataclass(frozen=True)
class Part:
    """Entries of one piece of the input for one block.

    ``own`` and ``other`` are indices into the ids of the block's side and of the other side.
    """

    own_ids: Ids
    own: NDArray[np.int32]
    other_ids: Ids
    other: NDArray[np.int32]
    values: NDArray[Any]
    weights: NDArray[Any] | None

    def __sizeof__(self) -> int:
        return bytes_of(
            self.own_ids, self.own, self.other_ids, self.other, self.values, self.weights
        )


def split_piece(table: Any, columns: Columns, n_blocks: int) -> tuple[list[Part], list[Part]]:
    """Split the entries of one piece of the input by row blocks, and again by column blocks."""
    if isinstance(table, ParquetPiece):
        table = table.read(columns.names)
    rows, cols, values = triplet_columns(table, columns.row, columns.col, columns.value)
    weights = None
    if columns.weight is not None:
        weights = triplet_columns(table, columns.row, columns.col, columns.weight, "weights")[2]
        if weights.dtype.kind not in "iuf":
            raise TypeError(f"weights must hold numbers, got dtype {weights.dtype}")
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise ValueError("weights must be finite and >= 0")
    i, row_ids = Vocabulary.encode(rows, "row")
    j, column_ids = Vocabulary.encode(cols, "column")
    by_row = (i, compact_ids(row_ids.ids))
    by_column = (j, compact_ids(column_ids.ids))
    return (
        _split_by_block(*by_row, *by_column, values, weights, n_blocks),
        _split_by_block(*by_column, *by_row, values, weights, n_blocks),
    )


def _split_by_block(
    own: NDArray[Any],
    own_ids: Ids,
    other: NDArray[Any],
    other_ids: Ids,
    values: NDArray[Any],
    weights: NDArray[Any] | None,
    n_blocks: int,
) -> list[Part]:
    block_of_id = block_of(own_ids, n_blocks)
    ids_by_block, id_bounds = _group(block_of_id, n_blocks)
    position = np.empty(len(own_ids), np.int32)
    position[ids_by_block] = np.arange(len(own_ids)) - np.repeat(id_bounds[:-1], np.diff(id_bounds))
    by_block, bounds = _group(block_of_id[own], n_blocks)
    parts = []
    for block in range(n_blocks):
        entries = by_block[bounds[block] : bounds[block + 1]]
        others = other[entries]
        used = np.zeros(len(other_ids), bool)
        used[others] = True
        index = np.cumsum(used, dtype=np.int32) - np.int32(1)
        parts.append(
            Part(
                take_ids(own_ids, ids_by_block[id_bounds[block] : id_bounds[block + 1]]),
                position[own[entries]],
                take_ids(other_ids, np.flatnonzero(used)),
                index[others],
                values[entries],
                None if weights is None else weights[entries],
            )
        )
    return parts


def block_of(ids: Ids, n_blocks: int) -> NDArray[np.uint16]:
    """The block to which each id belongs."""
    return (hash_ids(ids) % np.uint64(n_blocks)).astype(np.uint16)


def _group(groups: NDArray[np.uint16], n_groups: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Positions sorted by group, stably, and the bounds of each group."""
    bounds = np.concatenate(([0], np.cumsum(np.bincount(groups, minlength=n_groups))))
    return np.argsort(groups, kind="stable"), bounds


@dataclass(frozen=True)
class Summary:
    """What the client needs to know of a block.

    ``n_needed`` counts the ids that it needs of each block of the other side.
    """

    n_ids: int
    n_entries: int
    n_needed: list[int]
    dtype: str
    checksum: int
    has_weight: bool


@dataclass(frozen=True)
class Gathered:
    """The entries of a block before the ids of the other side have global indices.

    The columns of ``rows`` are positions in ``needed``: for each block of the other side, the ids
    that have entries here.
    """

    ids: Ids
    rows: Compressed
    weights: Array | None
    needed: list[Ids]

    def __sizeof__(self) -> int:
        rows = self.rows
        return bytes_of(
            self.ids, rows.pointers, rows.indices, rows.values, self.weights, *self.needed
        )

    def summary(self) -> Summary:
        """Sizes, and a checksum of ids, entries and weights."""
        rows = self.rows
        checksum = zlib.crc32(hash_ids(self.ids).tobytes())
        for array in (rows.pointers, rows.indices, rows.values, self.weights):
            checksum = checksum if array is None else zlib.crc32(array.tobytes(), checksum)
        return Summary(
            len(self.ids),
            len(self.rows.values),
            [len(ids) for ids in self.needed],
            self.rows.values.dtype.name,
            checksum,
            self.weights is None or bool(self.weights.any()),
        )


def gather_block(
    parts: Sequence[Part], n_other_blocks: int, side: int, duplicates: Duplicates
) -> Gathered:
    """Combine the parts of a block of rows (side 0) or columns (side 1), in the order of pieces."""
    index, ids = merge_ids([part.own_ids for part in parts], SIDE_NAMES[side])
    other_index, others = merge_ids([part.other_ids for part in parts], SIDE_NAMES[1 - side])
    order, bounds = _group(block_of(others, n_other_blocks), n_other_blocks)
    position = np.empty(len(order), np.int32)
    position[order] = np.arange(len(order))
    needed = [take_ids(others, order[low:high]) for low, high in pairwise(bounds)]
    i = _merged_indices([(part.own, len(part.own_ids)) for part in parts], index)
    j = position[
        _merged_indices([(part.other, len(part.other_ids)) for part in parts], other_index)
    ]
    values = np.concatenate([part.values for part in parts])
    if not len(values):
        empty = Compressed(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
        return Gathered(ids, empty, None, needed)
    weights = None
    if parts[0].weights is not None:
        weights = np.concatenate([part.weights for part in parts if part.weights is not None])
    shape = (len(ids), len(others))
    try:
        observed, weights = weighted_entries(i, j, values, weights, shape, duplicates)
    except DuplicateEntryError as error:
        own_id = as_list(take_ids(ids, np.array([error.row])))[0]
        other_id = as_list(take_ids(others, order[[error.column]]))[0]
        pair = (own_id, other_id) if side == 0 else (other_id, own_id)
        raise error.with_ids(*pair, "robustmf.backends.dask.Triplets") from None
    return Gathered(ids, observed.rows, weights, needed)


def weighted_entries(
    i: NDArray[Any],
    j: NDArray[Any],
    values: Array,
    weights: Array | None,
    shape: tuple[int, int],
    duplicates: Duplicates = "error",
) -> tuple[Observed, Array | None]:
    """Entries by their indices, and their weights in the order of the entries."""
    observed = Observed.from_indices(i, j, values, shape, duplicates)
    if weights is not None:
        weights = Observed.from_indices(i, j, weights, shape, duplicates).rows.values
    return observed, weights


def _merged_indices(
    parts: Sequence[tuple[NDArray[np.int32], int]], merged: NDArray[Any]
) -> NDArray[np.int32]:
    """Indices into the ids of each part (given with their number), as indices into all ids."""
    offsets = np.concatenate(([0], np.cumsum([size for _, size in parts])))
    return np.concatenate(
        [
            merged[low + indices].astype(np.int32)
            for low, (indices, _) in zip(offsets, parts, strict=False)
        ]
    )


def receives_all(n_needed: int, size: int) -> bool:
    """Whether a section has all rows of a block of this size, of which ``n_needed`` are needed.

    One message then serves every block on a worker.
    """
    return n_needed > WHOLE_SHARE * size


@dataclass(frozen=True)
class Block:
    """A block for half-steps.

    Attributes
    ----------
    observed : Observed
        The entries; columns are positions in the sections.
    weights : array over the entries, or None
    offset : int
        Global index of the first row.
    columns : array over the sections
        Global index of the row of the other side at each position of the sections.
    holdout : Holdout or None
        The held-out entries of these rows.
    """

    observed: Observed
    weights: Array | None
    offset: int
    columns: NDArray[np.int64]
    holdout: Holdout | None

    def __sizeof__(self) -> int:
        rows = self.observed.rows
        return bytes_of(rows.pointers, rows.indices, rows.values, self.weights, self.columns)

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of entries of each row."""
        return self.observed.rows.counts


def finish_block(
    gathered: Gathered,
    offset: int,
    positions: Sequence[NDArray[np.int32]],
    selected: NDArray[np.bool_] | None,
    other_sizes: Sequence[int],
    dtype: str,
    weighted: bool,
) -> Block:
    """Replace the columns of a gathered block by positions in the sections.

    ``positions`` are those of the needed ids in their blocks, which have ``other_sizes`` rows. The
    ``selected`` entries are held out.
    """
    parts = []
    columns = []
    start = 0
    for first, size, position in zip(offsets_of(other_sizes), other_sizes, positions, strict=True):
        whole = receives_all(len(position), size)
        parts.append(start + (position if whole else np.arange(len(position), dtype=np.int32)))
        columns.append(first + (np.arange(size) if whole else position.astype(np.int64)))
        start += len(columns[-1])
    rows = gathered.rows
    indices = np.concatenate(parts).astype(np.int32, copy=False)[rows.indices]
    entries = Compressed(rows.pointers, indices, rows.values.astype(dtype, copy=False))
    weights = None
    if weighted:
        weights = np.empty(0, dtype) if gathered.weights is None else gathered.weights.astype(dtype)
    observed = Observed(entries, (len(gathered.ids), start))
    holdout = None
    if selected is not None and len(selected):
        observed, weights, holdout = hold_out(observed, weights, selected)
    return Block(observed, weights, offset, np.concatenate(columns), holdout)


def offsets_of(sizes: Sequence[int]) -> list[int]:
    """The global index of the first row of each block."""
    return [0, *np.cumsum(sizes).tolist()[:-1]]
