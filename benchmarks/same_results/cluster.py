"""Cases: fits and answers on a Dask cluster."""

from __future__ import annotations

import atexit
import contextlib
import logging
import tempfile
from collections.abc import Callable
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

import robustmf
from benchmarks.same_results.answers import LeaveError
from benchmarks.same_results.cases import add
from benchmarks.same_results.comparison import same_fields
from benchmarks.same_results.library import DTYPES, Array, cluster_module, make_model
from benchmarks.same_results.problems import Plain, low_rank, rating_table
from robustmf import Observed


@cache
def dask_client() -> Any:
    """Start a Dask cluster of two workers with one thread each, in this process."""
    import distributed  # noqa: PLC0415 - an optional dependency

    cluster = distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        dashboard_address=None,
        silence_logs=logging.CRITICAL,
    )
    client = distributed.Client(cluster)
    atexit.register(cluster.close)
    atexit.register(client.close)
    return client


@cache
def rating_frame(dtype: str = "float64", n_users: int = 90) -> Any:
    """Return some ratings as a shuffled pandas table with a column of weights."""
    i, j, values = rating_table()
    order = np.random.default_rng(0).permutation(np.flatnonzero(i < n_users))
    i = i[order]
    j = j[order]
    values = values[order].astype(dtype)
    trust = np.random.default_rng(1).integers(0, 3, len(i)).astype(dtype)
    users = [f"u{k:03}" for k in i]
    return pd.DataFrame({"user": users, "item": 7 * j, "rating": values, "trust": trust})


NAMES = {"row": "user", "col": "item", "value": "rating"}


def on_cluster(
    frame: Any, triplets: dict[str, Any], fit_options: dict[str, Any], **settings: Any
) -> Any:
    """Fit three pieces of a table on the cluster; two blocks unless ``triplets`` sets others."""
    pieces = [frame.iloc[k::3] for k in range(3)]
    data = cluster_module().Triplets(pieces, **{"blocks": 2} | NAMES | triplets)
    return make_model(2, **settings).fit(data, client=dask_client(), **fit_options)


def matrix_frame(data: Observed) -> Any:
    """Return entries as a pandas table."""
    entries = sp.coo_array(data.to_sparse())
    return pd.DataFrame({"user": entries.row, "item": entries.col, "rating": entries.data})


def communities() -> Any:
    """Return the entries of two matrices side by side, whose users have no item in common."""
    one = matrix_frame(low_rank(share=0.15))
    other = matrix_frame(low_rank(share=0.15, seed=1))
    return pd.concat([one, other.assign(user=other.user + 60, item=other.item + 45)])


def given_pair(m: int, n: int) -> tuple[Array, Array]:
    """Draw an initial point of rank 2."""
    rng = np.random.default_rng(12)
    return rng.standard_normal((m, 2)), rng.standard_normal((n, 2))


def add_cluster_fits() -> None:
    """Add fits on a Dask cluster."""
    frame = rating_frame()
    given = given_pair(frame.user.nunique(), frame.item.nunique())
    ways: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "auto": ({}, {}),
        "given": ({}, {"init": given}),
        "given-bias": ({}, {"init": given, "bias": True, "reg": 0.5, "loss": "huber"}),
        "ridge": ({}, {"init": "ridge", "loss": "l1", "tol": 1e-2}),
        "lsp": ({}, {"loss": "lsp"}),
        "bias": ({}, {"loss": "l2", "bias": True, "reg": 0.3}),
        "no-bias": ({}, {"bias": False, "loss": "huber", "reg": 0.5}),
        "by-count": ({}, {"loss": "huber", "bias": True, "reg_by_count": True, "reg": 0.02}),
        "validation": ({}, {"loss": "huber", "validation_fraction": 0.1, "bounds": (0.5, 5.0)}),
        "weights": ({"weight": "trust"}, {"loss": "huber"}),
        "three-blocks": ({"blocks": 3}, {}),
        "user-loss": ({}, {"loss": Plain(0.4), "reg": 0.5}),
        "mm-refused": ({}, {"solver": "mm", "loss": "lsp"}),
    }
    for (label, (triplets, settings)), dtype in product(ways.items(), DTYPES):
        add(
            f"cluster/fit/{label}/{dtype}",
            lambda t=triplets, s=settings, d=dtype: on_cluster(rating_frame(d), t, {}, **s),
        )

    def duplicates(rule: str) -> Any:
        twice = pd.concat([frame, frame.iloc[:100].assign(rating=1.0)], ignore_index=True)
        return on_cluster(twice, {"duplicates": rule}, {})

    for rule in ("last", "mean", "error"):
        add(f"cluster/fit/duplicates-{rule}/float64", partial(duplicates, rule))
    large = partial(low_rank, 1200, 900, 2, share=0.26)
    short = {"loss": "huber", "max_iter": 10}
    tables: dict[str, tuple[Callable[[], Any], int, dict[str, Any]]] = {
        "square": (
            lambda: matrix_frame(low_rank(40, 40)),
            2,
            {"init": given_pair(40, 40), "loss": "huber"},
        ),
        "communities": (communities, 5, {"loss": "huber", "reg": 0.5}),
        "large": (lambda: matrix_frame(large()), 2, short),
        "large-given": (lambda: matrix_frame(large()), 2, {"init": given_pair(1200, 900)} | short),
    }
    for label, (table, blocks, settings) in tables.items():
        add(
            f"cluster/fit/{label}",
            lambda d=table, b=blocks, s=settings: on_cluster(d(), {"blocks": b}, {}, **s),
        )


