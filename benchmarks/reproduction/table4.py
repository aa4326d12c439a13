"""Table 4: Dinosaur tracks; mean absolute error in pixels over the observed entries."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.problems import predicted_at
from benchmarks.reproduction.methods import Factors, timed_fit
from benchmarks.reproduction.plan import DataMissingError, Experiment, Run, seeded
from robustmf.baselines import RMFMM
from robustmf.datasets import load_dinosaur
from robustmf.estimator import RMFNL, RobustMF
from robustmf.metrics import mae

RANK = 4
SEEDS = 5

#: Least number of frames in which a point is visible.
VIEWS = {"D1": 5, "D2": 6, "D3": 7}

#: Printed: MAE, deviation, CPU seconds, deviation on D1, D2, D3.
PRINTED = {
    "RMF-MM (heuristic)": [
        (0.374, 0.031, 43.9, 3.3), (0.381, 0.022, 25.9, 3.1), (0.382, 0.034, 10.8, 3.4),
    ],
    "RMF-MM": [(0.442, 0.096, 26.9, 3.4), (0.458, 0.043, 14.9, 2.2), (0.466, 0.072, 9.2, 2.1)],
    "RMFNL LSP": [(0.323, 0.012, 8.3, 1.9), (0.332, 0.005, 6.8, 1.3), (0.316, 0.006, 3.4, 1.0)],
}  # fmt: skip

_METHODS: dict[str, Any] = {
    "RMF-MM (heuristic)": partial(RMFMM, RANK, heuristic=True, inner_max_iter=300),
    "RMF-MM": partial(RMFMM, RANK, inner_max_iter=300),
    "RMFNL LSP": partial(RMFNL, RANK, max_iter=1000),
    "RobustMF varpro, l1": partial(RobustMF, RANK, loss="l1", solver="varpro", reg=1e-9),
    "RobustMF": partial(RobustMF, RANK),
}


def runs(quick: bool) -> list[Run]:
    """Five seeds per cell, one in a quick plan."""
    return seeded("table4", _METHODS, VIEWS, lambda method, data: 1 if quick else SEEDS)


def execute(run: Run) -> dict[str, Any]:
    """Fit all observed entries from a random initial point; as in the paper, none is held out."""
    try:
        tracks = load_dinosaur(min_views=VIEWS[run.data])
    except FileNotFoundError as missing:
        raise DataMissingError(str(missing)) from None

    def error(factors: Factors) -> float:
        return mae(tracks.rows.values, predicted_at(tracks, factors))

    make = partial(_METHODS[run.method], random_state=1000 + run.seed, n_jobs=1)
    model, seconds, curve = timed_fit(make, tracks, error)
    return {
        "mae": curve["value"][-1], "seconds": seconds, "iterations": model.n_iter_, "curve": curve,
    }  # fmt: skip


EXPERIMENT = Experiment("table4", "Dinosaur tracks", runs, execute)
