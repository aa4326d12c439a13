"""The parts of large data that are searched: rows and columns with most entries, and others.

Blocks of different sizes are nested. See docs/design/initial-points.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import ProblemSize
from robustmf.data.observed import Compressed, Observed


@dataclass(frozen=True)
class BlockOptions:
    """Constants of the blocks.

    Attributes
    ----------
    max_entries : int
        Entries of the large block, by which the search takes some seconds. Data with fewer are
        searched as a whole.
    min_per_row : float
        Entries in an average row of a block, at least, so that factors are determined; a block
        with fewer is enlarged.
    max_block : int
        Entries of the large block, at most, before other rows and columns are added to it.
    coarse_entries : int
        Entries of the small block, in which the search begins.
    entries_per_parameter : float
        Entries of the small block, at least, per parameter of the factors that its spectrum shows.
    coarse_share : float
        There is a small block if it has at most this share of the entries of the large one.
    levels : int
        The resolution of the share of rows and columns in a block.
    batch : int
        Entries that are processed together, which bounds the memory.
    """

    max_entries: int = 250_000
    min_per_row: float = 30.0
    max_block: int = 1_000_000
    coarse_entries: int = 50_000
    entries_per_parameter: float = 4.0
    coarse_share: float = 0.5
    levels: int = 1 << 12
    batch: int = 1 << 22


OPTIONS = BlockOptions()


def searched_size(size: ProblemSize) -> ProblemSize:
    """The size of the largest block that is searched, for entries at random positions.

    With other rows and columns it is at most four times the block of those with most entries.
    """
    if size.n_entries <= OPTIONS.max_entries:
        return size
    n_entries = min(size.n_entries, 4 * OPTIONS.max_block)
    m, n = size.shape
    cells = n_entries / size.n_entries * m * n
    short = min(m, n, cells**0.5)
    m, n = (max(1, round(min(length, cells / short))) for length in (m, n))
    return replace(size, shape=(m, n), n_entries=n_entries)


@dataclass(frozen=True)
class Block:
    """The rows and columns that are searched: all of them, or those with most entries.

    Attributes
    ----------
    observed : Observed
        All entries.
    rows, columns : array of bool, or None
        The rows and columns of the block; None for all.
    """

    observed: Observed
    rows: NDArray[np.bool_] | None
    columns: NDArray[np.bool_] | None

    def with_others(self) -> Block:
        """The block, and as many other rows and columns, at random.

        They show factors that the rows and columns with most entries do not have.
        """
        if self.rows is None or self.columns is None:
            return self
        rng = np.random.default_rng(0)  # a constant seed, as in DensityOrder
        masks = []
        for mask, counts in zip((self.rows, self.columns), counts_of(self.observed), strict=True):
            others = np.flatnonzero(~mask & (counts > 0))
            added = rng.choice(others, min(len(others), int(mask.sum())), replace=False)
            masks.append(mask.copy())
            masks[-1][added] = True
        if all(mask.all() for mask in masks):
            return Block(self.observed, None, None)
        return Block(self.observed, *masks)

    @property
    def is_whole(self) -> bool:
        """Whether the block has all rows and columns."""
        return self.rows is None

    def of(self, observed: Observed) -> Observed:
        """The entries of the block in a matrix of the same pattern, as a matrix of their own."""
        if self.rows is None or self.columns is None:
            return observed
        return block_of(observed, self.rows, self.columns)

    @property
    def indices(self) -> tuple[Any, Any]:
        """Index expressions of the block's rows and columns."""
        everything = slice(None)
        return (
            everything if self.rows is None else self.rows,
            everything if self.columns is None else self.columns,
        )


