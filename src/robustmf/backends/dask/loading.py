"""How the observed matrix is loaded into blocks, and how entries are held out.

Loading shuffles the entries once. Pieces of the input are split by row block, and each row block
merges its parts. The entries in a row block and a column block are a *tile*: a row block consists
of tiles side by side, a column block of transposed tiles. All tasks depend on the input alone, so a
block of a lost worker is recomputed with the same bits.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import getitem
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.dask.connection import Connection, Placement
from robustmf.backends.dask.matrix import Block, Matrix, Side, Sized, offsets_of
from robustmf.backends.dask.source import LOADING, Triplets, pieces_of
from robustmf.data.columns import triplet_columns
from robustmf.data.compressed import Compressed, Coordinates
from robustmf.data.hashing import Hashes, hash_ids
from robustmf.data.holdout import (
    RETAINED,
    Holdout,
    entry_keys,
    holdout_size,
    largest_keys,
    mark_retained,
    nothing_to_hold_out,
    seeded,
    select_up_to,
)
from robustmf.data.ids import Ids, Vocabulary, as_list, compact_ids, merge_ids, take_ids
from robustmf.data.ids import Side as IdSide
from robustmf.data.observed import Duplicates, Observed
from robustmf.exceptions import DuplicateEntryError

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Part(Sized):
    """Entries of a piece of the input for one row block; their indices are into these ids."""

    row_ids: Ids
    column_ids: Ids
    entries: Coordinates


@dataclass(frozen=True)
class Gathered(Sized):
    """The entries of a row block, whose columns have no number yet.

    Attributes
    ----------
    ids : Ids
        Of the rows.
    needed : list of Ids
        For each column block, the ids that have entries here.
    entries : Coordinates
        In row order; columns are positions in ``needed``, laid end to end.
    selected : array of bool, or None
        Which entries are held out.
    """

    ids: Ids
    needed: list[Ids]
    entries: Coordinates
    selected: NDArray[np.bool_] | None = None

    @property
    def ends(self) -> NDArray[np.int64]:
        """The position after the last column of each column block."""
        return np.cumsum([len(ids) for ids in self.needed])

    @property
    def hashes(self) -> tuple[Hashes, Hashes]:
        """The hashes of the ids of rows and columns."""
        return hash_ids(self.ids), np.concatenate([hash_ids(ids) for ids in self.needed])

    def summary(self) -> tuple[int, int, int, np.dtype[Any], bool]:
        """Numbers of rows and entries, checksum, dtype, and whether some weight is positive."""
        entries = self.entries
        checksum = 0
        for array in (*self.hashes, *vars(entries).values()):
            checksum = checksum if array is None else zlib.crc32(array.tobytes(), checksum)
        has_weight = entries.weights is None or bool(entries.weights.any())
        n_entries = len(entries.values)
        return len(self.ids), n_entries, checksum, entries.values.dtype, has_weight


@dataclass(frozen=True)
class Tile(Sized):
    """The entries in a row block and a column block, and which of them are held out.

    Rows and columns are numbered within their blocks.
    """

    entries: Coordinates
    selected: NDArray[np.bool_] | None


def split_piece(table: Any, columns: Triplets, n_blocks: int) -> list[Part]:
    """Split the entries of one piece of the input, with these columns, by row block."""
    rows, cols, values = triplet_columns(table, columns.row, columns.col, columns.value)
    weights = None
    if columns.weight is not None:
        weights = triplet_columns(table, columns.row, columns.col, columns.weight, "weights")[2]
        if weights.dtype.kind not in "iuf":
            raise TypeError(f"weights must hold numbers, got dtype {weights.dtype}")
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise ValueError("weights must be finite and >= 0")
    i, by_row = Vocabulary.encode(rows, "row")
    j, by_column = Vocabulary.encode(cols, "column")
    row_ids = compact_ids(by_row.ids)
    column_ids = compact_ids(by_column.ids)
    parts = []
    for positions in _by_block(row_ids, i, n_blocks):
        own_ids, own = _compact(row_ids, i[positions])
        other_ids, other = _compact(column_ids, j[positions])
        of_entries = None if weights is None else weights[positions]
        entries = Coordinates(own, other, values[positions], of_entries)
        parts.append(Part(own_ids, other_ids, entries))
    return parts


def _by_block(ids: Ids, indices: NDArray[np.integer[Any]], n_blocks: int) -> list[NDArray[np.intp]]:
    """For each block the positions of its entries, which have these indices into the ids."""
    blocks = block_of(ids, n_blocks)[indices]
    ends = np.cumsum(np.bincount(blocks, minlength=n_blocks))
    return np.split(np.argsort(blocks, kind="stable"), ends[:-1])


def block_of(ids: Ids, n_blocks: int) -> NDArray[np.uint16]:
    """The block to which each id belongs."""
    return (hash_ids(ids) % np.uint64(n_blocks)).astype(np.uint16)


def ids_by_block(ids: Ids, n_blocks: int) -> tuple[list[Ids], NDArray[np.intp]]:
    """The ids of each block, and the position of each id in these lists, laid end to end."""
    by_block = _by_block(ids, np.arange(len(ids)), n_blocks)
    return [take_ids(ids, one) for one in by_block], np.argsort(np.concatenate(by_block))


def _compact(ids: Ids, indices: NDArray[np.integer[Any]]) -> tuple[Ids, NDArray[np.int32]]:
    """The ids that are used, and indices into these."""
    used = np.zeros(len(ids), bool)
    used[indices] = True
    position = np.cumsum(used, dtype=np.int32) - np.int32(1)
    return take_ids(ids, np.flatnonzero(used)), position[indices]


def gather_block(parts: Sequence[Part], n_blocks: int, duplicates: Duplicates) -> Gathered:
    """Combine the parts of a row block, in the order of pieces."""
    given = [part.entries for part in parts]
    *positions, row_ids = merge([part.row_ids for part in parts], "row")
    i = np.concatenate([p[one.rows] for p, one in zip(positions, given, strict=True)])
    *positions, column_ids = merge([part.column_ids for part in parts], "column")
    j = np.concatenate([p[one.columns] for p, one in zip(positions, given, strict=True)])
    needed, position = ids_by_block(column_ids, n_blocks)
    entries = replace(Coordinates.concatenate(given), rows=i, columns=position[j])
    try:
        shape = (len(row_ids), len(column_ids))
        observed, weights = weighted_entries(entries, shape, duplicates)
    except DuplicateEntryError as error:
        column = int(np.flatnonzero(position == error.column)[0])
        pair = (as_list(row_ids)[error.row], as_list(column_ids)[column])
        raise error.with_ids(*pair, "robustmf.backends.dask.Triplets") from None
    rows = observed.rows
    entries = Coordinates(rows.group_of_entry(), rows.indices, rows.values, weights)
    if weights is not None:  # an entry of weight 0 is not observed, but it names its row and column
        entries = entries.at(weights > 0)
    return Gathered(row_ids, needed, entries)


def merge(parts: Sequence[Ids], side: IdSide) -> list[Any]:
    """For each list of ids their positions among the distinct ids of all; last, these ids."""
    merged, ids = merge_ids(parts, side)
    ends = np.cumsum([len(part) for part in parts])
    return [*np.split(merged.astype(np.int32), ends[:-1]), ids]


def weighted_entries(
    entries: Coordinates, shape: tuple[int, int], duplicates: Duplicates = "error"
) -> tuple[Observed, Array | None]:
    """Entries in any order, and their weights, in row order."""

    def compressed(values: Any) -> Observed:
        if not len(values):
            empty = Compressed(np.zeros(shape[0] + 1, np.int64), np.empty(0, np.int32), values)
            return Observed(empty, shape)
        return Observed.from_indices(entries.rows, entries.columns, values, shape, duplicates)

    weights = entries.weights
    if weights is not None:
        weights = compressed(weights).rows.values
    return compressed(entries.values), weights


def cut_tile(gathered: Gathered, block: int, positions: NDArray[np.int32]) -> Tile:
    """The entries of a row block in a column block, which has its columns at these positions."""
    entries = gathered.entries
    end = gathered.ends[block]
    start = end - len(positions)
    chosen = (entries.columns >= start) & (entries.columns < end)
    found = entries.at(chosen)
    found = replace(found, columns=positions[found.columns - start])
    return Tile(found, None if gathered.selected is None else gathered.selected[chosen])


def finish_block(
    tiles: Sequence[Tile],
    offset: int,
    own_size: int,
    other_sizes: Sequence[int],
    side: int,
    dtype: np.dtype[Any],
) -> Block:
    """Combine the tiles of a row block (side 0) or of a column block (side 1)."""
    parts = []
    columns = []
    needed: list[Any] = []
    start = 0
    for tile, first, size in zip(tiles, offsets_of(other_sizes), other_sizes, strict=True):
        indices = (tile.entries.rows, tile.entries.columns)
        own, other = indices if side == 0 else indices[::-1]
        section: Any = np.arange(size)
        used, position = _compact(section, other)
        # one message with all rows serves every block on a worker
        receives_all = len(used) > LOADING.whole_share * size
        section = section if receives_all else used
        needed.append(None if receives_all else used)
        columns.append(first + section)
        position_of_entry = other if receives_all else position
        parts.append(replace(tile.entries, rows=own, columns=start + position_of_entry))
        start += len(section)
    entries = Coordinates.concatenate(parts)
    weights = None if entries.weights is None else entries.weights.astype(dtype)
    entries = replace(entries, values=entries.values.astype(dtype), weights=weights)
    holdout = None
    if tiles[0].selected is not None:
        selected = np.concatenate([tile.selected for tile in tiles])
        held_out = entries.at(selected)
        in_row_order = np.lexsort((held_out.columns, held_out.rows))
        holdout = Holdout(*vars(held_out.at(in_row_order)).values())
        entries = entries.at(~selected)
    observed, weights = weighted_entries(entries, (own_size, start))
    return Block(observed, weights, offset, np.concatenate(columns), needed, holdout)


def load_matrix(
    connection: Connection, triplets: Triplets, n_blocks: int, fraction: float | None, seed: int
) -> Matrix:
    """Load the input into blocks; with ``fraction``, that share of the entries is held out."""
    pieces, columns = pieces_of(triplets)
    tables = connection.client.compute(pieces) if hasattr(pieces[0], "dask") else pieces
    split = connection.map(split_piece, tables, constants=(columns, n_blocks))
    parts = [connection.map(getitem, split, constants=(b,)) for b in range(n_blocks)]
    placement = Placement(connection, n_blocks)
    gathered = placement.map(gather_block, parts, constants=(n_blocks, triplets.duplicates))
    del split, tables, parts
    summaries = connection.gather(connection.map(Gathered.summary, gathered))
    n_rows, n_entries, checksums, dtypes, has_weight = zip(*summaries, strict=True)
    if not any(has_weight):
        raise ValueError("weights must not all be 0")
    if not any(n_entries):
        raise ValueError("data must have at least one entry, got none")
    dtype = np.result_type(*(one for one, n in zip(dtypes, n_entries, strict=True) if n))
    every = range(n_blocks)
    needed = [connection.map(_needed, gathered, constants=(c,)) for c in every]
    merged = connection.map(merge, needed, constants=("column",))
    # by row block and column block: the positions of the row block's columns
    positions = [[connection.submit(getitem, one, b) for one in merged] for b in every]
    ids = (
        connection.map(getattr, gathered, constants=("ids",)),
        connection.map(getitem, merged, constants=(-1,)),
    )
    sizes = (n_rows, connection.gather(connection.map(len, ids[1])))
    if fraction is not None:
        size = holdout_size(fraction, sum(n_entries))
        gathered = _hold_out(connection, gathered, merged, positions, size, seed)
    tiles = [
        connection.map(cut_tile, [one] * n_blocks, every, of_block)
        for one, of_block in zip(gathered, positions, strict=True)
    ]
    sides = []
    for side, of_side in enumerate(sizes):
        by_block = tiles if side == 0 else list(map(list, zip(*tiles, strict=True)))
        of_blocks = (by_block, offsets_of(of_side), of_side)
        constants = (sizes[1 - side], side, dtype)
        blocks = placement.map(finish_block, *of_blocks, constants=constants)
        layouts = connection.gather(connection.map(_layout, blocks))
        needed = [
            [connection.submit(_needed, block, c) if few else None for c, few in enumerate(is_few)]
            for block, (_, is_few) in zip(blocks, layouts, strict=True)
        ]
        sides.append(Side(blocks, ids[side], of_side, needed))
    n_kept = sum(n for n, _ in layouts)
    if fraction is not None and n_kept == sum(n_entries):
        raise nothing_to_hold_out(fraction)
    return Matrix(connection, (sides[0], sides[1]), n_kept, dtype, hash(checksums))


def _needed(block: Gathered | Block, other: int) -> Any:
    return block.needed[other]


def _layout(block: Block) -> tuple[int, list[bool]]:
    """The number of entries, and for each other block whether only some of its rows are needed."""
    return block.observed.n_entries, [one is not None for one in block.needed]


# --- Entries that are held out ---


def _hold_out(
    connection: Connection,
    gathered: Sequence[Any],
    merged: Sequence[Any],
    positions: Sequence[Sequence[Any]],
    size: int,
    seed: int,
) -> list[Any]:
    """The same row blocks with a selection of held-out entries.

    These are the entries that :func:`robustmf.data.holdout.select_by_hash` would hold out on one
    machine.
    """
    keys = connection.map(_keys, gathered, constants=(seed,))
    by_column = connection.map(_largest_by_column, gathered, keys)
    parts = [connection.map(getitem, by_column, constants=(c,)) for c in range(len(gathered))]
    largest = connection.map(_largest, parts, merged)
    sections = [connection.map(getitem, largest, of_block) for of_block in positions]
    marked = connection.map(_mark_retained, gathered, keys, sections)
    threshold = _select_rank(connection, marked, size - 1)
    return connection.map(_select, gathered, marked, constants=(threshold,))


def _keys(block: Gathered, seed: int) -> Hashes:
    rows, columns = block.hashes
    return entry_keys(block.entries, seeded(rows, seed), columns)


def _largest_by_column(block: Gathered, keys: Hashes) -> list[Hashes]:
    """For each column block, the largest key in each of its columns, in this row block."""
    return np.split(largest_keys(keys, block.entries.columns, block.ends[-1]), block.ends[:-1])


def _largest(parts: Sequence[Hashes], merged: Sequence[Any]) -> Hashes:
    """The largest key in each column of a column block, from those of the row blocks."""
    *positions, ids = merged
    return largest_keys(np.concatenate(parts), np.concatenate(positions), len(ids))


def _mark_retained(block: Gathered, keys: Hashes, by_column: Sequence[Hashes]) -> Hashes:
    marked = keys.copy()
    by_row = largest_keys(keys, block.entries.rows, len(block.ids))
    mark_retained(marked, block.entries, by_row, np.concatenate(by_column))
    return marked


def _select(block: Gathered, marked: Hashes, threshold: np.uint64) -> Gathered:
    return replace(block, selected=select_up_to(marked, threshold))


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
