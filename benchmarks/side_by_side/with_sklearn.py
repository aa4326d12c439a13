"""The tasks with scikit-learn."""

from __future__ import annotations

from typing import Any

import joblib
import numpy as np
import pandas as pd
from sklearn.decomposition import PCA
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, SimpleImputer
from sklearn.linear_model import BayesianRidge, HuberRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from benchmarks.side_by_side.tables import Tables

PACKAGE = "scikit-learn"
NOT_OFFERED = {
    "page": "a diagram of the settings in notebooks, not of the data",
    "cluster": "joblib distributes the fits of a search, not a fit",
    "explain": "outlier detectors give a score per row, no reason",
}


def fit(t: Tables) -> Any:
    """Fit my frame; one predicted rating."""
    wide = t.ratings.pivot(index="user", columns="item", values="rating")
    imputer = IterativeImputer(random_state=0).set_output(transform="pandas")
    return imputer.fit_transform(wide).loc["u7", "i3"]


def find(t: Tables) -> Any:
    """Find the bad cells; a table of flags."""
    imputer = IterativeImputer(random_state=0).set_output(transform="pandas")
    filled = imputer.fit_transform(t.sensors)
    pca = PCA(2).fit(filled)
    residual = (t.sensors - pca.inverse_transform(pca.transform(filled))).abs()
    return residual > 4 * 1.4826 * residual.stack().median()


def clean(t: Tables) -> Any:
    """Clean a CSV; the written file."""
    table = pd.read_csv(t.path, index_col="time")
    imputer = IterativeImputer(random_state=0).set_output(transform="pandas")
    filled = imputer.fit_transform(table)
    pca = PCA(2).fit(filled)
    residual = (table - pca.inverse_transform(pca.transform(filled))).abs()
    bad = residual > 4 * 1.4826 * residual.stack().median()
    imputer.fit_transform(table.mask(bad)).to_csv(t.folder / "cleaned.csv")
    return t.folder / "cleaned.csv"


def recommend(t: Tables) -> Any:
    """Recommend for a new user; three items."""
    wide = t.ratings.pivot(index="user", columns="item", values="rating")
    imputer = IterativeImputer(random_state=0).set_output(transform="pandas").fit(wide)
    row = pd.DataFrame([t.new_user], columns=wide.columns)
    return imputer.transform(row).loc[0].drop(list(t.new_user)).nlargest(3)


def rank(t: Tables) -> Any:
    """Choose a rank."""
    pipeline = make_pipeline(SimpleImputer(), PCA())
    grid = {"pca__n_components": [1, 2, 3, 5, 10]}
    return GridSearchCV(pipeline, grid).fit(t.sensors).best_params_["pca__n_components"]


def compare(t: Tables) -> Any:
    """Compare a robust loss with least squares; mean absolute errors."""
    wide = t.train.pivot(index="user", columns="item", values="rating")
    error = {}
    for regressor in (HuberRegressor(), BayesianRidge()):
        imputer = IterativeImputer(regressor, random_state=0).set_output(transform="pandas")
        long = imputer.fit_transform(wide).stack()
        found = long.reindex(pd.MultiIndex.from_frame(t.held_out[["user", "item"]]))
        error[type(regressor).__name__] = np.nanmean(np.abs(found - list(t.held_out["rating"])))
    return error


def save(t: Tables) -> Any:
    """Save and load."""
    imputer = IterativeImputer(random_state=0).fit(t.sensors)
    joblib.dump(imputer, t.folder / "model.joblib")
    return joblib.load(t.folder / "model.joblib")
