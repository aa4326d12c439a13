"""Whether the initialization, and not the method, is why single seeds end far from the others.

A run is a fit from the method's own initialization and one from the true factors. Where the second
ends with a lower objective, the first is not at the global minimum.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.reproduction import synthetic, table1, table2
from benchmarks.reproduction.methods import METHODS, data_to_fit
from benchmarks.reproduction.plan import Experiment, Run, described, seeded
from robustmf.baselines import AltGrad
from robustmf.datasets import make_synthetic
from robustmf.estimator import RobustMF

SIZE = f"m = {table2.SIZES[0]}"

#: Methods of Tables 1 and 2 with seeds that end far from the others.
METHODS_COMPARED = ("AltGrad", "RMFNL Geman", "RMFNL Laplace", "Laplace, LADMPSAP")

#: The minimizer of AltGrad's objective, whose steps are slow near the minimum.
_LEAST_SQUARES = partial(
    RobustMF, loss="l2", solver="irls", reg="paper", bias=False, max_iter=3000, tol=1e-7
)


def runs(quick: bool) -> list[Run]:
    """Five seeds per method; a quick plan has one of a fast method."""
    methods = METHODS_COMPARED[1:2] if quick else METHODS_COMPARED
    return seeded("minima", methods, (SIZE,), lambda *_: 1 if quick else table2.SEEDS)


def _make(method: str) -> Any:
    """The estimator without its seed."""
    if method == "AltGrad":
        return _LEAST_SQUARES
    if method in METHODS:
        return partial(METHODS[method].make, reg="paper")
    return table1.estimator(method)


def execute(run: Run) -> dict[str, Any]:
    """Objective and RMSE from both initializations."""
    data = make_synthetic(synthetic.size(run), rank=synthetic.RANK, random_state=run.seed)
    train = data_to_fit(data.train)
    seed = 1000 + run.seed
    make = partial(_make(run.method), synthetic.RANK, random_state=seed, n_jobs=1)
    own = make
    if run.method == "AltGrad":
        model = AltGrad(synthetic.RANK, reg="paper", random_state=seed, n_jobs=1).fit(train)
        own = partial(make, init=(model.row_factors_, model.column_factors_))
    found = {}
    for name, one in (
        ("own", own),
        ("true", partial(make, init=(data.row_factors, data.column_factors))),
    ):
        model = one().fit(train)
        factors = (model.row_factors_, model.column_factors_)
        found[name] = {
            "objective": model.history_["objective"][-1],
            "rmse": data.test_rmse(*factors),
        }
    return found


def settings(run: Run) -> dict[str, Any]:
    """Data and method."""
    return {"rank": synthetic.RANK, "noise": table2.NOISE, **described(_make(run.method))}


def probe(method: str) -> float:
    """RMSE at m = 60 from the method's own initialization."""
    return float(execute(Run("minima", method, synthetic.PROBE, 0))["own"]["rmse"])


EXPERIMENT = Experiment(
    "minima", "Local minima from the initializations", runs, execute, settings, probe
)
