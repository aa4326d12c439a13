"""Checks and conversions of entries that are given to a model."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from robustmf.data.alignment import align_entries
from robustmf.data.factorization import UNKNOWN
from robustmf.data.ids import Vocabulary
from robustmf.data.observed import Observed, as_observed, nothing_observed
from robustmf.data.statistics import suspected_codes
from robustmf.data.table_form import NO_ENTRY
from robustmf.exceptions import (
    EmptyRowsWarning,
    MissingCodeWarning,
    UnknownIdsWarning,
    warn_user,
)

Array = NDArray[np.floating[Any]]

#: Allowed magnitudes of the largest value of a matrix. The square of the value, and that of noise
#: far below it, must neither overflow nor underflow in this precision.
MAGNITUDES = {"float32": (1e-9, 1e12), "float64": (1e-75, 1e75)}


def warn_of_empty(observed: Observed, bias: bool) -> None:
    """Warn, once per fit, of rows and columns without an entry."""
    rows = int((observed.rows.counts == 0).sum())
    columns = int((observed.column_counts() == 0).sum())
    if rows or columns:
        warn_user(
            f"{rows} of {observed.shape[0]} rows and {columns} of {observed.shape[1]} columns "
            "have no observed entry; their factors are zero, and predictions there are "
            + ("those of the biases" if bias else "zero"),
            EmptyRowsWarning,
        )


def warn_of_codes(observed: Observed) -> None:
    """Warn, once per fit, of a number in a wide table that looks like a code for missing values."""
    form = observed.form
    values = observed.rows.values
    # tables are in the memory of the host; other entries stay where they are
    if form is None or form.is_long or not isinstance(values, np.ndarray):
        return
    for code in suspected_codes(values):
        warn_user(
            f"{code:g} occurs {int((values == code).sum()):,} times, far from all other values: if "
            f"it stands for missing values, mark it as such, as X.replace({code:g}, np.nan) does",
            MissingCodeWarning,
        )


def require_magnitude(observed: Observed, *, new: bool = False) -> None:
    """Raise for values whose squares are not representable in their precision.

    ``new`` entries of a fitted matrix may be arbitrarily small.
    """
    if not observed.n_entries:
        return
    values = observed.rows.values
    name = str(observed.dtype)
    largest = max(abs(float(values.min())), abs(float(values.max())))
    low, high = MAGNITUDES[name]
    if largest > high or (0 < largest < low and not new):
        wider = " or give X as float64" if name == "float32" else ""
        raise ValueError(
            f"X has values of size {largest:.3g}; in {name} the largest must lie between {low:g} "
            f"and {high:g}: multiply X by a constant{wider}"
        )


def require_in_memory(X: Any) -> None:
    """Raise for data that only a cluster or a file reader can take."""
    if type(X).__module__.startswith(("dask", "robustmf.backends.dask")):
        raise TypeError(
            f"X is data for a cluster ({type(X).__name__}): give client=, "
            "or convert it with Observed.from_triplets"
        )
    if isinstance(X, (str, os.PathLike)):
        raise TypeError(
            f"X must be data, got the path {os.fspath(X)!r}: read it with "
            "robustmf.io.read_ratings, or give client="
        )


def entry_weights(weights: ArrayLike, observed: Observed) -> Array:
    """One weight per entry, in row order, in the precision of the entries.

    They are given in row order, as a matrix, or in the order of the lines of a long table; those of
    pandas are matched by their labels.
    """
    given = align_entries(weights, observed)
    if given.dtype.kind not in "iuf":
        raise TypeError(f"weights must hold numbers, got dtype {given.dtype}")
    if given.shape == observed.shape:
        rows = observed.rows
        given = given[np.asarray(rows.group_of_entry()), np.asarray(rows.indices)]
    lines = None if observed.form is None else observed.form.lines
    if lines is not None and given.shape == lines.shape:
        has_entry = lines != NO_ENTRY
        if has_entry.sum() > observed.n_entries:
            raise ValueError(
                "weights must not be given for a table with several values for one row and column; "
                "merge its lines first"
            )
        of_lines = given
        given = np.empty(observed.n_entries, of_lines.dtype)
        given[lines[has_entry]] = of_lines[has_entry]
    if given.shape != (observed.n_entries,):
        raise ValueError(
            f"weights must have one number per observed entry, ({observed.n_entries},), "
            f"or the shape of X, {observed.shape}; got shape {given.shape}"
        )
    if not (np.isfinite(given).all() and (given >= 0).all() and given.any()):
        raise ValueError("weights must be finite, >= 0 and not all 0")
    low, high = MAGNITUDES[str(observed.dtype)]
    largest = float(given.max())
    if not low <= largest <= high:
        raise ValueError(
            f"weights have a maximum of {largest:.3g}; in {observed.dtype} it must lie between "
            f"{low:g} and {high:g}: multiply them, and reg if it is given, by a constant"
        )
    return given.astype(observed.dtype)


def row_weights(sample_weight: ArrayLike, observed: Observed) -> Array:
    """One weight per entry, in row order, from one per row."""
    given = np.asarray(sample_weight)
    if given.dtype.kind not in "iufb":
        raise TypeError(f"sample_weight must hold numbers, got dtype {given.dtype}")
    if given.shape != (observed.shape[0],):
        raise ValueError(
            f"sample_weight must have one number per row of X, ({observed.shape[0]},), "
            f"got shape {given.shape}"
        )
    if not (np.isfinite(given).all() and (given >= 0).all()):
        raise ValueError("sample_weight must be finite and >= 0")
    on_entries = np.repeat(given.astype(np.float64), observed.rows.counts)
    if not on_entries.any():
        raise ValueError("sample_weight must be positive for a row with an observed entry")
    return on_entries


def new_rows(X: Any, convert: Callable[[Any], Observed] = as_observed) -> Observed:
    """Rows to fold in: as for ``fit``, but rows without any observed entry are allowed.

    ``convert`` makes entries of anything that is not an array of NumPy or SciPy.
    """
    for_convert = (
        convert is not as_observed
        and (hasattr(X, "tocoo") or hasattr(X, "__dlpack__"))
        and not isinstance(X, np.ndarray)
    )
    if isinstance(X, Observed) or (for_convert and not sp.issparse(X)):
        return convert(X)
    if sp.issparse(X):
        empty = X.ndim == 2 and X.nnz == 0
    else:
        masked = isinstance(X, np.ma.MaskedArray) and X.dtype.kind == "f"
        X = np.ma.asarray(X).filled(np.nan) if masked else np.asarray(X)
        empty = X.dtype.kind == "f" and X.ndim == 2 and bool(X.size) and bool(np.isnan(X).all())
    return nothing_observed(X.shape, X.dtype) if empty else convert(X)


def match_columns(rows: Observed, known: Vocabulary) -> Observed:
    """Rows with their columns matched to known ones by id.

    Entries in unknown columns are dropped, with a warning.
    """
    ids = known.keys(rows.column_ids)
    index = known.indices(rows.column_ids)
    kept = index[rows.rows.indices] != UNKNOWN
    if not kept.all():
        unknown = np.flatnonzero(index == UNKNOWN)
        warn_user(
            f"{len(unknown)} of {len(index)} columns are unknown to the fit, such as "
            f"{ids[int(unknown[0])]!r}; their {int((~kept).sum())} entries are ignored "
            "(partial_fit would add them)",
            UnknownIdsWarning,
        )
    shape = (rows.shape[0], len(known))
    if not kept.any():
        return nothing_observed(shape, rows.dtype)
    i = rows.rows.group_of_entry()[kept]
    j = index[rows.rows.indices[kept]]
    return Observed.from_indices(i, j, rows.rows.values[kept], shape)
