"""The tasks with cmfrec."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
from cmfrec import CMF

from benchmarks.side_by_side.tables import Tables

PACKAGE = "cmfrec"
IDS = {"user": "UserId", "item": "ItemId", "rating": "Rating"}
OPTIONS = {"verbose": False, "random_state": 0, "nthreads": 2}
NOT_OFFERED = {
    "compare": "one loss, least squares",
    "page": "no page or plot",
    "cluster": "one process",
    "explain": "no scores of users",
}


def fit(t: Tables) -> Any:
    """Fit my frame; one predicted rating."""
    names = {"user": "UserId", "item": "ItemId", "rating": "Rating"}
    model = CMF(verbose=False, random_state=0).fit(t.ratings.rename(columns=names))
    return model.predict("u7", "i3")


def _completed(table: Any) -> Any:
    model = CMF(k=2, lambda_=1, **OPTIONS).fit(table.to_numpy())
    found = model.predict(*np.indices(table.shape).reshape(2, -1)).reshape(table.shape)
    return pd.DataFrame(found, table.index, table.columns)


def find(t: Tables) -> Any:
    """Find the bad cells; a table of flags."""
    residual = (t.sensors - _completed(t.sensors)).abs()
    return residual > 4 * 1.4826 * residual.stack().median()


def clean(t: Tables) -> Any:
    """Clean a CSV; the written file."""
    table = pd.read_csv(t.path, index_col="time")
    residual = (table - _completed(table)).abs()
    kept = table.mask(residual > 4 * 1.4826 * residual.stack().median())
    kept.fillna(_completed(kept)).to_csv(t.folder / "cleaned.csv")
    return t.folder / "cleaned.csv"


def recommend(t: Tables) -> Any:
    """Recommend for a new user; three items."""
    model = CMF(**OPTIONS).fit(t.ratings.rename(columns=IDS))
    items, values = np.array(list(t.new_user)), np.array(list(t.new_user.values()))
    return model.topN_warm(n=3, X_col=items, X_val=values, exclude=items, output_score=True)


def rank(t: Tables) -> Any:
    """Choose a rank."""
    found = {}
    for k in (1, 2, 3, 5, 10):
        model = CMF(k=k, **OPTIONS).fit(t.train.rename(columns=IDS))
        predicted = model.predict(t.held_out["user"], t.held_out["item"])
        found[k] = np.mean((predicted - t.held_out["rating"]) ** 2)
    return min(found, key=found.get)


def save(t: Tables) -> Any:
    """Save and load."""
    model = CMF(**OPTIONS).fit(t.ratings.rename(columns=IDS))
    (t.folder / "model.pickle").write_bytes(pickle.dumps(model))
    return pickle.loads((t.folder / "model.pickle").read_bytes())
