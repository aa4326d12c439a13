"""Tables in: pandas, polars, Arrow and whatever else narwhals knows, or a mapping of columns."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def triplet_columns(data: Any, row: Any, col: Any, value: Any) -> tuple[Any, Any, NDArray[Any]]:
    """Row ids, column ids and values: columns of ``data`` by name, or where it is None, the columns themselves.

    Ids come as a NumPy array, an Arrow array or a list; values as a NumPy array.
    """
    if data is not None:
        columns = _columns_of(data)
        for role, name in (("row", row), ("col", col), ("value", value)):
            if name not in columns:
                raise ValueError(f"{role}={name!r} is not a column of the data; it has {list(columns)}")
        row, col, value = columns[row], columns[col], columns[value]
    return _id_column(row), _id_column(col), _value_column(value)


def _columns_of(data: Any) -> Mapping[Any, Any]:
    """Column by name, of anything that is a table."""
    if isinstance(data, Mapping):
        return data
    if isinstance(data, np.ndarray) and data.dtype.names:
        return {name: data[name] for name in data.dtype.names}
    import narwhals as nw  # noqa: PLC0415 - only those who pass a table pay for it

    try:
        frame = nw.from_native(data, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise ValueError(f"data must have a name of its own for each column: {' '.join(str(error).split())}") from None
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    if not isinstance(frame, nw.DataFrame):
        raise TypeError(
            f"data must be a table (pandas, polars, Arrow, …) or a mapping of columns, got {type(data).__name__}; "
            "without a table pass the columns themselves as row=, col= and value="
        )
    return {name: frame.get_column(name) for name in frame.columns}


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


def _id_column(column: Any) -> Any:
    series = _series(column)
    if series is None:
        return column if isinstance(column, (list, tuple, np.ndarray)) else list(column)
    if series.dtype.is_integer() and not series.null_count():
        return series.to_numpy()
    import narwhals as nw  # noqa: PLC0415 - as above

    # Python objects, perhaps of several types, stay what they are
    return series.to_list() if series.dtype == nw.Object else series.to_arrow()


def _value_column(column: Any) -> NDArray[Any]:
    series = _series(column)
    if series is None:
        return np.asarray(column)
    if missing := series.null_count():
        raise ValueError(f"values must not be missing, but {missing} of {len(series)} are; leave out the entries that nobody observed")
    return series.to_numpy()
