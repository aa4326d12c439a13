"""The defaults against the best setting that a search finds, on each kind of problem; the search is told the test error.

The search goes along one coordinate at a time from what the default fit chose: λ, biases, loss, θ, and λ once more. So "best" is what
someone with the test set in hand would find in some twenty fits.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from robustmf.data.observed import Observed
from robustmf.datasets import Synthetic, load_dinosaur, load_movielens, love_hate, make_synthetic
from robustmf.estimator import RobustMF
from robustmf.selection import entry_split

#: The search: multiples of λ at first and at last, losses, multiples of θ.
REGS, LAST_REGS, THETAS = (0.01, 0.1, 0.3, 3.0, 10.0, 100.0), (0.3, 0.5, 2.0, 3.0), (0.5, 2.0)
LOSSES = ("huber", "cauchy", "l1", "l2")

#: θ/σ̂ of the default loss: a λ for least squares is this many times λ/θ for l1.
_THETA_OF_NOISE = 4.2

_SYNTHETIC_SEEDS, _DINOSAUR_SPLITS = 2, 10

Errors = dict[str, float]


@dataclass(frozen=True)
class Case:
    """One problem: pairs of entries to fit and a measure of the fitted model; errors are means over them.

    ``init`` is that of the search's fits; the default fit has its own.
    """

    rank: int
    trials: list[tuple[Observed, Callable[[RobustMF], Errors]]]
    init: str = "auto"

    def errors(self, **settings: Any) -> tuple[Errors, RobustMF]:
        """Mean errors, and the last of the models."""
        found = []
        for train, measure in self.trials:
            model = RobustMF(self.rank, random_state=0, n_jobs=1, **settings).fit(train)
            found.append(measure(model))
        return {
            name: float(np.mean([errors[name] for errors in found])) for name in found[0]
        }, model


def _against_clean(data: Synthetic, scale: float) -> Callable[[RobustMF], Errors]:
    def measure(model: RobustMF) -> Errors:
        ones = [np.ones((len(A), 1)) for A in (model.row_factors_, model.column_factors_)]
        U = (
            np.hstack([model.row_factors_, model.row_bias_[:, None] + model.center_, ones[0]])
            / scale
        )
        V = np.hstack([model.column_factors_, ones[1], model.column_bias_[:, None]])
        return {"RMSE, unseen": data.test_rmse(U, V)}

    return measure


def _held_out(test: Observed) -> Callable[[RobustMF], Errors]:
    def measure(model: RobustMF) -> Errors:
        residual = model._model().residuals(test)
        return {
            "MAE, held out": float(np.abs(residual).mean()),
            "RMSE, held out": float(np.sqrt(np.square(residual).mean())),
        }

    return measure


def _training(model: RobustMF) -> Errors:
    return {
        "MAE, training": float(
            np.abs(model._model().residuals(model._model().fitted_entries())).mean()
        )
    }


def _mae_held_out(test: Observed) -> Callable[[RobustMF], Errors]:
    return lambda model: {"MAE, held out": float(np.abs(model._model().residuals(test)).mean())}


def cases(folder: Path | None, first_seed: int) -> dict[str, Callable[[], Case]]:
    """By name, to be made when wanted: synthetic data at three noise levels and scales, Dinosaur tracks, ratings clean and attacked."""
    made: dict[str, Callable[[], Case]] = {}
    for m, noise, scale in product((500, 1000), (0.03, 0.1, 0.5), (1e-3, 1.0, 1e3)):
        made[f"synthetic, m = {m}, noise {noise:g}, × {scale:g}"] = partial(
            _synthetic, m, noise, scale, first_seed
        )
    for min_views, of in product((5, 6, 7), ("training", "held out")):
        made[f"Dinosaur D{min_views - 4}, {of}"] = partial(
            _dinosaur, folder, min_views, first_seed, of == "held out"
        )
    for share, rank, state in product((0.9, 0.5), (5, 10), ("clean", "love/hate")):
        name = f"MovieLens latest-small, {share:.0%} for training, {state}, rank {rank}"
        made[name] = partial(_movielens, folder, share, rank, first_seed, state == "love/hate")
    return made


def _synthetic(m: int, noise: float, scale: float, first_seed: int) -> Case:
    made = [
        make_synthetic(m, noise=noise, random_state=first_seed + seed)
        for seed in range(_SYNTHETIC_SEEDS)
    ]
    return Case(
        5,
        [
            (data.train.with_values(scale * data.train.rows.values), _against_clean(data, scale))
            for data in made
        ],
    )


def _dinosaur(folder: Path | None, min_views: int, first_seed: int, held_out: bool) -> Case:
    tracks = load_dinosaur(min_views, folder)
    if not held_out:
        return Case(4, [(tracks, _training)])
    splits = [
        entry_split(tracks, (0.95, 0.05), first_seed + seed) for seed in range(_DINOSAUR_SPLITS)
    ]
    return Case(4, [(train, _mae_held_out(test)) for train, test in splits])


def _movielens(
    folder: Path | None, share: float, rank: int, first_seed: int, attacked: bool
) -> Case:
    ratings = load_movielens("latest-small", folder)
    train, test = entry_split(ratings.ratings, (share, 1 - share), first_seed)
    if attacked:
        train = love_hate(train, ratings.bounds, random_state=first_seed).ratings
    # the search starts plainly: message passing takes most of a fit's time and finds nothing here
    return Case(rank, [(train, _held_out(test))], init="ridge")


def search(case: Case) -> dict[str, Any]:
    """Errors of the default and of all settings tried; the first kind of error leads the search."""
    errors, model = case.errors()
    measured = next(iter(errors))
    chosen: dict[str, Any] = {
        "reg": model.reg_,
        "bias": bool(model.has_bias_),
        "theta": model.theta_,
        "loss": "welsch",
    }
    best: dict[str, Any] = dict(chosen, theta="auto")
    tried: list[dict[str, Any]] = []

    def attempt(settings: dict[str, Any]) -> None:
        nonlocal best
        if any(one["settings"] == settings for one in tried):
            return
        tried.append({"settings": settings, "errors": case.errors(**settings, init=case.init)[0]})
        best = min(tried, key=lambda one: one["errors"][measured])["settings"]

    attempt(best)
    for share in REGS:
        attempt(dict(best, reg=share * chosen["reg"]))
    attempt(dict(best, bias=not best["bias"]))
    for loss in LOSSES:
        attempt(
            dict(
                best,
                loss=loss,
                reg=best["reg"] * (_THETA_OF_NOISE / chosen["theta"] if loss == "l1" else 1.0),
            )
        )
    if best["loss"] == "welsch":
        for share in THETAS:
            attempt(dict(best, theta=share * chosen["theta"]))
    for share in LAST_REGS:
        attempt(dict(best, reg=share * best["reg"]))
    return {"default": errors, "chosen": chosen, "tried": tried}


def run(
    folder: Path | None, first_seed: int, only: str, announce: Callable[[str], None]
) -> list[dict[str, Any]]:
    """One record a problem whose name has ``only`` in it."""
    records = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, make in cases(folder, first_seed).items():
            if only in name:
                announce(name)
                records.append({"problem": name, **search(make())})
    return records


def summary(records: list[dict[str, Any]]) -> list[list[str]]:
    """One line a problem and kind of error."""
    lines = [
        [
            "problem",
            "error",
            "default",
            "best found",
            "ratio",
            "default chose",
            "setting of the best",
        ]
    ]
    for record in records:
        for kind, error in record["default"].items():
            best = min(record["tried"], key=lambda one: one["errors"][kind])
            found = best["errors"][kind]
            lines.append(
                [
                    record["problem"],
                    kind,
                    f"{error:.4g}",
                    f"{found:.4g}",
                    f"{error / found:.3f}",
                    _words(record["chosen"]),
                    _words(best["settings"]),
                ]
            )
    return lines


def _words(settings: dict[str, Any]) -> str:
    theta = settings["theta"] if isinstance(settings["theta"], str) else f"{settings['theta']:.2g}"
    return f"{settings['loss']}, λ {settings['reg']:.2g}, θ {theta}" + (
        ", biases" if settings["bias"] else ""
    )
