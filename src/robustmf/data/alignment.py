"""Weights of pandas in the order of the data that they weight."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.columns import open_table
from robustmf.data.ids import Side, listed_ids
from robustmf.data.observed import Observed
from robustmf.data.tables import WideTable, is_table, labels_of, wide_table

Ids = Sequence[Hashable] | None


def align_entries(weights: Any, observed: Observed) -> NDArray[Any]:
    """Weights of entries, those of a table in the order of the rows and columns of X.

    A column of pandas is matched with the lines of a long table of pandas by its index. Anything
    else is returned as an array.
    """
    form = observed.form
    if is_table(weights):
        return _align_cells(weights, observed)
    if not _has_index(weights) or form is None or not form.is_long or form.index is None:
        return np.asarray(weights)
    order = _index_order(weights.index, form.index)
    if order is None:
        raise _mismatch("weights", "the index of X")
    return np.asarray(weights)[order]


def align_rows(weights: Any, observed: Any) -> NDArray[Any]:
    """Weights of rows, those of a column of pandas in the order of the rows of X."""
    if not _has_index(weights) or not isinstance(observed, Observed):
        return np.asarray(weights)
    form = observed.form
    order = None
    if form is not None and not form.is_long:
        order = _index_order(weights.index, form.index)
    if order is None:
        labels = listed_ids(labels_of(weights.index), "row")
        order = _order("sample_weight", "row", labels, observed)
    return np.asarray(weights)[order]


def _align_cells(weights: Any, observed: Observed) -> NDArray[Any]:
    """The cells of a wide table of weights."""
    form = observed.form
    name = None if form is None or form.is_long else form.names.row
    if name not in open_table(weights)[0]:
        name = None
    table = wide_table(weights, name, require_wide=False)
    rows = None
    if form is not None and not form.is_long:
        rows = _index_order(table.form.index, form.index)
    if rows is None:
        rows = _order("weights", "row", _labels(table, "row"), observed)
    columns = _order("weights", "column", _labels(table, "column"), observed)
    return table.values[rows][:, columns]


def _labels(table: WideTable, side: Side) -> Ids:
    """The labels of rows or columns, the default ones of pandas included; None without any."""
    labels = table.row_labels if side == "row" else table.column_labels
    if labels is not None:
        return listed_ids(labels, side)
    return range(table.values.shape[0 if side == "row" else 1]) if table.form.has_index else None


def _index_order(given: Any, known: Any) -> Any:
    """The positions of the labels of one index of pandas in another; None if they differ."""
    if given is None or known is None:
        return None
    if given.equals(known):
        return slice(None)
    distinct = given.is_unique and known.is_unique and len(given) == len(known)
    order = given.get_indexer(known) if distinct else np.array([-1])
    return None if (order < 0).any() else order


def _order(argument: str, side: Side, given: Ids, observed: Observed) -> Any:
    """The positions, among the ``given`` labels, of those of the rows or columns of X.

    The default index of pandas, 0, 1, …, consists of labels here. Where X or the weights have none,
    the positions are those of the weights.
    """
    form = observed.form
    size = observed.shape[0 if side == "row" else 1]
    known = observed.row_ids if side == "row" else observed.column_ids
    if known is None and form is not None and form.has_index and not form.is_long:
        known = range(size)
    if known is None or given is None:
        return slice(None)
    position = {label: k for k, label in enumerate(given)}
    if len(position) != len(given) or len(given) != size or not position.keys() >= set(known):
        raise _mismatch(argument, f"the {side}s of X")
    return [position[label] for label in known]


def _has_index(column: Any) -> bool:
    """Whether this is a column of pandas, or of a library with the same methods."""
    return getattr(column, "ndim", None) == 1 and hasattr(column, "reindex")


def _mismatch(argument: str, what: str) -> ValueError:
    return ValueError(
        f"{argument} must have the labels of {what}, in any order, and each once; "
        f"give {argument}.to_numpy() to match by position"
    )