class DensityOrder:
    """Rows and columns in the order of their numbers of entries; at random where these are equal.

    A block has the first rows and as many columns, as far as there are: of all blocks with so many
    entries it has most for each parameter of a factor.

    Parameters
    ----------
    observed : Observed
    """

    def __init__(self, observed: Observed) -> None:
        n_levels = OPTIONS.levels
        longest = max(observed.shape)
        self.observed = observed
        self.levels = []
        lengths = np.zeros(n_levels, np.int64)
        # a constant seed: the blocks of one table must be nested
        rng = np.random.default_rng(0)
        for counts in counts_of(observed):
            shuffled = rng.permutation(len(counts))
            order = shuffled[np.argsort(-counts[shuffled], kind="stable")]
            # small blocks are resolved as finely as large ones
            level = np.empty(len(order), np.int32)
            level[order] = np.sqrt(np.arange(len(order)) / longest) * n_levels
            self.levels.append(level)
            length = np.cumsum(np.bincount(level, minlength=n_levels))
            lengths = np.maximum(lengths, length)
        number = np.zeros(n_levels, np.int64)
        of_rows, of_columns = map(observed.placed, self.levels)
        for part, rows, counts in parts(observed):
            of_column = of_columns[observed.rows.indices[part]]
            level = np.maximum(np.repeat(of_rows[rows], counts), of_column)
            number += np.asarray(np.bincount(level, minlength=n_levels))
        self.n_entries = np.cumsum(number)
        self.per_row = self.n_entries / np.maximum(lengths, 1)

    def block(self, n_entries: int, per_row: float, most: int) -> Block:
        """The smallest block with so many entries, and in its average row; ``most`` at most."""
        enough = (self.n_entries >= n_entries) & (self.per_row >= per_row)
        last = int(np.argmax(enough)) if enough.any() else len(enough) - 1
        largest = int(np.searchsorted(self.n_entries, most, side="right")) - 1
        last = max(0, min(last, largest))
        rows, columns = (level <= last for level in self.levels)
        if rows.all() and columns.all():
            return Block(self.observed, None, None)
        return Block(self.observed, rows, columns)


def counts_of(observed: Observed) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers of entries of the rows and of the columns, in the memory of the host."""
    return np.asarray(observed.rows.counts), np.asarray(observed.columns.counts)


def parts(observed: Observed) -> Iterator[tuple[slice, slice, NDArray[np.int64]]]:
    """Entries in parts, with their rows and the number of entries of each row in the part.

    Temporary arrays over all entries would not fit in memory.
    """
    pointers = np.asarray(observed.rows.pointers)
    for low in range(0, observed.n_entries, OPTIONS.batch):
        high = min(low + OPTIONS.batch, observed.n_entries)
        first, last = np.searchsorted(pointers, [low, high - 1], side="right") - 1
        counts = np.diff(np.clip(pointers[first : last + 2], low, high)).astype(np.int64)
        yield slice(low, high), slice(first, last + 1), counts


def block_of(observed: Observed, rows: NDArray[np.bool_], columns: NDArray[np.bool_]) -> Observed:
    """The entries of these rows and columns, as a matrix of their own in the same memory."""
    entries = observed.rows
    chosen = np.flatnonzero(rows)
    pointers = np.asarray(entries.pointers)
    counts = np.diff(pointers)[chosen]
    ends = np.cumsum(counts)
    # positions of the entries of these rows, and of those which are in these columns; not arange,
    # which would be in the memory of the host wherever the entries are
    shift = np.repeat(observed.placed(pointers[chosen] - (ends - counts)), counts)
    at = shift + np.cumsum(np.ones_like(shift)) - 1
    mask = observed.placed(columns)[entries.indices[at]]
    at = at[mask]
    inside = np.concatenate((observed.placed(np.zeros(1, np.int64)), np.cumsum(mask)))
    new_column = observed.placed((np.cumsum(columns) - 1).astype(np.int32))
    return type(observed)(
        Compressed(
            inside[np.concatenate(([0], ends))].astype(entries.pointers.dtype),
            new_column[entries.indices[at]],
            entries.values[at],
        ),
        (len(chosen), int(columns.sum())),
    )
