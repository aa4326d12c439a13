"""RMSE of fits on a Dask cluster whose initialization used a share of the rows.

A cluster searches the initial point on some of the rows and folds in the others; the share is
compared with fits of one machine, which use all rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import distributed
import numpy as np
import pandas as pd

from benchmarks.measure import announce, column, grouped, markdown
from benchmarks.problems import predicted_at, prediction_factors
from robustmf.backends.dask import Triplets
from robustmf.data.observed import Observed
from robustmf.datasets import load_movielens, make_synthetic
from robustmf.distributed import initialization
from robustmf.estimator import RobustMF
from robustmf.metrics import rmse
from robustmf.selection import entry_split

SMALL = {"seeds": 1, "only": "m = 500, 5% outliers", "shares": "0.9"}

#: Blocks that rows and columns are divided into.
BLOCKS = 4

Problem = Callable[[int], tuple[Observed, Callable[[Any], float]]]


def problems() -> dict[str, tuple[int, Problem]]:
    """Rank, and a function from a seed to training entries and the RMSE of a model, by name."""
    made: dict[str, tuple[int, Problem]] = {}
    for m in (500, 1000):
        for share in (0.05, 0.1, 0.2):
            made[f"m = {m}, {share:.0%} outliers"] = (5, partial(_synthetic, m, share))
    for rank in (5, 10):
        made[f"MovieLens latest-small, rank {rank}"] = (rank, _movielens)
    return made


def _synthetic(m: int, outliers: float, seed: int) -> tuple[Observed, Callable[[Any], float]]:
    data = make_synthetic(m, outliers=outliers, random_state=seed)
    return data.train, lambda model: data.test_rmse(*_by_number(model, data.train.shape))


def _movielens(seed: int) -> tuple[Observed, Callable[[Any], float]]:
    """A tenth of the ratings is held out; columns without training entries are not measured."""
    ratings = load_movielens("latest-small").ratings
    train, test = entry_split(Observed(ratings.rows, ratings.shape), (0.9, 0.1), seed)
    counts = np.bincount(train.rows.indices, minlength=train.shape[1])
    known = test.select(counts[test.rows.indices] > 0)

    def error(model: Any) -> float:
        return rmse(known.rows.values, predicted_at(known, _by_number(model, train.shape)))

    return train, error


def _by_number(model: Any, shape: tuple[int, int]) -> tuple[Any, Any]:
    """Factors in the order of the row and column numbers, which are the ids on a cluster."""
    factors = list(prediction_factors(model))
    for side, ids in enumerate((model.row_ids_, model.column_ids_)):
        if ids is not None:
            ordered = np.zeros((shape[side], factors[side].shape[1]), factors[side].dtype)
            ordered[np.asarray(ids)] = factors[side]
            factors[side] = ordered
    return factors[0], factors[1]


def run(seeds: int = 5, shares: str = "1.0,0.9,0.8,0.5", only: str = "") -> list[dict[str, Any]]:
    """One record per problem, seed and share; share None is a fit on one machine."""
    records = []
    with (
        warnings.catch_warnings(),
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            dashboard_address=None,
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        warnings.simplefilter("ignore")
        for name, (rank, make) in problems().items():
            if only not in name:
                continue
            for seed in range(seeds):
                announce(f"{name}, seed {seed}")
                train, error = make(seed)
                model = RobustMF(rank, random_state=seed, n_jobs=1)
                record = {"problem": name, "seed": seed}
                records.append({**record, "share": None, "rmse": error(model.fit(train))})
                for share in map(float, shares.split(",")):
                    fitted = _on_cluster(client, train, share, rank, seed)
                    records.append({**record, "share": share, "rmse": error(fitted)})
    return records


def _on_cluster(client: Any, train: Observed, share: float, rank: int, seed: int) -> RobustMF:
    """A fit on the cluster whose initialization uses this share of the rows."""
    rows = train.rows
    columns = {"row": rows.group_of_entry(), "col": rows.indices, "value": rows.values}
    pieces = np.array_split(np.arange(train.n_entries), BLOCKS)
    frames = [pd.DataFrame({k: v[part] for k, v in columns.items()}) for part in pieces]
    triplets = Triplets(frames, row="row", col="col", value="value", blocks=BLOCKS)
    options = replace(initialization.SAMPLING, max_share=share)
    with patch.object(initialization, "SAMPLING", options):
        return RobustMF(rank, random_state=seed).fit(triplets, client=client)


def table(results: list[dict[str, Any]]) -> str:
    """One row per problem: mean over the seeds, the largest in parentheses."""
    shares = list(dict.fromkeys(record["share"] for record in results))
    rows = []
    for (problem,), runs in grouped(results, "problem").items():
        by_share = grouped(runs, "share")
        errors = [column(by_share[share,], "rmse") for share in shares]
        rows.append([problem, *(f"{e.mean():.4f} ({e.max():.4f})" for e in errors)])
    header = ["one machine" if share is None else f"{share:.0%} of the rows" for share in shares]
    return markdown("RMSE, mean and largest", ["problem", *header], rows)
