"""Answers in the form of the table that they are about.

A table is *wide* (a cell per entry) or *long* (a line per entry). :mod:`robustmf.data.tables` reads
one; a :class:`TableForm` remembers its library, index and order, and converts answers back.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Ids of rows or columns; None where they are numbered.
Ids = Sequence[Hashable] | None

#: Libraries that answers can be converted to.
LIBRARIES = ("pandas", "modin", "cudf", "polars", "pyarrow", "dict")

#: Stands for a library where a mapping of columns was given: columns are arrays, tables dicts.
MAPPING = "dict"

#: Those whose tables have an index, and columns with labels of any type.
_WITH_INDEX = ("pandas", "modin", "cudf")


class ColumnNames(NamedTuple):
    """Names of the columns of row ids, column ids and values of a table.

    All three for a long table. A wide one has no such columns, or a column of row ids only.
    """

    row: Any = None
    col: Any = None
    value: Any = None

    @property
    def are_long(self) -> bool:
        """Whether they are the columns of a long table."""
        return self.value is not None

    def checked(self) -> ColumnNames:
        """The same; raises unless all three are given, or none, or only ``row``."""
        if (self.col is None) != (self.value is None) or (self.row is None and self.are_long):
            raise ValueError(
                "row=, col= and value= must all be given for a long table, and at most row= for a "
                f"wide one, got row={self.row!r}, col={self.col!r}, value={self.value!r}"
            )
        return self


#: In ``TableForm.lines``: the line has no entry, because its value is missing.
NO_ENTRY = -1

#: A wide table without a column of row ids.
NO_NAMES = ColumnNames()


@dataclass(frozen=True)
class TableForm:
    """The form of a table, in which answers about its entries are returned.

    Attributes
    ----------
    library : str
        The library of the table, as narwhals names it: "pandas", "polars", "pyarrow", …; "dict" for
        a mapping of columns.
    names : ColumnNames
        The columns of a long table, or the column of row ids of a wide one.
    index : pandas.Index or None
        The index of the lines; None in libraries without an index, or if it is not known.
    columns : sequence or None
        Labels of the columns of a wide table, without that of row ids; None if they are the ids.
    lines : array of int or None
        For each line of a long table, the position of its entry in row order, ``NO_ENTRY`` where
        its value is missing; None if they are not known.
    labels : narwhals Series or None
        The column of row labels of a wide table, if it has one.
    dtype : dtype of pandas or None
        The nullable type of the columns of a wide table (Float64, double[pyarrow], …), if they have
        one type.
    """

    library: str
    names: ColumnNames
    index: Any = None
    columns: Any = None
    lines: NDArray[np.integer[Any]] | None = None
    labels: Any = None
    dtype: Any = None

    @property
    def is_long(self) -> bool:
        """Whether the table has a line per entry."""
        return self.names.are_long

    @property
    def has_index(self) -> bool:
        """Whether tables of the library have an index."""
        return self.library in _WITH_INDEX

    @property
    def has_row_index(self) -> bool:
        """Whether the index of a wide table is known and labels its rows."""
        return not self.is_long and self.names.row is None and self.index is not None

    def rows_by_appearance(self, observed: Any) -> NDArray[np.integer[Any]]:
        """The indices of the rows of a long table, in the order in which its lines name them."""
        lines = np.asarray(self.lines)
        rows = np.asarray(observed.rows.group_of_entry())[lines[lines != NO_ENTRY]]
        _, first = np.unique(rows, return_index=True)
        return np.asarray(rows[np.sort(first)])

    def per_line(self, values: NDArray[Any]) -> NDArray[Any]:
        """The answers of entries in the order of the lines of a long table.

        Lines without an entry have NaN, or False among marks.
        """
        lines = np.asarray(self.lines)
        has_entry = lines != NO_ENTRY
        if has_entry.all():
            return values[lines]
        found = np.full(len(lines), False if values.dtype.kind == "b" else np.nan, values.dtype)
        found[has_entry] = values[lines[has_entry]]
        return found

    def without_order(self) -> TableForm:
        """The form of a table of other entries, whose index and order are not known."""
        return replace(self, index=None, columns=None, lines=None, labels=None, dtype=None)

    def selected(self, mask: NDArray[np.bool_]) -> TableForm:
        """The form of the entries where ``mask`` is true; lines of the others have no entry."""
        if self.lines is None:
            return self
        position = np.append(np.where(mask, np.cumsum(mask) - 1, NO_ENTRY), NO_ENTRY)
        return replace(self, lines=position[self.lines])

    def to_state(self) -> dict[str, Any]:
        """Plain values for a file; index and order are not kept."""
        return {"library": self.library, "names": list(self.names)}

    @classmethod
    def from_state(cls, state: Any) -> TableForm:
        """The inverse of :meth:`to_state`; raises ValueError for an invalid state."""
        valid = (
            isinstance(state, dict)
            and set(state) == {"library", "names"}
            and state["library"] in LIBRARIES
            and isinstance(state["names"], list)
            and len(state["names"]) == 3
            and all(isinstance(name, Hashable) for name in state["names"])
        )
        if not valid:
            raise ValueError(f"table_form must hold a library of {LIBRARIES} and three names")
        return cls(state["library"], ColumnNames(*state["names"]).checked())

    def entries(self, values: NDArray[Any], name: str, observed: Any) -> Any:
        """An answer per entry: a wide table, or a column with the lines of a long one.

        Where the lines are not known (the model was loaded from a file, or entries were added by
        ``partial_fit``), a long table of the ids and the answers, in row order.

        Parameters
        ----------
        values : array over the entries of ``observed``
            The answers, in row order.
        name : str
            The name of the column.
        observed : Observed
            The entries.
        """
        if not self.is_long:
            cells = observed.to_dense(values)
            return self.cells(cells, observed.row_ids, observed.column_ids)
        if self.lines is not None:
            return self.column(self.per_line(values), name, self.index)
        rows, columns = observed.rows.group_of_entry(), observed.rows.indices
        row_ids, column_ids = (
            [ids[k] for k in of_entries.tolist()]
            for ids, of_entries in ((observed.row_ids, rows), (observed.column_ids, columns))
        )
        return self.table({self.names.row: row_ids, self.names.col: column_ids, name: values}, None)

    def mask(self, is_marked: NDArray[np.bool_], observed: Any) -> Any:
        """Marks of entries in the form of their table; a column of row labels is False."""
        marks = self.entries(is_marked, "is_bad", observed)
        if self.is_long or self.names.row is None:
            return marks
        import narwhals as nw  # noqa: PLC0415 - import deferred until a table is passed

        unmarked = nw.lit(value=False).alias(self.names.row)
        return nw.from_native(marks).with_columns(unmarked).to_native()

    def with_values(self, table: Any, values: NDArray[Any]) -> Any:
        """A long table with these values, one per line, instead of its own."""
        if self.library == MAPPING:
            return {**table, self.names.value: values}
        import narwhals as nw  # noqa: PLC0415 - import deferred until a table is passed

        frame = nw.from_native(table).lazy().collect()
        column = nw.from_native(self.column(values, self.names.value, self.index), series_only=True)
        # a column of Arrow has no name
        return frame.with_columns(column.alias(self.names.value)).to_native()

    def cells(self, values: NDArray[Any], row_ids: Ids, column_ids: Ids) -> Any:
        """A wide table of these values."""
        columns = self.columns
        if columns is None:
            columns = ids_or_numbers(column_ids, values.shape[1])
        cells = dict(zip(columns, values.T, strict=True))
        if self.names.row is not None:
            ids = self.labels
            if ids is None:
                ids = list(ids_or_numbers(row_ids, len(values)))
            made = self.table({self.names.row: ids, **cells}, self.index)
            if self.has_index and self.labels is not None:
                made[self.names.row] = self.labels.to_native().array  # of the same type
            return made
        index = self.index
        if index is None and row_ids is not None:
            index = list(row_ids)
        made = self.table(cells, index)
        if self.has_index and self.columns is not None:
            made.columns = self.columns  # with its name
        if self.dtype is not None and values.dtype.kind == "f":
            made = made.astype(self.dtype)
        return made

    def groups(self, values: NDArray[Any], name: str, side: str, ids: Ids) -> Any:
        """An answer per row or column, with its label.

        A column whose index is the labels; in libraries without an index, a table of the labels and
        the answers.
        """
        names = list(ids_or_numbers(ids, len(values)))
        if self.has_index:
            if side == "row" and self.has_row_index:
                return self.column(values, name, self.index)
            return self.column(values, name, names)
        label_name = self.names.row if side == "row" else self.names.col
        return self.table({label_name or side: names, name: values}, None)

    @property
    def _backend(self) -> Any:
        return self.library

    def column(self, values: NDArray[Any], name: str, index: Any) -> Any:
        """A column of these values; ``index``, if any, is a list of labels or an index."""
        if self.library == MAPPING:
            return values
        import narwhals as nw  # noqa: PLC0415 - import deferred until a table is passed

        column = nw.new_series(name, values, backend=self._backend)
        if not self.has_index:
            column = self._with_nulls(column.to_frame()).get_column(name)
        made = column.to_native()
        if self.has_index and index is not None:
            made.index = self._as_index(index)
        return made

    def table(self, columns: Mapping[Any, Any], index: Any) -> Any:
        """A table of these columns; ``index``, if any, is a list of labels or an index."""
        if self.library == MAPPING:
            return dict(columns)
        import narwhals as nw  # noqa: PLC0415 - as above

        # narwhals has names that are strings only, pandas labels of any type
        numbered = {str(k): values for k, values in enumerate(columns.values())}
        made = nw.from_dict(numbered, backend=self._backend)
        if not self.has_index:
            made = self._with_nulls(made)
            return made.rename(dict(zip(numbered, columns, strict=True))).to_native()
        native = made.to_native()
        native.columns = self._as_index(list(columns))
        if index is not None:
            native.index = self._as_index(index)
        return native

    @staticmethod
    def _with_nulls(frame: Any) -> Any:
        """A frame of narwhals with null instead of NaN: libraries without an index have both."""
        import narwhals as nw  # noqa: PLC0415 - as above

        columns = [nw.col(name) for name, dtype in frame.schema.items() if dtype.is_float()]
        return frame.with_columns(nw.when(~column.is_nan()).then(column) for column in columns)

    def _as_index(self, labels: Any) -> Any:
        """The index with these labels."""
        return import_module(self.library).Index(labels) if isinstance(labels, list) else labels


def ids_or_numbers(ids: Ids, size: int) -> Sequence[Hashable]:
    """The ids of rows or columns; their numbers where they have none."""
    return range(size) if ids is None else ids
