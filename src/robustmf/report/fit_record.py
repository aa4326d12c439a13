"""The record of a fit: all that its page displays, as numbers and strings."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import astuple, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from robustmf.data.sampling import evenly_spaced
from robustmf.data.statistics import suspected_codes
from robustmf.data.table_form import ids_or_numbers
from robustmf.estimator import RobustMF
from robustmf.estimator.parameters import finds_rank
from robustmf.outliers.audit import Audit
from robustmf.outliers.scores import scores_and_predictions
from robustmf.report.names import isolated, tick
from robustmf.report.quantities import (
    Grid,
    factor_map,
    points_to_label,
    rank_candidates,
    reason_of_choice,
    relative_weights,
    residual_histogram,
)
from robustmf.report.structure_from_motion import scene_points
from robustmf.report.summary import summary

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PageOptions:
    """Amount of detail on a page, which limits its size."""

    #: Maximum number of suspicious entries, rows and columns, of each.
    max_suspects: int = 200
    #: Maximum number of rows and of columns on the factor map, apart from suspicious ones.
    max_points: int = 1000
    #: Number of rows and of columns on the factor map that are labelled.
    max_labels: int = 8
    #: Number of bins of the histogram of residuals.
    n_bins: int = 101
    #: Maximum number of rows and of columns of the picture of the table.
    max_side: int = 240
    #: Maximum number of cells that are marked in the picture of the table.
    max_marked: int = 400
    #: Number of entries that are shown for a row or column.
    max_entries: int = 15
    #: Entries with a score of at most this are replaced in the picture of the cleaned table.
    cleaned_at_most: float = 0.001


_OPTIONS = PageOptions()

_PACKAGES = ("robustmf", "numpy", "scipy", "numba", "scikit-learn")


@dataclass(frozen=True)
class _Entries:
    """The fitted entries with predictions, scores and residuals, in row order."""

    i: NDArray[Any]
    j: NDArray[Any]
    values: Array
    expected: Array
    scores: Array
    residuals: Array

    @classmethod
    def of(cls, model: RobustMF) -> _Entries:
        observed = model.model_.fitted_entries()
        scores, expected = scores_and_predictions(
            model._model(), None, rows="fitted", attacks=False
        )
        return cls(
            observed.rows.group_of_entry(),
            observed.rows.indices,
            np.asarray(observed.rows.values, np.float64),
            expected,
            scores,
            np.asarray(model.model_.residuals(observed), np.float64),
        )


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
    entries = _Entries.of(model)
    record = {
        "summary": summary(model),
        "tiles": _tiles(model, audit, entries, at_most),
        "clean_share": audit.clean_share,
        "at_most": at_most,
        "table": _table(model, entries),
        "meaning": _meaning(model, entries),
        "rank": _rank(model),
        "history": {
            name: list(map(float, model.history_[name]))
            for name in ("objective", "seconds", "validation")
            if name in model.history_
        },
        "best_iteration": model.best_iteration_,
        "residuals": _histogram(model),
        "entries": [astuple(one) for one in audit.entries],
        "rows": [astuple(one) for one in audit.rows],
        "columns": [astuple(one) for one in audit.columns],
        "details": _details(model, audit, entries),
        "map": _factor_map(
            model, {one.id for one in audit.rows}, {one.id for one in audit.columns}
        ),
        "reproduction": _reproduction(model),
    }
    if tracks:
        record["scene"] = _scene(model, entries.residuals)
    return record


def _tiles(
    model: RobustMF, audit: Audit, entries: _Entries, at_most: float
) -> list[tuple[str, str, str]]:
    """Return name, number and note of each tile."""
    m, n = model.model_.shape
    bad = int((entries.scores <= _OPTIONS.cleaned_at_most).sum())
    missing = 1 - len(entries.values) / (m * n)
    percent = 100 * (1 - audit.clean_share)
    return [
        ("table", f"{m:,} × {n:,}", "rows × columns"),
        ("entries", f"{len(entries.values):,}", f"{missing:.1%} missing"),
        ("rank", str(model.rank_), "found" if finds_rank(model) else "given"),
        ("bad entries", f"{percent:.1f} %" if percent >= 0.05 else "< 0.1 %", "estimated share"),
        (
            "flagged",
            f"{bad:,}",
            f"score up to {_OPTIONS.cleaned_at_most:g}, "
            f"{_OPTIONS.cleaned_at_most * len(entries.values):,.0f} expected by chance",
        ),
        (
            "suspicious",
            f"{len(audit.rows)} | {len(audit.columns)}",
            f"rows | columns, score up to {at_most:g}",
        ),
        ("noise", f"{model.noise_:.3g}", "standard deviation of a clean entry"),
    ]


def _table(model: RobustMF, entries: _Entries) -> dict[str, Any]:
    """Return the table before and after cleaning as a grid, and the cells to mark."""
    shape = model.model_.shape
    grid = Grid.of(entries.i, entries.j, shape, _OPTIONS.max_side)
    bad = entries.scores <= _OPTIONS.cleaned_at_most
    before = grid.means(entries.values)
    after = grid.means(np.where(bad, entries.expected, entries.values))
    low, high = np.nanquantile(after, [0.01, 0.99])
    flagged = np.flatnonzero(bad)
    worst = flagged[np.argsort(entries.scores[flagged], kind="stable")[: _OPTIONS.max_marked]]
    rows = ids_or_numbers(model.row_ids_, shape[0])
    columns = ids_or_numbers(model.column_ids_, shape[1])
    return {
        "shape": shape,
        "blocks": grid.blocks,
        "before": before,
        "after": after,
        "range": (float(low), float(high)),
        "flagged": len(flagged),
        "codes": [
            (code, int((entries.values == code).sum())) for code in suspected_codes(entries.values)
        ],
        "at_most": _OPTIONS.cleaned_at_most,
        "marked": [
            (
                int(entries.i[t]),
                int(entries.j[t]),
                rows[entries.i[t]],
                columns[entries.j[t]],
                float(entries.values[t]),
                float(entries.expected[t]),
            )
            for t in worst
        ],
        "row_ticks": _ticks(rows),
        "column_ticks": _ticks(columns),
    }


def _ticks(labels: Sequence[Hashable], n: int = 5) -> list[tuple[int, Hashable]]:
    """Return evenly spaced positions with their labels."""
    return [(k, labels[k]) for k in evenly_spaced(len(labels), n).tolist()]


def _meaning(model: RobustMF, entries: _Entries) -> dict[str, str]:
    """Return what θ and λ mean for these data, in words."""
    loss = model.loss_
    weights = relative_weights(loss, entries.residuals)
    light = f"{(weights < 0.1).mean():.1%} of the entries have a weight below 10 %"
    if loss.has_scale:
        theta = float(model.theta_)
        at = relative_weights(loss, theta * np.array([1.0, 2.0, 3.0]))
        within = float((np.abs(entries.residuals) <= theta).mean())
        about_theta = (
            f"θ = {theta:.3g}, in the unit of the data, separates noise from errors: an entry that"
            f" deviates by θ has {at[0]:.0%} of the weight of an exact one, one that deviates by"
            f" 2θ {at[1]:.1%}, and by 3θ {at[2]:.1%}. {within:.1%} of the entries deviate by less"
            f" than θ; {light} and hardly influence the fit."
        )
    else:
        about_theta = f"This loss has no scale θ; {light}."
    about_reg = (
        f"λ = {model.reg_:.3g} pulls the {'factors' if model.rank_ else 'biases'} toward zero, so"
        " that rows and columns with few entries are not fitted to their noise."
    )
    if not loss.concave and model.rank_:
        counts = np.bincount(entries.i, minlength=model.model_.shape[0])
        strength = model.reg_ * (np.maximum(counts, 1) if model.reg_by_count else 1.0)
        curvature = float(loss.weight(np.zeros(1))[0])
        size = float(np.square(np.asarray(model.column_factors_, np.float64)).mean())
        shrunk = float(np.median(strength / (strength + curvature * counts * size + 1e-300)))
        about_reg += (
            f" The factors of a typical row, with {np.median(counts):,.0f} entries, are shrunk by"
            f" about {shrunk:.2g} of their size."
        )
    return {"θ": about_theta, "λ": about_reg}


def _rank(model: RobustMF) -> dict[str, Any]:
    """Return the candidates for the rank, and how much each factor contributes."""
    U = np.asarray(model.row_factors_, np.float64)
    V = np.asarray(model.column_factors_, np.float64)
    singular = np.linalg.svd(np.linalg.qr(U)[1] @ np.linalg.qr(V)[1].T, compute_uv=False)
    candidates = rank_candidates(model)
    return {
        "found": finds_rank(model),
        "candidates": [astuple(candidate) for candidate in candidates],
        "reason": reason_of_choice(candidates),
        "contributions": (singular / np.sqrt(len(U) * len(V))).tolist(),
        "noise": model.noise_,
    }


def _histogram(model: RobustMF) -> dict[str, Any]:
    """Return the histogram of the residuals and the weight that the loss assigns to each bin."""
    observed = model.model_.fitted_entries()
    residuals = np.asarray(model.model_.scaled_residuals(observed), np.float64)
    found = residual_histogram(model.loss_, residuals, _OPTIONS.n_bins)
    return {
        "edges": found.edges.tolist(),
        "centers": found.centers.tolist(),
        "counts": found.counts.tolist(),
        "weights": found.weights.tolist(),
        "beyond": found.beyond,
        "theta": float(model.theta_) if model.loss_.has_scale else None,
    }


def _details(model: RobustMF, audit: Audit, entries: _Entries) -> dict[str, Any]:
    """Return the entries with the smallest scores of each row and column on the page."""
    fitted = model._model()
    rows = _listed([one.id for one in audit.rows], [one.row for one in audit.entries])
    columns = _listed([one.id for one in audit.columns], [one.column for one in audit.entries])
    m, n = fitted.shape
    row_labels = ids_or_numbers(model.row_ids_, m)
    column_labels = ids_or_numbers(model.column_ids_, n)
    return {
        "rows": _worst(entries, entries.i, entries.j, _indices(fitted, "row", rows), column_labels),
        "columns": _worst(
            entries, entries.j, entries.i, _indices(fitted, "column", columns), row_labels
        ),
    }


def _listed(*groups: Iterable[Hashable]) -> list[Hashable]:
    """Return the distinct ids of several lists in order."""
    return list(dict.fromkeys(key for group in groups for key in group))


def _indices(fitted: Any, side: Any, keys: list[Hashable]) -> dict[Hashable, int]:
    """Return the indices of ids."""
    lookup = fitted.vocabulary(side)
    if lookup is None:
        return {key: int(key) for key in keys}  # type: ignore[call-overload]
    return {key: int(lookup.indices([key])[0]) for key in keys}


def _worst(
    entries: _Entries,
    groups: NDArray[Any],
    others: NDArray[Any],
    listed: dict[Hashable, int],
    labels: Sequence[Hashable],
) -> dict[Hashable, dict[str, Any]]:
    """Return number and worst entries (label, value, expected, score) of the listed groups."""
    members = np.flatnonzero(np.isin(groups, list(listed.values())))
    members = members[np.lexsort((entries.scores[members], groups[members]))]
    first = np.searchsorted(groups[members], list(listed.values()), side="left")
    last = np.searchsorted(groups[members], list(listed.values()), side="right")
    return {
        key: {
            "count": int(b - a),
            "entries": [
                (
                    isolated(labels[others[t]]),
                    *(float(f"{x[t]:.4g}") for x in (entries.values, entries.expected)),
                    float(f"{entries.scores[t]:.2g}"),
                )
                for t in members[a : min(b, a + _OPTIONS.max_entries)]
            ],
        }
        for key, a, b in zip(listed, first, last, strict=True)
    }


def _factor_map(model: RobustMF, rows: set[Any], columns: set[Any]) -> dict[str, Any] | None:
    """Return the factor map; ``rows`` and ``columns`` are the ids of suspicious ones."""
    found = factor_map(model.row_factors_, model.column_factors_)
    if found is None:
        return None
    points = np.vstack([found.rows, found.columns])
    placed: list[Array] = []
    return {
        "rows": _map_points(found.rows, model.row_ids_, rows, points, placed),
        "columns": _map_points(found.columns, model.column_ids_, columns, points, placed),
        "share": found.share,
    }


def _map_points(
    coordinates: Array,
    ids: Any,
    suspects: set[Any],
    every: Array,
    placed: list[Array],
) -> dict[str, Any]:
    """Return evenly spaced points of the map, all suspicious ones and those with a label.

    No label covers one of the points ``every`` of both sides.
    """
    limits = (every.min(axis=0), every.max(axis=0))
    n = len(coordinates)
    ids = range(n) if ids is None else ids
    labelled = set(
        points_to_label(
            coordinates,
            lambda k: tick(ids[k]),
            limits,
            placed,
            _OPTIONS.max_labels,
            visible=every,
        )
    )
    chosen = set(evenly_spaced(n, _OPTIONS.max_points).tolist())
    chosen |= labelled
    if suspects:
        chosen |= {k for k, key in enumerate(ids) if key in suspects}
    indices = sorted(chosen)
    return {
        "x": coordinates[indices, 0].tolist(),
        "y": coordinates[indices, 1].tolist(),
        "ids": [ids[k] for k in indices],
        "suspicious": [ids[k] in suspects for k in indices],
        "labelled": [k in labelled for k in indices],
        "of": n,
    }


def _scene(model: RobustMF, residuals: Array) -> dict[str, Any]:
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
