"""The one shuffle, at load: pieces are cut by block, blocks are put together, and each learns what it needs of the other side.

All of it is ordinary tasks that depend on the input alone; so a block whose worker is lost is made again, with the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.dask.blocks import (
    Block,
    Gathered,
    Sections,
    Summary,
    finish_block,
    gather_block,
)
from robustmf.backends.dask.choice import chosen
from robustmf.backends.dask.connection import Connection
from robustmf.backends.dask.factors import Factors
from robustmf.backends.dask.parts import Columns, Part, split
from robustmf.backends.dask.source import ParquetPiece, Triplets, pieces_of
from robustmf.backends.dask.tasks import offered, same
from robustmf.data.holdout import nothing_to_hold_out
from robustmf.data.ids import Ids, as_list, locate_ids, merge_ids

#: A block that wants more than this share of another's factors is sent all of them: one message serves every block on a worker.
WHOLE = 0.5


@dataclass(frozen=True)
class Side:
    """The blocks of one side, as futures.

    Attributes
    ----------
    blocks, ids : futures
        :class:`Block`, and the ids of its rows.
    sizes : list of int
        Rows of each block.
    wanted : list of lists
        Of each block, for each block of the other side: positions of the rows it wants there (a future), or None where it gets all.
    counts : list of lists of int
        How many these are.
    """

    blocks: list[Any]
    ids: list[Any]
    sizes: list[int]
    wanted: list[list[Any]]
    counts: list[list[int]]

    @property
    def firsts(self) -> list[int]:
        """The number of each block's first row, over all blocks."""
        return _firsts(self.sizes)


class Matrix:
    """A matrix on a cluster: row blocks and column blocks, each with what it wants of the other side."""

    def __init__(
        self,
        connection: Connection,
        sides: tuple[Side, Side],
        n_entries: int,
        dtype: np.dtype[Any],
        checksum: int,
    ) -> None:
        self.connection, self.sides, self.n_entries, self.dtype, self.checksum = (
            connection,
            sides,
            n_entries,
            dtype,
            checksum,
        )
        self.shape = (sum(sides[0].sizes), sum(sides[1].sizes))
        self._homes = connection.homes_for(len(sides[0].blocks))

    def at(self, block: int) -> dict[str, Any]:
        """Options for a task of a sweep on this row block or column block: where its entries are, and nowhere else.

        Dask would let idle workers take it, entries and all, sweep after sweep.
        """
        return {"workers": [self._homes[block]]}

    def mend(self) -> bool:
        """Find another worker for blocks whose own is lost; whether one was."""
        there = self.connection.workers()
        lost = [k for k, home in enumerate(self._homes) if home not in there]
        if not lost or not there:
            return False
        for k, home in zip(lost, self.connection.homes_for(len(lost)), strict=True):
            self._homes[k] = home
        return True

    def welcome(self) -> None:
        """Give workers that have joined since their share of the blocks, entries and all; nothing is computed in another way for it."""
        threads = self.connection.workers()
        load = {address: self._homes.count(address) / number for address, number in threads.items()}
        for new in [address for address in threads if not load[address]]:
            while (
                load[fullest := max(load, key=load.__getitem__)] - 1 / threads[fullest]
                >= load[new] + 1 / threads[new]
            ):
                k = self._homes.index(fullest)
                self._homes[k] = new
                load[fullest] -= 1 / threads[fullest]
                load[new] += 1 / threads[new]
                for side in self.sides:
                    # a copy under a key of its own: the old one is let go when it is there
                    side.blocks[k] = self.connection.submit(
                        same, side.blocks[k], workers=[new], allow_other_workers=True
                    )

    @cached_property
    def ids(self) -> tuple[list[Any], list[Any]]:
        """The ids of rows and columns, here, in order."""
        return self._numbering[0][1], self._numbering[1][1]

    def order(self, side: int) -> NDArray[Any]:
        """The place of each row (side 0) or column, numbered over all blocks, in the order of the ids."""
        return self._numbering[side][0]

    @cached_property
    def _numbering(self) -> list[tuple[NDArray[Any], list[Any]]]:
        """Places and ids of both sides, here: what an ordinary model needs, and nothing else; so it is asked for as late as can be."""
        numbered = [
            self.connection.submit(merge_ids, side.ids, role)
            for side, role in zip(self.sides, ("row", "col"), strict=True)
        ]
        return [(places, as_list(ids)) for places, ids in self.connection.gather(numbered)]

    def factors(self, side: int, blocks: Sequence[Any], width: int) -> Factors:
        """Factors of one side in blocks."""
        return Factors(
            self.connection,
            blocks,
            self.sides[side].sizes,
            width,
            self.dtype,
            partial(self.order, side),
        )

    def sections(self, side: int, others: Sequence[Any]) -> list[list[Any]]:
        """For each block of the side, what it is sent by the blocks of the other: all, or what it wants."""
        return [
            [
                others[c] if places is None else self.connection.submit(offered, others[c], places)
                for c, places in enumerate(of_block)
            ]
            for of_block in self.sides[side].wanted
        ]


