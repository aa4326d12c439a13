"""Errors of RobustMF's defaults against the best of some twenty settings chosen on the test set.

The search varies one parameter at a time, beginning at the default fit: λ, biases, loss, θ, and λ
again. Problems: synthetic data, Dinosaur tracks, MovieLens latest-small clean and attacked.
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

from benchmarks.measure import announce, markdown
from benchmarks.problems import predicted_at, prediction_factors
from robustmf.data.observed import Observed
from robustmf.datasets import Synthetic, load_dinosaur, load_movielens, love_hate, make_synthetic
from robustmf.estimator import RobustMF
from robustmf.metrics import mae, rmse
from robustmf.selection import entry_split

SMALL = {"only": "m = 500, noise 0.1, × 1000"}


@dataclass(frozen=True)
class Search:
    """What the search tries.

    Attributes
    ----------
    regs, last_regs : tuple of float
        Multiples of λ in the first and the last step.
    losses : tuple of str
        Losses besides the default.
    thetas : tuple of float
        Multiples of θ.
    theta_per_sigma : float, default=4.2
        θ/σ̂ of the default loss: λ of least squares is this multiple of λ/θ of l1.
    synthetic_seeds, dinosaur_splits : int, default=2 and 10
        Data sets or splits over which errors are averaged.
    """

    regs: tuple[float, ...] = (0.01, 0.1, 0.3, 3.0, 10.0, 100.0)
    last_regs: tuple[float, ...] = (0.3, 0.5, 2.0, 3.0)
    losses: tuple[str, ...] = ("huber", "cauchy", "l1", "l2")
    thetas: tuple[float, ...] = (0.5, 2.0)
    theta_per_sigma: float = 4.2
    synthetic_seeds: int = 2
    dinosaur_splits: int = 10


SEARCH = Search()

Errors = dict[str, float]


@dataclass(frozen=True)
class Case:
    """One problem.

    Attributes
    ----------
    rank : int
        Rank of all fits.
    problems : list of (Observed, callable)
        Entries to fit and the errors of a fitted model; errors are averaged over the list.
    init : str, default="auto"
        Initialization of the fits of the search; the default fit has its own.
    """

    rank: int
    problems: list[tuple[Observed, Callable[[RobustMF], Errors]]]
    init: str = "auto"

    def errors(self, **settings: Any) -> tuple[Errors, RobustMF]:
        """Mean errors, and the last model."""
        found = []
        for train, measure in self.problems:
            model = RobustMF(self.rank, random_state=0, n_jobs=1, **settings).fit(train)
            found.append(measure(model))
        means = {name: float(np.mean([errors[name] for errors in found])) for name in found[0]}
        return means, model


def _against_clean(data: Synthetic, scale: float) -> Callable[[RobustMF], Errors]:
    def measure(model: RobustMF) -> Errors:
        U, V = prediction_factors(model)
        return {"RMSE, unobserved": data.test_rmse(U / scale, V)}

    return measure


def error_on(
    entries: Observed, name: str = "held out", squares: bool = True
) -> Callable[[RobustMF], Errors]:
    """Mean absolute error, and with ``squares`` the RMSE, on entries of fitted rows."""
    values = entries.rows.values

    def measure(model: RobustMF) -> Errors:
        predicted = predicted_at(entries, prediction_factors(model))
        errors = {f"MAE, {name}": mae(values, predicted)}
        return errors | ({f"RMSE, {name}": rmse(values, predicted)} if squares else {})

    return measure


def cases(folder: Path | None, first_seed: int) -> dict[str, Callable[[], Case]]:
    """Functions that make the problems, by name."""
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
        for seed in range(SEARCH.synthetic_seeds)
    ]
    problems = [
        (data.train.with_values(scale * data.train.rows.values), _against_clean(data, scale))
        for data in made
    ]
    return Case(5, problems)


def _dinosaur(folder: Path | None, min_views: int, first_seed: int, held_out: bool) -> Case:
    tracks = load_dinosaur(min_views, folder)
    if not held_out:
        return Case(4, [(tracks, error_on(tracks, "training", squares=False))])
    seeds = range(first_seed, first_seed + SEARCH.dinosaur_splits)
    splits = [entry_split(tracks, (0.95, 0.05), seed) for seed in seeds]
    return Case(4, [(train, error_on(test, squares=False)) for train, test in splits])


def _movielens(
    folder: Path | None, share: float, rank: int, first_seed: int, attacked: bool
) -> Case:
    ratings = load_movielens("latest-small", folder)
    train, test = entry_split(ratings.ratings, (share, 1 - share), first_seed)
    if attacked:
        train = love_hate(train, ratings.bounds, random_state=first_seed).ratings
    # the search takes most of the time of a fit and gains nothing on these data
    return Case(rank, [(train, error_on(test))], init="ridge")


def search(case: Case) -> dict[str, Any]:
    """Errors of the default and of all settings tried; the first kind of error is minimized."""
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
    for share in SEARCH.regs:
        attempt(dict(best, reg=share * chosen["reg"]))
    attempt(dict(best, bias=not best["bias"]))
    for loss in SEARCH.losses:
        unit = SEARCH.theta_per_sigma / chosen["theta"] if loss == "l1" else 1.0
        attempt(dict(best, loss=loss, reg=best["reg"] * unit))
    if best["loss"] == "welsch":
        for share in SEARCH.thetas:
            attempt(dict(best, theta=share * chosen["theta"]))
    for share in SEARCH.last_regs:
        attempt(dict(best, reg=share * best["reg"]))
    return {"default": errors, "chosen": chosen, "tried": tried}


def run(data: Path | None = None, first_seed: int = 70_000, only: str = "") -> list[dict[str, Any]]:
    """One record per problem whose name contains ``only``."""
    records = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, make in cases(data, first_seed).items():
            if only in name:
                announce(name)
                records.append({"problem": name, **search(make())})
    return records


def table(results: list[dict[str, Any]]) -> str:
    """One row per problem and kind of error."""
    rows = []
    for record in results:
        for kind, error in record["default"].items():
            errors = [one["errors"][kind] for one in record["tried"]]
            found = min(errors)
            best = record["tried"][errors.index(found)]
            figures = [f"{error:.4g}", f"{found:.4g}", f"{error / found:.3f}"]
            settings = [_shown(record["chosen"]), _shown(best["settings"])]
            rows.append([record["problem"], kind, *figures, *settings])
    header = ["problem", "error", "default", "best", "ratio", "default's choice", "best setting"]
    return markdown("", header, rows)


def _shown(settings: dict[str, Any]) -> str:
    theta = settings["theta"] if isinstance(settings["theta"], str) else f"{settings['theta']:.2g}"
    biases = ", biases" if settings["bias"] else ""
    return f"{settings['loss']}, λ {settings['reg']:.2g}, θ {theta}{biases}"
