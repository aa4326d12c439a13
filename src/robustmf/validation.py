"""What the estimator checks of its parameters and arguments: errors that name the parameter, the value and what is allowed."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robustmf.exceptions import EmptyRowsWarning
from robustmf.observed import Observed

Array = NDArray[np.floating[Any]]


def generator(random_state: Any) -> np.random.Generator:
    """A Generator from a seed, a Generator, or scikit-learn's RandomState."""
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**31 - 1)
    return np.random.default_rng(random_state)


def warn_of_empty(observed: Observed, bias: bool) -> None:
    """Warn, once a fit, of rows and columns without an entry."""
    rows = int((observed.rows.counts == 0).sum())
    columns = int((observed.columns.counts == 0).sum())
    if rows or columns:
        warnings.warn(
            f"{rows} of {observed.shape[0]} rows and {columns} of {observed.shape[1]} columns have no observed entry; "
            "their factors are zero, and predictions there are " + ("those of the biases" if bias else "zero"),
            EmptyRowsWarning,
            stacklevel=3,
        )


def entry_weights(sample_weight: ArrayLike, observed: Observed) -> Array:
    """One weight an entry, in row order, in the precision of the entries."""
    weights = np.asarray(sample_weight)
    if weights.dtype.kind not in "iuf":
        raise TypeError(f"sample_weight must hold numbers, got dtype {weights.dtype}")
    if weights.shape == observed.shape:
        weights = weights[np.asarray(observed.rows.group_of_entry()), np.asarray(observed.rows.indices)]
    if weights.shape != (observed.n_entries,):
        raise ValueError(
            f"sample_weight must have one number an observed entry, ({observed.n_entries},), or the shape of X, {observed.shape}; "
            f"got shape {weights.shape}"
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise ValueError("sample_weight must be finite, >= 0 and not all 0")
    return weights.astype(observed.dtype)


def require_integer(name: str, value: Any, low: int, high: int | None = None, why: str = "") -> None:
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


def positions(index: ArrayLike, name: str, size: int) -> NDArray[np.integer[Any]]:
    """Row or column numbers below ``size``, or an error that says so."""
    array = np.asarray(index)
    if array.size == 0:
        return array.astype(np.intp)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got dtype {array.dtype}")
    if array.min() < 0 or array.max() >= size:
        raise ValueError(f"{name} must lie in 0 … {size - 1}, got {array.min() if array.min() < 0 else array.max()}")
    return array
