"""Merging of new entries with those of earlier batches."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.ids import Side, Vocabulary
from robustmf.data.observed import Observed

Array = NDArray[np.floating[Any]]
Ids = Sequence[Hashable] | None


def accumulate(
    old: Observed, old_weights: Array | None, new: Observed, new_weights: Array | None
) -> tuple[Observed, Array | None]:
    """The union of the old and the new entries, and their weights if either has weights.

    Entries without weights have weight 1. With ids, entries of known rows and columns are added
    there (a new value replaces an old one), and unknown rows and columns are appended in their
    order. Without ids all rows are appended, and the columns are the same.
    """
    i, row_ids = _extended_ids(
        old.row_ids, new.row_ids, "row", np.arange(new.shape[0]) + old.shape[0]
    )
    j, column_ids = _extended_ids(old.column_ids, new.column_ids, "column", np.arange(new.shape[1]))
    rows = np.concatenate([old.rows.group_of_entry(), i[new.rows.group_of_entry()]])
    columns = np.concatenate([old.rows.indices, j[new.rows.indices]])
    shape = max(old.shape[0], int(i.max()) + 1), max(old.shape[1], int(j.max()) + 1)

    def merge(old_values: Array, new_values: Array) -> Observed:
        values = np.concatenate([old_values, new_values.astype(old_values.dtype, copy=False)])
        return Observed.from_indices(rows, columns, values, shape, duplicates="last")

    merged = merge(old.rows.values, new.rows.values)
    weights = None
    if old_weights is not None or new_weights is not None:
        batches = ((old, old_weights), (new, new_weights))
        weights = merge(
            *(np.ones(batch.n_entries, old.dtype) if w is None else w for batch, w in batches)
        ).rows.values
    form = None if old.form is None else old.form.without_order()
    return Observed(merged.rows, merged.shape, row_ids, column_ids, form), weights


def _extended_ids(
    old: Ids, new: Ids, side: Side, without_ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Sequence[Hashable] | None]:
    """The index of each new row or column in the union, and the ids of the union."""
    if (old is None) != (new is None):
        before, now = ("ids", "indices") if new is None else ("indices", "ids")
        raise ValueError(
            f"batches of partial_fit must identify {side}s in the same way: "
            f"by {before} so far, by {now} in this batch (the default index of pandas is no id)"
        )
    if old is None or new is None:
        return without_ids, None
    indices, vocabulary = Vocabulary(old, side).extended(new)
    return indices, vocabulary.ids
