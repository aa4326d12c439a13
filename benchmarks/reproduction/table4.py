"""Table 4: structure from motion on the Dinosaur tracks; mean absolute error in pixels over the observed entries."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.reproduction.methods import Factors, predicted_at, timed_fit
from benchmarks.reproduction.plan import DataMissingError, Experiment, Run
from robustmf.baselines import RMFMM
from robustmf.datasets import load_dinosaur
from robustmf.estimator import RMFNL, RobustMF
from robustmf.metrics import mae

RANK, SEEDS = 4, 5
VIEWS = {"D1": 5, "D2": 6, "D3": 7}

#: Printed: MAE, deviation, CPU seconds, deviation on D1, D2, D3.
PRINTED = {
    "RMF-MM (heuristic)": [
        (0.374, 0.031, 43.9, 3.3),
        (0.381, 0.022, 25.9, 3.1),
        (0.382, 0.034, 10.8, 3.4),
    ],
    "RMF-MM": [(0.442, 0.096, 26.9, 3.4), (0.458, 0.043, 14.9, 2.2), (0.466, 0.072, 9.2, 2.1)],
    "RMFNL LSP": [(0.323, 0.012, 8.3, 1.9), (0.332, 0.005, 6.8, 1.3), (0.316, 0.006, 3.4, 1.0)],
}

_METHODS: dict[str, Any] = {
    "RMF-MM (heuristic)": lambda **settings: RMFMM(
        RANK, heuristic=True, inner_max_iter=300, **settings
    ),
    "RMF-MM": lambda **settings: RMFMM(RANK, inner_max_iter=300, **settings),
    "RMFNL LSP": lambda **settings: RMFNL(RANK, max_iter=1000, **settings),
    "RobustMF varpro, l1": lambda **settings: RobustMF(
        RANK, loss="l1", solver="varpro", reg=1e-9, **settings
    ),
    "RobustMF": lambda **settings: RobustMF(RANK, **settings),
}


def runs(quick: bool) -> list[Run]:
    """Five seeds a cell, one when quick."""
    return [
        Run("table4", method, data, seed)
        for data in VIEWS
        for method in _METHODS
        for seed in range(1 if quick else SEEDS)
    ]


def execute(run: Run) -> dict[str, Any]:
    """Fit all observed entries from a random start; there is no held-out set, as in the paper."""
    try:
        tracks = load_dinosaur(min_views=VIEWS[run.data])
    except FileNotFoundError as missing:
        raise DataMissingError(str(missing)) from None

    def error(factors: Factors) -> float:
        return mae(tracks.rows.values, predicted_at(tracks, factors))

    model, seconds, curve = timed_fit(
        partial(_METHODS[run.method], random_state=1000 + run.seed, n_jobs=1), tracks, error
    )
    return {
        "mae": curve["value"][-1],
        "seconds": seconds,
        "iterations": model.n_iter_,
        "curve": curve,
    }


EXPERIMENT = Experiment("table4", "Dinosaur tracks", runs, execute)
