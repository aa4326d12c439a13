"""Entries group by group (CSR, CSC): made from coordinates, turned the other way, repeated places found and merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from robustmf.exceptions import DuplicateEntryError
from robustmf.kernels.compress import count, first_repeat, merge_repeats, scatter, transpose

Values = NDArray[np.float32] | NDArray[np.float64]
Duplicates = Literal["error", "last", "mean"]


@dataclass(frozen=True)
class Compressed:
    """Entries group by group: group k holds ``indices`` and ``values`` from ``pointers[k]`` to ``pointers[k+1]``."""

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
        """The group of every entry: with ``indices``, the coordinate form."""
        # not arange, which is on the host wherever the entries lie
        numbers = np.cumsum(np.ones_like(self.counts)) - 1
        return np.repeat(numbers.astype(np.int32), self.counts)


def compress(
    i: NDArray[np.int32], j: NDArray[np.int32], v: Values, shape: tuple[int, int]
) -> Compressed:
    """Coordinates as rows with ascending columns, repeated places in the order given: scattered by column, then turned, both stable."""
    by_column = _counted(j, shape[1], v.dtype)
    scatter(j, i, v, by_column.pointers, by_column.indices, by_column.values)
    return turned(by_column, shape[0], v.dtype)


def turned(entries: Compressed, n_groups: int, dtype: np.dtype[Any]) -> Compressed:
    """The same entries grouped the other way, into ``n_groups``, ascending within each."""
    others = _counted(entries.indices, n_groups, dtype)
    transpose(
        entries.pointers,
        entries.indices,
        entries.values,
        others.pointers,
        others.indices,
        others.values,
    )
    return others


def merged(rows: Compressed, duplicates: Duplicates) -> Compressed:
    """Every place once: the last or the mean of its values, or an error where there are several. Changes ``rows``."""
    repeat = int(first_repeat(rows.pointers, rows.indices))
    if repeat < 0:
        return rows
    if duplicates == "error":
        i = int(np.searchsorted(rows.pointers, repeat, side="right")) - 1
        raise DuplicateEntryError(
            i,
            int(rows.indices[repeat]),
            (float(rows.values[repeat - 1]), float(rows.values[repeat])),
        )
    kept = merge_repeats(rows.pointers, rows.indices, rows.values, duplicates == "mean")
    return Compressed(rows.pointers, rows.indices[:kept], rows.values[:kept])


def _counted(groups: NDArray[np.int32], n_groups: int, dtype: np.dtype[Any]) -> Compressed:
    """Room for entries that belong to ``groups``, with the pointers counted."""
    pointers = np.zeros(n_groups + 1, np.int64)
    count(groups, pointers)
    return Compressed(pointers, np.empty(len(groups), np.int32), np.empty(len(groups), dtype))
