"""One block of rows (or, roles swapped, of columns): its entries compressed, and what it needs of the other side.

A block's indices point into *sections*, one for each block of the other side, laid end to end: either the whole of that block's factors,
or the rows of it that are wanted here.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.dask.aside import Aside, split_off
from robustmf.backends.dask.identity import bytes_of
from robustmf.backends.dask.parts import Part
from robustmf.data.hashing import hash_ids
from robustmf.data.ids import Ids, as_list, merge_ids, take_ids
from robustmf.data.observed import Compressed, Duplicates, Observed
from robustmf.exceptions import DuplicateEntryError

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Gathered:
    """The entries of a block by its own ids, before it is known how the other side is numbered; ``wanted`` are ids of each other block."""

    ids: Ids
    rows: Compressed
    weights: Array | None
    wanted: list[Ids]

    def __sizeof__(self) -> int:
        """Bytes, for Dask, which weighs by them where a task shall run."""
        return bytes_of(
            self.ids,
            self.rows.pointers,
            self.rows.indices,
            self.rows.values,
            self.weights,
            *self.wanted,
        )

    def summary(self) -> Summary:
        """What the client needs to know."""
        checksum = zlib.crc32(self.rows.indices.tobytes(), zlib.crc32(self.rows.pointers.tobytes()))
        for array in (self.rows.values, self.weights):
            checksum = checksum if array is None else zlib.crc32(array.tobytes(), checksum)
        return Summary(
            len(self.ids), len(self.rows.values), [len(ids) for ids in self.wanted], self.rows.values.dtype.name, checksum,
            self.weights is None or bool(self.weights.any()),
        )  # fmt: skip


@dataclass(frozen=True)
class Summary:
    """Sizes of a block: its ids, its entries, the ids it wants of each other block; dtype, checksum, and whether any weight is not 0."""

    n_ids: int
    n_entries: int
    wanted: list[int]
    dtype: str
    checksum: int
    weighs: bool


@dataclass(frozen=True)
class Sections:
    """How the other side is laid end to end: for each of its blocks its first number, its size, and whether it comes whole."""

    firsts: list[int]
    sizes: list[int]
    whole: list[bool]


@dataclass(frozen=True)
class Block:
    """A block ready for half-steps.

    Attributes
    ----------
    observed : Observed
        Its entries; columns are places in the sections.
    weights : array over the entries, or None
    first : int
        Number of its first row among those of all blocks.
    numbers : array over the sections
        Which of the other side's rows, numbered over all blocks, stands at each place.
    aside : Aside or None
        Entries set aside, where this side keeps them.
    """

    observed: Observed
    weights: Array | None
    first: int
    numbers: NDArray[np.int64]
    aside: Aside | None

    def __sizeof__(self) -> int:
        """Bytes, for Dask, which weighs by them where a task shall run."""
        rows = self.observed.rows
        return bytes_of(rows.pointers, rows.indices, rows.values, self.weights, self.numbers)


def gather_block(
    parts: Sequence[Part], other_blocks: int, side: int, duplicates: Duplicates
) -> Gathered:
    """One block of side 0 (rows) or 1 (columns) from its parts of all pieces, in the order of the pieces."""
    roles = ("row", "col") if side == 0 else ("col", "row")
    numbers, ids = merge_ids([part.own_ids for part in parts], roles[0])
    other_numbers, others = merge_ids([part.other_ids for part in parts], roles[1])
    block_of = (hash_ids(others) % np.uint64(other_blocks)).astype(np.intp)
    order = np.argsort(block_of, kind="stable")
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order))
    bounds = np.concatenate(([0], np.cumsum(np.bincount(block_of, minlength=other_blocks))))
    wanted = [take_ids(others, order[low:high]) for low, high in pairwise(bounds)]
    i = _numbered([part.own for part in parts], [len(part.own_ids) for part in parts], numbers)
    j = place[
        _numbered(
            [part.other for part in parts], [len(part.other_ids) for part in parts], other_numbers
        )
    ]
    values = np.concatenate([part.values for part in parts])
    if not len(values):
        empty = Compressed(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
        return Gathered(ids, empty, None, wanted)
    shape = (len(ids), len(others))
    try:
        rows = Observed.from_indices(i, j, values, shape, duplicates).rows
    except DuplicateEntryError as error:
        place_of = (
            as_list(take_ids(ids, np.array([error.row])))[0],
            as_list(take_ids(others, order[[error.column]]))[0],
        )
        raise error.with_ids(
            *(place_of if side == 0 else place_of[::-1]), "robustmf.backends.dask.Triplets"
        ) from None
    weights = None
    if parts[0].weights is not None:
        given = np.concatenate([part.weights for part in parts if part.weights is not None])
        weights = Observed.from_indices(i, j, given, shape, duplicates).rows.values
    return Gathered(ids, rows, weights, wanted)


def _numbered(
    codes: Sequence[NDArray[np.int32]], sizes: Sequence[int], numbers: NDArray[Any]
) -> NDArray[np.int32]:
    """The parts' own codes as numbers in the block."""
    starts = np.concatenate(([0], np.cumsum(sizes)))
    return np.concatenate(
        [numbers[low + code].astype(np.int32) for low, code in zip(starts[:-1], codes, strict=True)]
    )


def finish_block(
    gathered: Gathered, first: int, sections: Sections, positions: Sequence[NDArray[np.int32]], dtype: str, weighted: bool,
    chosen: NDArray[np.bool_] | None,
) -> Block:  # fmt: skip
    """The block with its indices in the sections, without the entries that were ``chosen`` to be set aside.

    ``positions`` say where the wanted ids stand in their blocks.
    """
    places, numbers, start = [], [], 0
    for first_there, size, whole, position in zip(
        sections.firsts, sections.sizes, sections.whole, positions, strict=True
    ):
        places.append(start + (position if whole else np.arange(len(position), dtype=np.int32)))
        numbers.append(first_there + (np.arange(size) if whole else position.astype(np.int64)))
        start += size if whole else len(position)
    rows = gathered.rows
    values = rows.values.astype(dtype, copy=False)
    indices = np.concatenate(places).astype(np.int32, copy=False)[rows.indices]
    weights = None
    if weighted:
        weights = np.empty(0, dtype) if gathered.weights is None else gathered.weights.astype(dtype)
    entries, aside = Compressed(rows.pointers, indices, values), None
    if chosen is not None:
        entries, weights, aside = split_off(entries, weights, chosen)
    return Block(
        Observed(entries, (len(gathered.ids), start)),
        weights,
        first,
        np.concatenate(numbers),
        aside,
    )
