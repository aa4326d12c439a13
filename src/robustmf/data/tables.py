"""Wide and long tables: which of them a table is, its cells and its labels."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustmf.data.columns import from_native, id_column, numbers, open_table
from robustmf.data.ids import is_missing
from robustmf.data.table_form import MAPPING, ColumnNames, TableForm


@dataclass(frozen=True)
class LongTableOptions:
    """Constants of the recognition of long tables.

    Attributes
    ----------
    most_duplicates : float
        Largest share of repeated pairs of ids.
    enough_coincidences : int
        The smallest number of expected coincidences for which a test of independence of two columns
        is made; pairs of ids have fewer than the expected number divided by this constant.
    examined : int
        Lines that are examined for pairs of ids.
    """

    most_duplicates: float = 0.05
    enough_coincidences: int = 5
    examined: int = 100_000


OPTIONS = LongTableOptions()

#: Names of columns of row ids, column ids and values, in lower case without punctuation.
ROW_IDS = (
    "user",
    "userid",
    "uid",
    "row",
    "reviewer",
    "reviewerid",
    "customer",
    "customerid",
    "profile",
    "account",
)
COLUMN_IDS = (
    "item",
    "itemid",
    "iid",
    "col",
    "column",
    "movie",
    "movieid",
    "product",
    "productid",
    "book",
    "film",
    "filmid",
    "song",
    "songid",
    "asin",
    "isbn",
)
#: The name that Arrow gives to an index of pandas without a name.
_ARROW_INDEX = "__index_level_0__"

#: Names of columns of row labels that may be numbers; libraries write an index without a name.
_LABELS = (
    *("", "unnamed0", "index", "id", "name", "label", "row"),
    *("time", "timestamp", "date", "datetime", "year", "month", "day", "hour", "station"),
)
VALUES = ("rating", "ratings", "value", "score", "stars", "overall", "bookrating")


@dataclass(frozen=True)
class WideTable:
    """A wide table as arrays.

    Attributes
    ----------
    values : array of shape (m, n)
        The cells; NaN is missing.
    row_labels, column_labels : column of ids or None
        Labels of rows and columns; None where they are numbered.
    form : TableForm
        The form of the table.
    """

    values: NDArray[Any]
    row_labels: Any
    column_labels: Any
    form: TableForm


def is_mapping(X: Any) -> bool:
    """Whether X is a mapping, and not a matrix of SciPy's DOK format, which is one of positions."""
    return isinstance(X, Mapping) and not sp.issparse(X)


def is_table(X: Any) -> bool:
    """Whether X is a table of a library, and not an array, a matrix or a mapping."""
    if isinstance(X, (np.ndarray, list, tuple, Mapping)) or not hasattr(type(X), "columns"):
        return False
    import narwhals as nw  # noqa: PLC0415 - import deferred until a table is passed

    return isinstance(from_native(X), (nw.DataFrame, nw.LazyFrame))


def has_columns(X: Any, names: ColumnNames) -> bool:
    """Whether X is a table, or a mapping of columns, that has all columns of these names."""
    return (is_mapping(X) or is_table(X)) and {name for name in names if name is not None} <= set(
        open_table(X)[0]
    )


def long_form(
    data: Any, names: ColumnNames, lines: NDArray[np.integer[Any]] | None
) -> TableForm | None:
    """The form of a long table or a mapping of columns; ``lines`` as in :class:`TableForm`.

    None for libraries that have lazy tables only, whose lines have no order.
    """
    if isinstance(data, Mapping):
        return TableForm(MAPPING, names, lines=lines)
    import narwhals as nw  # noqa: PLC0415 - as above

    frame = from_native(data)
    if isinstance(frame, nw.LazyFrame) and not frame.implementation.is_polars():
        return None
    index = getattr(frame.to_native(), "index", None)
    return TableForm(frame.implementation.value, names, index, lines=lines)


def wide_table(X: Any, row: Any = None, *, require_wide: bool = True) -> WideTable:
    """The cells of a wide table and the labels of its rows and columns.

    Row labels are the column ``row``; otherwise the index, unless it is the default one, 0, 1, …,
    or the column in which Arrow keeps it; otherwise the first column, if it holds text or dates, or
    numbers and has the name of a label ("id", "time", …); otherwise rows are numbered. That column
    also precedes an index of integers without a name, which some lines of a table have. Column
    labels are the names of the other columns, unless these are the default ones, 0, 1, …. With
    ``require_wide`` a table that looks
    long is refused.
    """
    frame = _collected(X)
    if row is None:
        if require_wide:
            _require_wide(frame)
    elif row not in frame.columns:
        raise ValueError(f"row={row!r} is not a column of the data; it has {frame.columns}")
    index = getattr(frame.to_native(), "index", None)
    row_labels = None if index is None or _is_default(index) else labels_of(index)
    if row is None and index is None:
        schema = getattr(frame.to_native(), "schema", None)
        kept = index_columns(frame.columns, getattr(schema, "metadata", None))
        row = kept[0] if len(kept) == 1 else None
    if row is None and (row_labels is None or _is_part(index)) and _begins_with_labels(frame):
        row = frame.columns[0]
        _require_labels(frame)
    labels = None
    if row is not None:
        labels = frame.get_column(row)
        row_labels = id_column(labels)
        frame = frame.drop(row)
    columns: Any = frame.columns
    column_labels: Any = columns
    if index is not None:
        columns = frame.to_native().columns
        column_labels = None if _is_default(columns) else labels_of(columns)
    dtype = None if index is None else _nullable_dtype(frame.to_native())
    form = TableForm(
        frame.implementation.value, ColumnNames(row), index, columns, labels=labels, dtype=dtype
    )
    return WideTable(_cells(frame), row_labels, column_labels, form)


