"""The state of a fitted model as plain values and arrays, and its checks.

A model file is not trusted: kernels do not check the indices that they read, so everything that
they use is checked here.
"""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np

from robustmf.exceptions import ModelFileError
from robustmf.losses import Loss

#: Largest number of ids with one hash. Sets and dictionaries compare each of them with all others;
#: integers that are multiples of 2⁶¹ − 1 all have the hash 0.
_MAX_COLLISIONS = 100

#: The names of :meth:`robustmf.model.FittedModel.to_state`.
STATE_NAMES = frozenset(
    {
        "row_factors_",
        "column_factors_",
        "_has_bias",
        "center_",
        "row_bias_",
        "column_bias_",
        "bias_unit_",
        "loss_",
        "theta_",
        "reg_",
        "reg_by_count",
        "median_",
        "scale_",
        "row_ids_",
        "column_ids_",
        "entries_",
        "n_entries_initialized",
        "noise_scales",
        "sigma_",
        "nonnegative_factors",
        "reliability_",
        "row_ridge",
        "bounds_",
        "solver_",
        "solver_reason_",
        "history_",
        "n_iter_",
        "converged_",
        "stop_reason_",
        "best_iteration_",
        "criticality_",
        "candidates_",
        "failed_checks_",
    }
)


#: Those that files of earlier releases do not have: the model then has no such part.
OPTIONAL_NAMES = frozenset(
    {
        "noise_scales",
        "sigma_",
        "nonnegative_factors",
        "reliability_",
        "row_ridge",
        "bounds_",
        "candidates_",
        "failed_checks_",
    }
)

#: Least values of numbers, all of which are finite.
_LEAST = {
    "reg_": 0,
    "bias_unit_": 0,
    "theta_": 0,
    "center_": -np.inf,
    "median_": -np.inf,
    "scale_": 0,
    "n_iter_": 0,
    "best_iteration_": 0,
    "n_entries_initialized": 0,
}

#: Scales of noise, and their inverses, are above this, so that their squares are representable.
_LEAST_SCALE = 1e-153

#: Integers of a history are below this.
_MAX_INTEGER = 2**63

#: Types of ids, besides tuples of them.
_ID_TYPES = (int, float, complex, str, bytes, date, timedelta, UUID, Decimal, np.generic)


def check_state(state: dict[str, Any]) -> None:
    """Raise unless all parts of a state are there, of the right kind, and fit together."""
    m, n = _check_factors(state)
    for name, size in (("row_ids_", m), ("column_ids_", n)):
        _check_ids(name, state.get(name, ()), size)
    _check_entries(state.get("entries_"), (m, n))
    _check_scales(state.get("noise_scales"), (m, n))
    _check_reliability(state.get("reliability_"), state["entries_"])
    _check_bounds(state.get("bounds_"))
    sigma = state.get("sigma_", 0.0)
    if not (isinstance(sigma, float) and np.isfinite(sigma) and sigma >= 0):
        raise ModelFileError(f"sigma_ must be a finite number >= 0, got {sigma!r:.60}")
    _check_signs(state)
    for name in ("candidates_", "failed_checks_"):
        if not isinstance(state.get(name, []), list):
            raise ModelFileError(f"{name} must be a list")
    kinds: dict[str, type | tuple[type, ...]] = {
        "loss_": Loss,
        "reg_": float,
        "theta_": float,
        "center_": float,
        "median_": float,
        "scale_": float,
        "criticality_": float,
        "bias_unit_": float,
        "_has_bias": bool,
        "reg_by_count": bool,
        "n_iter_": int,
        "best_iteration_": int,
        "n_entries_initialized": int,
        "history_": dict,
        "converged_": (bool, np.bool_),
        "stop_reason_": str,
        "solver_": str,
        "solver_reason_": str,
    }
    for name, kind in kinds.items():
        if not isinstance(state.get(name), kind):
            found = type(state.get(name)).__name__
            raise ModelFileError(f"{name} is missing or of the wrong kind: {found}")
    for name, least in _LEAST.items():
        if not (np.isfinite(state[name]) and state[name] >= least):
            raise ModelFileError(f"{name} must be finite and >= {least:g}, got {state[name]}")
    for name in ("theta_", "bias_unit_"):
        if not state[name] > 0:
            raise ModelFileError(f"{name} must be positive, got {state[name]}")
    for name in ("bias_unit_", "scale_"):
        if state[name] and not _LEAST_SCALE < state[name] < 1 / _LEAST_SCALE:
            raise ModelFileError(f"{name} must have a finite square, got {state[name]}")
    if state["theta_"] != state["loss_"].theta:
        raise ModelFileError(
            f"theta_ must be that of loss_, {state['loss_'].theta}, got {state['theta_']}"
        )
    _check_magnitude(state)
    _check_history(state)
    if not state["row_factors_"].shape[1] and not state["_has_bias"]:
        raise ModelFileError("a model without factors must have biases")
    n_factors = state["row_factors_"].shape[1] + state["_has_bias"]
    require_row_ridge(state.get("row_ridge"), n_factors, ModelFileError)


