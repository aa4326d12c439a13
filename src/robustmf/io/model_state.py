"""The state of a fitted model as plain values and arrays, and its checks.

A model file is not trusted: kernels do not check the indices that they read, so everything that
they use is checked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from robustmf.exceptions import ModelFileError
from robustmf.losses import Loss

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
        "solver_",
        "solver_reason_",
        "history_",
        "n_iter_",
        "converged_",
        "stop_reason_",
        "best_iteration_",
        "criticality_",
    }
)


def check_state(state: dict[str, Any]) -> None:
    """Raise unless all parts of a state are there, of the right kind, and fit together."""
    m, n = _check_factors(state)
    for name, size in (("row_ids_", m), ("column_ids_", n)):
        ids = state.get(name, ())
        if ids is not None and not (
            isinstance(ids, (list, tuple, np.ndarray)) and len(ids) == size
        ):
            raise ModelFileError(f"{name} must hold {size} ids, or None")
    _check_entries(state.get("entries_"), (m, n))
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
    for name in ("reg_", "bias_unit_", "theta_", "center_", "median_", "scale_"):
        if not np.isfinite(state[name]):
            raise ModelFileError(f"{name} must be finite, got {state[name]}")


def _check_factors(state: dict[str, Any]) -> tuple[int, int]:
    U: Any = state.get("row_factors_")
    V: Any = state.get("column_factors_")
    matrices = isinstance(U, np.ndarray) and isinstance(V, np.ndarray) and U.ndim == V.ndim == 2
    if not matrices or U.shape[1] != V.shape[1] or not U.size or not V.size:
        raise ModelFileError("row_factors_ and column_factors_ must be matrices of one width")
    m, n = len(U), len(V)
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
    )
    if not consistent:
        raise ModelFileError(f"entries_ must be finite values of a matrix of shape {shape}")
    if weights is not None and not (
        isinstance(weights, np.ndarray)
        and weights.shape == values.shape
        and weights.dtype == values.dtype
    ):
        raise ModelFileError("weights of entries_ must be one number per entry, or None")


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