def add_cluster_inputs() -> None:
    """Add fits on a Dask cluster to every form of data, and a checkpoint."""
    frame = rating_frame()

    def from_parts(form: str) -> Any:
        import dask.dataframe as dd  # noqa: PLC0415 - an optional dependency

        with tempfile.TemporaryDirectory() as folder:
            for k in range(2):
                frame.iloc[k::2].to_parquet(Path(folder) / f"{k}.parquet", index=False)
            parts: dict[str, Any] = {
                "folder": folder,
                "files": sorted(map(str, Path(folder).glob("*.parquet"))),
                "dask": dd.from_pandas(frame, npartitions=4),
                "mapping": [dict(frame.items())],
            }
            data = cluster_module().Triplets(parts[form], blocks=2, **NAMES)
            return make_model(2, loss="huber").fit(data, client=dask_client())

    for form in ("folder", "files", "dask", "mapping"):
        add(f"cluster/input/{form}", partial(from_parts, form))

    def resumed() -> Any:
        def leave(snapshot: Any) -> None:
            if snapshot.iteration >= 2:
                raise LeaveError

        settings = {"loss": "cauchy", "bias": True, "reg": 0.5, "tol": 1e-6, "max_iter": 12}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "checkpoint"
            with contextlib.suppress(LeaveError):
                options = {"checkpoint": path, "checkpoint_every": 0}
                on_cluster(frame, {}, options, callbacks=[leave], **settings)
            model = on_cluster(frame, {}, {"resume": path}, **settings)
        undisturbed = on_cluster(frame, {}, {}, **settings)
        return {"model": model, "same_as_undisturbed": same_fields(model, undisturbed)}

    add("cluster/checkpoint", resumed)


def add_cluster_answers() -> None:
    """Add the answers of models that were fitted on a Dask cluster."""
    frame = rating_frame()

    def saved() -> Any:
        model = on_cluster(frame, {}, {}, loss="huber", bias=True)
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder) / "model")
            return robustmf.load(Path(folder) / "model")

    add("cluster/save", saved)

    def answers(bias: bool, shards: bool, seen: bool) -> dict[str, Any]:
        import dask.dataframe as dd  # noqa: PLC0415 - an optional dependency

        cluster = cluster_module()
        table = dd.from_pandas(frame, npartitions=3)
        users = pd.DataFrame({"user": sorted(frame.user.unique())[:5]})
        users = dd.from_pandas(users, npartitions=2)
        options = {"seen": table, "col": "item"} if seen else {}
        with tempfile.TemporaryDirectory() as folder:
            triplets = {"shards": folder} if shards else {}
            model = on_cluster(frame, triplets, {}, bias=bias, loss="huber")
            if shards:
                model = cluster.ShardedModel(folder)
                predict = model.predict
                scores = model.outlier_scores
                recommend = model.recommend
            else:
                predict, scores, recommend = (
                    partial(getattr(cluster, name), model)
                    for name in ("predict", "outlier_scores", "recommend")
                )
            best = recommend(users, 4, row="user", **options).compute()
            return {
                "predict": predict(table, row="user", col="item").compute(),
                "outlier_scores": scores(table, **NAMES).compute(),
                "recommend": best.sort_values(list(best.columns[:2]), ignore_index=True),
            }

    for bias, shards, seen in product((True, False), (False, True), (False, True)):
        name = f"cluster/answers/bias-{bias}{'-shards' * shards}{'-seen' * seen}"
        add(name, partial(answers, bias, shards, seen))
