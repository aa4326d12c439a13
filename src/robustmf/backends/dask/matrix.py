"""The observed matrix and its factors on a cluster.

A block has some rows or, with the roles of rows and columns exchanged, some columns. Rows belong to
blocks by the hash of their id. The columns of a block's entries are indices into its *sections*,
one per block of the other side, laid end to end: either all rows of that block's factors, or those
rows that the block needs. Rows are numbered over all blocks, one block after the other; this is
their *global index*.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import getitem
from typing import Any

import numpy as np
from dask.sizeof import sizeof
from numpy.typing import NDArray

from robustmf.backends.biases import BiasModel
from robustmf.backends.dask.connection import Connection, Placement
from robustmf.data.compressed import Coordinates
from robustmf.data.holdout import Holdout
from robustmf.data.ids import SIDE_NAMES, as_list, merge_ids
from robustmf.data.observed import Observed

Array = NDArray[np.floating[Any]]


class Sized:
    """Base class of data on workers: its size, by which Dask schedules tasks, is approximate."""

    def __sizeof__(self) -> int:
        return _bytes_of(self)


def _bytes_of(value: Any) -> int:
    """Approximate bytes of arrays and lists in an object."""
    if isinstance(value, (np.ndarray, list)):
        return sizeof(value)
    return sum(map(_bytes_of, getattr(value, "__dict__", {}).values()))


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
    needed : list
        For each block of the other side, the positions of the rows that this block needs, or None
        if it receives all.
    holdout : Holdout or None
        The held-out entries of these rows.
    """

    observed: Observed
    weights: Array | None
    offset: int
    columns: NDArray[np.int64]
    needed: list[NDArray[np.int32] | None]
    holdout: Holdout | None

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of entries of each row."""
        return self.observed.rows.counts

    def entries_at(self, positions: NDArray[np.int64]) -> Coordinates:
        """Entries by their positions in row order, with global indices."""
        found = Coordinates.of(self.observed.rows, self.weights, positions)
        return replace(found, rows=self.offset + found.rows, columns=self.columns[found.columns])


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
        For each block a future of each element of :attr:`Block.needed`, or None.
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

    def map(self, side: int, function: Any, *columns: Any, **options: Any) -> list[Any]:
        """Futures of a function of each block of a side, and further arguments, on its worker."""
        return self.placement.submit(function, self.sides[side].blocks, *columns, **options)

    def balance(self) -> None:
        """Give workers that have joined their share of the blocks; results do not change."""
        for k in self.placement.update():
            for side in self.sides:
                # the block under the old key is released once the copy exists
                side.blocks[k] = self.connection.copy(side.blocks[k], self.placement.addresses[k])

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
        return Factors(self, side, blocks, array.shape[1]).replicated()

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

    Attributes
    ----------
    name : str
        A random number, by which files of these factors are named.
    """

    def __init__(self, matrix: Matrix, side: int, blocks: Sequence[Any], width: int) -> None:
        self._matrix = matrix
        self.side = side
        self.blocks = list(blocks)
        self.shape = (matrix.shape[side], width)
        self.dtype = matrix.dtype
        self.name = secrets.token_hex(8)
        self.copies: list[Any] = []
        self._sections: list[list[Any]] | None = None

    def copy(self) -> Factors:
        """The object itself, which is immutable."""
        return self

    @property
    def sections(self) -> list[list[Any]]:
        """For each block of the other side, the futures of its sections of these factors."""
        if self._sections is None:
            self._sections = self._matrix.sections(1 - self.side, self.blocks)
        return self._sections

    def replicated(self) -> Factors:
        """The object itself, with a copy of each block on a second worker once it is computed."""
        self._matrix.connection.wait(self.blocks)
        self._replicate()
        return self

    def _replicate(self) -> None:
        connection = self._matrix.connection
        addresses = list(connection.workers())
        holders = connection.holders(self.blocks)
        self.copies = []
        for k, block in enumerate(self.blocks if len(addresses) > 1 else ()):
            # a worker that received the block for its own tasks already has it
            others = holders[k][1:2] or [one for one in addresses if one not in holders[k]]
            self.copies.append(connection.copy(block, others[k % len(others)]))

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
            self._sections = None
            self._replicate()
        return bool(lost)

    def map(
        self, function: Any, *columns: Sequence[Any], constants: Sequence[Any] = ()
    ) -> list[Any]:
        """The results of a function of each block, and of further arguments, on the client."""
        connection = self._matrix.connection

        def submit() -> tuple[None, tuple[()], list[Any]]:
            return None, (), connection.map(function, self.blocks, *columns, constants=constants)

        results: list[Any] = connection.run(submit, [self])[1]
        return results

    def each(self) -> Iterator[Array]:
        """The blocks, one at a time on the client."""
        for k in range(len(self.blocks)):
            yield self._gathered(k)

    def _gathered(self, k: int) -> Array:
        run = self._matrix.connection.run
        block: Array = run(lambda: (None, (), self.blocks[k]), [self])[1]
        return block

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        whole = np.empty(self.shape, self.dtype)
        order = self._matrix.order(self.side)
        offsets = self._matrix.sides[self.side].offsets
        for start, block in zip(offsets, self.each(), strict=True):
            whole[order[start : start + len(block)]] = block
        return whole if dtype is None else whole.astype(dtype, copy=False)


@dataclass(frozen=True)
class Predictors:
    """Factors for which ``np.asarray`` returns the factors of the prediction."""

    factors: Factors
    biases: BiasModel

    def copy(self) -> Predictors:
        """The object itself, which is immutable."""
        return self

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        whole = np.asarray(self.factors, dtype)
        return self.biases.predictors(whole, whole)[self.factors.side]


def offsets_of(sizes: Sequence[int]) -> list[int]:
    """The global index of the first row of each block."""
    return [0, *np.cumsum(sizes).tolist()[:-1]]
