"""Checks and conversions of the arrays and shapes that entries are made of."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from robustmf.data.compressed import Values


def consistent_sparse(X: Any) -> Any:
    """A CSR or CSC matrix with the arrays of X; raises if pointers or indices are out of bounds.

    SciPy follows them without checks; its own check modifies the matrix it is given.
    """
    try:
        make = sp.csr_array if X.format == "csr" else sp.csc_array
        checked = make((X.data, X.indices, X.indptr), shape=X.shape)
        checked.check_format(full_check=True)
    except ValueError as error:
        raise ValueError(f"X is an inconsistent {X.format} matrix: {error}") from None
    return checked


def require_equal_lengths(X: Any) -> None:
    """Raise unless a LIL matrix has as many values as indices per row; SciPy would make some up."""
    lengths = [[len(line) for line in lines] for lines in (X.rows, X.data)]
    if lengths[0] != lengths[1] or len(lengths[0]) != X.shape[0]:
        raise ValueError(
            "X is an inconsistent lil matrix: rows and data must have one list per row, of equal "
            "lengths"
        )


def signed_indices(index: NDArray[Any]) -> NDArray[Any]:
    """int32 and int64, which kernels read, as they are; other integers as int32."""
    return index if index.dtype in (np.int32, np.int64) else index.astype(np.int32)


def real_array(values: ArrayLike, name: str) -> Values:
    """``values`` as float32 or float64 in native byte order; TypeError if they are not real."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        array = _convert_objects(array, name)
    single = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    return cast("Values", array.astype(np.float32 if single else np.float64, copy=False))


def _convert_objects(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Python numbers as float64; other types are refused."""
    if array.dtype.kind == "c":
        raise ValueError(
            f"Complex data not supported: {name} must hold real numbers, got dtype {array.dtype}"
        )
    if array.dtype.kind == "O":
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(
                f"{name} must hold real numbers, got an object array ({error}); "
                "argument must be a string or a number"
            ) from None
    raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")


def require_finite(values: Values) -> None:
    """Raise for NaN and infinity."""
    if not np.isfinite(values).all():
        bad = np.flatnonzero(~np.isfinite(values))
        raise ValueError(
            f"values must be finite, got {values[bad[0]]} "
            f"({len(bad)} entries are NaN or infinity); "
            "leave missing entries out of a sparse input, or mark them NaN in a dense one"
        )


def require_shape(shape: tuple[int, int], n_entries: int) -> None:
    """Raise for a shape or a number of entries that a matrix cannot have."""
    if not isinstance(shape, (tuple, list)) or not all(
        isinstance(size, (int, np.integer)) for size in shape
    ):
        raise TypeError(f"shape must be a pair of integers (rows, columns), got shape={shape!r}")
    if len(shape) != 2:
        raise ValueError(f"shape must be a pair of integers (rows, columns), got shape={shape!r}")
    m, n = shape
    if m < 1 or n < 1:
        what = "sample(s)" if m < 1 else "feature(s)"
        raise ValueError(
            f"X must have rows and columns, got shape {shape}: "
            f"0 {what} (shape={shape}) while a minimum of 1 is required."
        )
    if max(m, n) > np.iinfo(np.int32).max:
        raise ValueError(
            f"X may have at most {np.iinfo(np.int32).max} rows and columns, got shape {shape}"
        )
    if n_entries < 1:
        raise ValueError(f"X must have at least one observed entry, got none for shape {shape}")


def integer_array(values: ArrayLike, name: str) -> NDArray[np.integer[Any]]:
    """``values`` as an array of integers; TypeError if they are not."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be an array of integers, got dtype {array.dtype}")
    return array
