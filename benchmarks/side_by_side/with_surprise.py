"""The tasks with Surprise (the package scikit-surprise)."""

from __future__ import annotations

from typing import Any

import pandas as pd
from surprise import SVD, Dataset, Reader, dump
from surprise.model_selection import GridSearchCV

from benchmarks.side_by_side.tables import Tables

PACKAGE = "scikit-surprise"
NOT_OFFERED = {
    "compare": "one loss, least squares",
    "page": "no page or plot",
    "cluster": "one process",
    "explain": "no scores of users",
}


def fit(t: Tables) -> Any:
    """Fit my frame; one predicted rating."""
    reader = Reader(rating_scale=(1, 5))
    data = Dataset.load_from_df(t.ratings[["user", "item", "rating"]], reader)
    model = SVD(random_state=0).fit(data.build_full_trainset())
    return model.predict("u7", "i3")


def _completed(table: Any) -> Any:
    long = table.reset_index().melt("time").dropna()
    reader = Reader(rating_scale=(long["value"].min(), long["value"].max()))
    data = Dataset.load_from_df(long[["time", "variable", "value"]], reader)
    model = SVD(n_factors=2, random_state=0).fit(data.build_full_trainset())
    cells = [[model.predict(row, column).est for column in table.columns] for row in table.index]
    return pd.DataFrame(cells, table.index, table.columns)


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
    new = pd.DataFrame(list(t.new_user.items()), columns=["item", "rating"]).assign(user="new")
    table = pd.concat([t.ratings, new])[["user", "item", "rating"]]
    data = Dataset.load_from_df(table, Reader(rating_scale=(1, 5)))
    model = SVD(random_state=0).fit(data.build_full_trainset())
    others = set(t.ratings["item"]) - set(t.new_user)
    found = sorted((model.predict("new", item) for item in others), key=lambda p: -p.est)
    return [(one.iid, one.est) for one in found[:3]]


def rank(t: Tables) -> Any:
    """Choose a rank."""
    table = t.ratings[["user", "item", "rating"]]
    data = Dataset.load_from_df(table, Reader(rating_scale=(1, 5)))
    search = GridSearchCV(SVD, {"n_factors": [1, 2, 3, 5, 10], "random_state": [0]}, cv=3)
    search.fit(data)
    return search.best_params["rmse"]["n_factors"]


def save(t: Tables) -> Any:
    """Save and load."""
    table = t.ratings[["user", "item", "rating"]]
    data = Dataset.load_from_df(table, Reader(rating_scale=(1, 5)))
    model = SVD(random_state=0).fit(data.build_full_trainset())
    dump.dump(t.folder / "model.pickle", algo=model)
    return dump.load(t.folder / "model.pickle")[1]
