"""Entries that arrive over time, put together with those that are there."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.observed import Observed

Array = NDArray[np.floating[Any]]
Ids = Sequence[Hashable] | None


def accumulate(
    old: Observed, old_weights: Array | None, new: Observed, new_weights: Array | None
) -> tuple[Observed, Array | None]:
    """The entries of both, and their weights where there are any (1 where only the others have some).

    With ids, rows and columns that are known take the new entries (a new value replaces an old one), and the others are appended in
    their order. Without ids every row is a new one, and the columns are the same.
    """
    i, row_ids = _joined(old.row_ids, new.row_ids, "row", np.arange(new.shape[0]) + old.shape[0])
    j, column_ids = _joined(old.column_ids, new.column_ids, "column", np.arange(new.shape[1]))
    rows = np.concatenate([old.rows.group_of_entry(), i[new.rows.group_of_entry()]])
    cols = np.concatenate([old.rows.indices, j[new.rows.indices]])
    shape = max(old.shape[0], int(i.max()) + 1), max(old.shape[1], int(j.max()) + 1)

    def together(first: Array, second: Array) -> Observed:
        values = np.concatenate([first, second.astype(first.dtype, copy=False)])
        return Observed.from_indices(rows, cols, values, shape, duplicates="last")

    merged = together(old.rows.values, new.rows.values)
    weights = None
    if old_weights is not None or new_weights is not None:
        sides = ((old, old_weights), (new, new_weights))
        weights = together(
            *(np.ones(side.n_entries, old.dtype) if w is None else w for side, w in sides)
        ).rows.values
    return Observed(merged.rows, merged.shape, row_ids, column_ids), weights


def _joined(
    old: Ids, new: Ids, side: str, without_ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[Hashable] | None]:
    """Where each new row or column stands in the list of both, and that list of ids."""
    if (old is None) != (new is None):
        had, has = ("ids", "numbers") if new is None else ("numbers", "ids")
        raise ValueError(
            f"partial_fit must go on as it began: {side}s had {had} so far, now they have {has}"
        )
    if old is None or new is None:
        return without_ids, None
    number = {key: k for k, key in enumerate(old)}
    places = np.fromiter(
        (number.setdefault(key, len(number)) for key in new), np.int64, count=len(new)
    )
    return places, list(number)
