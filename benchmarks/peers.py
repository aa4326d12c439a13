"""Seconds and RMSE beside LIBMF (stochastic gradient, l1 loss) and cmfrec (exact ALS).

All run on one thread and CPU seconds are counted. Every run is made from scratch with more and more
iterations; the last number of iterations is taken for convergence. Settings of LIBMF and cmfrec are
chosen by the mean absolute error on validation entries, which contain outliers. Needs the extra
``bench``; a package that is not installed is named in the table.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.measure import announce, in_new_process, markdown, side, timed
from benchmarks.peer_models import cmfrec_factors, libmf_factors, triplets
from benchmarks.problems import movielens_sized, pair_products
from robustmf.data.observed import Observed
from robustmf.datasets import Synthetic, make_synthetic
from robustmf.datasets.oracle import oracle_factors
from robustmf.estimator import RobustMF
from robustmf.solvers.objective import paper_reg

SMALL = {"scale": 0.001, "repeats": 1}

Array = NDArray[np.floating[Any]]
Settings = dict[str, float]
Fit = Callable[[Any, int, int, Settings], tuple[Array, Array]]


@dataclass(frozen=True)
class Limits:
    """When a fit is no longer repeated, and how long another package may take.

    Attributes
    ----------
    seconds : float, default=3.0
        CPU seconds after which a fit is not repeated.
    package_seconds, package_seconds_per_entry : float, default=60.0 and 2e-3
        Limit for all runs of another package, which may hang (LIBMF does now and then).
    """

    seconds: float = 3.0
    package_seconds: float = 60.0
    package_seconds_per_entry: float = 2e-3


LIMITS = Limits()


@dataclass(frozen=True)
class Method:
    """How a package is fitted.

    Attributes
    ----------
    fit : callable
        ``fit(data, rank, iterations, settings)`` gives the factors; timed.
    iterations : tuple of int
        Numbers of iterations to run, ascending.
    prepare : callable
        Converts the training entries to what the package reads; not timed.
    grid : dict
        Settings to choose from on validation entries.
    package : str
        What must be installed.
    """

    fit: Fit
    iterations: tuple[int, ...]
    prepare: Callable[[Observed], Any] = lambda data: data
    grid: dict[str, tuple[float, ...]] = field(default_factory=dict)
    package: str = "robustmf"


def _robustmf(loss: str) -> Fit:
    def fit(data: Observed, rank: int, iterations: int, _: Settings) -> tuple[Array, Array]:
        model = RobustMF(rank, loss=loss, max_iter=iterations, random_state=0, n_jobs=1).fit(data)
        return model.row_factors_, model.column_factors_

    return fit


def _libmf(data: Array, rank: int, iterations: int, settings: Settings) -> tuple[Array, Array]:
    return libmf_factors(data, rank, iterations, settings["eta"], settings["ridge"], 1)


def _cmfrec(data: Any, rank: int, iterations: int, settings: Settings) -> tuple[Array, Array]:
    return cmfrec_factors(data, rank, iterations, settings["ridge"], 1)


METHODS: dict[str, Method] = {
    "RobustMF, defaults": Method(_robustmf("welsch"), (1, 2, 5, 10, 200)),
    "RobustMF, l1": Method(_robustmf("l1"), (1, 2, 5, 10, 20, 200)),
    "LIBMF, l1": Method(
        _libmf,
        (5, 10, 20, 50, 100, 200, 500),
        triplets,
        {"eta": (0.03, 0.1), "ridge": (0.01, 0.03, 0.1)},
        "libmf",
    ),
    "cmfrec, l2": Method(
        _cmfrec,
        (1, 2, 5, 10, 20, 50),
        lambda data: sp.coo_matrix(data.to_sparse()),
        {"ridge": (0.1, 1.0, 3.0, 10.0)},
        "cmfrec",
    ),
}


def problems(scale: float) -> dict[str, tuple[Synthetic, int]]:
    """The paper's problem, and one in the size of MovieLens-1M; noise 0.1, 5 % outliers of ±5."""
    chosen = ((make_synthetic(side(1000, scale), random_state=0), 5), (movielens_sized(scale), 10))
    return {" × ".join(map(str, data.train.shape)): (data, rank) for data, rank in chosen}


