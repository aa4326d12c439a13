"""Worker processes on this machine: seconds and bytes of a sweep, beside the plain solver and what the model of traffic says."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.netflix_scale import RANK, SHAPE, make_entries
from robustmf.backends.dask.fitting import Job
from robustmf.backends.dask.source import Triplets
from robustmf.backends.dask.traffic import predicted, sent_bytes
from robustmf.data.observed import Observed
from robustmf.estimator import RobustMF

#: (workers, blocks a side) of the table of traffic.
GRID = ((1, 4), (2, 4), (4, 4), (4, 8), (4, 16))

_FILES, _SWEEPS = 8, 8


def run(
    total: int, small: int, announce: Callable[[str], None], most: int = 4, turns: int = 4
) -> dict[str, Any]:
    """Overhead at ``total`` entries with ``most`` single-thread workers against 2 threads; traffic over the grid at ``small`` entries."""
    record: dict[str, Any] = {"grid": [], "overhead": {}}
    with tempfile.TemporaryDirectory() as folder:
        _write(folder, *make_entries(small)[:3])
        for workers, blocks in (one for one in GRID if one[0] <= most):
            announce(f"{small:,} entries, {workers} workers, {blocks} blocks a side")
            with _started(workers) as client:
                job = _loaded(client, folder, blocks)
                loaded = sent_bytes(client)
                record["grid"].append(
                    {
                        "workers": workers,
                        "blocks": blocks,
                        "load_bytes": loaded,
                        **_measured(client, job),
                    }
                )
                del job
    with tempfile.TemporaryDirectory() as folder:
        i, j, values = make_entries(total)[:3]
        _write(folder, i, j, values)
        observed = Observed.from_indices(i, j, values, SHAPE)
        del i, j, values
        found: dict[str, Any] = {
            "entries": observed.n_entries,
            "plain_sweep": [],
            "cluster_sweep": [],
        }
        with _started(most) as client:
            job = _loaded(client, folder, 4)
            found["load_bytes"] = sent_bytes(client)
            for k in range(turns):
                announce(
                    f"{total:,} entries, turn {k + 1} of {turns}: plain with 2 threads, then {most} workers"
                )
                found["plain_sweep"].append(
                    _sweep_seconds(_model(SHAPE, n_jobs=2).fit(observed).history_)
                )
                on_cluster = _measured(client, job)
                found["cluster_sweep"].append(on_cluster.pop("sweep_seconds"))
                found |= on_cluster
            del job
        # quickest against quickest: what others do on the machine only adds
        found["ratio"] = min(found["cluster_sweep"]) / min(found["plain_sweep"])
        found["ratio_of_turns"] = [
            c / p for c, p in zip(found["cluster_sweep"], found["plain_sweep"], strict=True)
        ]
        record["overhead"] = found
    return record


def _model(shape: tuple[int, int], **options: Any) -> RobustMF:
    """A given number of sweeps from random factors, with θ and λ given."""
    rng = np.random.default_rng(0)
    init = tuple(0.5 * rng.standard_normal((size, RANK), np.float32) for size in shape)
    return RobustMF(
        RANK,
        solver="irls",
        theta=1.0,
        reg=1.0,
        bias=False,
        init=init,
        max_iter=_SWEEPS,
        tol=1e-12,
        **options,
    )  # type: ignore[arg-type]


def _write(folder: str, i: Any, j: Any, values: Any) -> None:
    order = np.random.default_rng(1).permutation(len(i))
    for k, part in enumerate(np.array_split(order, _FILES)):
        columns = {"user": i[part], "item": j[part], "rating": values[part]}
        pq.write_table(pa.table(columns), Path(folder) / f"{k}.parquet", row_group_size=1_000_000)


def _sweep_seconds(history: dict[str, list[float]]) -> float:
    return float(np.min(np.diff(history["seconds"])))


@contextmanager
def _started(workers: int) -> Iterator[Any]:
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            memory_limit=0,
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def _loaded(client: Any, folder: str, blocks: int) -> Job:
    job = Job(client, Triplets(folder, blocks=blocks), None, None, np.random.default_rng(0))
    distributed.wait([*job.matrix.sides[0].blocks, *job.matrix.sides[1].blocks])
    return job


def _measured(client: Any, job: Job) -> dict[str, Any]:
    """One fit on a cluster that has the data."""
    sent: list[int] = []
    matrix: Any = job.matrix
    model = _model(matrix.shape, callbacks=[lambda _: sent.append(sent_bytes(client))])
    found = job.fit(model._settings(matrix, ()))[0]
    model_says = predicted(matrix, RANK)
    return {
        "entries": matrix.n_entries,
        "sweep_seconds": _sweep_seconds(found.outcome.history),
        "sweep_bytes": float(np.median(np.diff(sent[1:]))),
        "predicted_bytes": model_says.total,
        "predicted_to_rows": model_says.to_rows,
        "predicted_to_columns": model_says.to_columns,
        "predicted_copies": model_says.copies,
        "worker_gigabytes": max(client.run(_peak).values()),
        "tasks_after_fit": client.run_on_scheduler(
            lambda dask_scheduler: len(dask_scheduler.tasks)
        ),
    }


def _peak() -> float:
    import resource  # noqa: PLC0415 - in the worker

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def tables(record: dict[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """The record as tables of text."""
    heads = [
        "workers",
        "blocks a side",
        "seconds a sweep",
        "MB a sweep",
        "the model's",
        "ratio",
        "MB at load",
        "peak GB a worker",
    ]
    lines = [
        [
            str(one["workers"]), str(one["blocks"]), f"{one['sweep_seconds']:.2f}", f"{one['sweep_bytes'] / 1e6:.2f}",
            f"{one['predicted_bytes'] / 1e6:.2f}", f"{one['sweep_bytes'] / one['predicted_bytes']:.3f}" if one["predicted_bytes"] else "",
            f"{one['load_bytes'] / 1e6:.0f}", f"{one['worker_gigabytes']:.2f}",
        ]
        for one in record["grid"]
    ]  # fmt: skip
    over = record["overhead"]
    figures = [
        [name.replace("_", " "), ", ".join(f"{x:.3g}" for x in np.atleast_1d(value))]
        for name, value in over.items()
    ]
    return [
        (f"{record['grid'][0]['entries']:,} entries, rank {RANK}", [heads, *lines]),
        ("4 workers of one thread against 2 threads", [["what", "figure"], *figures]),
    ]