def index_columns(names: list[str], metadata: Any) -> list[str]:
    """The columns in which a table keeps an index of pandas, from the metadata of Arrow."""
    if isinstance(metadata, dict) and b"pandas" in metadata:
        try:
            found = json.loads(metadata[b"pandas"])["index_columns"]
            return [name for name in found if isinstance(name, str) and names.count(name) == 1]
        except (ValueError, KeyError, TypeError, RecursionError):
            return []  # the metadata of other programs
    return [_ARROW_INDEX] if names[-1:] == [_ARROW_INDEX] else []


def without_column(X: Any, name: Any) -> Any:
    """The table without the column of this name; the table itself if the name is None."""
    return X if name is None else _collected(X).drop(name).to_native()


def is_label_name(name: Any) -> bool:
    """Whether a column of this name holds row labels, also if these are numbers."""
    return isinstance(name, str) and _plain(name) in _LABELS


def _plain(name: Any) -> str:
    return "".join(letter for letter in str(name).lower() if letter.isalnum())


def known_position(names: Iterable[Any], known: tuple[str, ...], default: int) -> int:
    """The position of the first known name, whatever its case and punctuation, or the default."""
    plain = [_plain(name) for name in names]
    return next((plain.index(one) for one in known if one in plain), default)


def _require_wide(frame: Any) -> None:
    """Raise for a table that looks long.

    It has columns that are known by name to hold row ids, column ids and values; or three or four
    columns, of which two look like pairs of ids; or one column and an index of several levels.
    """
    names = frame.columns
    index = getattr(frame.to_native(), "index", None)
    if len(names) == 1 and index is not None and index.nlevels > 1:
        row, col = (
            name if name is not None else f"level_{k}" for k, name in enumerate(index.names[:2])
        )
        raise ValueError(
            f"X must be a wide table unless its columns are named, got one column and an index of "
            f"{index.nlevels} levels: give X.reset_index() with row={row!r}, col={col!r}, "
            f"value={names[0]!r}, or X.iloc[:, 0].unstack()"
        )
    positions: Sequence[int] | None = [
        known_position(names, known, -1) for known in (ROW_IDS, COLUMN_IDS, VALUES)
    ]
    if positions is not None and min(positions) < 0:
        positions = _pairs_of_ids(frame)
    if positions is None:
        return
    row, col, value = (names[k] for k in positions)
    columns = f"row={row!r}, col={col!r}, value={value!r}"
    raise ValueError(
        f"X must be a wide table unless its columns are named, got one that looks long: give "
        f"{columns} to fit, or elsewhere Observed.from_triplets(X, {columns}); if it is wide, give "
        "it as an array"
    )


def _pairs_of_ids(frame: Any) -> tuple[int, int, int] | None:
    """The positions of row ids, column ids and values of a table that looks long, if it does."""
    n_columns = len(frame.columns)
    if n_columns not in (3, 4):
        return None
    columns = [frame.get_column(name).head(OPTIONS.examined) for name in frame.columns]
    orders = [(0, 1, 2), (0, 2, 1), (1, 2, 0)] if n_columns == 3 else [(0, 1, 2)]
    is_text = [_holds_labels(column) for column in columns]
    for i, j, k in orders:
        if is_text[i] and is_text[j] and not is_text[k]:
            return i, j, k
    if n_columns == 3 and is_text[1]:
        return 0, 1, 2
    ids = [_ids_or_none(column) for column in columns]
    for i, j, k in orders:
        first, second = ids[i], ids[j]
        if first is None or second is None or not columns[k].dtype.is_numeric():
            continue
        if _are_pairs(first, second, ids[k]):
            return i, j, k
    return None


def _ids_or_none(column: Any) -> NDArray[np.integer[Any]] | None:
    """A column of text or integers as indices; None if it holds other values."""
    if column.null_count() or not len(column):
        return None
    if _holds_labels(column):
        index_of: dict[Any, int] = {}
        return np.array([index_of.setdefault(one, len(index_of)) for one in column.to_list()])
    if not column.dtype.is_numeric():
        return None
    values = np.asarray(column.to_numpy(), np.float64)
    if not (np.isfinite(values).all() and (values == np.floor(values)).all()):
        return None
    return np.asarray(np.unique(values, return_inverse=True)[1])


