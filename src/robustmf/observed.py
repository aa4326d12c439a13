"""The observed entries of a matrix, by rows and by columns.

An entry is observed or it is not; zero is a value like any other. Rows are kept compressed (CSR), columns compressed (CSC) are
made from them once, when first asked for, so that a kernel can serve rows and columns alike with the roles swapped.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from robustmf.kernels.compress import count, first_repeat, group_order, merge_repeats, scatter, transpose

Values = NDArray[np.float32] | NDArray[np.float64]
Duplicates = Literal["error", "last", "mean"]


@dataclass(frozen=True)
class Compressed:
    """Entries group by group: group k holds ``indices`` and ``values`` from ``pointers[k]`` to ``pointers[k+1]``."""

    pointers: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: Values

    def __len__(self) -> int:
        return len(self.pointers) - 1

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of entries in each group."""
        return np.diff(self.pointers)

    def group_of_entry(self) -> NDArray[np.int32]:
        """The group of every entry: with ``indices``, the coordinate form."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.counts)


class Observed:
    """Observed entries of an m × n matrix.

    Make one with :meth:`from_sparse`, :meth:`from_dense`, :meth:`from_indices` or :meth:`from_triplets`.

    Attributes
    ----------
    shape : tuple of int
        (m, n).
    rows : Compressed
        The entries by rows, columns ascending within a row.
    columns : Compressed
        The same entries by columns, rows ascending within a column; made when first used.
    column_order : ndarray of int64
        The permutation between the two: ``columns.values == rows.values[column_order]``.
    row_ids, column_ids : sequence or None
        The ids that rows and columns were called by, where they were.
    """

    def __init__(
        self,
        rows: Compressed,
        shape: tuple[int, int],
        row_ids: Sequence[Hashable] | None = None,
        column_ids: Sequence[Hashable] | None = None,
    ) -> None:
        self.rows = rows
        self.shape = shape
        self.row_ids = row_ids
        self.column_ids = column_ids

    def __repr__(self) -> str:
        m, n = self.shape
        return f"Observed({m} x {n}, {self.n_entries} entries, {100 * self.n_entries / (m * n):.2f} % observed, {self.dtype})"

    @property
    def n_entries(self) -> int:
        """Number of observed entries."""
        return len(self.rows.values)

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64."""
        return self.rows.values.dtype

    @cached_property
    def columns(self) -> Compressed:
        """The entries by columns."""
        columns = _counted(self.rows.indices, self.shape[1], self.dtype)
        _transpose_into(self.rows, columns)
        return columns

    @cached_property
    def column_order(self) -> NDArray[np.int64]:
        """Positions, in row order, of the entries in column order."""
        order = np.empty(self.n_entries, np.int64)
        group_order(self.rows.indices, self.columns.pointers, order)
        return order

    @property
    def transposed(self) -> Observed:
        """The entries of the transposed matrix; nothing is copied."""
        other = type(self)(self.columns, (self.shape[1], self.shape[0]), self.column_ids, self.row_ids)
        other.__dict__["columns"] = self.rows
        return other

    def with_values(self, values: ArrayLike) -> Observed:
        """The same places with other values, given in row order."""
        new = cast("Values", np.array(_real(values, "values"), order="C"))
        if new.shape != self.rows.values.shape:
            raise ValueError(f"values must have one number an entry, {self.rows.values.shape}, got shape {new.shape}")
        _require_finite(new)
        return Observed(Compressed(self.rows.pointers, self.rows.indices, new), self.shape, self.row_ids, self.column_ids)

    def select(self, mask: NDArray[np.bool_]) -> Observed:
        """Only the entries where ``mask`` (in row order) is true; the shape stays."""
        rows = self.rows
        pointers = np.concatenate(([0], np.cumsum(mask)))[rows.pointers].astype(np.int64)
        _require_shape(self.shape, int(pointers[-1]))
        return type(self)(Compressed(pointers, rows.indices[mask], rows.values[mask]), self.shape, self.row_ids, self.column_ids)

    def to_sparse(self) -> sp.csr_array:
        """The entries as a SciPy CSR array (a copy)."""
        rows = self.rows
        return sp.csr_array((rows.values.copy(), rows.indices.copy(), rows.pointers.copy()), shape=self.shape)

    @classmethod
    def from_indices(
        cls,
        rows: ArrayLike,
        cols: ArrayLike,
        values: ArrayLike,
        shape: tuple[int, int] | None = None,
        duplicates: Duplicates = "error",
    ) -> Observed:
        """Entries given by row numbers, column numbers and values.

        Parameters
        ----------
        rows, cols : array of int, shape (n_entries,)
            Coordinates, counted from 0, in any order.
        values : array, shape (n_entries,)
            Finite real numbers. float32 and float64 are kept, the rest becomes float64.
        shape : tuple of int, optional
            (m, n); by default just large enough.
        duplicates : {"error", "last", "mean"}
            What to do with several values for one place: refuse, take the last given, or average.
        """
        i, j, v = _indices(rows, "rows"), _indices(cols, "cols"), _real(values, "values")
        if not (i.shape == j.shape == v.shape and v.ndim == 1):
            raise ValueError(f"rows, cols and values must be 1-d and of one length, got shapes {i.shape}, {j.shape}, {v.shape}")
        if duplicates not in ("error", "last", "mean"):
            raise ValueError(f"duplicates must be 'error', 'last' or 'mean', got duplicates={duplicates!r}")
        if shape is None:
            shape = (int(i.max()) + 1 if i.size else 0, int(j.max()) + 1 if j.size else 0)
        _require_shape(shape, len(v))
        for name, index, bound in (("rows", i, shape[0]), ("cols", j, shape[1])):
            if index.min() < 0 or index.max() >= bound:
                wrong = index[(index < 0) | (index >= bound)][0]
                raise ValueError(f"{name} must lie in 0 … {bound - 1} for shape {shape}, got {wrong}")
        _require_finite(v)
        return cls(_compress(i.astype(np.int32, copy=False), j.astype(np.int32, copy=False), v, shape, duplicates), shape)

    @classmethod
    def from_sparse(cls, X: sp.sparray | sp.spmatrix) -> Observed:
        """Entries of a SciPy sparse array or matrix: every *stored* entry is observed, stored zeros too."""
        if X.format in ("bsr", "dia"):
            raise ValueError(f"X is in {X.format} format, which stores zeros that nobody observed; convert it first, e.g. with X.tocsr()")
        X = sp.coo_array(X)
        if X.ndim != 2:
            raise ValueError(f"X must be 2-dimensional, got {X.ndim} dimension(s)")
        return cls.from_indices(X.row, X.col, X.data, cast("tuple[int, int]", X.shape))

    @classmethod
    def from_dense(cls, X: ArrayLike) -> Observed:
        """Entries of a dense array: NaN is missing, everything else is observed."""
        if isinstance(X, np.ma.MaskedArray):
            X = _real(X, "X") if X.mask is np.ma.nomask else np.where(np.ma.getmaskarray(X), np.nan, _real(X.data, "X"))
        array = _real(X, "X")
        if array.ndim != 2:
            raise ValueError(
                f"Expected 2D array, got {array.ndim}D array instead: X must have shape (rows, columns), got shape {array.shape}. "
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
        """Entries given as (row id, column id, value), with ids of any hashable kind.

        Parameters
        ----------
        data : mapping or table, optional
            Something whose ``data[name]`` is a column (a dict, a pandas, polars or Arrow table); ``row``, ``col`` and ``value`` are
            then names of columns. Without it they are the columns themselves.
        duplicates : {"error", "last", "mean"}
            As in :meth:`from_indices`.
        """
        if data is not None:
            row, col, value = (_column(data, name, role) for name, role in ((row, "row"), (col, "col"), (value, "value")))
        i, row_ids = _number_ids(row, "row")
        j, column_ids = _number_ids(col, "col")
        made = cls.from_indices(i, j, value, (len(row_ids), len(column_ids)), duplicates)
        return cls(made.rows, made.shape, row_ids, column_ids)


def as_observed(X: Any) -> Observed:
    """What ``fit`` takes: :class:`Observed`, SciPy sparse, or anything NumPy reads as a 2-d array."""
    if isinstance(X, Observed):
        return X
    if sp.issparse(X):
        return Observed.from_sparse(X)
    return Observed.from_dense(X)


def _compress(i: NDArray[np.int32], j: NDArray[np.int32], v: Values, shape: tuple[int, int], duplicates: Duplicates) -> Compressed:
    """Scattered by column and then transposed, both stable: rows with ascending columns, duplicates in the order given."""
    by_column = _counted(j, shape[1], v.dtype)
    scatter(j, i, v, by_column.pointers, by_column.indices, by_column.values)
    rows = _counted(i, shape[0], v.dtype)
    _transpose_into(by_column, rows)
    repeat = first_repeat(rows.pointers, rows.indices)
    return rows if repeat < 0 else _merge_duplicates(rows, int(repeat), duplicates)


def _counted(groups: NDArray[np.int32], n_groups: int, dtype: np.dtype[Any]) -> Compressed:
    """Room for entries that belong to ``groups``, with the pointers counted."""
    pointers = np.zeros(n_groups + 1, np.int64)
    count(groups, pointers)
    return Compressed(pointers, np.empty(len(groups), np.int32), np.empty(len(groups), dtype))


def _transpose_into(source: Compressed, target: Compressed) -> None:
    transpose(source.pointers, source.indices, source.values, target.pointers, target.indices, target.values)


def _merge_duplicates(rows: Compressed, repeat: int, duplicates: Duplicates) -> Compressed:
    j, v = rows.indices, rows.values
    if duplicates == "error":
        i = int(np.searchsorted(rows.pointers, repeat, side="right")) - 1
        raise ValueError(
            f"duplicate entry at row {i}, column {j[repeat]} (values {v[repeat - 1]!r} and {v[repeat]!r}); "
            "make the entries with Observed.from_indices(…, duplicates='last' or 'mean') to say what it means"
        )
    kept = merge_repeats(rows.pointers, j, v, duplicates == "mean")
    return Compressed(rows.pointers, j[:kept], v[:kept])


def _real(values: ArrayLike, name: str) -> Values:
    """``values`` as float32 or float64, in native byte order; refuses what is not real numbers."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        array = _numbers_in_objects(array, name)
    wanted = np.float32 if array.dtype.kind == "f" and array.dtype.itemsize <= 4 else np.float64
    return cast("Values", array.astype(wanted, copy=False))


def _numbers_in_objects(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} must hold real numbers, got dtype {array.dtype}")
    if array.dtype.kind == "O":
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{name} must hold real numbers, got an object array ({error}); argument must be a string or a number"
            ) from None
    raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")


def _require_finite(values: Values) -> None:
    if not np.isfinite(values).all():
        bad = np.flatnonzero(~np.isfinite(values))
        raise ValueError(
            f"values must be finite, got {values[bad[0]]} ({len(bad)} entries are NaN or infinity); "
            "leave missing entries out of a sparse input, or mark them NaN in a dense one"
        )


def _require_shape(shape: tuple[int, int], n_entries: int) -> None:
    m, n = shape
    if m < 1 or n < 1:
        what = "sample(s)" if m < 1 else "feature(s)"
        raise ValueError(f"X must have rows and columns, got shape {shape}: 0 {what} (shape={shape}) while a minimum of 1 is required.")
    if max(m, n) > np.iinfo(np.int32).max:
        raise ValueError(f"X may have at most {np.iinfo(np.int32).max} rows and columns, got shape {shape}")
    if n_entries < 1:
        raise ValueError(f"X must have at least one observed entry, got none for shape {shape}")


def _indices(values: ArrayLike, name: str) -> NDArray[np.integer[Any]]:
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be an array of integers, got dtype {array.dtype}")
    return array


def _column(data: Any, name: Any, role: str) -> Any:
    try:
        return data[name]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        have = list(data) if isinstance(data, Mapping) else list(getattr(data, "columns", []))
        raise ValueError(f"{role}={name!r} is not a column of the data; it has {have}") from error


def _number_ids(ids: Any, name: str) -> tuple[NDArray[np.int64], list[Hashable]]:
    """Numbers 0, 1, … for ids: sorted where they can be compared, else in order of appearance."""
    # a list of several types stays one: NumPy would turn 7 into "7" beside a string
    mixed = isinstance(ids, (list, tuple)) and {type(key) for key in ids} not in ({int}, {float}, {str})
    array = ids if mixed else np.asarray(ids)
    if isinstance(array, np.ndarray) and array.dtype.kind in "iufUSMmb":
        if array.dtype.kind in "fMm" and np.any(np.isnan(array) if array.dtype.kind == "f" else np.isnat(array)):
            raise ValueError(f"{name} ids must not be missing, got NaN")
        unique, numbers = np.unique(array, return_inverse=True)
        return numbers.astype(np.int64), unique.tolist()
    seen: dict[Hashable, int] = {}
    try:
        numbers = np.fromiter((seen.setdefault(key, len(seen)) for key in array), np.int64, count=len(array))
    except TypeError as error:
        raise TypeError(f"{name} ids must be hashable: {error}") from None
    missing = [key for key in seen if key is None or key != key]
    if missing:
        raise ValueError(f"{name} ids must not be missing, got {missing[0]!r}")
    try:
        ordered = sorted(seen)  # type: ignore[type-var]
    except TypeError:
        return numbers, list(seen)
    place = np.empty(len(seen), np.int64)
    place[[seen[key] for key in ordered]] = np.arange(len(seen))
    return place[numbers], ordered
