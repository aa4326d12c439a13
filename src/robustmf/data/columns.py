"""Columns of tables: ids and values as arrays.

Tables are those of pandas, polars, Arrow and others that narwhals supports, or mappings.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.ids import is_missing
from robustmf.data.table_form import NO_NAMES, TableForm


def triplet_columns(
    data: Any, row: Any, col: Any, value: Any, what: str = "values", *, with_missing: bool = False
) -> tuple[Any, Any, NDArray[Any]]:
    """Row ids, column ids and values from a table.

    Parameters
    ----------
    data : table, mapping or None
        If None, ``row``, ``col`` and ``value`` are the columns themselves, otherwise their names.
    row, col, value : name of a column, or a column
        Row ids, column ids and values.
    what : str, default="values"
        What the values are called in error messages.
    with_missing : bool, default=False
        Whether values may be missing; otherwise they are refused.

    Returns
    -------
    rows, columns : ndarray, Arrow array or list
        The ids.
    values : ndarray
        The values; NaN where they are missing.
    """
    if data is not None:
        names, take = open_table(data)
        for role, name in (("row", row), ("col", col), ("value", value)):
            if not isinstance(name, Hashable):
                raise TypeError(
                    f"{role} must be the name of a column of the data, got {type(name).__name__}"
                )
            if name not in names:
                levels = getattr(getattr(data, "index", None), "names", ())
                remedy = "; it is a level of the index: give X.reset_index()"
                raise ValueError(
                    f"{role}={name!r} is not a column of the data; it has {names}"
                    f"{remedy if name in levels else ''}"
                )
        row, col, value = take([row, col, value])
    for role, column in (("row", row), ("col", col), ("value", value)):
        if isinstance(column, str) or not isinstance(column, Iterable):
            raise TypeError(
                f"{role} must be a column of numbers or ids, got {column!r}; "
                "names of columns require the table as data"
            )
        if np.ma.is_masked(column):
            raise ValueError(f"{role} has masked values; omit the entries that were not observed")
    values = _value_column(value, what, with_missing=with_missing)
    return id_column(row), id_column(col), values


def selected(column: Any, is_selected: NDArray[np.bool_]) -> Any:
    """The selected elements of a NumPy array, an Arrow array or a list."""
    if isinstance(column, np.ndarray):
        return column[is_selected]
    if isinstance(column, (list, tuple)):
        return list(compress(column, is_selected.tolist()))
    return column.filter(is_selected)


def open_table(data: Any) -> tuple[list[Any], Callable[[list[Any]], list[Any]]]:
    """The names of the columns of a table, and a function that takes columns by name."""
    if isinstance(data, Mapping):
        return list(data), lambda names: [data[name] for name in names]
    if isinstance(data, np.ndarray) and data.dtype.names:
        return list(data.dtype.names), lambda names: [data[name] for name in names]
    import narwhals as nw  # noqa: PLC0415 - import deferred until a table is passed

    frame = from_native(data)
    if isinstance(frame, nw.LazyFrame):
        return frame.collect_schema().names(), lambda names: _take_columns(
            frame.select(dict.fromkeys(names)).collect(), names
        )
    if isinstance(frame, nw.DataFrame):
        return frame.columns, lambda names: _take_columns(frame, names)
    raise TypeError(
        "data must be a table (pandas, polars, Arrow, …) or a mapping of columns, "
        f"got {type(data).__name__}; "
        "without a table pass the columns themselves as row=, col= and value="
    )


def from_native(data: Any) -> Any:
    """The table as a narwhals frame; other objects as they are."""
    import narwhals as nw  # noqa: PLC0415 - as above

    try:
        return nw.from_native(data, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise ValueError(
            f"the columns of data must have distinct names: {' '.join(str(error).split())}"
        ) from None


def _take_columns(frame: Any, names: list[Any]) -> list[Any]:
    return [frame.get_column(name) for name in names]


def _series(column: Any) -> Any:
    """The column as a narwhals series, or None if it does not belong to a table library."""
    if isinstance(column, (list, tuple, np.ndarray)):
        return None
    import narwhals as nw  # noqa: PLC0415 - as above

    arrow = sys.modules.get("pyarrow")
    if arrow is not None and isinstance(column, arrow.Array):
        column = arrow.chunked_array([column])
    series = nw.from_native(column, allow_series=True, pass_through=True)
    return series if isinstance(series, nw.Series) else None


def form_of_column(column: Any) -> tuple[TableForm, Any] | None:
    """A column of a table library as a narwhals series, and the form of a table with its index.

    None for other objects.
    """
    series = _series(column) if hasattr(column, "__len__") else None
    if series is None:
        return None
    index = getattr(series.to_native(), "index", None)
    return TableForm(series.implementation.value, NO_NAMES, index), series


def id_column(column: Any) -> Any:
    """A column of ids as a NumPy array, an Arrow array or a list."""
    series = _series(column)
    if series is None:
        return column if isinstance(column, (list, tuple, np.ndarray)) else list(column)
    import narwhals as nw  # noqa: PLC0415 - as above

    # Python objects may be of several types, which conversion would change. NumPy has no 128-bit
    # integers (polars 1 panics).
    if series.dtype in (nw.Object, nw.Int128, nw.UInt128):
        return series.to_list()
    # Periods and intervals of pandas, which Arrow would convert to numbers and mappings.
    if str(getattr(series.to_native(), "dtype", "")).startswith(("period", "interval")):
        return [None if is_missing(one) else str(one) for one in series.to_list()]
    try:
        if series.dtype.is_integer() and not series.null_count():
            return series.to_numpy()
        return series.to_arrow()
    except Exception:  # each library raises other errors, e.g. for foreign byte order
        return series.to_list()


def _value_column(column: Any, what: str, *, with_missing: bool) -> NDArray[Any]:
    """A column of numbers as a NumPy array; missing ones are NaN, or refused."""
    series = _series(column)
    if series is None:
        return np.asarray(column)
    if missing := series.null_count():
        if with_missing:
            values = series.to_numpy()
            return values if values.dtype.kind == "f" else numbers(series)
        raise ValueError(
            f"{what} must not be missing, but {missing} of {len(series)} are; "
            "omit the entries that were not observed"
        )
    return series.to_numpy()


def numbers(series: Any) -> NDArray[Any]:
    """A column of numbers, NaN where they are missing."""
    import narwhals as nw  # noqa: PLC0415 - as above

    if series.dtype == nw.Boolean or series.dtype.is_numeric():
        return np.asarray(series.to_arrow().cast("float64"))
    reason = f"it holds values of type {series.dtype}"
    if not series.dtype.is_temporal():
        values = series.to_numpy().astype(object)
        values[np.asarray(series.is_null())] = np.nan
        try:
            return values.astype(np.float64)
        except (TypeError, ValueError) as error:
            reason = str(error)
            if "," in reason.partition(":")[2]:
                reason += "; read the file with decimal=',' if the comma is the decimal mark"
    raise TypeError(
        f"X must hold real numbers, but column {series.name!r} does not ({reason}); omit it, or "
        f"give row={series.name!r} if it holds the ids of the rows"
    )
