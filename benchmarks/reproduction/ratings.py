"""One run on ratings under the love/hate attack: section 4.2 of the paper."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.problems import predicted_at, prediction_factors
from benchmarks.reproduction.methods import (
    METHODS,
    Factors,
    fit_chosen,
)
from benchmarks.reproduction.plan import DataMissingError, Run
from robustmf.datasets import RatingSet, load_movielens, load_netflix, load_yahoo, love_hate
from robustmf.metrics import rmse
from robustmf.selection import entry_split

#: The paper names no rank for ratings.
RANK = 5

_LOADERS: dict[str, Callable[[], RatingSet]] = {
    "MovieLens-100K": lambda: load_movielens("100k"),
    "MovieLens-1M": lambda: load_movielens("1m", paper_filter=True),
    "MovieLens-10M": lambda: load_movielens("10m"),
    "MovieLens latest-small": lambda: load_movielens("latest-small"),
    "Netflix": load_netflix,
    "Yahoo": load_yahoo,
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
    found = fit_chosen(
        method, RANK, method.rating_values, train, validation, run.seed,
        lambda factors: errors(factors)["attacked"],
    )  # fmt: skip
    return {"rmse": errors(prediction_factors(found.model)), "scale": scale} | found.summary()
