"""The tasks with Qolmat: imputation of tables, also by robust PCA."""

from __future__ import annotations

import pickle
from typing import Any

import pandas as pd
from qolmat.benchmark.comparator import Comparator
from qolmat.benchmark.missing_patterns import UniformHoleGenerator
from qolmat.imputations.imputers import ImputerRpcaNoisy, ImputerRpcaPcp, ImputerSoftImpute
from qolmat.imputations.rpca.rpca_noisy import RpcaNoisy

from benchmarks.side_by_side.tables import Tables

PACKAGE = "qolmat"
OPTIONS = {"random_state": 0, "max_iterations": 200}  # the default of 10,000 takes minutes
NOT_OFFERED = {
    "page": "plots of imputations, no page",
    "cluster": "one process",
    "explain": "no scores of rows",
}


def fit(t: Tables) -> Any:
    """Fit my frame; one predicted rating."""
    wide = t.ratings.pivot(index="user", columns="item", values="rating")
    return ImputerRpcaNoisy(**OPTIONS).fit_transform(wide).loc["u7", "i3"]


def find(t: Tables) -> Any:
    """Find the bad cells; a table of flags."""
    observed = t.sensors.notna().to_numpy()
    low, _ = RpcaNoisy(**OPTIONS, rank=2).decompose(t.sensors.to_numpy(), observed)
    residual = (t.sensors - low).abs()
    return residual > 4 * 1.4826 * residual.stack().median()


def clean(t: Tables) -> Any:
    """Clean a CSV; the written file."""
    table = pd.read_csv(t.path, index_col="time")
    low, _ = RpcaNoisy(**OPTIONS, rank=2).decompose(table.to_numpy(), table.notna().to_numpy())
    residual = (table - low).abs()
    bad = residual > 4 * 1.4826 * residual.stack().median()
    cleaned = ImputerRpcaNoisy(**OPTIONS, rank=2).fit_transform(table.mask(bad))
    cleaned.to_csv(t.folder / "cleaned.csv")
    return t.folder / "cleaned.csv"


def recommend(t: Tables) -> Any:
    """Recommend for a new user; three items."""
    wide = t.ratings.pivot(index="user", columns="item", values="rating")
    wide.loc["new"] = pd.Series(t.new_user)
    filled = ImputerRpcaNoisy(**OPTIONS).fit_transform(wide)
    return filled.loc["new"].drop(list(t.new_user)).nlargest(3)


def rank(t: Tables) -> Any:
    """Choose a rank."""
    imputers = {str(k): ImputerRpcaNoisy(**OPTIONS, rank=k) for k in (1, 2, 3, 5, 10)}
    holes = UniformHoleGenerator(n_splits=2, ratio_masked=0.1, random_state=0)
    errors = Comparator(imputers, generator_holes=holes, metrics=["mae"]).compare(t.sensors)
    return int(errors.loc["mae"].mean().idxmin())


def compare(t: Tables) -> Any:
    """Compare a robust loss with least squares; mean absolute errors."""
    wide = t.ratings.pivot(index="user", columns="item", values="rating")
    imputers = {"RPCA": ImputerRpcaPcp(**OPTIONS), "l2": ImputerSoftImpute(**OPTIONS)}
    holes = UniformHoleGenerator(n_splits=2, ratio_masked=0.1, random_state=0)
    errors = Comparator(imputers, generator_holes=holes, metrics=["mae"]).compare(wide)
    return errors.loc["mae"].mean().to_dict()


def save(t: Tables) -> Any:
    """Save and load."""
    imputer = ImputerRpcaNoisy(**OPTIONS).fit(t.sensors)
    (t.folder / "model.pickle").write_bytes(pickle.dumps(imputer))
    return pickle.loads((t.folder / "model.pickle").read_bytes())
