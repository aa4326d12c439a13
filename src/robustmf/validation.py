"""What the estimator checks of its parameters and arguments: errors that name the parameter, the value and what is allowed."""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from robustmf.data.factorization import UNKNOWN
from robustmf.data.ids import Vocabulary
from robustmf.data.observed import Compressed, Observed, as_observed
from robustmf.exceptions import EmptyRowsWarning, UnknownIdsWarning, warn_user

Array = NDArray[np.floating[Any]]


#: Smallest and largest size of a matrix's largest value: its square, and that of the noise in it, can still be told from 0 and infinity.
MAGNITUDES = {"float32": (1e-9, 1e12), "float64": (1e-75, 1e75)}


def generator(random_state: Any) -> np.random.Generator:
    """A Generator from a seed, a Generator, or scikit-learn's RandomState."""
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**31 - 1)
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise TypeError(
            f"random_state must be None, an integer >= 0 or a Generator, got random_state={random_state!r}"
        ) from None


def warn_of_empty(observed: Observed, bias: bool) -> None:
    """Warn, once a fit, of rows and columns without an entry."""
    rows = int((observed.rows.counts == 0).sum())
    columns = observed.n_empty_columns()
    if rows or columns:
        warn_user(
            f"{rows} of {observed.shape[0]} rows and {columns} of {observed.shape[1]} columns have no observed entry; "
            "their factors are zero, and predictions there are "
            + ("those of the biases" if bias else "zero"),
            EmptyRowsWarning,
        )


def require_magnitude(observed: Observed, *, new: bool = False) -> None:
    """Refuse values that the arithmetic of their precision cannot square; ``new`` entries of a fitted matrix may be of any smallness."""
    if not observed.n_entries:
        return
    values, name = observed.rows.values, str(observed.dtype)
    largest = max(abs(float(values.min())), abs(float(values.max())))
    least, most = MAGNITUDES[name]
    if largest > most or (0 < largest < least and not new):
        wider = " or give X as float64" if name == "float32" else ""
        raise ValueError(
            f"X has values of size {largest:.3g}; in {name} the largest must lie between {least:g} and {most:g}: "
            f"multiply X by a constant{wider}"
        )


def require_here(X: Any) -> None:
    """Refuse what only a cluster or a reader of files can take: as an array it would be something else."""
    if type(X).__module__.startswith(("dask", "robustmf.backends.dask")):
        raise TypeError(
            f"X is data for a cluster ({type(X).__name__}): give client=, or make entries of it here with Observed.from_triplets"
        )
    if isinstance(X, (str, os.PathLike)):
        raise TypeError(
            f"X must be data, got the path {os.fspath(X)!r}: read it with robustmf.io.reading.read_ratings, or give client="
        )


def entry_weights(weights: ArrayLike, observed: Observed) -> Array:
    """One weight an entry, in row order, in the precision of the entries."""
    given = np.asarray(weights)
    if given.dtype.kind not in "iuf":
        raise TypeError(f"weights must hold numbers, got dtype {given.dtype}")
    if given.shape == observed.shape:
        given = given[np.asarray(observed.rows.group_of_entry()), np.asarray(observed.rows.indices)]
    if given.shape != (observed.n_entries,):
        raise ValueError(
            f"weights must have one number an observed entry, ({observed.n_entries},), or the shape of X, {observed.shape}; "
            f"got shape {given.shape}"
        )
    if not (np.isfinite(given).all() and (given >= 0).all() and given.any()):
        raise ValueError("weights must be finite, >= 0 and not all 0")
    return given.astype(observed.dtype)


def new_rows(X: Any, convert: Callable[[Any], Observed] = as_observed) -> Observed:
    """Rows to be folded in: as for ``fit``, where ``convert`` makes the entries, but it is no error that nothing is observed."""
    # what NumPy and SciPy do not know is for ``convert`` alone
    foreign = (
        convert is not as_observed
        and (hasattr(X, "tocoo") or hasattr(X, "__dlpack__"))
        and not isinstance(X, np.ndarray)
    )
    if not isinstance(X, Observed) and (sp.issparse(X) or not foreign):
        if sp.issparse(X) and X.ndim == 2 and X.nnz == 0:
            return _nothing_observed(X.shape, X.dtype)
        if not sp.issparse(X):
            X = (
                np.ma.asarray(X).filled(np.nan)
                if isinstance(X, np.ma.MaskedArray) and X.dtype.kind == "f"
                else np.asarray(X)
            )
            if X.dtype.kind == "f" and X.ndim == 2 and X.size and np.isnan(X).all():
                return _nothing_observed(X.shape, X.dtype)
    return convert(X)


