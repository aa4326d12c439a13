"""The observed entries of a matrix, by rows and by columns.

An entry is observed or it is not; an observed zero is a value. The entries are stored by rows
(CSR). They are stored by columns (CSC) too as soon as that is needed, so that one kernel serves
rows and columns with the roles swapped.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from robustmf.data.arrays import (
    consistent_sparse,
    integer_array,
    real_array,
    require_equal_lengths,
    require_finite,
    require_shape,
    signed_indices,
)
from robustmf.data.columns import selected, triplet_columns
from robustmf.data.compressed import (
    Compressed,
    Duplicates,
    Values,
    compress,
    grouping_order,
    merge_duplicates,
    transpose_compressed,
)
from robustmf.data.ids import Vocabulary, listed_ids
from robustmf.data.sampling import EntrySample, evenly_spaced
from robustmf.data.table_form import NO_ENTRY, NO_NAMES, ColumnNames, TableForm
from robustmf.data.tables import is_table, long_form, wide_table
from robustmf.exceptions import DuplicateEntryError

__all__ = ["Compressed", "Duplicates", "Observed", "Values", "as_observed"]

#: Entries whose column indices are counted together.
_PART = 1 << 24


class Observed:
    """Observed entries of an m × n matrix.

    Created by :meth:`from_sparse`, :meth:`from_dense`, :meth:`from_indices` or
    :meth:`from_triplets`.

    Attributes
    ----------
    shape : tuple of int
        (m, n).
    rows : Compressed
        The entries by rows, columns ascending within a row.
    columns : Compressed
        The same entries by columns, rows ascending within a column; computed on first use.
    column_order : ndarray of int64
        The permutation between the two: ``columns.values == rows.values[column_order]``;
        computed on first use.
    row_ids, column_ids : sequence or None
        The ids of the rows and columns, or None if they are identified by their indices.
    form : TableForm or None
        The form of the table that the entries were read from, for answers in the same form; None if
        they do not come from a table, or were selected or changed since.

    Examples
    --------
    >>> import numpy as np
    >>> from robustmf import Observed
    >>> Observed.from_dense([[1.0, np.nan], [0.0, 2.0]])
    Observed(2 x 2, 3 entries, 75.00 % observed, float64)
    """

    def __init__(
        self,
        rows: Compressed,
        shape: tuple[int, int],
        row_ids: Sequence[Hashable] | None = None,
        column_ids: Sequence[Hashable] | None = None,
        form: TableForm | None = None,
    ) -> None:
        self.form = form
        self.rows = rows
        self.shape = (int(shape[0]), int(shape[1]))
        self.row_ids = row_ids
        self.column_ids = column_ids
        # not functools.cached_property, which in Python 3.11 holds a lock that all instances share:
        # fits in threads would wait for each other, and a process forked meanwhile for ever
        self._columns: Compressed | None = None
        self._column_order: NDArray[np.int64] | None = None

    def __repr__(self) -> str:
        m, n = self.shape
        density = 100 * self.n_entries / (m * n)
        return (
            f"Observed({m} x {n}, {self.n_entries} entries, {density:.2f} % observed, {self.dtype})"
        )

    @property
    def n_entries(self) -> int:
        """Number of observed entries."""
        return len(self.rows.values)

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64."""
        return self.rows.values.dtype

    @property
    def columns(self) -> Compressed:
        """The entries by columns."""
        if self._columns is None:
            self._columns = self._compute_columns()
        return self._columns

    @property
    def column_order(self) -> NDArray[np.int64]:
        """Positions, in row order, of the entries in column order."""
        if self._column_order is None:
            self._column_order = self._compute_column_order()
        return self._column_order

    def _compute_columns(self) -> Compressed:
        return transpose_compressed(self.rows, self.shape[1], self.dtype)

    def _compute_column_order(self) -> NDArray[np.int64]:
        return grouping_order(self.rows, self.columns)

    @property
    def transposed(self) -> Observed:
        """The entries of the transposed matrix, without a copy."""
        other = type(self)(
            self.columns, (self.shape[1], self.shape[0]), self.column_ids, self.row_ids
        )
        other._columns = self.rows
        return other

    def with_values(self, values: ArrayLike) -> Observed:
        """The same rows and columns with other values, given in row order."""
        new = cast("Values", np.array(real_array(values, "values"), order="C"))
        if new.shape != self.rows.values.shape:
            raise ValueError(
                f"values must have one number per entry, {self.rows.values.shape}, "
                f"got shape {new.shape}"
            )
        require_finite(new)
        return Observed(
            Compressed(self.rows.pointers, self.rows.indices, new),
            self.shape,
            self.row_ids,
            self.column_ids,
        )

    def divided(self, row_scales: Values | None, column_scales: Values) -> Observed:
        """The values divided by scales of their rows, if given, and of their columns.

        The result has the entries by columns too if they are known here.
        """
        by_row = self.rows.values / _scales_at(self.rows, row_scales, column_scales)
        new = self.with_values(by_row)
        if self._columns is not None:
            columns = self._columns
            by_column = columns.values / _scales_at(columns, column_scales, row_scales)
            new._columns = Compressed(columns.pointers, columns.indices, by_column)
        new._column_order = self._column_order
        return new

    def select(self, mask: NDArray[np.bool_]) -> Observed:
        """The entries where ``mask`` (in row order) is true; the shape is not changed."""
        rows = self.rows
        if mask.dtype != bool:
            raise TypeError(f"mask must be one bool per entry, got dtype {mask.dtype}")
        if mask.shape != rows.values.shape:
            raise ValueError(
                f"mask must be one bool per entry, {rows.values.shape}, got shape {mask.shape}"
            )
        pointers = np.concatenate(([0], np.cumsum(mask)))[rows.pointers].astype(np.int64)
        require_shape(self.shape, int(pointers[-1]))
        return type(self)(
            Compressed(pointers, rows.indices[mask], rows.values[mask]),
            self.shape,
            self.row_ids,
            self.column_ids,
        )

    def __getitem__(self, key: Any) -> Observed:
        """The rows that ``key`` selects, as in NumPy: a slice, indices, or one bool per row.

        For cross-validation over rows with scikit-learn.
        """
        if isinstance(key, tuple) and len(key) == 2 and key[1] in (Ellipsis, slice(None)):
            key = key[0]
        chosen = np.arange(self.shape[0])[key]
        if chosen.ndim != 1:
            raise TypeError(f"rows must be selected by a slice, indices or bools, got {key!r}")
        rows = self.rows
        counts = rows.counts[chosen]
        pointers = np.concatenate(([0], np.cumsum(counts)))
        require_shape((len(chosen), self.shape[1]), int(pointers[-1]))
        position = np.arange(pointers[-1]) + np.repeat(
            rows.pointers[chosen] - pointers[:-1], counts
        )
        return type(self)(
            Compressed(pointers, rows.indices[position], rows.values[position]),
            (len(chosen), self.shape[1]),
            None if self.row_ids is None else [self.row_ids[k] for k in chosen.tolist()],
            self.column_ids,
        )

    def later_rows(self, first: int) -> Observed:
        """The rows with indices from ``first`` on, without ids."""
        rows = self.rows
        start = int(rows.pointers[first])
        part = Compressed(rows.pointers[first:] - start, rows.indices[start:], rows.values[start:])
        return type(self)(part, (self.shape[0] - first, self.shape[1]))

    def column_counts(self) -> NDArray[np.int64]:
        """Number of entries of each column, without computing ``columns``."""
        if self._columns is not None:
            return self._columns.counts
        counts = np.zeros(self.shape[1], np.int64)
        for low in range(0, self.n_entries, _PART):  # a copy of all indices would be large
            counts += np.bincount(self.rows.indices[low : low + _PART], minlength=len(counts))
        return counts

    def placed(self, array: Any) -> Any:
        """An array as a C-contiguous one in the memory of the entries."""
        return np.ascontiguousarray(array)

    def to_host(self) -> Observed:
        """The same entries in host memory, where these already are."""
        return self

    def sampled(self, at_most: int, weights: Any = None, reliability: Any = None) -> EntrySample:
        """Evenly spaced entries, all or ``at_most`` of them, without those of weight zero."""
        rows = self.rows
        chosen = evenly_spaced(self.n_entries, at_most)
        sample = EntrySample(
            np.asarray(rows.groups_at(chosen)),
            np.asarray(rows.indices[chosen]),
            np.asarray(rows.values[chosen]),
            np.asarray(rows.counts),
            self.column_counts(),
            None if reliability is None else reliability[chosen],
        )
        if weights is None:
            return sample
        return sample.selected(np.asarray(weights[chosen]) > 0)

    def to_keep(self, weights: NDArray[Any] | None) -> Mapping[str, Any]:
        """The entries by rows and their weights, as a fitted model stores them."""
        rows = self.rows
        return {
            "pointers": rows.pointers,
            "indices": rows.indices,
            "values": rows.values,
            "weights": weights,
        }

    def to_dense(self, values: NDArray[Any] | None = None) -> NDArray[Any]:
        """The entries as an m × n array, or other values at their positions, given in row order.

        Where nothing is observed, numbers are NaN and bools False.
        """
        values = self.rows.values if values is None else values
        missing = np.nan if values.dtype.kind == "f" else False
        dense = np.full(self.shape, missing, values.dtype)
        dense[self.rows.group_of_entry(), self.rows.indices] = values
        return dense

    def to_sparse(self) -> sp.csr_array:
        """The entries as a SciPy CSR array (a copy)."""
        rows = self.rows
        return sp.csr_array(
            (rows.values.copy(), rows.indices.copy(), rows.pointers.copy()), shape=self.shape
        )

    @classmethod
    def from_indices(
        cls,
        rows: ArrayLike,
        columns: ArrayLike,
        values: ArrayLike,
        shape: tuple[int, int] | None = None,
        duplicates: Duplicates = "error",
    ) -> Observed:
        """Entries given by row indices, column indices and values.

        Parameters
        ----------
        rows, columns : array of int, shape (n_entries,)
            Indices, counted from 0, in any order.
        values : array, shape (n_entries,)
            Finite real numbers. float32 and float64 are kept, float16 becomes float32, and other
            types become float64.
        shape : tuple of int, default=None
            (m, n); None is the smallest shape that contains the indices.
        duplicates : {"error", "last", "mean"}, default="error"
            How several values for the same row and column are treated: raise
            :class:`~robustmf.exceptions.DuplicateEntryError`, keep the last one, or average them.

        Returns
        -------
        Observed
        """
        i = integer_array(rows, "rows")
        j = integer_array(columns, "columns")
        v = real_array(values, "values")
        if not (i.shape == j.shape == v.shape and v.ndim == 1):
            raise ValueError(
                "rows, columns and values must be 1-dimensional and of the same length, "
                f"got shapes {i.shape}, {j.shape}, {v.shape}"
            )
        if duplicates not in ("error", "last", "mean"):
            raise ValueError(
                f"duplicates must be 'error', 'last' or 'mean', got duplicates={duplicates!r}"
            )
        if shape is None:
            shape = (
                max(int(i.max()), 0) + 1 if i.size else 0,
                max(int(j.max()), 0) + 1 if j.size else 0,
            )
        require_shape(shape, len(v))
        for name, index, bound in (("rows", i, shape[0]), ("columns", j, shape[1])):
            if index.min() < 0 or index.max() >= bound:
                wrong = index[(index < 0) | (index >= bound)][0]
                raise ValueError(
                    f"{name} must lie in 0 … {bound - 1} for shape {shape}, got {wrong}"
                )
        require_finite(v)
        compressed = compress(signed_indices(i), signed_indices(j), v, shape)
        return cls(merge_duplicates(compressed, duplicates), shape)

    @classmethod
    def from_columns(
        cls,
        pointers: NDArray[np.int64],
        rows: NDArray[np.int32],
        values: NDArray[Any],
        ids: tuple[Sequence[Hashable], Sequence[Hashable]],
        dtype: str = "float64",
    ) -> Observed:
        """Entries given by columns, with ids; the arrays are copied only into the result.

        Parameters
        ----------
        pointers : ndarray of int64, shape (n + 1,)
            Column j consists of the entries ``pointers[j]`` to ``pointers[j + 1]``.
        rows : ndarray of int32, shape (n_entries,)
            Row indices, in any order within a column.
        values : ndarray, shape (n_entries,)
            The values.
        ids : tuple of two sequences
            The ids of all rows and of all columns.
        dtype : {"float64", "float32"}, default="float64"
            Precision of the values.

        Returns
        -------
        Observed
        """
        shape = (len(ids[0]), len(ids[1]))
        require_shape(shape, len(values))
        by_rows = transpose_compressed(
            Compressed(pointers, rows, values), shape[0], np.dtype(dtype)
        )
        try:
            return cls(merge_duplicates(by_rows, "error"), shape, *ids)
        except DuplicateEntryError as error:
            raise error.with_ids(ids[0][error.row], ids[1][error.column]) from None

    @classmethod
    def from_sparse(cls, X: sp.sparray | sp.spmatrix) -> Observed:
        """Entries of a SciPy sparse array or matrix.

        Every *stored* entry is observed, including stored zeros. Formats that store blocks or
        diagonals (bsr, dia) are refused, since they store zeros that were not observed.
        """
        if not sp.issparse(X):
            raise TypeError(
                f"X must be a SciPy sparse array or matrix, got {type(X).__name__}; "
                "for a dense array use Observed.from_dense"
            )
        if X.format in ("bsr", "dia"):
            raise ValueError(
                f"X is sparse, in {X.format} format, which stores zeros that were not observed; "
                "convert it, e.g. with X.tocsr()"
            )
        if X.format in ("csr", "csc"):
            X = consistent_sparse(X)
        if X.format == "lil":
            require_equal_lengths(X)
        X = sp.coo_array(X)
        if X.ndim != 2:
            raise ValueError(f"X must be 2-dimensional, got {X.ndim} dimension(s)")
        return cls.from_indices(X.row, X.col, X.data, cast("tuple[int, int]", X.shape))

    @classmethod
    def from_dense(cls, X: Any, *, row: Any = None) -> Observed:
        """Entries of a dense array or a wide table: missing values and NaN are not observed.

        Parameters
        ----------
        X : array or table of shape (m, n)
            Labels of a table are the ids: the names of its columns, and the index of its rows. The
            default index of pandas, 0, 1, …, is not a label. In a table without row labels the
            first column holds them if it is one of text or dates, or one of numbers that has the
            name of a label, such as "id" or "time".
        row : name of a column, default=None
            The column of row ids of a table.

        Returns
        -------
        Observed
        """
        X = read_table(X, ColumnNames(row))
        if isinstance(X, Observed):
            return X
        if isinstance(X, np.ma.MaskedArray):
            X = (
                real_array(X, "X")
                if X.mask is np.ma.nomask
                else np.where(np.ma.getmaskarray(X), np.nan, real_array(X.data, "X"))
            )
        if getattr(getattr(X, "index", None), "nlevels", 1) > 1:  # a column of pandas
            raise ValueError(
                "X must be a table, got a column with an index of several levels: give X.unstack(),"
                " or X.reset_index() with row=, col= and value="
            )
        array = real_array(X, "X")
        if array.ndim != 2:
            raise ValueError(
                f"Expected 2D array, got {array.ndim}D array instead: "
                f"X must have shape (rows, columns), got shape {array.shape}. "
                "Reshape your data with X.reshape(1, -1) if it is a single row."
            )
        seen = ~np.isnan(array)
        i, j = np.nonzero(seen)
        return cls.from_indices(i, j, array[seen], cast("tuple[int, int]", array.shape))

    @classmethod
    def from_triplets(
        cls,
        data: Any = None,
        *,
        row: Any,
        col: Any,
        value: Any,
        duplicates: Duplicates = "error",
    ) -> Observed:
        """Entries given as (row id, column id, value), with ids of any hashable type.

        Parameters
        ----------
        data : table or mapping, default=None
            A pandas, polars or Arrow table (any that narwhals supports, including lazy ones), or a
            mapping from names to columns. A line whose value is missing is no entry, as if the
            table did not have it. If None, ``row``, ``col`` and ``value`` are the columns, whose
            values must not be missing.
        row, col, value : name of a column of ``data``, or a column
            Row ids, column ids and values.
        duplicates : {"error", "last", "mean"}, default="error"
            As in :meth:`from_indices`.

        Returns
        -------
        Observed

        Notes
        -----
        Rows and columns are sorted by their ids if these can be ordered, otherwise they are in
        order of appearance. The order of the lines of a table is remembered in ``form``, 4 bytes
        per line, so that answers about these entries are given in this order.

        Examples
        --------
        >>> from robustmf import Observed
        >>> ratings = Observed.from_triplets(
        ...     row=["bob", "ann", "bob"], col=["Dune", "Dune", "Alien"], value=[4, 5, 3]
        ... )
        >>> ratings.row_ids, ratings.column_ids
        (['ann', 'bob'], ['Alien', 'Dune'])
        >>> ratings.to_sparse().toarray()
        array([[0., 5.],
               [3., 4.]])
        """
        rows, cols, values = triplet_columns(data, row, col, value, with_missing=data is not None)
        is_observed = None
        if data is not None and values.dtype.kind == "f" and np.isnan(values).any():
            is_observed = ~np.isnan(values)
            if not is_observed.any():
                raise ValueError(
                    f"values must not all be missing, but {len(values)} of them are; "
                    "predict(rows, columns) needs none"
                )
            rows, cols = selected(rows, is_observed), selected(cols, is_observed)
            values = values[is_observed]
        i, row_vocabulary = Vocabulary.encode(rows, "row")
        j, column_vocabulary = Vocabulary.encode(cols, "column")
        row_ids = row_vocabulary.ids
        column_ids = column_vocabulary.ids
        try:
            unnamed = cls.from_indices(i, j, values, (len(row_ids), len(column_ids)), duplicates)
        except DuplicateEntryError as error:
            raise error.with_ids(row_ids[error.row], column_ids[error.column]) from None
        form = None
        if data is not None and (isinstance(data, Mapping) or is_table(data)):
            lines = entries_of_lines(i, j, unnamed.shape)
            if is_observed is not None:
                of_observed = lines
                lines = np.full(len(is_observed), NO_ENTRY, of_observed.dtype)
                lines[is_observed] = of_observed
            form = long_form(data, ColumnNames(row, col, value), lines)
        return cls(unnamed.rows, unnamed.shape, row_ids, column_ids, form)