def load(
    connection: Connection, triplets: Triplets, blocks: int, fraction: float | None, seed: int
) -> Matrix:
    """Put the blocks together; with ``fraction``, that share of the entries is set aside."""
    pieces, columns = pieces_of(triplets)
    tables = connection.client.compute(pieces) if hasattr(pieces[0], "dask") else pieces
    cut = [connection.submit(_split, table, columns, (blocks, blocks)) for table in tables]
    parts = [
        [[connection.submit(_part, one, side, b) for one in cut] for b in range(blocks)]
        for side in (0, 1)
    ]
    connection.wait(parts)  # else the blocks would go to whoever has nothing to cut
    del cut, tables
    gathered = []
    for side in (0, 1):
        gathered.append(
            connection.spread(
                [
                    (gather_block, of_block, blocks, side, triplets.duplicates)
                    for of_block in parts[side]
                ]
            )
        )
    del parts
    summaries: list[list[Summary]] = connection.gather(
        [[connection.submit(Gathered.summary, one) for one in side] for side in gathered]
    )
    _require_entries(summaries)
    dtype = np.result_type(*(one.dtype for one in summaries[0] if one.n_entries))
    sizes = [[one.n_ids for one in side] for side in summaries]
    ids = [[connection.submit(_ids, one) for one in side] for side in gathered]
    places = [[[
        connection.submit(locate_ids, ids[1 - side][c], connection.submit(_wanted, gathered[side][b], c)) for c in range(blocks)
    ] for b in range(blocks)] for side in (0, 1)]  # fmt: skip
    n_entries = sum(one.n_entries for one in summaries[0])
    aside: Any = [[None] * blocks] * 2
    if fraction is not None:
        aside = chosen(connection, gathered, places, fraction, n_entries, seed)
    connection.wait(places)
    sides = []
    for side in (0, 1):
        other_sizes, counts = sizes[1 - side], [one.wanted for one in summaries[side]]
        whole = [
            [count > WHOLE * size for count, size in zip(of_block, other_sizes, strict=True)]
            for of_block in counts
        ]
        finished = connection.spread([
            (
                finish_block, gathered[side][b], _firsts(sizes[side])[b], Sections(_firsts(other_sizes), other_sizes, whole[b]),
                places[side][b], dtype.name, columns.weight is not None, aside[side][b],
            )
            for b in range(blocks)
        ])  # fmt: skip
        wanted = [
            [None if whole[b][c] else places[side][b][c] for c in range(blocks)]
            for b in range(blocks)
        ]
        sides.append(Side(finished, ids[side], sizes[side], wanted, counts))
    if fraction is not None:
        n_entries = _left(connection, sides, fraction)
    checksum = hash(tuple(one.checksum for side in summaries for one in side))
    return Matrix(connection, (sides[0], sides[1]), n_entries, dtype, checksum)


def _left(connection: Connection, sides: Sequence[Side], fraction: float) -> int:
    """Entries that were not set aside; some were."""
    left, aside = (
        sum(column)
        for column in zip(
            *connection.gather([connection.submit(_sizes, one) for one in sides[1].blocks]),
            strict=True,
        )
    )
    if not aside:
        raise nothing_to_hold_out(fraction)
    return left


def _require_entries(summaries: Sequence[Sequence[Summary]]) -> None:
    if not any(one.n_entries for one in summaries[0]):
        raise ValueError("data must have at least one entry, got none")
    if not any(one.weighs for one in summaries[0]):
        raise ValueError("weights must not all be 0")


def _firsts(sizes: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(sizes).tolist()[:-1]]


def _split(table: Any, columns: Columns, blocks: tuple[int, int]) -> tuple[list[Part], list[Part]]:
    if isinstance(table, ParquetPiece):
        table = table.read([name for name in vars(columns).values() if name is not None])
    return split(table, columns, blocks)


def _part(cut: tuple[list[Part], list[Part]], side: int, block: int) -> Part:
    return cut[side][block]


def _ids(gathered: Gathered) -> Ids:
    return gathered.ids


def _wanted(gathered: Gathered, block: int) -> Ids:
    return gathered.wanted[block]


def _sizes(block: Block) -> tuple[int, int]:
    return block.observed.n_entries, 0 if block.aside is None else len(block.aside.values)
