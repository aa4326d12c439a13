"""Seconds and accuracy beside LIBMF (stochastic gradient, l1 loss) and cmfrec (exact alternating least squares).

All run on one thread, and CPU seconds are counted, so that other work on the machine does not decide.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.peer_models import cmfrec_factors, libmf_factors, triplets
from benchmarks.sizes import side
from benchmarks.time_limit import within
from robustmf.data.observed import Observed
from robustmf.datasets import Synthetic, make_synthetic
from robustmf.datasets.oracle import oracle_factors
from robustmf.estimator import RobustMF
from robustmf.solvers.objective import paper_reg

Array = NDArray[np.floating[Any]]
Settings = dict[str, float]
Fit = Callable[[Any, int, int, Settings], tuple[Array, Array]]

#: A run is timed this often, or until so many seconds are spent on it, and the quickest taken.
_REPEATS, _SECONDS = 3, 3.0

#: What another package may take for all its runs, in seconds, and for each entry: LIBMF now and then stands still for ever.
_LIMIT, _LIMIT_AN_ENTRY = 60.0, 2e-3


@dataclass(frozen=True)
class Method:
    """How to fit ``rank`` to prepared data in so many iterations.

    Attributes
    ----------
    prepare : from the training entries to what the package reads; not timed
    fit : (data, rank, iterations, settings) → factors; timed
    iterations : what to run, ascending; the last is taken for convergence
    grid : settings to choose from by the mean absolute error on the validation entries, outliers and all
    package : what must be installed
    """

    prepare: Callable[[Observed], Any]
    fit: Fit
    iterations: tuple[int, ...]
    grid: dict[str, tuple[float, ...]]
    package: str = "robustmf"


def _robustmf(loss: str) -> Fit:
    def fit(data: Observed, rank: int, iterations: int, _: Settings) -> tuple[Array, Array]:
        model = RobustMF(rank, loss=loss, max_iter=iterations, random_state=0, n_jobs=1).fit(data)
        return model.row_factors_, model.column_factors_

    return fit


def _libmf(data: Array, rank: int, iterations: int, settings: Settings) -> tuple[Array, Array]:
    return libmf_factors(data, rank, iterations, settings["eta"], settings["ridge"], 1)


def _cmfrec(
    X: sp.coo_matrix, rank: int, iterations: int, settings: Settings
) -> tuple[Array, Array]:
    return cmfrec_factors(X, rank, iterations, settings["ridge"], 1)


METHODS: dict[str, Method] = {
    "RobustMF, defaults": Method(lambda data: data, _robustmf("welsch"), (1, 2, 5, 10, 200), {}),
    "RobustMF, l1": Method(lambda data: data, _robustmf("l1"), (1, 2, 5, 10, 20, 200), {}),
    "LIBMF, l1": Method(
        triplets,
        _libmf,
        (5, 10, 20, 50, 100, 200, 500),
        {"eta": (0.03, 0.1), "ridge": (0.01, 0.03, 0.1)},
        "libmf",
    ),
    "cmfrec, l2": Method(
        lambda data: sp.coo_matrix(data.to_sparse()),
        _cmfrec,
        (1, 2, 5, 10, 20, 50),
        {"ridge": (0.1, 1.0, 3.0, 10.0)},
        "cmfrec",
    ),
}


def problems(scale: float) -> dict[str, tuple[Synthetic, int]]:
    """The paper's problem, and one of MovieLens-1M's size; noise 0.1, 5 % outliers of ±5."""
    paper = make_synthetic(side(1000, scale), random_state=0)
    large = make_synthetic(
        side(6040, scale),
        side(3449, scale),
        rank=10,
        observed=2_000_000 / (6040 * 3449),
        random_state=0,
    )
    return {
        " × ".join(map(str, data.train.shape)): (data, rank)
        for data, rank in ((paper, 5), (large, 10))
    }


def _validation_error(data: Synthetic, U: Array, V: Array) -> float:
    rows = data.validation.rows
    return float(
        np.abs(
            rows.values - np.einsum("tq,tq->t", U[rows.group_of_entry()], V[rows.indices])
        ).mean()
    )


def measure(name: str, data: Synthetic, rank: int) -> dict[str, Any]:
    """The chosen settings, and for each number of iterations the least CPU seconds and the test RMSE, each run from scratch."""
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        return _measured(METHODS[name], data, rank)


def _measured(method: Method, data: Synthetic, rank: int) -> dict[str, Any]:
    given = method.prepare(data.train)
    choices = [
        dict(zip(method.grid, values, strict=True)) for values in product(*method.grid.values())
    ]
    method.fit(given, rank, 1, choices[0])  # compiles
    chosen = choices[0]
    if len(choices) > 1:
        tried = method.iterations[-2]  # fewer would favour settings that only begin well
        chosen = min(
            choices,
            key=lambda settings: _validation_error(data, *method.fit(given, rank, tried, settings)),
        )
    runs = []
    for iterations in method.iterations:
        times: list[float] = []
        while len(times) < _REPEATS and sum(times) < _SECONDS:
            started = time.process_time()
            U, V = method.fit(given, rank, iterations, chosen)
            times.append(time.process_time() - started)
        runs.append({"iterations": iterations, "seconds": min(times), "rmse": data.test_rmse(U, V)})
    return {"settings": chosen, "runs": runs}


def run(scale: float, announce: Callable[[str], None]) -> list[dict[str, Any]]:
    """One record a problem and method; a package that is not installed, stands still or fails has a record that says so."""
    records = []
    for problem, (data, rank) in problems(scale).items():
        oracle = data.test_rmse(*oracle_factors(data, paper_reg(data.train.shape), n_jobs=1))
        for name, method in METHODS.items():
            record: dict[str, Any] = {
                "problem": problem,
                "entries": data.train.n_entries,
                "rank": rank,
                "oracle": oracle,
                "method": name,
            }
            if importlib.util.find_spec(method.package) is None:
                announce(f"{problem}: {name}: {method.package} is not installed")
                records.append({**record, "not_installed": method.package})
                continue
            announce(f"{problem}: {name}")
            if method.package == "robustmf":
                records.append({**record, **measure(name, data, rank)})
                continue
            try:
                found = within(
                    _LIMIT + _LIMIT_AN_ENTRY * data.train.n_entries, measure, name, data, rank
                )
            except (TimeoutError, RuntimeError) as error:
                announce(f"{problem}: {name}: {error}")
                found = {"failed": str(error)}
            records.append({**record, **found})
    return records


def _seconds_to(record: dict[str, Any], rmse: float) -> str:
    reached = [run["seconds"] for run in record["runs"] if run["rmse"] <= rmse]
    return f"{min(reached):.3f} s" if reached else "not reached"


def table(records: list[dict[str, Any]]) -> list[list[str]]:
    """One line a problem and method: the end, and the seconds of the quickest run that comes close to it, and to the oracle."""
    lines = [
        [
            "problem",
            "method",
            "settings",
            "seconds",
            "RMSE",
            "/ oracle",
            "to 1.1 × its end",
            "to 1.5 × the oracle",
        ]
    ]
    for record in records:
        if "runs" not in record:
            reason = (
                f"{record['not_installed']} is not installed"
                if "not_installed" in record
                else record["failed"]
            )
            lines.append([record["problem"], record["method"], reason, *[""] * 5])
            continue
        end = record["runs"][-1]
        settings = ", ".join(f"{name} {value:g}" for name, value in record["settings"].items())
        lines.append(
            [
                record["problem"], record["method"], settings, f"{end['seconds']:.3f} s",
                f"{end['rmse']:.4f}", f"{end['rmse'] / record['oracle']:.2f}",
                _seconds_to(record, 1.1 * end["rmse"]), _seconds_to(record, 1.5 * record["oracle"]),
            ]
        )  # fmt: skip
    return lines