def columns_by_id(rows: Observed, known: Vocabulary) -> Observed:
    """The rows with their columns in the places of the known ones; entries in unknown columns are left out, with a warning."""
    place = known.indices(rows.column_ids)
    kept = place[rows.rows.indices] != UNKNOWN
    if not kept.all():
        warn_user(
            f"{int((place == UNKNOWN).sum())} of {len(place)} columns were not known to the fit; their {int((~kept).sum())} entries are "
            "left out (partial_fit would add them)",
            UnknownIdsWarning,
        )
    shape = (rows.shape[0], len(known))
    if not kept.any():
        return _nothing_observed(shape, rows.dtype)
    i, j = rows.rows.group_of_entry()[kept], place[rows.rows.indices[kept]]
    return Observed.from_indices(i, j, rows.rows.values[kept], shape)


def _nothing_observed(shape: tuple[int, int], dtype: np.dtype[Any]) -> Observed:
    if min(shape) < 1:
        raise ValueError(f"X must have rows and columns, got shape {shape}")
    values = np.empty(0, np.float32) if dtype == np.float32 else np.empty(0, np.float64)
    return Observed(
        Compressed(np.zeros(shape[0] + 1, np.int64), np.empty(0, np.int32), values), shape
    )


def require_integer(
    name: str, value: Any, low: int, high: int | None = None, why: str = ""
) -> None:
    """An integer from ``low`` to ``high``, or an error that says so."""
    allowed = f"an integer >= {low}" if high is None else f"an integer from {low} to {high}{why}"
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be {allowed}, got {name}={value!r}")
    if int(value) < low or (high is not None and int(value) > high):
        raise ValueError(f"{name} must be {allowed}, got {name}={value!r}")


def require_positive(name: str, value: Any, also: str = "") -> None:
    """A finite number > 0, or an error that says so."""
    allowed = "a finite number > 0" + (f" or {also}" if also else "")
    if isinstance(value, (bool, str)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be {allowed}, got {name}={value!r}")
    if not (np.isfinite(float(value)) and float(value) > 0):
        raise ValueError(f"{name} must be {allowed}, got {name}={value!r}")


def require_bounds(bounds: Any) -> tuple[float, float]:
    """(low, high) with low < high, infinite where one is not wanted; all numbers where ``bounds`` is None."""
    if bounds is None:
        return (-np.inf, np.inf)
    pair = tuple(bounds) if isinstance(bounds, (tuple, list, np.ndarray)) else ()
    if len(pair) != 2 or not all(
        isinstance(end, numbers.Real) and not isinstance(end, bool) for end in pair
    ):
        raise TypeError(
            f"bounds must be None or a pair of numbers (low, high), got bounds={bounds!r}"
        )
    low, high = float(pair[0]), float(pair[1])
    if not low < high:
        raise ValueError(f"bounds must be (low, high) with low < high, got bounds={bounds!r}")
    return low, high


def require_flag(name: str, value: Any, also: str = "") -> None:
    """True or False, or an error that says so."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(
            f"{name} must be True or False"
            + (f" or {also}" if also else "")
            + f", got {name}={value!r}"
        )


def require_callables(name: str, value: Any) -> None:
    """A sequence of functions (None stands for none of them), or an error that says so."""
    if value is not None and not (isinstance(value, (list, tuple)) and all(map(callable, value))):
        raise TypeError(f"{name} must be a list or tuple of functions, got {name}={value!r}")


def require_share(name: str, value: Any) -> None:
    """None, or a number between 0 and 1."""
    if value is None:
        return
    if isinstance(value, (bool, str)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be None or a number between 0 and 1, got {name}={value!r}")
    if not 0 < float(value) < 1:
        raise ValueError(f"{name} must be None or a number between 0 and 1, got {name}={value!r}")


def positions(index: ArrayLike, name: str, size: int) -> NDArray[np.integer[Any]]:
    """Row or column numbers below ``size``, or an error that says so."""
    array = np.asarray(index)
    if array.size == 0:
        return array.astype(np.intp)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got dtype {array.dtype}")
    if array.min() < 0 or array.max() >= size:
        raise ValueError(
            f"{name} must lie in 0 … {size - 1}, got {array.min() if array.min() < 0 else array.max()}"
        )
    return array
