"""Dask workers on this machine (extra ``dask``): seconds and bytes per sweep."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.cluster_traffic import predicted, sent_bytes
from benchmarks.measure import announce, figures, markdown, peak_gigabytes
from benchmarks.problems import NETFLIX_RANK, NETFLIX_SHAPE, netflix_entries
from robustmf.backends.dask.source import Triplets
from robustmf.data.observed import Observed
from robustmf.distributed.fitting import ClusterFit
from robustmf.estimator import RobustMF
from robustmf.estimator.parameters import settings_of

SMALL = {"entries": 20_000, "grid_entries": 10_000, "workers": 1, "turns": 1}

#: (workers, blocks per side) of the table of traffic.
GRID = ((1, 4), (2, 4), (4, 4), (4, 8), (4, 16))

#: Parquet files that the entries are written to, and sweeps of each fit.
_FILES = 8
_SWEEPS = 8


def run(
    entries: int = 20_000_000, grid_entries: int = 2_000_000, workers: int = 4, turns: int = 4
) -> dict[str, Any]:
    """Traffic over the grid at ``grid_entries`` entries; time against 2 threads at ``entries``."""
    grid = []
    with tempfile.TemporaryDirectory() as folder:
        _write(folder, *netflix_entries(grid_entries)[:3])
        for count, blocks in GRID:
            if count <= workers:
                announce(f"{grid_entries:,} entries, {count} workers, {blocks} blocks per side")
                with _client(count) as client:
                    job = _loaded(client, folder, blocks)
                    load_bytes = sent_bytes(client)
                    size = {"workers": count, "blocks": blocks, "load_bytes": load_bytes}
                    grid.append({**size, **_measured(client, job)})
                    del job
    return {"grid": grid, "overhead": overhead(entries, workers, turns)}


def overhead(total: int, workers: int, turns: int) -> dict[str, Any]:
    """Seconds per sweep of one process with 2 threads and of single-threaded workers, in turns."""
    i, j, values = netflix_entries(total)[:3]
    observed = Observed.from_indices(i, j, values, NETFLIX_SHAPE)
    found: dict[str, Any] = {"entries": observed.n_entries, "plain_sweep": [], "cluster_sweep": []}
    with tempfile.TemporaryDirectory() as folder:
        _write(folder, i, j, values)
        del i, j, values
        with _client(workers) as client:
            job = _loaded(client, folder, 4)
            found["load_bytes"] = sent_bytes(client)
            for turn in range(turns):
                announce(f"{total:,} entries, turn {turn + 1} of {turns}")
                plain = _model(NETFLIX_SHAPE, n_jobs=2).fit(observed)
                found["plain_sweep"].append(_sweep_seconds(plain.history_))
                on_cluster = _measured(client, job)
                found["cluster_sweep"].append(on_cluster.pop("sweep_seconds"))
                found |= on_cluster
            del job
    # other work on the machine only adds time, so the quickest sweeps are compared
    found["ratio"] = min(found["cluster_sweep"]) / min(found["plain_sweep"])
    pairs = zip(found["cluster_sweep"], found["plain_sweep"], strict=True)
    found["ratio_of_turns"] = [cluster / plain for cluster, plain in pairs]
    return found


def _model(shape: tuple[int, int], **options: Any) -> RobustMF:
    """A fixed number of sweeps from random factors, with θ and λ given."""
    rng = np.random.default_rng(0)
    init: Any = tuple(0.5 * rng.standard_normal((size, NETFLIX_RANK), np.float32) for size in shape)
    return RobustMF(
        NETFLIX_RANK,
        solver="irls",
        theta=1.0,
        reg=1.0,
        bias=False,
        init=init,
        max_iter=_SWEEPS,
        tol=1e-12,
        **options,
    )


def _write(folder: str, i: Any, j: Any, values: Any) -> None:
    order = np.random.default_rng(1).permutation(len(i))
    for k, part in enumerate(np.array_split(order, _FILES)):
        columns = {"user": i[part], "item": j[part], "rating": values[part]}
        pq.write_table(pa.table(columns), Path(folder) / f"{k}.parquet", row_group_size=1_000_000)


def _sweep_seconds(history: dict[str, list[float]]) -> float:
    return float(np.min(np.diff(history["seconds"])))


@contextmanager
def _client(workers: int) -> Iterator[Any]:
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def _loaded(client: Any, folder: str, blocks: int) -> ClusterFit:
    job = ClusterFit(client, Triplets(folder, blocks=blocks), None, None, np.random.default_rng(0))
    distributed.wait([*job.matrix.sides[0].blocks, *job.matrix.sides[1].blocks])
    return job


def _measured(client: Any, job: ClusterFit) -> dict[str, Any]:
    """One fit on a cluster that has loaded the data, and the traffic that the model predicts."""
    sent: list[int] = []
    matrix: Any = job.matrix
    model = _model(matrix.shape, callbacks=[lambda _: sent.append(sent_bytes(client))])
    found = job.fit(settings_of(model, matrix.shape, np.empty(0)))[0]
    traffic = predicted(matrix, NETFLIX_RANK)
    return {
        "entries": matrix.n_entries,
        "sweep_seconds": _sweep_seconds(found.outcome.history),
        "sweep_bytes": float(np.median(np.diff(sent[1:]))),
        "predicted_bytes": traffic.total,
        "predicted_to_rows": traffic.to_rows,
        "predicted_to_columns": traffic.to_columns,
        "predicted_copies": traffic.copies,
        "worker_gigabytes": max(client.run(peak_gigabytes).values()),
        "tasks_after_fit": client.run_on_scheduler(
            lambda dask_scheduler: len(dask_scheduler.tasks)
        ),
    }


def table(results: dict[str, Any]) -> str:
    """Traffic over the grid, and time against one process."""
    rows = []
    for one in results["grid"]:
        sent = one["sweep_bytes"]
        model = one["predicted_bytes"]
        rows.append(
            [
                one["workers"],
                one["blocks"],
                f"{one['sweep_seconds']:.2f}",
                f"{sent / 1e6:.2f}",
                f"{model / 1e6:.2f}",
                f"{sent / model:.3f}" if model else "",
                f"{one['load_bytes'] / 1e6:.0f}",
                f"{one['worker_gigabytes']:.2f}",
            ]
        )
    header = [
        "workers",
        "blocks per side",
        "seconds per sweep",
        "MB per sweep",
        "predicted",
        "ratio",
        "MB at load",
        "peak GB per worker",
    ]
    title = f"{results['grid'][0]['entries']:,} entries, rank {NETFLIX_RANK}"
    workers = "Single-threaded workers against one process with 2 threads"
    return "\n".join([markdown(title, header, rows), figures(workers, results["overhead"])])
