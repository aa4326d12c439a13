"""The observed matrix and its factors on a cluster, and how the matrix is loaded.

Loading shuffles the entries once: pieces of the input are split by block, blocks are put together,
and each determines the rows of the other side that it needs. All tasks depend on the input alone,
so a block of a lost worker is recomputed with the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.biases import BiasModel
from robustmf.backends.dask.blocks import (
    Block,
    Gathered,
    Part,
    Summary,
    finish_block,
    gather_block,
    offsets_of,
    receives_all,
    split_piece,
)
from robustmf.backends.dask.connection import Connection, identity
from robustmf.backends.dask.source import Triplets, pieces_of
from robustmf.data.hashing import Hashes, hash_ids
from robustmf.data.holdout import (
    RETAINED,
    entry_keys,
    holdout_size,
    largest_keys,
    mark_retained,
    nothing_to_hold_out,
    seeded,
    select_up_to,
)
from robustmf.data.ids import SIDE_NAMES, Ids, as_list, locate_ids, merge_ids

Array = NDArray[np.floating[Any]]

#: Bits of the prefix by which hash keys are counted. Keys are uniform, so one prefix in 2¹⁶ leaves
#: few of them.
_PREFIX_BITS = 16


@dataclass(frozen=True)
class Side:
    """The blocks of one side.

    Attributes
    ----------
    blocks, ids : lists of futures
        :class:`Block`, and the ids of its rows.
    sizes : list of int
        Rows of each block.
    needed : list of lists
        For each block and each block of the other side, a future of the positions of the rows that
        it needs there, or None if it receives all.
    """

    blocks: list[Any]
    ids: list[Any]
    sizes: list[int]
    needed: list[list[Any]]

    @property
    def offsets(self) -> list[int]:
        """The global index of the first row of each block."""
        return offsets_of(self.sizes)


@dataclass(eq=False)
class Matrix:
    """The observed matrix on a cluster, as row blocks and column blocks.

    Attributes
    ----------
    connection : Connection
    sides : (Side, Side)
    n_entries : int
        Without those that are held out.
    dtype : dtype
        The precision of the values.
    checksum : int
        Of ids, entries and weights.
    shape : (int, int)
    addresses : list of str
        The worker of each row block and column block, to which tasks of sweeps are restricted: Dask
        would let idle workers take them and copy the entries to them in every sweep.
    """

    connection: Connection
    sides: tuple[Side, Side]
    n_entries: int
    dtype: np.dtype[Any]
    checksum: int

    def __post_init__(self) -> None:
        self.shape = (sum(self.sides[0].sizes), sum(self.sides[1].sizes))
        self.addresses = self.connection.assign_workers(self.n_blocks)

    @property
    def n_blocks(self) -> int:
        """The number of blocks of each side."""
        return len(self.sides[0].blocks)

    def recover(self) -> bool:
        """Assign blocks of lost workers to others; return whether any was."""
        present = self.connection.workers()
        lost = [k for k, address in enumerate(self.addresses) if address not in present]
        if not lost or not present:
            return False
        for k, address in zip(lost, self.connection.assign_workers(len(lost)), strict=True):
            self.addresses[k] = address
        return True

    def add_workers(self) -> None:
        """Give workers that have joined their share of the blocks; results do not change."""
        threads = self.connection.workers()
        load = {
            address: self.addresses.count(address) / number for address, number in threads.items()
        }
        for new in [address for address in threads if not load[address]]:
            while (
                load[fullest := max(load, key=load.__getitem__)] - 1 / threads[fullest]
                >= load[new] + 1 / threads[new]
            ):
                k = self.addresses.index(fullest)
                self.addresses[k] = new
                load[fullest] -= 1 / threads[fullest]
                load[new] += 1 / threads[new]
                for side in self.sides:
                    # a copy under another key: the old one is released once it exists
                    side.blocks[k] = self.connection.submit(
                        identity, side.blocks[k], workers=[new], allow_other_workers=True
                    )

    @property
    def ids(self) -> tuple[list[Any], list[Any]]:
        """The ids of rows and columns in their order, on the client."""
        return self._ordering[0][1], self._ordering[1][1]

    def order(self, side: int) -> NDArray[Any]:
        """The position of each global index of a side in the order of the ids."""
        return self._ordering[side][0]

    @cached_property
    def _ordering(self) -> list[tuple[NDArray[Any], list[Any]]]:
        """Positions and ids of both sides; gathered only for a model in the client's memory."""
        merged = self.connection.map(merge_ids, [side.ids for side in self.sides], SIDE_NAMES)
        return [(order, as_list(ids)) for order, ids in self.connection.gather(merged)]

    def distribute(self, side: int, array: Array) -> Factors:
        """Factors in the order of the ids, as blocks on the workers."""
        parts = np.split(array[self.order(side)], self.sides[side].offsets[1:])
        blocks = [self.connection.constant(part) for part in parts]
        self.connection.wait(blocks)
        return Factors(self, side, blocks, array.shape[1])

    def sections(self, side: int, others: Sequence[Any]) -> list[list[Any]]:
        """For each block of a side, its sections of arrays over the blocks of the other side."""
        return [
            [
                other if positions is None else self.connection.submit(_take, other, positions)
                for other, positions in zip(others, of_block, strict=True)
            ]
            for of_block in self.sides[side].needed
        ]


