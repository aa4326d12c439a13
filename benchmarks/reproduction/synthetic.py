"""One run on the paper's synthetic data."""

from __future__ import annotations

from typing import Any

from benchmarks.reproduction.methods import METHODS, fit_chosen
from benchmarks.reproduction.plan import Run, described
from robustmf.datasets import make_synthetic
from robustmf.datasets.oracle import oracle_factors
from robustmf.solvers.objective import paper_reg

RANK = 5

#: Least squares on the entries that are not outliers, from the true factors.
ORACLE = "oracle"

#: The data set of numerical versions.
PROBE = "m = 60"


def size(run: Run) -> int:
    """Rows and columns of the data set "m = …"."""
    return int(run.data.removeprefix("m = "))


def execute(run: Run, noise: float) -> dict[str, Any]:
    """Fit on the training half, choose on the validation half, measure on unobserved entries."""
    data = make_synthetic(size(run), rank=RANK, noise=noise, random_state=run.seed)
    if run.method == ORACLE:
        factors = oracle_factors(data, paper_reg(data.train.shape), n_jobs=1)
        return {"rmse": data.test_rmse(*factors)}
    method = METHODS[run.method]
    values = method.values
    if run.data == PROBE:
        values = values[:1]
    found = fit_chosen(
        method,
        RANK,
        values,
        data.train,
        data.validation,
        run.seed,
        lambda factors: data.test_rmse(*factors),
    )
    return {"rmse": found.curve["value"][-1]} | found.summary()


def settings(run: Run, noise: float) -> dict[str, Any]:
    """Data and method."""
    data = {"rank": RANK, "noise": noise}
    if run.method == ORACLE:
        return {**data, "reg": "paper"}
    method = METHODS[run.method]
    grid = {"grid": {method.grid: list(method.values)}} if method.grid else {}
    return {**data, **described(method.make), **grid}
