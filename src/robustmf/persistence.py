"""Models from files: what :meth:`RobustMF.save <robustmf.RobustMF.save>` wrote, checked before use."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from robustmf.estimator import RMFNL, RobustMF
from robustmf.exceptions import ModelFileError
from robustmf.io.model_file import Saved, read
from robustmf.losses import Loss

_KINDS: dict[str, type[RobustMF]] = {cls.__name__: cls for cls in (RobustMF, RMFNL)}


def load(path: str | os.PathLike[str]) -> RobustMF:
    """The model that ``model.save(path)`` wrote, equal to it bit for bit. Nothing in the file is ever executed.

    Raises
    ------
    ModelFileError
        For a file that is damaged, truncated, of another version, no model file at all, or whose parts do not fit together.

    Examples
    --------
    >>> import numpy as np
    >>> import robustmf
    >>> model = robustmf.RobustMF(rank=1, random_state=0).fit(np.outer(np.arange(1.0, 13), np.arange(1.0, 9)))
    >>> model.save("model.robustmf")
    >>> bool(robustmf.load("model.robustmf").predict(3, 4) == model.predict(3, 4))
    True
    """
    saved = read(path)
    try:
        return _restore(saved)
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)}: {error}") from error.__cause__


def _restore(saved: Saved) -> RobustMF:
    if saved.kind not in _KINDS:
        raise ModelFileError(f"it holds a {saved.kind!r}; this release knows {', '.join(_KINDS)}")
    cls = _KINDS[saved.kind]
    known = cls().get_params(deep=False)
    if set(saved.parameters) != set(known):
        raise ModelFileError(
            f"{saved.kind} has other parameters than the file: {sorted(set(saved.parameters) ^ set(known))} differ"
        )
    reserved = sorted(
        name
        for name in saved.state
        if not name.isidentifier() or hasattr(cls, name) or name in known
    )
    if reserved:
        raise ModelFileError(f"{saved.kind} cannot have fitted attributes named {reserved}")
    _check_state(saved.state)
    model = cls(**saved.parameters)
    model.__dict__.update(saved.state)
    model.components_ = model.column_factors_.T
    return model


def _check_state(state: dict[str, Any]) -> None:
    """The arrays of a fit and their shapes fit together."""
    U, V = state.get("row_factors_"), state.get("column_factors_")
    if not (
        isinstance(U, np.ndarray)
        and isinstance(V, np.ndarray)
        and U.ndim == V.ndim == 2
        and U.shape[1] == V.shape[1]
        and U.size
        and V.size
    ):
        raise ModelFileError("row_factors_ and column_factors_ must be matrices of one width")
    (m, _), (n, _) = U.shape, V.shape
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
    for name, size in (("row_ids_", m), ("column_ids_", n)):
        ids = state.get(name, ())
        if ids is not None and not (
            isinstance(ids, (list, tuple, np.ndarray)) and len(ids) == size
        ):
            raise ModelFileError(f"{name} must hold {size} ids, or None")
    _check_entries(state.get("entries_"), (m, n))
    kinds: dict[str, type | tuple[type, ...]] = {
        "loss_": Loss, "reg_": float, "theta_": float, "center_": float, "median_": float, "scale_": float, "criticality_": float,
        "bias_unit_": float,
        "_has_bias": bool, "n_features_in_": int, "n_iter_": int, "best_iteration_": int, "_started_with": int, "history_": dict,
        "converged_": (bool, np.bool_), "stop_reason_": str, "solver_": str, "solver_reason_": str,
    }  # fmt: skip
    for name, kind in kinds.items():
        if not isinstance(state.get(name), kind):
            raise ModelFileError(
                f"{name} is missing or of the wrong kind: {type(state.get(name)).__name__}"
            )
    for name in ("reg_", "bias_unit_", "theta_", "center_", "median_", "scale_"):
        if not np.isfinite(state[name]):
            raise ModelFileError(f"{name} must be finite, got {state[name]}")
    if state["n_features_in_"] != n:
        raise ModelFileError(f"n_features_in_ must be {n}, got {state['n_features_in_']}")


def _check_entries(entries: Any, shape: tuple[int, int]) -> None:
    """The fitted entries are what :class:`Observed` would hold: kernels look up what these name without asking again."""
    if isinstance(entries, dict) and set(entries) == {
        "row_counts",
        "column_counts",
        "rows",
        "columns",
        "values",
    }:
        _check_some_entries(entries, shape)
        return
    if not isinstance(entries, dict) or set(entries) != {
        "pointers",
        "indices",
        "values",
        "weights",
    }:
        raise ModelFileError("entries_ must hold pointers, indices, values and weights")
    pointers, indices, values, weights = (
        entries[name] for name in ("pointers", "indices", "values", "weights")
    )
    dtypes = {"pointers": (np.int64,), "indices": (np.int32,), "values": (np.float32, np.float64)}
    for name, allowed in dtypes.items():
        array = entries[name]
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype not in allowed:
            raise ModelFileError(
                f"{name} of entries_ must be a vector of {', '.join(kind.__name__ for kind in allowed)}"
            )
    fits = (
        len(pointers) == shape[0] + 1
        and pointers[0] == 0
        and (np.diff(pointers) >= 0).all()
        and pointers[-1] == len(indices) == len(values)
    )
    if (
        not fits
        or not len(indices)
        or indices.min() < 0
        or indices.max() >= shape[1]
        or not np.isfinite(values).all()
    ):
        raise ModelFileError(
            f"entries_ must be finite values at places of a matrix of shape {shape}"
        )
    if weights is not None and not (
        isinstance(weights, np.ndarray)
        and weights.shape == values.shape
        and weights.dtype == values.dtype
    ):
        raise ModelFileError("weights of entries_ must be one number an entry, or None")


def _check_some_entries(entries: dict[str, Any], shape: tuple[int, int]) -> None:
    """What a fit on a cluster keeps: some entries by their places, and how many each row and column has."""
    counts, places, values = (
        [entries["row_counts"], entries["column_counts"]],
        [entries["rows"], entries["columns"]],
        entries["values"],
    )
    if not all(
        isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype == np.int64
        for array in (*counts, *places)
    ):
        raise ModelFileError("counts, rows and columns of entries_ must be vectors of int64")
    if not (
        isinstance(values, np.ndarray)
        and values.ndim == 1
        and values.dtype in (np.float32, np.float64)
        and np.isfinite(values).all()
    ):
        raise ModelFileError("values of entries_ must be a vector of finite float32 or float64")
    for count, place, size in zip(counts, places, shape, strict=True):
        inside = len(place) == len(values) > 0 and place.min() >= 0 and place.max() < size
        if len(count) != size or (count < 0).any() or not inside:
            raise ModelFileError(f"entries_ must be counts and places of a matrix of shape {shape}")
