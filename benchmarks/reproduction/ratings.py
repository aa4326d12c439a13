"""One run on ratings under the love/hate attack: section 4.2 of the paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.problems import predicted_at, prediction_factors
from benchmarks.reproduction.methods import (
    METHODS,
    Factors,
    fit_chosen,
)
from benchmarks.reproduction.plan import DataMissingError, Run, described
from robustmf.data.observed import Observed
from robustmf.datasets import RatingSet, load_movielens, load_netflix, load_yahoo, love_hate
from robustmf.metrics import rmse
from robustmf.selection import entry_split

#: The paper names no rank for ratings.
RANK = 5

#: The data set of numerical versions: users, items and share of observed ratings.
PROBE = "probe"
_PROBE_SHAPE = (60, 45)
_PROBE_SHARE = 0.5

#: Netflix ratings of a share of the users, for methods that take hours with all of them.
NETFLIX_SHARE = 0.02
NETFLIX_PART = f"Netflix, {NETFLIX_SHARE:.0%} of the users"


def _small() -> RatingSet:
    """Ratings from 1 to 5 of rank 2, rounded."""
    rng = np.random.default_rng(7)
    users, items = (rng.normal(size=(count, 2)) for count in _PROBE_SHAPE)
    stars = np.clip(np.round(3 + users @ items.T), 1, 5)
    stars[rng.random(_PROBE_SHAPE) > _PROBE_SHARE] = np.nan
    return RatingSet(Observed.from_dense(stars), PROBE, PROBE, (1, 5))


def _netflix_part() -> RatingSet:
    """The same users for all methods and seeds, in double precision as the other sets."""
    data = load_netflix()
    users = data.ratings.shape[0]
    rng = np.random.default_rng(0)
    chosen = np.sort(rng.choice(users, round(NETFLIX_SHARE * users), replace=False))
    part = data.ratings[chosen]
    return replace(data, ratings=part.with_values(part.rows.values.astype(np.float64)))


_LOADERS: dict[str, Callable[[], RatingSet]] = {
    "MovieLens-100K": lambda: load_movielens("100k"),
    "MovieLens-1M": lambda: load_movielens("1m", paper_filter=True),
    "MovieLens-10M": lambda: load_movielens("10m"),
    "MovieLens latest-small": lambda: load_movielens("latest-small"),
    "Netflix": load_netflix,
    NETFLIX_PART: _netflix_part,
    "Yahoo": load_yahoo,
    PROBE: _small,
}


@lru_cache(maxsize=1)
def loaded(name: str) -> RatingSet:
    """The data set; DataMissingError where it is not found."""
    try:
        return _LOADERS[name]()
    except (FileNotFoundError, ConnectionError) as error:
        raise DataMissingError(str(error)) from None


def execute(run: Run) -> dict[str, Any]:
    """Attack, split 50/25/25, fit z-scores, choose λ on validation entries; three test errors.

    The test errors use the attacked values of the test entries (probably the paper's), the clean
    values of all of them, and the clean values of items that were not attacked.
    """
    data = loaded(run.data)
    attacked = love_hate(data.ratings, data.bounds, random_state=run.seed)
    parts = entry_split(attacked.ratings, (0.5, 0.25, 0.25), run.seed)
    clean = entry_split(data.ratings, (0.5, 0.25, 0.25), run.seed)[2]
    values = parts[0].rows.values
    center = float(values.mean(dtype=np.float64))
    scale = float(values.std(dtype=np.float64))
    train, validation, test = (
        part.with_values((part.rows.values - center) / scale) for part in parts
    )
    truths = {"attacked": test.rows.values, "clean": (clean.rows.values - center) / scale}
    low, high = ((bound - center) / scale for bound in data.bounds)
    spared = ~attacked.columns[test.rows.indices]

    def errors(factors: Factors) -> dict[str, float]:
        predicted = np.clip(predicted_at(test, factors), low, high)
        found = {name: rmse(truth, predicted) for name, truth in truths.items()}
        return found | {"spared": rmse(truths["clean"][spared], predicted[spared])}

    method = METHODS[run.method]
    values_tried = method.rating_values[:1] if run.data == PROBE else method.rating_values
    found = fit_chosen(
        method,
        RANK,
        values_tried,
        train,
        validation,
        run.seed,
        lambda factors: errors(factors)["attacked"],
    )
    return {"rmse": errors(prediction_factors(found.model)), "scale": scale} | found.summary()


def settings(run: Run) -> dict[str, Any]:
    """Data and method."""
    method = METHODS[run.method]
    grid = {"grid": {method.grid: list(method.rating_values)}} if method.grid else {}
    data = {"rank": RANK, "values": "z-scores", "parts": [0.5, 0.25, 0.25], "attack": "love/hate"}
    return {**data, **described(method.make), **grid}


def probe(name: str, method: str) -> float:
    """Test error on attacked ratings of the small data set."""
    return float(execute(Run(name, method, PROBE, 0))["rmse"]["attacked"])
