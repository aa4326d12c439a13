"""Records of the demonstration: methods compared on the synthetic problem and on feature tracks.

A record consists of numbers and strings only. The command prints it, and
:mod:`robustmf.report.demo_page` draws it.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import robustmf
from robustmf.data.observed import Observed
from robustmf.datasets import Synthetic, make_synthetic, make_tracks
from robustmf.datasets.oracle import oracle_factors
from robustmf.estimator import RMFNL, RobustMF
from robustmf.initialization.problem import interpolated_sigma
from robustmf.initialization.scales import robust_sigma
from robustmf.report.fit_record import fit_record
from robustmf.solvers.objective import paper_reg

_RANK = 5

#: Entries whose residual is larger than this many robust standard deviations are flagged.
_FLAG_THRESHOLD = 5.0

#: The methods by title: estimator class and its parameters.
_METHODS: dict[str, tuple[type[RobustMF], dict[str, Any]]] = {
    "least squares": (RobustMF, {"loss": "l2"}),
    "RMFNL, l1": (RMFNL, {"loss": "l1"}),
    "RMFNL, log-sum (paper)": (RMFNL, {"loss": "lsp"}),
    "RobustMF, defaults": (RobustMF, {}),
}


def synthetic_record(
    m: int, seed: int, *, progress: bool = False, announce: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """Fit all methods to the paper's synthetic problem.

    Parameters
    ----------
    m : int
        Number of rows and of columns.
    seed : int
        Seed of the data; the initialization uses the next one.
    progress : bool, default=False
        Whether to show progress bars.
    announce : callable, optional
        Called with the title of each method before it is fitted.

    Returns
    -------
    record : dict
        Data, RMSE of the oracle, results of the methods, and the record of the last fit.
    """
    data = make_synthetic(m, random_state=seed)
    m, n = data.train.shape
    oracle = data.test_rmse(*oracle_factors(data, paper_reg((m, n))))
    methods = []
    for title, (kind, parameters) in _METHODS.items():
        if announce is not None:
            announce(title)
        # The first fit compiles the kernels, which the measured time must not include.
        kind(_RANK, random_state=seed + 1, **parameters).fit(data.train)
        model = kind(_RANK, random_state=seed + 1, verbose=int(progress), **parameters)
        started = time.perf_counter()
        model.fit(data.train)
        seconds = time.perf_counter() - started
        methods.append(_method_record(data, title, model, seconds))
    return {
        "data": {
            "rows": m,
            "columns": n,
            "rank": _RANK,
            "entries": data.train.n_entries,
            "outliers": int(data.train_outliers.sum()),
            "seed": seed,
        },
        "oracle_rmse": oracle,
        "fit": fit_record(model),
        "methods": methods,
        "versions": {
            "robustmf": robustmf.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
    }


def _method_record(data: Synthetic, title: str, model: RobustMF, seconds: float) -> dict[str, Any]:
    """Return the RMSE against the clean matrix and the comparison of flagged and true outliers."""
    outliers = data.train_outliers
    residuals = _residuals(model, data.train)
    rank = model.rank_
    degrees_of_freedom = rank * (sum(data.train.shape) - rank) / data.train.n_entries
    sigma = (
        interpolated_sigma(residuals, degrees_of_freedom)
        if model.loss_.concave
        else robust_sigma(residuals, degrees_of_freedom)
    )
    threshold = _FLAG_THRESHOLD * sigma
    flagged = np.abs(residuals) > threshold
    return {
        "title": title,
        "rmse": data.test_rmse(model.row_factors_, model.column_factors_),
        "seconds": seconds,
        "detected": int((flagged & outliers).sum()),
        "false_positives": int((flagged & ~outliers).sum()),
        "residuals": {
            "clean": residuals[~outliers].tolist(),
            "outliers": residuals[outliers].tolist(),
        },
        "threshold": threshold,
        "history": model.history_,
    }


def _residuals(model: RobustMF, observed: Observed) -> NDArray[np.floating[Any]]:
    """Return the residuals of the entries, in row order."""
    rows = observed.rows
    return np.asarray(rows.values - model.predict(rows.group_of_entry(), rows.indices))


def tracks_record(seed: int) -> dict[str, Any]:
    """Fit feature tracks with wrong matches by least squares and with the l1 loss.

    Parameters
    ----------
    seed : int
        Seed of the tracks and of the fits.

    Returns
    -------
    record : dict
        Size of the problem, mean absolute residual of the correct coordinates in pixels and number
        of detected wrong ones per loss, and the record of the last fit.
    """
    made = make_tracks(random_state=seed)
    n_wrong = int(made.wrong.sum())
    errors = {}
    for loss in ("l2", "l1"):
        started = time.perf_counter()
        model = RobustMF(4, loss=loss, reg=1e-9, tol=1e-6, random_state=seed).fit(made.observed)
        residuals = np.abs(_residuals(model, made.observed))
        largest = np.argsort(-residuals)[:n_wrong]
        errors[loss] = {
            "pixels": float(residuals[~made.wrong].mean()),
            "detected": int(made.wrong[largest].sum()),
            "seconds": time.perf_counter() - started,
        }
    return {
        "points": made.observed.shape[1],
        "frames": made.observed.shape[0] // 2,
        "wrong": n_wrong,
        "errors": errors,
        "fit": fit_record(model, tracks=True),
    }