def run(scale: float = 1.0, repeats: int = 3) -> list[dict[str, Any]]:
    """One record per problem and method; the quickest of the repetitions of a fit counts."""
    records = []
    for problem, (data, rank) in problems(scale).items():
        oracle = data.test_rmse(*oracle_factors(data, paper_reg(data.train.shape), n_jobs=1))
        for name in METHODS:
            announce(f"{problem}: {name}")
            records.append(
                {
                    "problem": problem,
                    "entries": data.train.n_entries,
                    "rank": rank,
                    "oracle": oracle,
                    "method": name,
                    **_measured(name, data, rank, repeats),
                }
            )
    return records


def _measured(name: str, data: Synthetic, rank: int, repeats: int) -> dict[str, Any]:
    """The measurement, or the reason why there is none; other packages get a process each."""
    package = METHODS[name].package
    if package == "robustmf":
        return measure(name, data, rank, repeats)
    if importlib.util.find_spec(package) is None:
        return {"failed": f"{package} is not installed"}
    limit = LIMITS.package_seconds + LIMITS.package_seconds_per_entry * data.train.n_entries
    try:
        return in_new_process(measure, name, data, rank, repeats, limit=limit)
    except (TimeoutError, RuntimeError) as error:
        return {"failed": str(error)}


def measure(name: str, data: Synthetic, rank: int, repeats: int) -> dict[str, Any]:
    """The chosen settings; for each number of iterations the least CPU seconds and the RMSE."""
    method = METHODS[name]
    given = method.prepare(data.train)
    values = product(*method.grid.values())
    choices = [dict(zip(method.grid, one, strict=True)) for one in values]
    rows = data.validation.rows
    # fewer iterations would favour settings that only begin well
    attempted = method.iterations[-2]

    def validation_error(settings: Settings) -> float:
        U, V = method.fit(given, rank, attempted, settings)
        predicted = pair_products(U, V, rows.group_of_entry(), rows.indices)
        return float(np.abs(rows.values - predicted).mean())

    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        method.fit(given, rank, 1, choices[0])  # compiles
        chosen = min(choices, key=validation_error) if len(choices) > 1 else choices[0]
        runs = []
        for iterations in method.iterations:
            times: list[float] = []
            while len(times) < repeats and sum(times) < LIMITS.seconds:
                seconds, factors = timed(
                    lambda k=iterations: method.fit(given, rank, k, chosen),  # type: ignore[misc]
                    time.process_time,
                )
                times.append(seconds)
            error = data.test_rmse(*factors)
            runs.append({"iterations": iterations, "seconds": min(times), "rmse": error})
    return {"settings": chosen, "runs": runs}


def _seconds_to(record: dict[str, Any], rmse: float) -> str:
    reached = [run["seconds"] for run in record["runs"] if run["rmse"] <= rmse]
    return f"{min(reached):.3f}" if reached else "not reached"


def table(results: list[dict[str, Any]]) -> str:
    """One row per problem and method."""
    rows = []
    for record in results:
        row = [record["problem"], record["method"]]
        if "runs" not in record:
            rows.append([*row, record["failed"], *[""] * 5])
            continue
        end = record["runs"][-1]
        settings = ", ".join(f"{name} {value:g}" for name, value in record["settings"].items())
        rows.append(
            [
                *row,
                settings,
                f"{end['seconds']:.3f}",
                f"{end['rmse']:.4f}",
                f"{end['rmse'] / record['oracle']:.2f}",
                _seconds_to(record, 1.1 * end["rmse"]),
                _seconds_to(record, 1.5 * record["oracle"]),
            ]
        )
    header = [
        "problem",
        "method",
        "settings",
        "CPU seconds",
        "RMSE",
        "relative to oracle",
        "seconds to 1.1 × its last RMSE",
        "seconds to 1.5 × oracle",
    ]
    return markdown("Complete fits on one thread", header, rows)