def _check_ids(name: str, ids: Any, size: int) -> None:
    """Raise unless there is one id per row or column, each of them once."""
    if ids is None:
        return
    if not (
        isinstance(ids, (list, tuple, np.ndarray))
        and len(ids) == size
        and getattr(ids, "ndim", 1) == 1
    ):
        raise ModelFileError(f"{name} must hold {size} ids, or None")
    for key in ids:
        if not _is_id(key):
            raise ModelFileError(
                f"{name} cannot contain a {type(key).__name__} such as {key!r:.60}"
            )
    collisions = max(Counter(map(hash, ids)).values(), default=0)
    if collisions > _MAX_COLLISIONS:
        raise ModelFileError(
            f"{name} cannot contain {collisions} ids of one hash, more than {_MAX_COLLISIONS}: "
            "looking them up would take quadratic time"
        )
    if len(set(ids)) < size:
        raise ModelFileError(f"{name} must be distinct")


def _is_id(key: Any) -> bool:
    """Whether a value is of a type that ids can have, and not missing."""
    if isinstance(key, tuple):
        return all(map(_is_id, key))
    if isinstance(key, Decimal):  # a signaling NaN cannot be compared
        return not key.is_nan()
    return isinstance(key, _ID_TYPES) and bool(key == key)


def _check_history(state: dict[str, Any]) -> None:
    """Raise unless the history has numbers for every iteration that other attributes name."""
    history = state["history_"]
    columns = list(history.values())
    if (
        not all(isinstance(column, list) and all(map(_is_number, column)) for column in columns)
        or len({len(column) for column in columns}) > 1
    ):
        raise ModelFileError("history_ must hold lists of numbers of one length")
    if "objective" not in history or not state["best_iteration_"] < len(columns[0]):
        raise ModelFileError("history_ must have the objective of best_iteration_")


