"""The observed matrix on a cluster, and how it is loaded.

Loading shuffles the entries once: pieces of the input are split by block, blocks are put together,
and each determines the rows of the other side that it needs. All tasks depend on the input alone,
so a block of a lost worker is recomputed with the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.dask.blocks import (
    Block,
    Gathered,
    Part,
    Sections,
    Summary,
    finish_block,
    gather_block,
    split_piece,
)
from robustmf.backends.dask.connection import Connection, identity
from robustmf.backends.dask.factors import Factors
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

#: A block that needs more than this share of another block's factors receives all of them: one
#: message then serves every block on a worker.
WHOLE_SHARE = 0.5

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
    n_needed : list of lists of int
        The numbers of these rows.
    """

    blocks: list[Any]
    ids: list[Any]
    sizes: list[int]
    needed: list[list[Any]]
    n_needed: list[list[int]]

    @property
    def offsets(self) -> list[int]:
        """The global index of the first row of each block."""
        return _offsets(self.sizes)


class Matrix:
    """The observed matrix on a cluster, as row blocks and column blocks."""

    def __init__(
        self,
        connection: Connection,
        sides: tuple[Side, Side],
        n_entries: int,
        dtype: np.dtype[Any],
        checksum: int,
    ) -> None:
        self.connection = connection
        self.sides = sides
        self.n_entries = n_entries
        self.dtype = dtype
        self.checksum = checksum
        self.shape = (sum(sides[0].sizes), sum(sides[1].sizes))
        self._addresses = connection.assign_workers(len(sides[0].blocks))

    @property
    def n_blocks(self) -> int:
        """The number of blocks of each side."""
        return len(self.sides[0].blocks)

    def worker_of(self, block: int) -> dict[str, Any]:
        """Options that restrict a task to the worker of this row block and column block.

        Dask would let idle workers take the task and copy the entries to them in every sweep.
        """
        return {"workers": [self._addresses[block]]}

    def recover(self) -> bool:
        """Assign blocks of lost workers to others; return whether any was."""
        present = self.connection.workers()
        lost = [k for k, address in enumerate(self._addresses) if address not in present]
        if not lost or not present:
            return False
        for k, address in zip(lost, self.connection.assign_workers(len(lost)), strict=True):
            self._addresses[k] = address
        return True

    def add_workers(self) -> None:
        """Give workers that have joined their share of the blocks; results do not change."""
        threads = self.connection.workers()
        load = {
            address: self._addresses.count(address) / number for address, number in threads.items()
        }
        for new in [address for address in threads if not load[address]]:
            while (
                load[fullest := max(load, key=load.__getitem__)] - 1 / threads[fullest]
                >= load[new] + 1 / threads[new]
            ):
                k = self._addresses.index(fullest)
                self._addresses[k] = new
                load[fullest] -= 1 / threads[fullest]
                load[new] += 1 / threads[new]
                for side in self.sides:
                    # a copy under another key: the old one is released once it exists
                    side.blocks[k] = self.connection.submit(
                        identity, side.blocks[k], workers=[new], allow_other_workers=True
                    )

    @cached_property
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

    def in_order(self, side: int, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Arrays over the rows of each block as one array in the order of the ids."""
        values = np.concatenate(parts)
        out = np.empty_like(values)
        out[self.order(side)] = values
        return out

    def factors(self, side: int, blocks: Sequence[Any], width: int) -> Factors:
        """Blocks of factors of one side, each on two workers."""
        factors = Factors(self, side, blocks, width)
        factors.replicate()
        return factors

    def distribute(self, side: int, array: NDArray[Any]) -> Factors:
        """Factors in the order of the ids, as blocks on the workers."""
        parts = np.split(array[self.order(side)], self.sides[side].offsets[1:])
        blocks = [self.connection.constant(part) for part in parts]
        self.connection.wait(blocks)
        return self.factors(side, blocks, array.shape[1])

    def sections(self, side: int, others: Sequence[Any]) -> list[list[Any]]:
        """For each block of a side, its sections of arrays over the blocks of the other side."""
        return [
            [
                other if positions is None else self.connection.submit(_take, other, positions)
                for other, positions in zip(others, of_block, strict=True)
            ]
            for of_block in self.sides[side].needed
        ]


def load_matrix(
    connection: Connection, triplets: Triplets, n_blocks: int, fraction: float | None, seed: int
) -> Matrix:
    """Load the input into blocks; with ``fraction``, that share of the entries is held out."""
    submit = connection.submit
    pieces, columns = pieces_of(triplets)
    tables = connection.client.compute(pieces) if hasattr(pieces[0], "dask") else pieces
    split = [submit(split_piece, table, columns, n_blocks) for table in tables]
    parts = [
        [[submit(_part, one, side, b) for one in split] for b in range(n_blocks)] for side in (0, 1)
    ]
    connection.wait(parts)  # otherwise the blocks would go to workers without pieces
    del split, tables
    gathered = [
        connection.submit_evenly(
            [(gather_block, of_block, n_blocks, side, triplets.duplicates) for of_block in of_side]
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
    dtype = np.result_type(*(one.dtype for one in summaries[0] if one.n_entries))
    sizes = [[one.n_ids for one in of_side] for of_side in summaries]
    ids = [connection.attributes(of_side, "ids") for of_side in gathered]
    positions = [
        [
            [submit(locate_ids, other, submit(_needed, one, c)) for c, other in enumerate(others)]
            for one in of_side
        ]
        for of_side, others in zip(gathered, ids[::-1], strict=True)
    ]
    n_entries = sum(one.n_entries for one in summaries[0])
    holdout: Any = [[None] * n_blocks] * 2
    if fraction is not None:
        size = holdout_size(fraction, n_entries)
        holdout = _select_holdout(connection, gathered, positions, size, seed)
    connection.wait(positions)
    sides = []
    for side in (0, 1):
        n_needed = [one.n_needed for one in summaries[side]]
        other_sizes = sizes[1 - side]
        offsets = _offsets(sizes[side])
        whole = [
            [n > WHOLE_SHARE * size for n, size in zip(of_block, other_sizes, strict=True)]
            for of_block in n_needed
        ]
        tasks = [
            (
                finish_block,
                gathered[side][b],
                offsets[b],
                Sections(_offsets(other_sizes), other_sizes, whole[b]),
                positions[side][b],
                dtype.name,
                columns.weight is not None,
                holdout[side][b],
            )
            for b in range(n_blocks)
        ]
        blocks = connection.submit_evenly(tasks)
        needed = [
            [None if all_rows else one for all_rows, one in zip(*of_block, strict=True)]
            for of_block in zip(whole, positions[side], strict=True)
        ]
        sides.append(Side(blocks, ids[side], sizes[side], needed, n_needed))
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
    submit = connection.submit
    keys = [[submit(_keys, one, side, seed) for one in gathered[side]] for side in (0, 1)]
    largest = [
        connection.map(_largest_keys, *of_side) for of_side in zip(gathered, keys, strict=True)
    ]
    marked = []
    for side in (0, 1):
        sections = [
            connection.map(_take, largest[1 - side], of_block) for of_block in positions[side]
        ]
        marked.append(
            connection.map(_mark_retained, gathered[side], keys[side], largest[side], sections)
        )
    threshold = _select_rank(connection, marked[0], size - 1)
    return [[submit(select_up_to, one, threshold) for one in of_side] for of_side in marked]


def _select_rank(connection: Connection, keys: Sequence[Any], rank: int) -> np.uint64:
    """The key of this rank among all that may be held out; RETAINED if there are fewer."""
    counts = np.sum(connection.gather(connection.map(_count_prefixes, keys)), axis=0)
    prefix = int(np.searchsorted(np.cumsum(counts), rank, side="right"))
    if prefix == len(counts):
        return RETAINED
    found = connection.gather([connection.submit(_with_prefix, one, prefix) for one in keys])
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


def _offsets(sizes: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(sizes).tolist()[:-1]]


def _take(values: NDArray[Any], positions: NDArray[np.int32]) -> NDArray[Any]:
    return values[positions]


def _part(split: tuple[list[Part], list[Part]], side: int, block: int) -> Part:
    return split[side][block]


def _needed(gathered: Gathered, block: int) -> Ids:
    return gathered.needed[block]


def _entry_counts(block: Block) -> tuple[int, int]:
    return block.observed.n_entries, 0 if block.holdout is None else len(block.holdout.values)