def _are_pairs(
    first: NDArray[np.integer[Any]],
    second: NDArray[np.integer[Any]],
    values: NDArray[np.integer[Any]] | None,
) -> bool:
    """Whether two columns hold pairs of ids: both repeat, but hardly ever together.

    Pairs of measurements coincide about as often as if the columns were independent, or more often;
    pairs of ids hardly ever. Where too few coincidences are expected to decide, the ids of one
    column occur twice on average, and the values are not integers or take far fewer values
    (``values`` is None if they are not integers).
    """
    n = len(first)
    of_first, of_second = np.bincount(first), np.bincount(second)
    if max(len(of_first), len(of_second)) >= n:
        return False
    pairs = first.astype(np.int64) * len(of_second) + second
    duplicates = n - len(np.unique(pairs))
    if duplicates > OPTIONS.most_duplicates * n:
        return False
    equal = [float((counts * (counts - 1.0)).sum()) for counts in (of_first, of_second)]
    expected = equal[0] * equal[1] / (2.0 * n * (n - 1))
    if expected >= OPTIONS.enough_coincidences:
        return duplicates <= expected / OPTIONS.enough_coincidences
    fewest = min(len(of_first), len(of_second))
    return n >= 2 * fewest and (values is None or 3 * (int(values.max()) + 1) <= fewest)


def _collected(X: Any) -> Any:
    """The table as a narwhals DataFrame; a lazy one is computed."""
    import narwhals as nw  # noqa: PLC0415 - as above

    frame = from_native(X)
    return frame.collect() if isinstance(frame, nw.LazyFrame) else frame


def _is_default(index: Any) -> bool:
    """Whether an index of pandas is the default one, 0, 1, …, which is not a label."""
    return bool(
        type(index).__name__ == "RangeIndex"
        and index.start == 0
        and index.step == 1
        and index.name is None
    )


def _nullable_dtype(native: Any) -> Any:
    """The type of all columns of a table of pandas, if it is a nullable one of floats."""
    types = set(native.dtypes)
    dtype = next(iter(types)) if len(types) == 1 else None
    is_nullable = dtype is not None and not isinstance(dtype, np.dtype)
    return dtype if is_nullable and getattr(dtype, "kind", "") == "f" else None


def _is_part(index: Any) -> bool:
    """Whether an index of pandas may be that of some lines of a table with the default one."""
    return bool(index.nlevels == 1 and index.name is None and index.dtype.kind in "iu")


def labels_of(index: Any) -> Any:
    """The labels of an index of pandas as a column of ids; tuples if it has several levels."""
    return index.tolist() if index.nlevels > 1 else id_column(index.to_series())


def _begins_with_labels(frame: Any) -> bool:
    """Whether the first of several columns holds text or dates, or numbers by a name of labels."""
    if len(frame.columns) < 2:
        return False
    first = frame.get_column(frame.columns[0])
    is_named = is_label_name(frame.columns[0]) and first.dtype.is_numeric()
    return _holds_labels(first) or (is_named and not first.null_count())


def _require_labels(frame: Any) -> None:
    """Raise if all columns are text and the first holds numbers, which may be ids or values."""
    import narwhals as nw  # noqa: PLC0415 - as above

    if any(frame.get_column(name).dtype != nw.String for name in frame.columns):
        return
    name = frame.columns[0]
    first = frame.get_column(name).head(OPTIONS.examined).to_list()
    texts = [text for text in first if text is not None]
    if is_label_name(name) or not all(map(_is_number_text, texts)):
        return
    raise TypeError(
        f"X must hold real numbers, got text in all columns, and the first, {name!r}, holds "
        f"numbers, too: convert X to numbers, as X.astype(float) of pandas does, or give "
        f"row={name!r} if it holds the ids of the rows"
    )


def _is_number_text(text: str) -> bool:
    """Whether a text is a number, and not an id with leading zeros."""
    try:
        float(text)
    except ValueError:
        return False
    return not (len(text) > 1 and text[0] == "0" and text[1].isdigit())


def _holds_labels(series: Any) -> bool:
    """Whether a column holds text or dates."""
    import narwhals as nw  # noqa: PLC0415 - as above

    if series.dtype == nw.Object:
        first = next((one for one in series.to_list() if not is_missing(one)), None)
        return isinstance(first, (date, time))
    return series.dtype in (nw.String, nw.Categorical, nw.Enum) or series.dtype.is_temporal()


def _cells(frame: Any) -> NDArray[Any]:
    """The cells of a table of numbers, NaN where they are missing."""
    array = frame.to_numpy()
    if array.dtype.kind != "O":
        return array
    return np.column_stack([numbers(frame.get_column(name)) for name in frame.columns])
