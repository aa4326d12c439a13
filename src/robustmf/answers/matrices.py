"""Answers about all cells of a matrix: predictions, and gaps filled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustmf.answers.tables import ReadRows
from robustmf.data.checks import new_rows
from robustmf.data.columns import id_column, open_table, selected
from robustmf.data.factorization import UNKNOWN
from robustmf.data.ids import Side, Vocabulary
from robustmf.data.observed import Observed
from robustmf.data.table_form import NO_ENTRY
from robustmf.model import FittedModel

Array = NDArray[np.floating[Any]]
Indices = NDArray[np.integer[Any]]

#: Cells that are completed together where few of them are needed.
_CELLS = 1 << 22


def predict(model: FittedModel, X: Any, read: ReadRows) -> Any:
    """All cells of new rows, predicted from their own entries; a table if X is one."""
    dense = "inverse_transform(transform(X))"
    if _is_sparse(X):
        raise TypeError(
            "predict of a whole sparse matrix would be a dense one; request pairs with "
            f"predict(rows, columns), or some rows at a time with {dense}"
        )
    entries = read(X)
    form = entries.form
    if form is not None and form.is_long:
        raise TypeError(
            "predict of a long table would be a dense matrix; request its lines with "
            f"predict(X[{form.names.row!r}], X[{form.names.col!r}]), or some rows with {dense}"
        )
    completed = _completed(model, entries)
    if form is None:
        return completed
    if entries.column_ids != model.column_ids:  # matched by id
        form = replace(form, columns=None)
    return form.cells(completed, entries.row_ids, model.column_ids)


def impute(model: FittedModel, X: Any, rows: str, read: ReadRows) -> Any:
    """The cells of a matrix, gaps filled; see :meth:`robustmf.RobustMF.impute`."""
    if rows not in ("fitted", "new"):
        raise ValueError(f"rows must be 'fitted' or 'new', got rows={rows!r}")
    if _is_sparse(X):
        raise TypeError(
            "X must be a table or a dense array, since the result is dense, "
            f"got a {type(X).__name__}"
        )
    observed = (read(X) if rows == "new" else new_rows(model.read(X, new=True))).to_host()
    form = observed.form
    if form is not None and form.is_long:
        return form.with_values(X, _lines_filled(model, X, observed, rows))
    cells = observed.to_dense()
    i, j = np.nonzero(np.isnan(cells))
    of_columns = model.labels.match("column", observed, rows == "new")
    of_rows: Indices = np.arange(len(cells))
    if rows == "fitted":
        of_rows = model.labels.match("row", observed)
        _require_known(of_rows)
    cells[i, j] = _predictions(model, observed, of_rows[i], of_columns[j], rows)
    if form is None:
        return cells
    return form.cells(cells, observed.row_ids, observed.column_ids)


def _lines_filled(model: FittedModel, X: Any, observed: Observed, rows: str) -> Array:
    """The values of the lines of a long table, missing ones predicted."""
    form: Any = observed.form
    values = form.per_line(observed.rows.values)
    is_gap = form.lines == NO_ENTRY
    if not is_gap.any():
        return values
    names = [form.names.row, form.names.col]
    row_ids, column_ids = (
        selected(id_column(column), is_gap) for column in open_table(X)[1](names)
    )
    if rows == "fitted":
        i: Indices = model.indices("row", row_ids, "X")
        _require_known(i)
    else:
        i = Vocabulary(observed.row_ids or (), "row").indices(row_ids)
    columns = model.indices("column", column_ids, "X")
    values[is_gap] = _predictions(model, observed, i, columns, rows)
    return values


def _predictions(
    model: FittedModel, observed: Observed, i: Indices, j: Indices, rows: str
) -> Array:
    """Predictions at columns j and rows i, of the fit or of new rows with these entries.

    NaN in unknown rows and columns, in columns without entries in the fit, and in rows without
    entries if the model has no biases.
    """
    found = np.full(len(i), np.nan)
    has_entries = observed.rows.counts > 0 if rows == "new" else _has_entries(model, "row")
    known = (i != UNKNOWN) & (j != UNKNOWN)
    known &= (model.factors.has_bias | has_entries)[i] & _has_entries(model, "column")[j]
    if rows == "new":
        found[known] = _predicted_cells(model, model.fold_in(observed), i[known], j[known])
        # a new row without a value is not among those of the entries
        empty = (i == UNKNOWN) & (j != UNKNOWN) & model.factors.has_bias
        found[empty] = model.predict_pairs(i[empty], j[empty])
    else:
        found[known] = model.predict_pairs(i[known], j[known])
    return found


def _require_known(rows: Indices) -> None:
    """Raise unless these are rows of the fit."""
    unknown = int((rows == UNKNOWN).sum())
    if unknown:
        raise ValueError(
            f"X must have rows of the fit, got {unknown} of {len(rows)} with unknown "
            "ids; fill new rows with rows='new'"
        )


def _predicted_cells(model: FittedModel, T: Array, i: Indices, j: Indices) -> Array:
    """Predictions of new rows with factors T at these cells; some rows at a time are completed."""
    found = np.empty(len(i))
    order = np.argsort(i, kind="stable")
    batch = max(1, _CELLS // max(len(model.factors.column_factors), 1))
    for low in range(0, len(T), batch):
        part = order[slice(*np.searchsorted(i[order], [low, low + batch]))]
        if len(part):
            completed = model.clip(model.reconstruct(T[low : low + batch]))
            found[part] = completed[i[part] - low, j[part]]
    return found


def _completed(model: FittedModel, X: Any) -> Array:
    """All entries of new rows, predicted from the observed ones; dense."""
    return model.clip(model.reconstruct(model.fold_in(X)))


def _has_entries(model: FittedModel, side: Side) -> NDArray[np.bool_]:
    """Which rows or columns had entries in the fit; all, where these stayed on a cluster."""
    size = model.labels.size(side)
    stored = model.entries
    if not model.has_all_entries:
        return np.asarray(stored.get(f"{side}_counts", np.ones(size))) > 0
    if side == "row":
        return np.diff(stored["pointers"]) > 0
    return np.bincount(stored["indices"], minlength=size) > 0


def _is_sparse(X: Any) -> bool:
    """Whether all cells of X together may be too many for a dense result."""
    return isinstance(X, Observed) or sp.issparse(X)
