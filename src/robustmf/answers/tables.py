"""Answers per entry, row or column, in the form of the table that they are about."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.columns import form_of_column
from robustmf.data.observed import Observed
from robustmf.data.ranking import Ranked
from robustmf.data.table_form import TableForm
from robustmf.model import FittedModel

Array = NDArray[np.floating[Any]]

#: Converts new rows to entries, and checks their columns.
ReadRows = Callable[[Any], Observed]


def per_entry(model: FittedModel, entries: Any, values: NDArray[Any], name: str) -> Any:
    """An answer per entry (None: of the fit): in the form of their table, or in row order."""
    form = _form_of(model, entries)
    if form is None:
        return values
    observed = model.fitted_entries() if entries is None else entries.to_host()
    return form.entries(values, name, observed)


def per_row(model: FittedModel, entries: Any, values: NDArray[Any], name: str, rows: str) -> Any:
    """An answer per row, which is one of the fit or of the entries ("new")."""
    form = _form_of(model, entries)
    if form is None:
        return values
    if rows == "new":
        return form.groups(values, name, "row", entries.row_ids)
    if entries is not None:  # whose rows may be others, or in another order
        form = form.without_order()
    return form.groups(values, name, "row", model.row_ids)


def per_column(model: FittedModel, entries: Any, values: NDArray[Any], name: str) -> Any:
    """An answer per column of the fit."""
    form = _form_of(model, entries)
    return values if form is None else form.groups(values, name, "column", model.column_ids)


def per_pair(values: Array, rows: Any, columns: Any) -> Any:
    """An answer per pair: a column with the index of the first of the two that is a column."""
    for given in (rows, columns):
        found = form_of_column(given)
        if found is not None and values.shape == (len(given),):
            form, _ = found
            return form.column(values, "prediction", form.index)
    return values


def per_query(given: Any, query: Any, item: Any, ranked: Ranked, name: str) -> Any:
    """What is ranked for each of the given ids: a table, if they are a column of a library."""
    found = form_of_column(given)
    if found is None:
        return ranked
    form, series = found
    return ranked_lines(form, series.name or query, series.to_list(), item, ranked, name)


def ranked_lines(
    form: TableForm, query: Any, ids: Sequence[Any], item: Any, ranked: Ranked, name: str
) -> Any:
    """What is ranked as a long table: a line per query and position, with item and score."""
    names = [query, "position", item, name]
    if len(set(names)) < len(names):
        raise ValueError(
            f"the answer would have the columns {names}: rename the column of ids {query!r} or "
            f"{item!r}, so that all are different"
        )
    rows, positions = np.nonzero(~np.isnan(ranked.scores))
    columns = {
        query: [ids[k] for k in rows.tolist()],
        "position": positions + 1,
        item: ranked.items[rows, positions].tolist(),
        name: ranked.scores[rows, positions],
    }
    return form.table(columns, None)


def _form_of(model: FittedModel, entries: Any) -> TableForm | None:
    """The form of answers about these entries; None is those of the fit."""
    form: TableForm | None = getattr(model if entries is None else entries, "form", None)
    return form


def rows_in_order(X: Any, observed: Observed) -> tuple[Any, Sequence[Hashable] | None]:
    """The order in which answers about the rows of X are returned, and the ids in this order.

    ``observed`` has the entries of X. The rows of a long table are in the order in which its lines
    name them first, all others in their own.
    """
    form = observed.form
    is_long = form is not None and form.is_long and form.lines is not None
    if form is None or not is_long or isinstance(X, Observed) or observed.row_ids is None:
        return slice(None), observed.row_ids
    order = form.rows_by_appearance(observed)
    return order, [observed.row_ids[k] for k in order.tolist()]


class WithRowIds(tuple[Any, ...]):
    """Factors of rows, and name and ids of the column that precedes them in a table of polars.

    Where a method returns a tuple, ``set_output`` of scikit-learn converts its first element to a
    table, and passes all of them to ``_make``, as for a named tuple. Here ``_make`` inserts the
    column.
    """

    @classmethod
    def _make(cls, parts: Iterable[Any]) -> Any:
        factors, name, ids = parts
        return factors.insert_column(0, type(factors)({name: ids}).to_series())


def factor_rows(T: Array, names: Sequence[str], X: Any, observed: Any, output: str) -> Any:
    """Factors of the rows of X, in the order in which a long table names them first.

    Parameters
    ----------
    T : array of shape (rows, factors)
    names : sequence of str
        Names of the factors.
    X : as given
    observed : Observed or FittedModel
        The entries of X.
    output : {"default", "pandas", "polars"}
        The setting of ``set_output``. Row ids are the index of a table of pandas, and the first
        column in polars; scikit-learn would take the index of X, which a long table has for its
        entries.
    """
    form = observed.form
    if form is None or not form.is_long:
        return T
    order, ids = rows_in_order(X, observed.to_host())
    T = T[order]
    if output == "polars":
        return WithRowIds((T, form.names.row, ids))
    if output != "pandas":
        return T
    columns = dict(zip(names, T.T, strict=True))
    return replace(form, library=output).table(columns, list(ids or ()))
