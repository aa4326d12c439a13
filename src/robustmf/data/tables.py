"""Tables in: pandas, polars, Arrow and whatever else narwhals knows, or a mapping of columns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def triplet_columns(
    data: Any, row: Any, col: Any, value: Any, what: str = "values"
) -> tuple[Any, Any, NDArray[Any]]:
    """Row ids, column ids and values: columns of ``data`` by name, or where it is None, the columns themselves.

    Ids come as a NumPy array, an Arrow array or a list; values, which errors call ``what``, as a NumPy array.
    """
    if data is not None:
        names, take = _table(data)
        for role, name in (("row", row), ("col", col), ("value", value)):
            if not isinstance(name, Hashable):
                raise TypeError(
                    f"{role} must be the name of a column of the data, got {type(name).__name__}"
                )
            if name not in names:
                raise ValueError(f"{role}={name!r} is not a column of the data; it has {names}")
        row, col, value = take([row, col, value])
    for role, column in (("row", row), ("col", col), ("value", value)):
        if isinstance(column, str) or not isinstance(column, Iterable):
            raise TypeError(
                f"{role} must be a column of numbers or ids, got {column!r}; names of columns need the table as data"
            )
        if np.ma.is_masked(column):
            raise ValueError(
                f"{role} has masked values; leave out the entries that nobody observed"
            )
    return id_column(row), id_column(col), _value_column(value, what)


def _table(data: Any) -> tuple[list[Any], Callable[[list[Any]], list[Any]]]:
    """Names of the columns of anything that is a table, and how to take some of them."""
    if isinstance(data, Mapping) or (isinstance(data, np.ndarray) and data.dtype.names):
        return list(data if isinstance(data, Mapping) else data.dtype.names), lambda names: [
            data[name] for name in names
        ]
    import narwhals as nw  # noqa: PLC0415 - only those who pass a table pay for it

    try:
        frame = nw.from_native(data, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise ValueError(
            f"data must have a name of its own for each column: {' '.join(str(error).split())}"
        ) from None
    if isinstance(frame, nw.LazyFrame):
        return frame.collect_schema().names(), lambda names: _taken(
            frame.select(dict.fromkeys(names)).collect(), names
        )
    if isinstance(frame, nw.DataFrame):
        return frame.columns, lambda names: _taken(frame, names)
    raise TypeError(
        f"data must be a table (pandas, polars, Arrow, …) or a mapping of columns, got {type(data).__name__}; "
        "without a table pass the columns themselves as row=, col= and value="
    )


def _taken(frame: Any, names: list[Any]) -> list[Any]:
    return [frame.get_column(name) for name in names]


def _series(column: Any) -> Any:
    """A narwhals series, where the column belongs to a table library, else None."""
    if isinstance(column, (list, tuple, np.ndarray)):
        return None
    import narwhals as nw  # noqa: PLC0415 - as above

    arrow = sys.modules.get("pyarrow")
    if arrow is not None and isinstance(column, arrow.Array):
        column = arrow.chunked_array([column])
    series = nw.from_native(column, allow_series=True, pass_through=True)
    return series if isinstance(series, nw.Series) else None


def id_column(column: Any) -> Any:
    """A column of ids as a NumPy array, an Arrow array or a list."""
    series = _series(column)
    if series is None:
        return column if isinstance(column, (list, tuple, np.ndarray)) else list(column)
    import narwhals as nw  # noqa: PLC0415 - as above

    # Python objects, perhaps of several types, stay what they are; 128-bit integers are nothing that NumPy has (polars 1 panics)
    if series.dtype in (nw.Object, nw.Int128, nw.UInt128):
        return series.to_list()
    try:
        return (
            series.to_numpy()
            if series.dtype.is_integer() and not series.null_count()
            else series.to_arrow()
        )
    except Exception:  # foreign byte order and the like: each library has errors of its own for what only Python objects can hold
        return series.to_list()


def _value_column(column: Any, what: str) -> NDArray[Any]:
    series = _series(column)
    if series is None:
        return np.asarray(column)
    if missing := series.null_count():
        raise ValueError(
            f"{what} must not be missing, but {missing} of {len(series)} are; leave out the entries that nobody observed"
        )
    return series.to_numpy()
