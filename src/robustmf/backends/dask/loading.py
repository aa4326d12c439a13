"""How the observed matrix is loaded into blocks, and how entries are held out.

Loading shuffles the entries once: pieces of the input are split by block, blocks are put together,
and each determines the rows of the other side that it needs. All tasks depend on the input alone,
so a block of a lost worker is recomputed with the same bits.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import getitem
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.dask.connection import Connection
from robustmf.backends.dask.matrix import Block, Matrix, Side, Sized, offsets_of
from robustmf.backends.dask.source import LOADING, Columns, ParquetPiece, Triplets, pieces_of
from robustmf.data.hashing import Hashes, hash_ids
from robustmf.data.holdout import (
    RETAINED,
    entry_keys,
    hold_out,
    holdout_size,
    largest_keys,
    mark_retained,
    nothing_to_hold_out,
    seeded,
    select_up_to,
)
from robustmf.data.ids import (
    SIDE_NAMES,
    Ids,
    Vocabulary,
    as_list,
    compact_ids,
    locate_ids,
    merge_ids,
    take_ids,
)
from robustmf.data.ids import Side as IdSide
from robustmf.data.observed import Compressed, Duplicates, Observed
from robustmf.data.tables import triplet_columns
from robustmf.exceptions import DuplicateEntryError

Array = NDArray[np.floating[Any]]

#: Distinct ids, and the index of that of every entry.
Coded = tuple[Ids, NDArray[Any]]


@dataclass(frozen=True)
class Part(Sized):
    """Entries of one piece of the input for one block.

    ``own`` and ``other`` are indices into the ids of the block's side and of the other side.
    """

    own_ids: Ids
    own: NDArray[np.int32]
    other_ids: Ids
    other: NDArray[np.int32]
    values: NDArray[Any]
    weights: NDArray[Any] | None


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
    by_row = (compact_ids(row_ids.ids), i)
    by_column = (compact_ids(column_ids.ids), j)
    return (
        _split_by_block(by_row, by_column, values, weights, n_blocks),
        _split_by_block(by_column, by_row, values, weights, n_blocks),
    )


def _split_by_block(
    own: Coded, other: Coded, values: NDArray[Any], weights: NDArray[Any] | None, n_blocks: int
) -> list[Part]:
    by_block, bounds = _group(block_of(own[0], n_blocks)[own[1]], n_blocks)
    parts = []
    for low, high in pairwise(bounds):
        entries = by_block[low:high]
        parts.append(
            Part(
                *_compact(own, entries),
                *_compact(other, entries),
                values[entries],
                None if weights is None else weights[entries],
            )
        )
    return parts


def _compact(coded: Coded, entries: NDArray[np.intp]) -> Coded:
    """The same for some of the entries, with the ids that these have."""
    ids = coded[0]
    indices = coded[1][entries]
    used = np.zeros(len(ids), bool)
    used[indices] = True
    position = np.cumsum(used, dtype=np.int32) - np.int32(1)
    return take_ids(ids, np.flatnonzero(used)), position[indices]


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
class Gathered(Sized):
    """The entries of a block before the ids of the other side have global indices.

    The columns of ``rows`` are positions in ``needed``: for each block of the other side, the ids
    that have entries here.
    """

    ids: Ids
    rows: Compressed
    weights: Array | None
    needed: list[Ids]

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
    ids, i = _merge([(part.own_ids, part.own) for part in parts], SIDE_NAMES[side])
    others, j = _merge([(part.other_ids, part.other) for part in parts], SIDE_NAMES[1 - side])
    order, bounds = _group(block_of(others, n_other_blocks), n_other_blocks)
    needed = [take_ids(others, order[low:high]) for low, high in pairwise(bounds)]
    position = np.empty(len(order), np.int32)
    position[order] = np.arange(len(order))
    values = np.concatenate([part.values for part in parts])
    if not len(values):
        empty = Compressed(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
        return Gathered(ids, empty, None, needed)
    weights = None
    if parts[0].weights is not None:
        weights = np.concatenate([part.weights for part in parts if part.weights is not None])
    shape = (len(ids), len(others))
    try:
        observed, weights = weighted_entries(i, position[j], values, weights, shape, duplicates)
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


def _merge(parts: Sequence[Coded], side: IdSide) -> Coded:
    """The distinct ids of all parts, and the index of that of every entry."""
    merged, ids = merge_ids([of_part for of_part, _ in parts], side)
    ends = np.cumsum([len(of_part) for of_part, _ in parts])
    by_part = zip(np.split(merged.astype(np.int32), ends[:-1]), parts, strict=True)
    return ids, np.concatenate([index[indices] for index, (_, indices) in by_part])


def receives_all(n_needed: int, size: int) -> bool:
    """Whether a section has all rows of a block of this size, of which ``n_needed`` are needed.

    One message then serves every block on a worker.
    """
    return n_needed > LOADING.whole_share * size


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


def load_matrix(
    connection: Connection, triplets: Triplets, n_blocks: int, fraction: float | None, seed: int
) -> Matrix:
    """Load the input into blocks; with ``fraction``, that share of the entries is held out."""
    pieces, columns = pieces_of(triplets)
    tables = connection.client.compute(pieces) if hasattr(pieces[0], "dask") else pieces
    split = connection.map(split_piece, tables, constants=(columns, n_blocks))
    parts = [
        [connection.map(_part, split, constants=(side, b)) for b in range(n_blocks)]
        for side in (0, 1)
    ]
    connection.wait(parts)  # otherwise the blocks would go to workers without pieces
    del split, tables
    gathered = [
        connection.map_evenly(
            gather_block, of_side, constants=(n_blocks, side, triplets.duplicates)
        )
        for side, of_side in enumerate(parts)
    ]
    del parts
    summaries: list[list[Summary]] = connection.gather(
        [connection.map(Gathered.summary, of_side) for of_side in gathered]
    )
    if not any(one.n_entries for one in summaries[0]):
        raise ValueError("data must have at least one entry, got none")
    if not any(one.has_weight for one in summaries[0]):
        raise ValueError("weights must not all be 0")
    n_entries = sum(one.n_entries for one in summaries[0])
    dtype = np.result_type(*(one.dtype for one in summaries[0] if one.n_entries))
    sizes = [[one.n_ids for one in of_side] for of_side in summaries]
    ids = [connection.map(getattr, of_side, constants=("ids",)) for of_side in gathered]
    positions = [
        [
            [
                connection.submit(locate_ids, other, connection.submit(_needed, one, c))
                for c, other in enumerate(others)
            ]
            for one in of_side
        ]
        for of_side, others in zip(gathered, ids[::-1], strict=True)
    ]
    holdout: Any = [[None] * n_blocks] * 2
    if fraction is not None:
        size = holdout_size(fraction, n_entries)
        holdout = _select_holdout(connection, gathered, positions, size, seed)
    connection.wait(positions)
    sides = []
    for side, of_side in enumerate(gathered):
        of_blocks = (of_side, offsets_of(sizes[side]), positions[side], holdout[side])
        constants = (sizes[1 - side], dtype.name, columns.weight is not None)
        blocks = connection.map_evenly(finish_block, *of_blocks, constants=constants)
        needed = [
            [
                None if receives_all(*numbers) else one
                for *numbers, one in zip(summary.n_needed, sizes[1 - side], of_block, strict=True)
            ]
            for summary, of_block in zip(summaries[side], positions[side], strict=True)
        ]
        sides.append(Side(blocks, ids[side], sizes[side], needed))
    if fraction is not None:
        counts = connection.gather(connection.map(_entry_counts, sides[1].blocks))
        n_entries, n_held_out = map(sum, zip(*counts, strict=True))
        if not n_held_out:
            raise nothing_to_hold_out(fraction)
    checksum = hash(tuple(one.checksum for of_side in summaries for one in of_side))
    return Matrix(connection, (sides[0], sides[1]), n_entries, dtype, checksum)


def _select_holdout(
    connection: Connection,
    gathered: Sequence[Sequence[Any]],
    positions: Sequence[Sequence[Sequence[Any]]],
    size: int,
    seed: int,
) -> list[list[Any]]:
    """For every block of both sides a future of a mask of its held-out entries.

    These are the entries that :func:`robustmf.data.holdout.select_by_hash` would hold out on one
    machine: both sides compute the same keys from the hashes of the ids.
    """
    keys = [connection.map(_keys, gathered[side], constants=(side, seed)) for side in (0, 1)]
    largest = [connection.map(_largest_keys, *both) for both in zip(gathered, keys, strict=True)]
    marked = []
    for side in (0, 1):
        sections = [
            connection.map(getitem, largest[1 - side], of_block) for of_block in positions[side]
        ]
        of_blocks = (gathered[side], keys[side], largest[side], sections)
        marked.append(connection.map(_mark_retained, *of_blocks))
    threshold = _select_rank(connection, marked[0], size - 1)
    return [connection.map(select_up_to, of_side, constants=(threshold,)) for of_side in marked]


def _select_rank(connection: Connection, keys: Sequence[Any], rank: int) -> np.uint64:
    """The key of this rank among all that may be held out; RETAINED if there are fewer."""
    counts = np.sum(connection.gather(connection.map(_count_prefixes, keys)), axis=0)
    prefix = int(np.searchsorted(np.cumsum(counts), rank, side="right"))
    if prefix == len(counts):
        return RETAINED
    found = connection.gather(connection.map(_with_prefix, keys, constants=(prefix,)))
    return np.uint64(np.sort(np.concatenate(found))[rank - int(counts[:prefix].sum())])


def _prefixes(keys: Hashes) -> NDArray[np.int64]:
    return (keys >> np.uint64(64 - LOADING.prefix_bits)).astype(np.int64)


def _count_prefixes(keys: Hashes) -> NDArray[np.int64]:
    return np.bincount(_prefixes(keys[keys < RETAINED]), minlength=1 << LOADING.prefix_bits)


def _with_prefix(keys: Hashes, prefix: int) -> Hashes:
    return keys[(_prefixes(keys) == prefix) & (keys < RETAINED)]


def _keys(block: Gathered, side: int, seed: int) -> Hashes:
    codes = [hash_ids(block.ids), np.concatenate([hash_ids(ids) for ids in block.needed])]
    codes[side] = seeded(codes[side], seed)
    return entry_keys(block.rows, codes[0], codes[1], block.weights)


def _largest_keys(block: Gathered, keys: Hashes) -> Hashes:
    return largest_keys(keys, block.rows.group_of_entry(), len(block.rows))


def _mark_retained(
    block: Gathered, keys: Hashes, own_largest: Hashes, other_largest: Sequence[Hashes]
) -> Hashes:
    marked = keys.copy()
    mark_retained(marked, block.rows, own_largest, np.concatenate(other_largest))
    return marked


def _part(split: tuple[list[Part], list[Part]], side: int, block: int) -> Part:
    return split[side][block]


def _needed(gathered: Gathered, block: int) -> Ids:
    return gathered.needed[block]


def _entry_counts(block: Block) -> tuple[int, int]:
    return block.observed.n_entries, 0 if block.holdout is None else len(block.holdout.values)
