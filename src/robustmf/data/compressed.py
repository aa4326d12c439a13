"""Compressed sparse rows (CSR) and columns (CSC): construction, transposition, duplicates.

Some entries of a matrix can also be given by their coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from robustmf.exceptions import DuplicateEntryError
from robustmf.kernels.compress import (
    count,
    first_repeat,
    group_order,
    merge_repeats,
    scatter,
    transpose,
)

Values = NDArray[np.float32] | NDArray[np.float64]
Duplicates = Literal["error", "last", "mean"]

#: With fewer entries NumPy sorts, so that the kernels need not be compiled for a first small table.
FEW = 100_000


@dataclass(frozen=True)
class Compressed:
    """Entries by groups, which are the rows (CSR) or the columns (CSC) of a matrix.

    Attributes
    ----------
    pointers : ndarray of int64, shape (n_groups + 1,)
        Group k consists of the entries ``pointers[k]`` to ``pointers[k + 1]``.
    indices : ndarray of int32, shape (n_entries,)
        The column (CSR) or row (CSC) of every entry.
    values : ndarray of float32 or float64, shape (n_entries,)
        The values.
    """

    pointers: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: Values

    def __len__(self) -> int:
        return len(self.pointers) - 1

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of entries in each group."""
        return np.diff(self.pointers)

    def group_of_entry(self) -> NDArray[np.int32]:
        """The group of every entry; together with ``indices``, the coordinates."""
        # not numpy.arange, whose result would be in host memory if the entries are on a GPU
        numbers = np.cumsum(np.ones_like(self.counts)) - 1
        return np.repeat(numbers.astype(np.int32), self.counts)

    def groups_at(self, positions: Any) -> Any:
        """The groups of the entries at these positions."""
        return np.searchsorted(self.pointers, positions, side="right") - 1


@dataclass(frozen=True)
class Coordinates:
    """Entries with their rows, columns and weights.

    Attributes
    ----------
    rows, columns : array of int
        Their indices.
    values : array
        Their values.
    weights : array or None
        Their weights.
    """

    rows: NDArray[np.integer[Any]]
    columns: NDArray[np.integer[Any]]
    values: Values
    weights: Values | None

    @classmethod
    def of(cls, entries: Compressed, weights: Values | None, positions: Any) -> Self:
        """The entries at these positions in row order."""
        return cls(
            entries.groups_at(positions),
            entries.indices[positions],
            entries.values[positions],
            None if weights is None else weights[positions],
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Coordinates]) -> Self:
        """The entries of all parts, which have weights or not."""
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        joined: Any = (None if one[0] is None else np.concatenate(one) for one in columns)
        return cls(*joined)

    def at(self, positions: Any) -> Self:
        """Some of the entries, by positions or by a mask."""
        parts: Any = (part if part is None else part[positions] for part in vars(self).values())
        return type(self)(*parts)


def compress(
    i: NDArray[np.int32], j: NDArray[np.int32], v: Values, shape: tuple[int, int]
) -> Compressed:
    """Coordinates as CSR with ascending columns; duplicates stay in the order given.

    The entries are grouped by column and then by row with two stable counting sorts.
    """
    if len(v) < FEW:
        return transpose_compressed(_sorted(j, i, v, shape[1]), shape[0], v.dtype)
    by_column = _allocate(j, shape[1], v.dtype)
    scatter(j, i, v, by_column.pointers, by_column.indices, by_column.values)
    return transpose_compressed(by_column, shape[0], v.dtype)


def transpose_compressed(entries: Compressed, n_groups: int, dtype: np.dtype[Any]) -> Compressed:
    """CSC of CSR, or the reverse: ``n_groups`` groups with ascending indices."""
    if len(entries.values) < FEW:
        values = entries.values.astype(dtype, copy=False)
        return _sorted(entries.indices, entries.group_of_entry(), values, n_groups)
    out = _allocate(entries.indices, n_groups, dtype)
    transpose(
        entries.pointers, entries.indices, entries.values, out.pointers, out.indices, out.values
    )
    return out


def merge_duplicates(rows: Compressed, duplicates: Duplicates) -> Compressed:
    """Merge the entries of equal row and column into their last value or mean; modifies ``rows``.

    Raises
    ------
    DuplicateEntryError
        If there are any and ``duplicates`` is "error".
    """
    repeat = _first_repeat(rows)
    if repeat < 0:
        return rows
    if duplicates == "error":
        raise DuplicateEntryError(
            int(rows.groups_at(repeat)),
            int(rows.indices[repeat]),
            (float(rows.values[repeat - 1]), float(rows.values[repeat])),
        )
    kept = merge_repeats(rows.pointers, rows.indices, rows.values, duplicates == "mean")
    return Compressed(rows.pointers, rows.indices[:kept], rows.values[:kept])


def grouping_order(entries: Compressed, others: Compressed) -> NDArray[np.int64]:
    """Positions of ``entries`` in the order of ``others``, which are their transpose."""
    if len(entries.values) < FEW:
        return np.argsort(entries.indices, kind="stable")
    order = np.empty(len(entries.values), np.int64)
    group_order(entries.indices, others.pointers, order)
    return order


def _first_repeat(rows: Compressed) -> int:
    """The first entry whose index equals the one before it in its sorted group, or -1."""
    if len(rows.values) >= FEW:
        return int(first_repeat(rows.pointers, rows.indices))
    equal = np.append(False, rows.indices[1:] == rows.indices[:-1])
    equal[rows.pointers[:-1][rows.counts > 0]] = False
    return int(np.argmax(equal)) if equal.any() else -1


def _sorted(
    groups: NDArray[np.int32], others: NDArray[np.int32], values: Values, n_groups: int
) -> Compressed:
    """Coordinates sorted by group, stable, without a compiled kernel."""
    order = np.argsort(groups, kind="stable")
    pointers = np.zeros(n_groups + 1, np.int64)
    np.cumsum(np.bincount(groups, minlength=n_groups), out=pointers[1:])
    return Compressed(pointers, others[order].astype(np.int32, copy=False), values[order])


def _allocate(groups: NDArray[np.int32], n_groups: int, dtype: np.dtype[Any]) -> Compressed:
    """Memory for entries that belong to ``groups``, with the pointers computed."""
    pointers = np.zeros(n_groups + 1, np.int64)
    count(groups, pointers)
    return Compressed(pointers, np.empty(len(groups), np.int32), np.empty(len(groups), dtype))