def _scales_at(
    entries: Compressed, of_groups: Values | None, of_indices: Values | None
) -> Values | float:
    """The product of the scales of the group and of the index of each entry; None for no scales."""
    scales: Any = 1.0
    if of_indices is not None:
        scales = of_indices[entries.indices]
    if of_groups is not None:
        scales = np.repeat(of_groups, entries.counts) * scales
    return cast("Values | float", scales)


def as_observed(X: Any) -> Observed:
    """Convert what ``fit`` accepts: :class:`Observed`, SciPy sparse, a table, or a 2-d array."""
    if isinstance(X, Observed):
        return X
    if sp.issparse(X):
        return Observed.from_sparse(X)
    return Observed.from_dense(X)


def _from_long(X: Any, names: ColumnNames) -> Observed:
    """The entries of a long table; the remedy for duplicates keeps it a table."""
    try:
        return Observed.from_triplets(X, row=names.row, col=names.col, value=names.value)
    except DuplicateEntryError as error:
        columns = f"[{names.row!r}, {names.col!r}]"
        remedy = f"X.drop_duplicates({columns}) of pandas, or by Observed.from_triplets"
        raise error.with_ids(error.row, error.column, remedy) from None


def read_table(X: Any, names: ColumnNames = NO_NAMES, *, allow_empty: bool = False) -> Any:
    """The entries of a table; anything else as it is.

    Parameters
    ----------
    X : table or other data
        The data. Where ``names`` are given, it must be a table.
    names : ColumnNames, default=NO_NAMES
        The columns of a long table, or the column of row ids of a wide one.
    allow_empty : bool, default=False
        Whether a wide table may have no observed entry, as rows to fold in may.
    """
    if names.are_long:
        return _from_long(X, names)
    if names.row is None and (isinstance(X, Observed) or not is_table(X)):
        return X
    if not is_table(X):
        raise TypeError(f"row= must name a column of a table, but X is a {type(X).__name__}")
    return _from_wide(X, names.row, allow_empty=allow_empty)


