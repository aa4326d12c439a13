"""What the page of a fit shows, as a record of plain numbers and texts: computed here, drawn elsewhere."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import astuple
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from robustmf.estimator import RobustMF
from robustmf.report import cloud
from robustmf.report.summary import summary

#: Suspects of each kind on the page; points of each side on the map; bars of the histogram.
_LISTED, _MAPPED, _BARS = 200, 1500, 101

#: Residuals farther out than so many times this quantile of them are counted in the last bar.
_QUANTILE, _REACH = 0.9, 6.0


def fit_record(model: RobustMF, *, tracks: bool = False, at_most: float = 0.01) -> dict[str, Any]:
    """Everything that the page says."""
    check_is_fitted(model)
    audit = model.audit(top=_LISTED, at_most=at_most)
    residual = np.asarray(model.model_.residuals(model.model_.fitted_entries()), np.float64)
    record = {
        "facts": summary(model),
        "good_share": audit.clean_share,
        "at_most": at_most,
        "history": {
            name: list(map(float, model.history_[name]))
            for name in ("objective", "seconds", "validation")
            if name in model.history_
        },
        "best_iteration": model.best_iteration_,
        "residuals": _histogram(model, residual),
        "entries": [astuple(one) for one in audit.entries],
        "rows": [astuple(one) for one in audit.rows],
        "columns": [astuple(one) for one in audit.columns],
        "map": _map(model, {one.id for one in audit.rows}, {one.id for one in audit.columns}),
        "repeat": _repeat(model),
    }
    if tracks:
        record["cloud"] = _cloud(model, residual)
    return record


def _histogram(model: RobustMF, residual: NDArray[np.float64]) -> dict[str, Any]:
    """Counts of residuals, and how far the loss trusts an entry with that residual."""
    size = np.abs(residual)
    reach = min(float(size.max()), _REACH * float(np.quantile(size, _QUANTILE))) or 1.0
    edges = np.linspace(-reach, reach, _BARS + 1)
    counts = np.histogram(np.clip(residual, -reach, reach), edges)[0]
    centers = (edges[:-1] + edges[1:]) / 2
    of = model.loss_.derivative if model.loss_.concave else model.loss_.weight
    weights = of(centers) / of(np.zeros(1))
    return {
        "centers": centers.tolist(),
        "counts": counts.tolist(),
        "weights": weights.tolist(),
        "beyond": int((size > reach).sum()),
    }


def _map(model: RobustMF, rows: set[Any], columns: set[Any]) -> dict[str, Any] | None:
    """Rows and columns along the two main axes of the predictions U Vᵀ = P S Qᵀ, at P√S and Q√S; None for rank 1."""
    U, V = np.asarray(model.row_factors_, np.float64), np.asarray(model.column_factors_, np.float64)
    if U.shape[1] < 2:
        return None
    (Pu, Ru), (Qv, Rv) = np.linalg.qr(U), np.linalg.qr(V)
    left, spread, right = np.linalg.svd(Ru @ Rv.T)
    places = ((Pu @ left[:, :2]) * np.sqrt(spread[:2]), (Qv @ right[:2].T) * np.sqrt(spread[:2]))
    sides = (
        ("rows", places[0], model.row_ids_, rows),
        ("columns", places[1], model.column_ids_, columns),
    )
    mapped = {
        name: _points(at, range(len(at)) if ids is None else ids, suspects)
        for name, at, ids, suspects in sides
    }
    total = float(np.square(spread).sum()) or 1.0
    return {**mapped, "share": float(np.square(spread[:2]).sum()) / total}


def _points(at: NDArray[np.float64], ids: Any, suspects: set[Any]) -> dict[str, Any]:
    chosen = set(np.linspace(0, len(at) - 1, min(_MAPPED, len(at))).astype(int).tolist())
    chosen |= {k for k, key in enumerate(ids) if key in suspects} if suspects else set()
    kept = sorted(chosen)
    return {
        "x": at[kept, 0].tolist(),
        "y": at[kept, 1].tolist(),
        "ids": [ids[k] for k in kept],
        "suspicious": [ids[k] in suspects for k in kept],
        "of": len(at),
    }


def _cloud(model: RobustMF, residual: NDArray[np.float64]) -> dict[str, Any]:
    """The points in space, and the mean absolute residual of each."""
    at = cloud.points(model.row_factors_, model.column_factors_)
    j, n = model.entries_["indices"], len(at)
    seen = np.bincount(j, minlength=n)
    error = np.bincount(j, np.abs(residual), n) / np.maximum(seen, 1)
    ids = list(range(n)) if model.column_ids_ is None else list(model.column_ids_)
    return {"points": at.tolist(), "errors": error.tolist(), "seen": seen.tolist(), "ids": ids}


def _repeat(model: RobustMF) -> dict[str, str]:
    """What is needed to make the same fit again."""
    entries = model.entries_
    sealed = hashlib.sha256()
    for name in ("pointers", "indices", "values", "weights"):
        if entries[name] is not None:
            sealed.update(np.ascontiguousarray(entries[name]).data)
    shown = ", ".join(
        f"{name}={value!r}"
        for name, value in model.get_params(deep=False).items()
        if name not in ("verbose", "callbacks")
    )
    versions = ["robustmf", "numpy", "scipy", "numba", "scikit-learn"]
    return {
        "model": f"{type(model).__name__}({shown})",
        "random start": "fixed by random_state"
        if model.random_state is not None
        else "not fixed: random_state=None starts elsewhere each time",
        "entries": f"SHA-256 {sealed.hexdigest()[:16]} of their places, values and weights",
        "versions": ", ".join(
            [
                f"Python {platform.python_version()}",
                *(f"{name} {_version(name)}" for name in versions),
            ]
        ),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "?"
