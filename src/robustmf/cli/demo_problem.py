"""The main job on embedded data: the paper's synthetic problem, solved by one robust fit and held against the truth."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import robustmf
from robustmf.datasets import Synthetic, make_synthetic, make_tracks
from robustmf.datasets.oracle import oracle_factors
from robustmf.estimator import RMFNL, RobustMF
from robustmf.initialization.problem import interpolated_sigma
from robustmf.initialization.scales import Held, robust_sigma
from robustmf.solvers.objective import paper_reg

#: A residual beyond this many robust standard deviations marks its entry as bad.
FLAG_AT = 5.0

_METHODS: dict[str, Callable[[int, bool], RobustMF]] = {
    "least squares": lambda seed, show: RobustMF(
        5, loss="l2", random_state=seed, verbose=int(show)
    ),
    "RMFNL, l1": lambda seed, show: RMFNL(5, loss="l1", random_state=seed, verbose=int(show)),
    "RMFNL, log-sum (paper)": lambda seed, show: RMFNL(
        5, loss="lsp", random_state=seed, verbose=int(show)
    ),
    "RobustMF, defaults": lambda seed, show: RobustMF(5, random_state=seed, verbose=int(show)),
}


def run_demo(
    m: int,
    seed: int,
    progress: bool,
    announce: Callable[[str], None],
    describe: Callable[[RobustMF], Any] = lambda model: None,
) -> dict[str, Any]:
    """Fit, measure, and return a record that the report can be drawn from; ``describe`` says what it keeps of the last model."""
    data = make_synthetic(m, random_state=seed)
    m, n = data.train.shape
    reg = paper_reg((m, n))
    oracle = data.test_rmse(*oracle_factors(data, reg))
    methods = []
    for title, make in _METHODS.items():
        announce(title)
        make(seed + 1, False).fit(
            data.train
        )  # once unseen: compiles what this method needs, so that the clock measures the fit
        started = time.perf_counter()
        model = make(seed + 1, progress).fit(data.train)
        seconds = time.perf_counter() - started
        methods.append(_measure(data, title, model, seconds))
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
        "fit": describe(model),
        "methods": methods,
        "versions": {
            "robustmf": robustmf.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
    }


def track_demo(seed: int, describe: Callable[[RobustMF], Any]) -> dict[str, Any]:
    """Points on a vase from tracks with wrong matches, by least squares and by the l1 loss: pixels off where the tracks are right."""
    made = make_tracks(random_state=seed)
    rows, wrong = made.observed.rows, made.wrong
    record: dict[str, Any] = {
        "points": made.observed.shape[1],
        "frames": made.observed.shape[0] // 2,
        "wrong": int(wrong.sum()),
        "errors": {},
    }
    for loss in ("l2", "l1"):
        started = time.perf_counter()
        model = RobustMF(4, loss=loss, reg=1e-9, tol=1e-6, random_state=seed).fit(made.observed)
        residual = np.abs(rows.values - model.predict(rows.group_of_entry(), rows.indices))
        found = np.isin(np.argsort(-residual)[: record["wrong"]], np.flatnonzero(wrong))
        record["errors"][loss] = {
            "pixels": float(residual[~wrong].mean()),
            "found": int(found.sum()),
            "seconds": time.perf_counter() - started,
        }
    return record | {"fit": describe(model)}


def _measure(data: Synthetic, title: str, model: RobustMF, seconds: float) -> dict[str, Any]:
    """RMSE against the clean matrix, and how the flagged entries compare with the planted ones."""
    rows, planted = data.train.rows, data.train_outliers
    residual = rows.values - model.predict(rows.group_of_entry(), rows.indices)
    spent = model.rank * (sum(data.train.shape) - model.rank) / data.train.n_entries
    limit = FLAG_AT * (
        interpolated_sigma(residual, spent)
        if model.loss_.concave
        else robust_sigma(Held(residual), spent)
    )
    flagged = np.abs(residual) > limit
    return {
        "title": title,
        "rmse": data.test_rmse(model.row_factors_, model.column_factors_),
        "seconds": seconds,
        "found": int((flagged & planted).sum()),
        "false_alarms": int((flagged & ~planted).sum()),
        "residuals": {"clean": residual[~planted].tolist(), "outliers": residual[planted].tolist()},
        "flag_at": limit,
        "history": model.history_,
    }
