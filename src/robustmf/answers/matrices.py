"""Dense answers about all cells of a matrix: predictions, and gaps filled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustmf.answers.tables import ReadRows
from robustmf.data.checks import new_rows
from robustmf.data.factorization import UNKNOWN
from robustmf.data.ids import Side
from robustmf.data.observed import Observed
from robustmf.model import FittedModel

Array = NDArray[np.floating[Any]]


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
            "X must be a wide table or a dense array, since the result is dense, "
            f"got a {type(X).__name__}"
        )
    observed = (read(X) if rows == "new" else new_rows(model.read(X, new=True))).to_host()
    if observed.form is not None and observed.form.is_long:
        raise TypeError(
            "X must be a wide table: a long one has no missing cells; "
            "predict(rows, columns) fills in values of pairs"
        )
    cells = observed.to_dense()
    i, j = np.nonzero(np.isnan(cells))
    columns = model.labels.match("column", observed, rows == "new")
    is_known = (columns != UNKNOWN) & _has_entries(model, "column")[columns]
    if rows == "new":
        completed = _completed(model, observed)
        is_predicted = model.factors.has_bias | (observed.rows.counts > 0)
        known = is_known[j] & is_predicted[i]
        cells[i[known], j[known]] = completed[i[known], columns[j[known]]]
    else:
        of_rows = model.labels.match("row", observed)
        unknown = int((of_rows == UNKNOWN).sum())
        if unknown:
            raise ValueError(
                f"X must have rows of the fit, got {unknown} of {len(of_rows)} with unknown "
                "ids; fill new rows with rows='new'"
            )
        is_predicted = model.factors.has_bias | _has_entries(model, "row")[of_rows]
        known = is_known[j] & is_predicted[i]
        cells[i[known], j[known]] = model.predict_pairs(of_rows[i[known]], columns[j[known]])
    if observed.form is None:
        return cells
    return observed.form.cells(cells, observed.row_ids, observed.column_ids)


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
