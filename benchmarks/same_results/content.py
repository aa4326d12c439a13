"""The fields of a result, and what a record stores of each."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.same_results.library import Array
from robustmf import Observed

#: Attributes of a fitted model that are recorded, where it has them.
ATTRIBUTES = (
    "row_factors_",
    "column_factors_",
    "row_bias_",
    "column_bias_",
    "center_",
    "bias_unit_",
    "has_bias_",
    "theta_",
    "reg_",
    "solver_",
    "n_iter_",
    "best_iteration_",
    "converged_",
    "criticality_",
    "median_",
    "scale_",
    "bounds_",
    "n_features_in_",
    "row_ids_",
    "column_ids_",
    "history_",
)
WORDING = ("stop_reason_", "solver_reason_")

#: Number of values of an array that are stored, evenly spaced.
SAMPLE = 4


def flatten(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of a result, each as what a record stores of it."""
    prefix = f"{name}." if name else ""
    if hasattr(value, "row_factors_"):
        for attribute in ATTRIBUTES:
            if hasattr(value, attribute):
                yield from flatten(getattr(value, attribute), prefix + attribute)
        for attribute in WORDING:
            if hasattr(value, attribute):
                yield f"text.{prefix}{attribute}", str(getattr(value, attribute))
    elif isinstance(value, Observed):
        yield from flatten(value.to_sparse(), name)
        yield from flatten(value.row_ids, f"{prefix}row_ids")
        yield from flatten(value.column_ids, f"{prefix}column_ids")
    elif sp.issparse(value):
        for part in ("indptr", "indices", "data"):
            yield from flatten(getattr(value, part), prefix + part)
    elif isinstance(value, dict):
        for key, part in value.items():
            if key != "seconds":
                yield from flatten(part, f"{prefix}{key}")
    elif is_dataclass(value):
        yield from flatten({part.name: getattr(value, part.name) for part in fields(value)}, name)
    elif hasattr(value, "iloc"):  # a pandas table or series, by the positions of its columns
        yield from flatten(value.index.to_numpy(), f"{prefix}index")
        columns = [value] if value.ndim == 1 else [value.iloc[:, k] for k in range(value.shape[1])]
        for k, column in enumerate(columns):
            yield from flatten(column.to_numpy(), f"{prefix}column{k}")
    elif isinstance(value, np.ndarray):
        yield name, stored_array(value)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        if len(value) and all(is_number(one) for one in value):
            yield name, stored_array(np.asarray(value))
        elif all(
            isinstance(one, (str, int, float, tuple, type(None), np.generic)) for one in value
        ):
            yield name, stored_array(np.array([*value, None], object)[:-1])
        else:
            for k, part in enumerate(value):
                yield from flatten(part, f"{prefix}{k}")
    elif isinstance(value, np.generic):
        yield name, value.item()
    elif value is None or isinstance(value, (bool, int, float, str)):
        yield name, value
    else:
        raise TypeError(f"{name}: a {type(value).__name__} cannot be recorded")


def is_number(value: Any) -> bool:
    """Return whether a value is a number, Python's or NumPy's."""
    return isinstance(value, (bool, int, float, np.number, np.bool_))


def stored_array(array: Array) -> dict[str, Any]:
    """Return the SHA-256 of an array, and some numbers to measure a difference by."""
    if array.dtype.kind not in "biuf":
        labels = [
            one.item() if isinstance(one, np.generic) else one for one in array.ravel().tolist()
        ]
        content = repr(labels).encode()
        return {
            "sha256": hashlib.sha256(content).hexdigest(),
            "dtype": "labels",
            "shape": list(array.shape),
        }
    flat = np.ascontiguousarray(array).ravel()
    stored: dict[str, Any] = {
        "sha256": hashlib.sha256(flat.tobytes()).hexdigest(),
        "dtype": array.dtype.name,
        "shape": list(array.shape),
    }
    if flat.size:
        wide = flat.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        chosen = np.linspace(0, flat.size - 1, min(SAMPLE, flat.size)).astype(np.int64)
        with np.errstate(over="ignore"):
            square = float(np.einsum("t,t->", finite, finite))
        stored["rms"] = math.sqrt(square / max(finite.size, 1))
        stored["values"] = wide[chosen].tolist()
    return stored
