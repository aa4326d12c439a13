"""RMSE relative to the oracle on the paper's synthetic problem, with RobustMF's defaults.

The rank is not given. The problem has rank 5, noise of standard deviation 0.1 and 5 % of the
entries off by ±5. The oracle is least squares on the entries that are not outliers.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np

from benchmarks.measure import announce, column, grouped, markdown, timed
from benchmarks.peer_models import LIBMF
from benchmarks.problems import prediction_factors
from robustmf.datasets import Synthetic, make_synthetic
from robustmf.datasets.oracle import oracle_factors
from robustmf.estimator import RMFNL, RobustMF
from robustmf.solvers.objective import paper_reg

SMALL = {"data_seeds": 1, "initializations": 1, "jobs": 1}
RANK = 5

#: A run succeeds within this multiple of the oracle's RMSE.
WITHIN = 1.05


@dataclass(frozen=True)
class Run:
    """One fit of one method to one data set."""

    method: str
    m: int
    outliers: float
    magnitude: float
    data_seed: int
    init_seed: int


def _robustmf(data: Synthetic, seed: int) -> Any:
    return RobustMF(random_state=seed, n_jobs=1).fit(data.train)


def _rmfnl(loss: str) -> Callable[[Synthetic, int], Any]:
    """The paper's algorithm, initialized by least squares as in its authors' code."""
    return lambda data, seed: RMFNL(RANK, loss=loss, init="ridge", random_state=seed, n_jobs=1).fit(
        data.train
    )


def _libmf(data: Synthetic, seed: int) -> Any:
    """LIBMF with the l1 loss; its settings were chosen on the problem with 5 % outliers."""
    return LIBMF(RANK, reg=0.03, random_state=seed, n_jobs=1, max_iter=500).fit(data.train)


METHODS: dict[str, Callable[[Synthetic, int], Any]] = {
    "RobustMF": _robustmf,
    "RMFNL l1": _rmfnl("l1"),
    "RMFNL lsp": _rmfnl("lsp"),
    "LIBMF l1": _libmf,
}


def run(
    data_seeds: int = 20, initializations: int = 5, first_seed: int = 10_000, jobs: int = 2
) -> list[dict[str, Any]]:
    """Every data seed with every seed of the initialization at m = 250, 500 and 1000."""
    plan = [
        Run("RobustMF", m, 0.05, 5.0, first_seed + d, 10 * first_seed + s)
        for m in (250, 500, 1000)
        for d in range(data_seeds)
        for s in range(initializations)
    ]
    return run_all(plan, jobs)


def run_all(plan: Sequence[Run], jobs: int) -> list[dict[str, Any]]:
    """Execute the runs in ``jobs`` processes of one thread each."""
    if jobs == 1:
        return [run_one(one) for one in plan]
    done = []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for k, record in enumerate(pool.map(run_one, plan, chunksize=4), start=1):
            done.append(record)
            if k % 50 == 0:
                announce(f"{k} of {len(plan)} fits")
    return done


def run_one(one: Run) -> dict[str, Any]:
    """The run with its RMSE relative to the oracle's and its CPU seconds."""
    data = make_synthetic(
        one.m, rank=RANK, outliers=one.outliers, magnitude=one.magnitude, random_state=one.data_seed
    )
    oracle = data.test_rmse(*oracle_factors(data, paper_reg(data.train.shape), n_jobs=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seconds, model = timed(lambda: METHODS[one.method](data, one.init_seed), time.process_time)
    error = data.test_rmse(*prediction_factors(model))
    rank = model.row_factors_.shape[1]
    return {**asdict(one), "ratio": error / oracle, "rank": rank, "seconds": seconds}


def table(results: list[dict[str, Any]]) -> str:
    """One row per size."""
    rows = []
    for (m,), runs in grouped(results, "m").items():
        ratios = column(runs, "ratio")
        rows.append(
            [
                m,
                f"{(ratios <= WITHIN).sum()} of {len(ratios)}",
                ", ".join(map(str, sorted({run["rank"] for run in runs}))),
                f"{np.median(ratios):.3f}",
                f"{ratios.max():.3f}",
                f"{np.median(column(runs, 'seconds')):.2f}",
            ]
        )
    header = ["m", f"runs within {WITHIN} × oracle", "ranks found"]
    header += ["median ratio", "largest", "CPU seconds"]
    return markdown("RMSE on unobserved entries, relative to the oracle", header, rows)
