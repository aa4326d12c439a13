"""Memory of tasks, traffic between workers, and tasks that remain after a fit."""

from __future__ import annotations

import gc
import time
from dataclasses import replace

import distributed
import numpy as np
import pandas as pd
import pytest
from clusters import NAMES, in_pieces, settings_of

from benchmarks import cluster_traffic as traffic
from robustmf import Observed, RobustMF
from robustmf.backends.dask import Triplets
from robustmf.backends.dask.loading import Gathered, Part, Tile
from robustmf.backends.dask.matrix import Block
from robustmf.data.compressed import Coordinates
from robustmf.distributed import initialization
from robustmf.distributed.fitting import ClusterFit
from robustmf.distributed.initialization import SAMPLING


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
def test_bytes_of_a_sweep_agree_with_the_traffic_model(client):
    rng = np.random.default_rng(0)
    i, j = np.divmod(rng.permutation(6000 * 30)[:90_000], 30)
    data = Triplets([{"user": i, "item": j, "rating": rng.normal(size=len(i))}], blocks=3, **NAMES)
    sent = []
    model = RobustMF(
        8, loss="huber", theta=1.0, reg=1.0, init="random", max_iter=8, tol=1e-12, random_state=0
    )
    model.set_params(callbacks=[lambda _: sent.append(traffic.sent_bytes(client))])
    loaded = ClusterFit(client, data, None, None, np.random.default_rng(0))
    assert sorted(map(len, loaded.matrix.connection.holders(loaded.matrix.sides[0].blocks))) == [
        1,
        1,
        1,
    ]
    loaded.fit(settings_of(model, loaded.matrix))
    model_bytes = traffic.predicted(loaded.matrix, 8)
    assert model_bytes.to_columns == 2 * 6000 * 8 * 8  # all of U to the two other workers
    assert model_bytes.to_rows == 2 * 30 * 8 * 8
    assert model_bytes.copies == 0  # workers that received all rows have a copy
    assert 0.9 * model_bytes.total < np.median(np.diff(sent[1:])) < 1.3 * model_bytes.total


#: Types that hold entries of the data, and the part with one element per entry.
HOLDERS = {
    Part: lambda part: part.entries.values,
    Coordinates: lambda sample: sample.values,
    Gathered: lambda gathered: gathered.entries.values,
    Tile: lambda tile: tile.entries.values,
    Block: lambda block: block.observed.rows.values,
    Observed: lambda observed: observed.rows.values,
    pd.DataFrame: lambda frame: frame,
    np.ndarray: lambda array: array if array.ndim == 1 and array.dtype.kind == "f" else (),
}


def entries_in(value):
    """The number of entries of the data in a value."""
    if isinstance(value, (list, tuple)):
        return sum(map(entries_in, value))
    return next((len(of(value)) for kind, of in HOLDERS.items() if isinstance(value, kind)), 0)


class Watch(distributed.WorkerPlugin):
    """The largest number of entries among the inputs and outputs of a task."""

    def setup(self, worker):
        self.worker = worker
        self.most = 0

    def transition(self, key, start, finish, **_):
        if finish == "memory":
            self.most = max(self.most, entries_in(self.worker.data.get(key)))
        if finish == "executing":
            given = [
                self.worker.data.get(one.key) for one in self.worker.state.tasks[key].dependencies
            ]
            self.most = max(self.most, entries_in(given))


@pytest.mark.parametrize("kind", ["client", "shards", "given"])
def test_no_task_receives_all_entries(client, ratings, tmp_path, monkeypatch, kind):
    for k, piece in enumerate(in_pieces(ratings)):
        piece.to_parquet(tmp_path / f"{k}.parquet", index=False)
    came = [0]
    gather = distributed.Client.gather

    def counted(*arguments, **options):
        found = gather(*arguments, **options)
        came.append(entries_in(found))
        return found

    monkeypatch.setattr(distributed.Client, "gather", counted)
    if kind == "given":
        options = replace(SAMPLING, max_given=300, max_entries=300)
        monkeypatch.setattr(initialization, "SAMPLING", options)
    client.register_plugin(Watch(), name="watch")
    try:
        data = Triplets(
            tmp_path, blocks=3, shards=tmp_path / "out" if kind == "shards" else None, **NAMES
        )
        init = (np.ones((60, 2)), np.ones((40, 2))) if kind == "given" else "auto"
        RobustMF(2, init=init, bias=init != "auto", validation_fraction=0.1, random_state=0).fit(
            data, client=client
        )
        most = client.run(lambda dask_worker: dask_worker.plugins["watch"].most)
    finally:
        client.unregister_worker_plugin("watch")
    # the initialization has nine tenths of the entries that are not held out
    low, high = (0.3, 0.7) if kind == "given" else (0.8 * 0.9, SAMPLING.max_share)
    assert low * len(ratings) < max(most.values()) <= high * len(ratings)
    assert 0 < max(came) <= SAMPLING.max_share * len(ratings)


def test_no_tasks_remain_on_the_cluster(client, ratings):
    gc.collect()  # releases futures in tracebacks of other tests
    kept = set(client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks)))
    RobustMF(2, random_state=0).fit(in_pieces(ratings), client=client)
    until = time.monotonic() + 10
    while (
        left := set(client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks)))
        - kept
    ):
        assert time.monotonic() < until, left
        time.sleep(0.05)
