"""Table 4: Dinosaur tracks; mean absolute error in pixels over the observed entries.

A row is a method with coordinates and an initialization, because the paper states neither and the
result depends on both.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems import predicted_at
from benchmarks.reproduction.methods import Factors, data_to_fit, timed_fit
from benchmarks.reproduction.plan import DataMissingError, Experiment, Run, described, seeded
from robustmf.baselines import RMFMM
from robustmf.baselines.spectral import truncated_svd
from robustmf.data.observed import Observed
from robustmf.datasets import load_dinosaur, make_tracks
from robustmf.estimator import RMFNL, RobustMF
from robustmf.metrics import mae

RANK = 4
SEEDS = 5

#: The data set of numerical versions.
PROBE = "probe"

#: Least number of frames in which a point is visible.
VIEWS = {"D1": 5, "D2": 6, "D3": 7}

#: Center and width of the images, in pixels.
CENTER = (360.0, 288.0)
WIDTH = 720.0

#: Multiple of the image center that is subtracted, and divisor, by coordinates.
COORDINATES = {
    "pixels": (0.0, 1.0),
    "centred": (1.0, 1.0),
    "shifted twice": (2.0, 1.0),
    "scaled": (0.0, WIDTH),
}

#: Printed: MAE, deviation, CPU seconds, deviation on D1, D2, D3.
PAPER = {
    "RMF-MM (heuristic)": [
        (0.374, 0.031, 43.9, 3.3),
        (0.381, 0.022, 25.9, 3.1),
        (0.382, 0.034, 10.8, 3.4),
    ],
    "RMF-MM": [(0.442, 0.096, 26.9, 3.4), (0.458, 0.043, 14.9, 2.2), (0.466, 0.072, 9.2, 2.1)],
    "RMFNL LSP": [(0.323, 0.012, 8.3, 1.9), (0.332, 0.005, 6.8, 1.3), (0.316, 0.006, 3.4, 1.0)],
}

#: Estimators of the paper's methods; inner iterations of RMF-MM as in its authors' code.
_ESTIMATORS: dict[str, Any] = {
    "RMF-MM (heuristic)": partial(RMFMM, heuristic=True, inner_max_iter=5000),
    "RMF-MM": partial(RMFMM, inner_max_iter=5000),
    "RMFNL LSP": partial(RMFNL, max_iter=1000),
    "RMFNL LSP, tol 1e-5": partial(RMFNL, max_iter=3000, tol=1e-5),
    "RobustMF varpro, l1": partial(RobustMF, loss="l1", solver="varpro", reg=1e-9),
    "RobustMF": RobustMF,
}

#: Coordinates and initialization of the rows; the first is that of the verdicts.
_PROTOCOLS = (
    ("scaled", "completion"),
    ("pixels", "completion"),
    ("centred", "SVD"),
    ("pixels", "Gaussian"),
)
_OWN = (
    "RMFNL LSP, tol 1e-5; scaled; completion",
    "RobustMF varpro, l1; pixels; own",
    "RobustMF varpro, l1; centred; own",
    "RobustMF varpro, l1; centred; moved",
    "RobustMF varpro, l1; shifted twice; own",
    "RobustMF; pixels; own",
)
METHODS = (*(f"{name}; {c}; {i}" for name in PAPER for c, i in _PROTOCOLS), *_OWN)

#: Printed numbers by the row with the coordinates and the initialization of the verdicts.
PRINTED = {f"{name}; {'; '.join(_PROTOCOLS[0])}": numbers for name, numbers in PAPER.items()}

#: Rows and data set of a quick plan.
_QUICK = ("RMFNL LSP; scaled; completion", "RobustMF varpro, l1; pixels; own")
_QUICK_DATA = "D3"


def runs(quick: bool) -> list[Run]:
    """Five seeds per cell, one for the SVD, which has no random numbers, and in a quick plan."""

    def seeds(method: str, data: str) -> int:
        if quick:
            return int(method in _QUICK and data == _QUICK_DATA)
        return 1 if method.endswith("SVD") else SEEDS

    return seeded("table4", METHODS, VIEWS, seeds)


def _tracks(data: str) -> Observed:
    """The tracks, in pixels."""
    if data == PROBE:
        return make_tracks(points=24, frames=12, random_state=0).observed
    try:
        return load_dinosaur(min_views=VIEWS[data])
    except FileNotFoundError as missing:
        raise DataMissingError(str(missing)) from None


def _initial(kind: str, tracks: Observed, seed: int) -> Factors | None:
    """Initial factors; None where the method has its own.

    "completion" is least squares on the observed entries by variable projection; "moved" are the
    factors of the l1 loss in pixels, moved to centred coordinates.
    """
    rng = np.random.default_rng(seed)
    if kind == "own":
        return None
    if kind == "moved":
        pixels = tracks.with_values(tracks.rows.values + _center_of_entries(tracks))
        estimator = _ESTIMATORS["RobustMF varpro, l1"]
        model = estimator(RANK, random_state=seed, n_jobs=1).fit(pixels)
        factors, _ = _moved((model.row_factors_, model.column_factors_), -1.0)
        return factors
    if kind == "Gaussian":
        U, V = (rng.standard_normal((size, RANK)) for size in tracks.shape)
        return U, V
    if kind == "SVD":
        U, s, V = truncated_svd(tracks, RANK, rng)
        return U * np.sqrt(s), V * np.sqrt(s)
    model = RobustMF(RANK, loss="l2", solver="varpro", reg=1e-6, random_state=seed, n_jobs=1).fit(
        tracks
    )
    return model.row_factors_, model.column_factors_


def _center_of_entries(tracks: Observed) -> NDArray[np.float64]:
    """The coordinate of the image center that belongs to each entry, x or y."""
    return np.where(tracks.rows.group_of_entry() % 2 == 0, *CENTER)


def _moved(factors: Factors, multiple: float) -> tuple[Factors, float]:
    """Factors of the tracks plus a multiple of the center, and the distance that prevents it.

    The distance is that of a vector of ones from the span of the column factors.
    """
    U, V = factors
    ones = np.ones(len(V))
    coefficients = np.linalg.lstsq(V, ones, rcond=None)[0]
    distance = float(np.linalg.norm(V @ coefficients - ones) / np.sqrt(len(V)))
    offsets: NDArray[np.float64] = np.tile(CENTER, len(U) // 2)
    return (U + np.outer(multiple * offsets, coefficients), V), distance


def execute(run: Run) -> dict[str, Any]:
    """Fit all observed entries; as in the paper, none is held out. The error is in pixels."""
    pixels = data_to_fit(_tracks(run.data))
    name, coordinates, initialization = run.method.split("; ")
    multiple, divisor = COORDINATES[coordinates]
    shift = multiple * _center_of_entries(pixels)
    tracks = pixels.with_values((pixels.rows.values - shift) / divisor)

    def error(factors: Factors) -> float:
        return divisor * mae(tracks.rows.values, predicted_at(tracks, factors))

    seed = 1000 + run.seed
    initial = _initial(initialization, tracks, seed)
    make = partial(_ESTIMATORS[name], RANK, random_state=seed, n_jobs=1)
    if initial is not None:
        make = partial(make, init=initial)
    model, seconds, curve = timed_fit(make, tracks, error)
    factors = (model.row_factors_, model.column_factors_)
    found = {
        "mae": curve["value"][-1],
        "seconds": seconds,
        "iterations": model.n_iter_,
        "stop_reason": str(model.stop_reason_),
        "curve": curve,
    }
    if initial is not None:
        found["initial_mae"] = error(initial)
    return found | _shifted(pixels, factors, multiple, divisor)


def _shifted(
    pixels: Observed, factors: Factors, multiple: float, divisor: float
) -> dict[str, float]:
    """How far ones are from the span of the column factors, and the error after a shift.

    The same factors describe other coordinates equally well only if a vector of ones is in that
    span: then a multiple of it can be subtracted from the row factors. Here the factors of centred
    or shifted coordinates are moved to pixels, and those of pixels to centred coordinates.
    """
    U, V = factors
    move = multiple if multiple else -1.0
    moved, distance = _moved((divisor * U, V), move)
    there = pixels.with_values(pixels.rows.values - (multiple - move) * _center_of_entries(pixels))
    after = mae(there.rows.values, predicted_at(there, moved))
    return {"ones_distance": distance, "mae_after_shift": after}


def settings(run: Run) -> dict[str, Any]:
    """Rank, estimator, coordinates and initialization."""
    name, coordinates, initialization = run.method.split("; ")
    return {
        "rank": RANK,
        **described(_ESTIMATORS[name]),
        "coordinates": coordinates,
        "initialization": initialization,
    }


def probe(method: str) -> float:
    """Error on a few synthetic tracks."""
    return float(execute(Run("table4", method, PROBE, 0))["mae"])


EXPERIMENT = Experiment("table4", "Dinosaur tracks", runs, execute, settings, probe)