def _is_number(value: Any) -> bool:
    """Whether a value is a float, or an integer that can be converted to one."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < _MAX_INTEGER)


def _check_factors(state: dict[str, Any]) -> tuple[int, int]:
    U: Any = state.get("row_factors_")
    V: Any = state.get("column_factors_")
    matrices = isinstance(U, np.ndarray) and isinstance(V, np.ndarray) and U.ndim == V.ndim == 2
    if not matrices or U.shape[1] != V.shape[1] or not len(U) or not len(V):
        raise ModelFileError("row_factors_ and column_factors_ must be matrices of one width")
    m = len(U)
    n = len(V)
    shapes = {
        "row_factors_": U.shape,
        "column_factors_": V.shape,
        "row_bias_": (m,),
        "column_bias_": (n,),
    }
    for name, shape in shapes.items():
        array = state.get(name)
        if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != U.dtype:
            raise ModelFileError(f"{name} must be an array of shape {shape} and dtype {U.dtype}")
        if array.dtype not in (np.float32, np.float64) or not np.isfinite(array).all():
            raise ModelFileError(
                f"{name} must hold finite float32 or float64 numbers, got dtype {array.dtype}"
            )
    return m, n


def _check_magnitude(state: dict[str, Any]) -> None:
    """Raise if squares of entries, factors or predictions may overflow: no fit has such values."""
    names = ("row_factors_", "column_factors_", "row_bias_", "column_bias_")
    u, v, row_bias, column_bias = (float(np.abs(state[name]).max(initial=0)) for name in names)
    rank = state["row_factors_"].shape[1]
    prediction = abs(state["center_"]) + row_bias + column_bias + rank * u * v
    entry = float(np.abs(state["entries_"]["values"]).max())
    weights = state["entries_"].get("weights")
    weight = 0.0 if weights is None else float(weights.max())
    found = max(entry, weight, u, v, prediction)
    largest = float(np.finfo(state["row_factors_"].dtype).max) ** 0.5
    if not found < largest:
        raise ModelFileError(
            f"entries, weights, factors and predictions must be below {largest:.3g} in size, "
            f"got {found:.3g}"
        )


def _check_signs(state: dict[str, Any]) -> None:
    """Raise unless factors that are declared to be non-negative are, and have no biases."""
    nonnegative = state.get("nonnegative_factors", False)
    if not isinstance(nonnegative, bool):
        raise ModelFileError(f"nonnegative_factors must be a bool, got {nonnegative!r:.60}")
    factors = (state["row_factors_"], state["column_factors_"])
    if nonnegative and (state.get("_has_bias") or any((A < 0).any() for A in factors)):
        raise ModelFileError("non-negative factors must be >= 0, and have no biases")


def _check_scales(scales: Any, shape: tuple[int, int]) -> None:
    """Raise unless there is a positive scale per row and column, or None (no scales)."""
    if scales is None:
        return
    valid = isinstance(scales, (tuple, list)) and len(scales) == 2
    for of_side, size in zip(scales, shape, strict=True) if valid else ():
        valid &= (
            isinstance(of_side, np.ndarray)
            and of_side.shape == (size,)
            and of_side.dtype in (np.float32, np.float64)
            and bool(((of_side > _LEAST_SCALE) & (of_side < 1 / _LEAST_SCALE)).all())
        )
    if not valid:
        raise ModelFileError(
            f"noise_scales must be two vectors of {shape[0]} and {shape[1]} positive numbers"
        )


def require_row_ridge(ridge: Any, n_factors: int, error: type[ValueError]) -> None:
    """Raise unless there are two numbers ≥ 0 per factor, or None."""
    if ridge is None:
        return
    valid = (
        isinstance(ridge, np.ndarray)
        and ridge.shape == (2, n_factors)
        and ridge.dtype == np.float64
        and bool((np.isfinite(ridge) & (ridge >= 0)).all())
    )
    if not valid:
        raise error(f"row_ridge must be two numbers >= 0 for each of {n_factors} factors")


def _check_reliability(reliability: Any, entries: dict[str, Any]) -> None:
    """Raise unless there is a number from 0 to 1 per entry, or None."""
    if reliability is None:
        return
    if not (
        isinstance(reliability, np.ndarray)
        and set(entries) == _ALL_ENTRIES
        and reliability.shape == entries["values"].shape
        and reliability.dtype == np.float32
        and bool(((reliability >= 0) & (reliability <= 1)).all())
    ):
        raise ModelFileError(
            "reliability_ must be one float32 number from 0 to 1 per entry, or None"
        )


def _check_bounds(bounds: Any) -> None:
    """Raise unless these are two numbers in ascending order, or None."""
    if bounds is None:
        return
    valid = isinstance(bounds, tuple) and len(bounds) == 2
    if not (valid and all(isinstance(end, float) for end in bounds) and bounds[0] < bounds[1]):
        raise ModelFileError(f"bounds_ must be (low, high), got {bounds!r:.60}")


_ALL_ENTRIES = {"pointers", "indices", "values", "weights"}
_SAMPLED_ENTRIES = {"row_counts", "column_counts", "rows", "columns", "values"}


def _check_entries(entries: Any, shape: tuple[int, int]) -> None:
    """Raise unless the entries are valid: kernels do not check the indices that they read."""
    if isinstance(entries, dict) and set(entries) == _SAMPLED_ENTRIES:
        _check_sampled_entries(entries, shape)
        return
    if not isinstance(entries, dict) or set(entries) != _ALL_ENTRIES:
        raise ModelFileError("entries_ must hold pointers, indices, values and weights")
    dtypes = {"pointers": (np.int64,), "indices": (np.int32,), "values": (np.float32, np.float64)}
    for name, allowed in dtypes.items():
        array = entries[name]
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype not in allowed:
            names = ", ".join(kind.__name__ for kind in allowed)
            raise ModelFileError(f"{name} of entries_ must be a vector of {names}")
    pointers = entries["pointers"]
    indices = entries["indices"]
    values = entries["values"]
    weights = entries["weights"]
    consistent = (
        len(pointers) == shape[0] + 1
        and pointers[0] == 0
        and (np.diff(pointers) >= 0).all()
        and pointers[-1] == len(indices) == len(values)
        and len(indices) > 0
        and indices.min() >= 0
        and indices.max() < shape[1]
        and np.isfinite(values).all()
        and _ascend_within_rows(pointers, indices)
    )
    if not consistent:
        raise ModelFileError(f"entries_ must be finite values of a matrix of shape {shape}")
    if weights is not None and not (
        isinstance(weights, np.ndarray)
        and weights.shape == values.shape
        and weights.dtype == values.dtype
        and np.isfinite(weights).all()
        and weights.min() >= 0
    ):
        raise ModelFileError("weights of entries_ must be one number >= 0 per entry, or None")


def _ascend_within_rows(pointers: Any, indices: Any) -> bool:
    """Whether the columns of each row ascend, so that no entry occurs twice."""
    ascends = np.ones(len(indices) + 1, bool)
    ascends[1:-1] = indices[1:] > indices[:-1]
    ascends[pointers] = True  # between two rows
    return bool(ascends.all())


def _check_sampled_entries(entries: dict[str, Any], shape: tuple[int, int]) -> None:
    """The same for a fit on a cluster, which keeps a sample of its entries."""
    counts = [entries["row_counts"], entries["column_counts"]]
    indices = [entries["rows"], entries["columns"]]
    values = entries["values"]
    if not all(
        isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype == np.int64
        for array in (*counts, *indices)
    ):
        raise ModelFileError("counts, rows and columns of entries_ must be vectors of int64")
    if not (
        isinstance(values, np.ndarray)
        and values.ndim == 1
        and values.dtype in (np.float32, np.float64)
        and np.isfinite(values).all()
    ):
        raise ModelFileError("values of entries_ must be a vector of finite float32 or float64")
    for count, index, size in zip(counts, indices, shape, strict=True):
        inside = len(index) == len(values) > 0 and index.min() >= 0 and index.max() < size
        if len(count) != size or (count < 0).any() or not inside:
            raise ModelFileError(
                f"entries_ must be counts and indices of a matrix of shape {shape}"
            )