class Factors:
    """The factors of one side: one immutable array per block, each on two workers.

    ``np.asarray`` gathers them on the client, in the order of the ids.

    Parameters
    ----------
    matrix : Matrix
    side : int
        0 for rows, 1 for columns.
    blocks : futures of arrays
    width : int
        Columns of each block.
    """

    def __init__(self, matrix: Matrix, side: int, blocks: Sequence[Any], width: int) -> None:
        self._matrix = matrix
        self.side = side
        self.blocks = list(blocks)
        self.shape = (matrix.shape[side], width)
        self.dtype = matrix.dtype
        #: For each block of the other side, the futures of its sections; None if not yet computed.
        self.sections: list[list[Any]] | None = None
        self._biases: BiasModel | None = None
        self._replicate()

    def copy(self) -> Factors:
        """The object itself, which is immutable."""
        return self

    def _replicate(self) -> None:
        """Copy every block to a second worker, if there is one."""
        connection = self._matrix.connection
        addresses = list(connection.workers())
        self.copies: list[Any] = []
        for k, (block, holders) in enumerate(
            zip(self.blocks, connection.holders(self.blocks), strict=True)
        ):
            # a worker that received the block for its own tasks already has it
            others = list(holders[1:2]) or [one for one in addresses if one not in holders]
            if not others:
                return
            copy = connection.submit(
                identity, block, workers=[others[k % len(others)]], allow_other_workers=True
            )
            self.copies.append(copy)

    def recover(self) -> bool:
        """Replace lost blocks by their copies; return whether any was."""
        lost = [
            k
            for k, copy in enumerate(self.copies)
            if self.blocks[k].status != "finished" and copy.status == "finished"
        ]
        for k in lost:
            self.blocks[k] = self.copies[k]
        if lost:
            self.sections = None
            self._replicate()
        return bool(lost)

    def each(self) -> Iterator[Array]:
        """The blocks, one at a time on the client."""
        return map(self._gathered, range(len(self.blocks)))

    def _gathered(self, k: int) -> Array:
        gather = self._matrix.connection.gather_with_recovery
        block: Array = gather(lambda: (None, self.blocks[k]), [self])[1]
        return block

    def predictors(self, biases: BiasModel) -> Factors:
        """The same object for which ``np.asarray`` returns the factors of the prediction."""
        predictors = copy(self)
        predictors._biases = biases
        return predictors

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        whole = np.empty(self.shape, self.dtype)
        order = self._matrix.order(self.side)
        start = 0
        for block in self.each():
            whole[order[start : start + len(block)]] = block
            start += len(block)
        if self._biases is not None:
            whole = self._biases.predictors(whole, whole)[self.side]
        return whole if dtype is None else whole.astype(dtype, copy=False)


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
            connection.map(_take, largest[1 - side], of_block) for of_block in positions[side]
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
    return (keys >> np.uint64(64 - _PREFIX_BITS)).astype(np.int64)


def _count_prefixes(keys: Hashes) -> NDArray[np.int64]:
    return np.bincount(_prefixes(keys[keys < RETAINED]), minlength=1 << _PREFIX_BITS)


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


def _take(values: NDArray[Any], positions: NDArray[np.int32]) -> NDArray[Any]:
    return values[positions]


def _part(split: tuple[list[Part], list[Part]], side: int, block: int) -> Part:
    return split[side][block]


def _needed(gathered: Gathered, block: int) -> Ids:
    return gathered.needed[block]


def _entry_counts(block: Block) -> tuple[int, int]:
    return block.observed.n_entries, 0 if block.holdout is None else len(block.holdout.values)
