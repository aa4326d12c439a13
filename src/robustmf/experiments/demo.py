"""The main job on embedded data: the paper's synthetic problem, solved by one robust fit and held against the truth."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import robustmf
from robustmf.datasets import Synthetic, make_synthetic
from robustmf.estimator import RMFNL
from robustmf.experiments.oracle import oracle_factors
from robustmf.kernels.team import Team
from robustmf.operations import Operations
from robustmf.solvers.start import ridge_als

#: A residual beyond this many robust standard deviations marks its entry as bad.
FLAG_AT = 4.0

_LOSSES = {"RMFNL, log-sum loss": "lsp", "RMFNL, Laplace loss": "laplace", "RMFNL, l1 loss": "l1"}


def run_demo(m: int, seed: int, progress: bool, announce: Callable[[str], None]) -> dict[str, Any]:
    """Fit, measure, and return a record that the report can be drawn from."""
    data = make_synthetic(m, random_state=seed)
    m, n = data.train.shape
    reg = 20 / (m + n)
    oracle = data.test_rmse(*oracle_factors(data, reg))
    methods = [_least_squares(data, reg)]
    for title, loss in _LOSSES.items():
        announce(title)
        model = RMFNL(5, loss=loss, random_state=seed + 1, verbose=int(progress)).fit(data.train)
        methods.append(_measure(data, title, model.row_factors_, model.column_factors_, model.history_["seconds"][-1]))
        methods[-1]["history"] = model.history_
    return {
        "data": {
            "rows": m,
            "columns": n,
            "rank": 5,
            "entries": data.train.n_entries,
            "outliers": int(data.train_outliers.sum()),
            "seed": seed,
        },
        "oracle_rmse": oracle,
        "methods": methods,
        "versions": {"robustmf": robustmf.__version__, "python": platform.python_version(), "numpy": np.__version__},
    }


def _least_squares(data: Synthetic, reg: float) -> dict[str, Any]:
    started = time.perf_counter()
    with Team() as team:
        U, V = ridge_als(Operations(data.train, team), 5, reg, 50, np.random.default_rng(data.train.n_entries))
    return _measure(data, "least squares", U, V, time.perf_counter() - started)


def _measure(data: Synthetic, title: str, U: Any, V: Any, seconds: float) -> dict[str, Any]:
    """RMSE against the clean matrix, and how the flagged entries compare with the planted ones."""
    with Team() as team:
        residual = Operations(data.train, team).residuals(U, V)
    sigma = 1.4826 * float(np.median(np.abs(residual)))
    flagged = np.abs(residual) > FLAG_AT * sigma
    planted = data.train_outliers
    return {
        "title": title,
        "rmse": data.test_rmse(U, V),
        "seconds": seconds,
        "found": int((flagged & planted).sum()),
        "false_alarms": int((flagged & ~planted).sum()),
        "residuals": {"clean": residual[~planted].tolist(), "outliers": residual[planted].tolist()},
        "flag_at": FLAG_AT * sigma,
    }
