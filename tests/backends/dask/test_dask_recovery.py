"""Lost and new workers, a lost scheduler, and checkpoints of fits on a Dask cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial

import dask
import distributed
import numpy as np
import pandas as pd
import pytest
from clusters import NAMES, die_once, in_pieces

from robustmf import RobustMF
from robustmf.backends.dask import Triplets, connection, loading
from robustmf.distributed import initialization
from robustmf.distributed.checkpoint import MANIFEST, in_folder, saved_layout
from robustmf.exceptions import CheckpointError, ClusterLostError
from robustmf.io.checkpoint import Checkpoint
from robustmf.io.model_file import Saved, write


def identical(one, other):
    return (
        np.array_equal(one.row_factors_, other.row_factors_)
        and one.history_["objective"] == other.history_["objective"]
    )


def worker_pids(client):
    return client.run(os.getpid)


def kill_at(client, iteration, delay=0.02):
    """A callback that kills a worker process during the sweep after this iteration."""

    def callback(snapshot):
        if snapshot.iteration == iteration:
            victim = sorted(worker_pids(client).values())[0]
            threading.Timer(delay, os.kill, (victim, signal.SIGKILL)).start()

    return callback


STEADY = {"loss": "lsp", "random_state": 0, "tol": 1e-9, "max_iter": 14}


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
def test_killed_workers_do_not_change_the_result(client, ratings):
    data = Triplets(in_pieces(ratings), blocks=5, **NAMES)
    wanted = RobustMF(2, **STEADY).fit(data, client=client)
    before = set(worker_pids(client).values())
    killed = RobustMF(2, callbacks=[kill_at(client, 3), kill_at(client, 8, 0.0)], **STEADY).fit(
        data, client=client
    )
    client.wait_for_workers(3, timeout=120)
    assert len(before - set(worker_pids(client).values())) == 2
    assert identical(killed, wanted)


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
def test_slow_and_new_workers_do_not_change_the_result(cluster, client, ratings):
    data = Triplets(in_pieces(ratings), blocks=5, **NAMES)
    wanted = RobustMF(2, **STEADY).fit(data, client=client)
    client.wait_for_workers(3, timeout=120)
    there = set(worker_pids(client))
    given = []

    def join_and_slow(snapshot):
        if snapshot.iteration == 2:
            cluster.scale(4)
            client.wait_for_workers(4)
            slow = worker_pids(client)[min(there)]
            os.kill(slow, signal.SIGSTOP)
            threading.Timer(1.0, os.kill, (slow, signal.SIGCONT)).start()
        if snapshot.iteration > 2:
            given.extend(
                key
                for address, keys in client.has_what().items()
                if address not in there
                for key in keys
            )

    joined = RobustMF(2, callbacks=[join_and_slow], **STEADY).fit(data, client=client)
    assert identical(joined, wanted)
    assert any("half_step" in str(key) for key in given), given  # the new worker has a block


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
def test_workers_killed_during_loading_and_initialization(client, ratings, tmp_path, monkeypatch):
    settings = STEADY | {"max_iter": 3}
    wanted = RobustMF(2, **settings).fit(
        Triplets(in_pieces(ratings), blocks=3, **NAMES), client=client
    )
    pieces = [
        dask.delayed(die_once, pure=False)(str(tmp_path / "reading"), pd.DataFrame, piece)
        for piece in in_pieces(ratings)
    ]
    for module, name in (
        (loading, "gather_block"),
        (loading, "finish_block"),
        (initialization, "initialize_sample"),
        (initialization, "fold_in_missing"),
    ):
        monkeypatch.setattr(
            module, name, partial(die_once, str(tmp_path / name), getattr(module, name))
        )
    killed = RobustMF(2, **settings).fit(Triplets(pieces, blocks=3, **NAMES), client=client)
    assert {path.name for path in tmp_path.iterdir()} == {
        "reading",
        "gather_block",
        "finish_block",
        "initialize_sample",
        "fold_in_missing",
    }
    assert identical(killed, wanted)


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
def test_resume_after_a_lost_scheduler(client, ratings, tmp_path):
    data = Triplets(in_pieces(ratings), blocks=3, **NAMES)
    path = tmp_path / "kept"
    settings = STEADY | {"validation_fraction": 0.1, "patience": 50}
    wanted = RobustMF(2, **settings).fit(data, client=client)
    script = (
        "import distributed, time\n"
        "if __name__ == '__main__':\n"
        "    options = {'threads_per_worker': 1, 'silence_logs': 50}\n"
        "    page = '127.0.0.1:0'\n"
        "    with distributed.LocalCluster(n_workers=2, dashboard_address=page, **options) as c:\n"
        "        print(c.scheduler_address, flush=True)\n"
        "        time.sleep(600)\n"
    )
    (tmp_path / "scheduler.py").write_text(script)
    with (
        subprocess.Popen(
            [sys.executable, tmp_path / "scheduler.py"],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process,
        distributed.Client(process.stdout.readline().strip()) as other,
    ):
        other.wait_for_workers(2)

        def lose(snapshot):
            if snapshot.iteration == 6:
                os.killpg(process.pid, signal.SIGKILL)

        with pytest.raises(ClusterLostError, match=r"fit\(…, resume='.*kept'\)"):
            RobustMF(2, callbacks=[lose], **settings).fit(
                data, client=other, checkpoint=path, checkpoint_every=0
            )
    assert (path / "manifest.rmf").is_file()
    iterations = []
    resumed = RobustMF(2, callbacks=[lambda s: iterations.append(s.iteration)], **settings)
    resumed.fit(Triplets(data.data, **NAMES), client=client, resume=path)
    assert iterations[0] > 4
    assert identical(resumed, wanted)
    assert resumed.history_["validation"] == wanted.history_["validation"]
    again = RobustMF(2, **settings).fit(data, client=client, checkpoint=path)
    assert identical(again, wanted)
    with pytest.raises(CheckpointError, match=r"another fit.*rank \(2 there, 1 here"):
        RobustMF(1, **settings).fit(data, client=client, checkpoint=path)
    with pytest.raises(CheckpointError, match=r"another fit.*checksum"):
        RobustMF(2, **settings).fit(
            Triplets([ratings.iloc[1:]], **NAMES), client=client, checkpoint=path
        )
    with pytest.raises(CheckpointError, match="with other random_state"):
        RobustMF(2, **settings | {"random_state": 1}).fit(data, client=client, checkpoint=path)
    block = next(path.glob("factors-0-*-0.rmf"))
    block.write_bytes(block.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match="checksum"):
        RobustMF(2, **settings).fit(data, client=client, resume=path)


def test_missing_checkpoints(client, ratings, tmp_path):
    with pytest.raises(
        CheckpointError, match=r"has no manifest\.rmf; checkpoint= would start a new fit"
    ):
        RobustMF(2).fit(in_pieces(ratings), client=client, resume=tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="is a file"):
        RobustMF(2).fit(in_pieces(ratings), client=client, checkpoint=tmp_path / "file")


@pytest.mark.parametrize("parameters", [{}, {"n_blocks": "3"}, {"n_blocks": 0}, {"n_blocks": 3}])
def test_invalid_layout_of_a_checkpoint(tmp_path, parameters):
    """The number of blocks and the seed are read before the data are."""
    manifest = in_folder(Checkpoint(tmp_path, 0.0, must_exist=False, seeded=False, device="cpu"))
    rng = np.random.default_rng(0)
    assert saved_layout(manifest, 5, rng) == (5, rng)
    write(tmp_path / MANIFEST, Saved("checkpoint", parameters, {}))
    with pytest.raises(CheckpointError, match="is not what this release writes"):
        saved_layout(manifest, 5, rng)


def test_checkpoint_needs_its_own_folder(client, ratings, tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"someone's data")
    with pytest.raises(CheckpointError, match="needs its own folder"):
        RobustMF(2).fit(in_pieces(ratings), client=client, checkpoint=tmp_path)


def test_client_closed_during_a_fit(ratings):
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50
    ) as cluster:
        client = distributed.Client(cluster)

        def close(snapshot):
            if snapshot.iteration == 2:
                client.close()

        with pytest.raises(ClusterLostError, match="checkpoint="):
            RobustMF(2, callbacks=[close], **STEADY).fit(
                Triplets(in_pieces(ratings), **NAMES), client=client
            )


def test_waiting_for_workers(monkeypatch):
    with (
        distributed.LocalCluster(
            n_workers=0, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        lone = connection.Connection(client, "try again")
        threading.Timer(0.3, cluster.scale, (1,)).start()
        assert lone.assign_workers(2) == 2 * list(client.nthreads())
        cluster.scale(0)
        options = replace(connection.OPTIONS, worker_timeout=0.5)
        monkeypatch.setattr(connection, "OPTIONS", options)
        while client.nthreads():
            time.sleep(0.05)
        with pytest.raises(
            ClusterLostError, match=r"no worker is left, and none joined within 0\.5 s; try again"
        ):
            lone.assign_workers(2)
