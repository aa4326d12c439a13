"""Checks of parameters; errors name the parameter, its value and what is allowed."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Bounds of predictions that are not clipped.
UNBOUNDED = (-np.inf, np.inf)


def as_generator(random_state: Any) -> np.random.Generator:
    """A Generator from a seed, a Generator, or scikit-learn's RandomState."""
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**31 - 1)
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise TypeError(
            "random_state must be None, an integer >= 0 or a Generator, "
            f"got random_state={random_state!r}"
        ) from None


def require_integer(
    name: str,
    value: Any,
    low: int,
    high: int | None = None,
    reason: str = "",
    also: str = "",
) -> None:
    """Raise unless ``value`` is an integer from ``low`` to ``high``."""
    allowed = f"an integer >= {low}" if high is None else f"an integer from {low} to {high}{reason}"
    allowed += f" or {also}" if also else ""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be {allowed}, got {name}={value!r}")
    if int(value) < low or (high is not None and int(value) > high):
        raise ValueError(f"{name} must be {allowed}, got {name}={value!r}")


def require_rank(rank: Any, shape: tuple[int, int] | None = None) -> None:
    """Raise unless ``rank`` is "auto" or an integer from 1 to the smaller side of the matrix.

    Without ``shape``, before the data are read, there is no upper bound.
    """
    if isinstance(rank, str) and rank == "auto":
        return
    high = None if shape is None else min(shape)
    reason = "" if shape is None else f" = min{shape}"
    require_integer("rank", rank, 1, high, reason, also="'auto'")


def require_positive(name: str, value: Any, also: str = "", zero: bool = False) -> None:
    """Raise unless ``value`` is a finite number > 0, or ≥ 0 if ``zero`` is allowed."""
    allowed = f"a finite number >{'=' if zero else ''} 0" + (f" or {also}" if also else "")
    if isinstance(value, (bool, str)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be {allowed}, got {name}={value!r}")
    if not (np.isfinite(float(value)) and (float(value) > 0 or (zero and float(value) == 0))):
        raise ValueError(f"{name} must be {allowed}, got {name}={value!r}")


def require_bounds(bounds: Any) -> tuple[float, float]:
    """``bounds`` as (low, high) with low < high; infinite where ``bounds`` is None."""
    if bounds is None:
        return UNBOUNDED
    pair = tuple(bounds) if isinstance(bounds, (tuple, list, np.ndarray)) else ()
    if len(pair) != 2 or not all(
        isinstance(end, numbers.Real) and not isinstance(end, bool) for end in pair
    ):
        raise TypeError(
            f"bounds must be 'auto', None or a pair of numbers (low, high), got bounds={bounds!r}"
        )
    low = float(pair[0])
    high = float(pair[1])
    if not low < high:
        raise ValueError(f"bounds must be (low, high) with low < high, got bounds={bounds!r}")
    return low, high


def require_flag(name: str, value: Any, also: str = "") -> None:
    """Raise unless ``value`` is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        allowed = "True or False" + (f" or {also}" if also else "")
        raise TypeError(f"{name} must be {allowed}, got {name}={value!r}")


def require_callables(name: str, value: Any) -> None:
    """Raise unless ``value`` is None, or a list or tuple of functions."""
    if value is not None and not (isinstance(value, (list, tuple)) and all(map(callable, value))):
        raise TypeError(f"{name} must be a list or tuple of functions, got {name}={value!r}")


def require_fraction(name: str, value: Any) -> None:
    """Raise unless ``value`` is None or a number between 0 and 1."""
    if value is None:
        return
    if isinstance(value, (bool, str)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be None or a number between 0 and 1, got {name}={value!r}")
    if not 0 < float(value) < 1:
        raise ValueError(f"{name} must be None or a number between 0 and 1, got {name}={value!r}")


def require_score(name: str, value: Any) -> None:
    """Raise unless ``value`` is a number from 0 to 1, as scores are."""
    if isinstance(value, (bool, str)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number from 0 to 1, got {name}={value!r}")
    if not 0 <= float(value) <= 1:
        raise ValueError(f"{name} must be a number from 0 to 1, got {name}={value!r}")


def require_indices(name: str, value: ArrayLike, size: int) -> NDArray[np.integer[Any]]:
    """``value`` as an array of integers from 0 to ``size`` − 1."""
    array = np.asarray(value)
    if array.size == 0:
        return array.astype(np.intp)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got dtype {array.dtype}")
    lowest = array.min()
    if lowest < 0 or array.max() >= size:
        worst = lowest if lowest < 0 else array.max()
        raise ValueError(f"{name} must lie in 0 … {size - 1}, got {worst}")
    return array