def _from_wide(X: Any, row: Any, *, allow_empty: bool) -> Observed:
    """The entries of a wide table, its labels as ids."""
    table = wide_table(X, row)
    values = real_array(table.values, "X")
    row_ids = None if table.row_labels is None else listed_ids(table.row_labels, "row")
    column_ids = None if table.column_labels is None else listed_ids(table.column_labels, "column")
    if allow_empty and values.size and np.isnan(values).all():
        entries = nothing_observed(cast("tuple[int, int]", values.shape), values.dtype)
    else:
        entries = Observed.from_dense(values)
    return Observed(entries.rows, entries.shape, row_ids, column_ids, table.form)


def nothing_observed(shape: tuple[int, int], dtype: np.dtype[Any]) -> Observed:
    """A matrix without observed entries: rows to fold in."""
    if min(shape) < 1:
        raise ValueError(f"X must have rows and columns, got shape {shape}")
    values = np.empty(0, np.float32) if dtype == np.float32 else np.empty(0, np.float64)
    pointers = np.zeros(shape[0] + 1, np.int64)
    return Observed(Compressed(pointers, np.empty(0, np.int32), values), shape)


def entries_of_lines(
    i: NDArray[Any], j: NDArray[Any], shape: tuple[int, int]
) -> NDArray[np.integer[Any]]:
    """For each line with indices (i, j), the position of its entry in row order.

    Lines with the same indices have the same entry.
    """
    numbers = np.arange(len(i), dtype=np.float64)  # exact, and a type that kernels sort
    ordered = compress(signed_indices(i), signed_indices(j), numbers, shape)
    is_new = np.ones(len(i), bool)
    is_new[1:] = ordered.indices[1:] != ordered.indices[:-1]
    is_new[ordered.pointers[:-1][ordered.counts > 0]] = True
    small = len(i) <= np.iinfo(np.int32).max
    lines: NDArray[Any] = np.empty(len(i), np.int32 if small else np.int64)
    lines[ordered.values.astype(np.int64)] = np.cumsum(is_new) - 1
    return lines
