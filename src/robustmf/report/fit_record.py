"""The record of a fit: all that its page displays, as numbers and strings."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import astuple, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from robustmf.estimator import RobustMF
from robustmf.report.structure_from_motion import scene_points
from robustmf.report.summary import summary


@dataclass(frozen=True)
class PageOptions:
    """Amount of detail on a page, which limits its size."""

    #: Maximum number of suspicious entries, rows and columns, of each.
    max_suspects: int = 200
    #: Maximum number of rows and of columns on the factor map, apart from suspicious ones.
    max_points: int = 1500
    #: Number of bins of the histogram of residuals.
    n_bins: int = 101
    #: The range of the histogram is this multiple of this quantile of the absolute residuals.
    range_quantile: float = 0.9
    range_factor: float = 6.0


_OPTIONS = PageOptions()

_PACKAGES = ("robustmf", "numpy", "scipy", "numba", "scikit-learn")


def fit_record(model: RobustMF, *, tracks: bool = False, at_most: float = 0.01) -> dict[str, Any]:
    """Compute the record of a fit.

    Parameters
    ----------
    model : RobustMF
        A fitted estimator.
    tracks : bool, default=False
        Whether the rows are x and y of points in frames; adds the points in space.
    at_most : float, default=0.01
        Entries, rows and columns with a score of at most this value are listed.

    Returns
    -------
    record : dict
        What :func:`robustmf.report.fit_page.write` draws.
    """
    check_is_fitted(model)
    audit = model.audit(top=_OPTIONS.max_suspects, at_most=at_most)
    residuals = np.asarray(model.model_.residuals(model.model_.fitted_entries()), np.float64)
    record = {
        "summary": summary(model),
        "clean_share": audit.clean_share,
        "at_most": at_most,
        "history": {
            name: list(map(float, model.history_[name]))
            for name in ("objective", "seconds", "validation")
            if name in model.history_
        },
        "best_iteration": model.best_iteration_,
        "residuals": _histogram(model, residuals),
        "entries": [astuple(one) for one in audit.entries],
        "rows": [astuple(one) for one in audit.rows],
        "columns": [astuple(one) for one in audit.columns],
        "map": _factor_map(
            model, {one.id for one in audit.rows}, {one.id for one in audit.columns}
        ),
        "reproduction": _reproduction(model),
    }
    if tracks:
        record["scene"] = _scene(model, residuals)
    return record


def _histogram(model: RobustMF, residuals: NDArray[np.float64]) -> dict[str, Any]:
    """Return the histogram of the residuals and the weight that the loss assigns to each bin."""
    size = np.abs(residuals)
    limit = _OPTIONS.range_factor * float(np.quantile(size, _OPTIONS.range_quantile))
    limit = min(float(size.max()), limit) or 1.0
    edges = np.linspace(-limit, limit, _OPTIONS.n_bins + 1)
    counts = np.histogram(np.clip(residuals, -limit, limit), edges)[0]
    centers = (edges[:-1] + edges[1:]) / 2
    weight = model.loss_.derivative if model.loss_.concave else model.loss_.weight
    return {
        "centers": centers.tolist(),
        "counts": counts.tolist(),
        "weights": (weight(centers) / weight(np.zeros(1))).tolist(),
        "beyond": int((size > limit).sum()),
    }


def _factor_map(model: RobustMF, rows: set[Any], columns: set[Any]) -> dict[str, Any] | None:
    """Return the coordinates P√S and Q√S along the first two axes of U Vᵀ = P S Qᵀ.

    The map is None for rank 1. ``rows`` and ``columns`` are the ids of suspicious ones.
    """
    U = np.asarray(model.row_factors_, np.float64)
    V = np.asarray(model.column_factors_, np.float64)
    if U.shape[1] < 2:
        return None
    Qu, Ru = np.linalg.qr(U)
    Qv, Rv = np.linalg.qr(V)
    left, singular, right = np.linalg.svd(Ru @ Rv.T)
    root = np.sqrt(singular[:2])
    total = float(np.square(singular).sum()) or 1.0
    return {
        "rows": _map_points((Qu @ left[:, :2]) * root, model.row_ids_, rows),
        "columns": _map_points((Qv @ right[:2].T) * root, model.column_ids_, columns),
        "share": float(np.square(singular[:2]).sum()) / total,
    }


def _map_points(coordinates: NDArray[np.float64], ids: Any, suspects: set[Any]) -> dict[str, Any]:
    """Return evenly spaced points of the map and all suspicious ones."""
    n = len(coordinates)
    ids = range(n) if ids is None else ids
    chosen = set(np.linspace(0, n - 1, min(_OPTIONS.max_points, n)).astype(int).tolist())
    if suspects:
        chosen |= {k for k, key in enumerate(ids) if key in suspects}
    indices = sorted(chosen)
    return {
        "x": coordinates[indices, 0].tolist(),
        "y": coordinates[indices, 1].tolist(),
        "ids": [ids[k] for k in indices],
        "suspicious": [ids[k] in suspects for k in indices],
        "of": n,
    }


def _scene(model: RobustMF, residuals: NDArray[np.float64]) -> dict[str, Any]:
    """Return the points in space and the mean absolute residual of each."""
    points = scene_points(model.row_factors_, model.column_factors_)
    n = len(points)
    j = model.entries_["indices"]
    counts = np.bincount(j, minlength=n)
    errors = np.bincount(j, np.abs(residuals), n) / np.maximum(counts, 1)
    ids = list(range(n)) if model.column_ids_ is None else list(model.column_ids_)
    return {
        "points": points.tolist(),
        "errors": errors.tolist(),
        "counts": counts.tolist(),
        "ids": ids,
    }


def _reproduction(model: RobustMF) -> dict[str, str]:
    """Return what is needed to repeat the fit."""
    entries = model.entries_
    checksum = hashlib.sha256()
    for name in ("pointers", "indices", "values", "weights"):
        if entries[name] is not None:
            checksum.update(np.ascontiguousarray(entries[name]).data)
    parameters = ", ".join(
        f"{name}={value!r}"
        for name, value in model.get_params(deep=False).items()
        if name not in ("verbose", "callbacks")
    )
    is_fixed = model.random_state is not None
    versions = [f"Python {platform.python_version()}"]
    versions += [f"{name} {_version(name)}" for name in _PACKAGES]
    return {
        "model": f"{type(model).__name__}({parameters})",
        "initialization": "fixed by random_state"
        if is_fixed
        else "not fixed: random_state=None draws a new one for each fit",
        "entries": f"SHA-256 {checksum.hexdigest()[:16]} of indices, values and weights",
        "versions": ", ".join(versions),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "?"
