"""The observed matrix and its factors on a cluster.

A block has some rows or, with the roles of rows and columns exchanged, some columns. Rows belong to
blocks by the hash of their id. The columns of a block's entries are indices into its *sections*,
one per block of the other side, laid end to end: either all rows of that block's factors, or those
rows that the block needs. Rows are numbered over all blocks, one block after the other; this is
their *global index*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from operator import getitem
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.biases import BiasModel
from robustmf.backends.dask.connection import Connection, Placement, identity
from robustmf.data.holdout import Holdout
from robustmf.data.ids import SIDE_NAMES, as_list, merge_ids
from robustmf.data.observed import Observed

Array = NDArray[np.floating[Any]]

#: Approximate bytes of an id that is a Python object, with its position in a list.
_ID_BYTES = 80


class Sized:
    """Base class of data on workers: its size, by which Dask schedules tasks, is approximate."""

    def __sizeof__(self) -> int:
        return sum(map(_bytes_of, vars(self).values()))


def _bytes_of(value: Any) -> int:
    """Approximate bytes of arrays and lists of ids, in objects and lists."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, list) and not (value and isinstance(value[0], (np.ndarray, list))):
        return _ID_BYTES * len(value)
    parts = value if isinstance(value, list) else getattr(value, "__dict__", {}).values()
    return sum(map(_bytes_of, parts))


@dataclass(frozen=True)
class Block(Sized):
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

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of entries of each row."""
        return self.observed.rows.counts


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
    placement : Placement
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
        self.placement = Placement(self.connection, self.n_blocks)

    @property
    def n_blocks(self) -> int:
        """The number of blocks of each side."""
        return len(self.sides[0].blocks)

    def add_workers(self) -> None:
        """Give workers that have joined their share of the blocks; results do not change."""
        threads = self.connection.workers()
        addresses = self.placement.addresses
        load = {address: addresses.count(address) / number for address, number in threads.items()}
        for new in [address for address in threads if not load[address]]:
            while (
                load[fullest := max(load, key=load.__getitem__)] - 1 / threads[fullest]
                >= load[new] + 1 / threads[new]
            ):
                k = addresses.index(fullest)
                addresses[k] = new
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
                other if positions is None else self.connection.submit(getitem, other, positions)
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


def offsets_of(sizes: Sequence[int]) -> list[int]:
    """The global index of the first row of each block."""
    return [0, *np.cumsum(sizes).tolist()[:-1]]
