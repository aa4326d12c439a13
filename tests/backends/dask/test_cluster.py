"""A fit on a Dask cluster of real worker processes: the answer of one machine, also when workers or the scheduler are killed."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import pairwise

import dask
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
from clusters import NAMES, Own, assert_same, die_once, in_pieces, table
from sklearn.exceptions import NotFittedError
from typer.testing import CliRunner

import robustmf
from robustmf import Observed, RobustMF
from robustmf.backends.biases import BiasModel
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.backends.dask import (
    ShardedModel,
    Triplets,
    connection,
    fitting,
    load,
    outlier_scores,
    predict,
    recommend,
    shards,
    traffic,
)
from robustmf.backends.dask.blocks import Block, Gathered
from robustmf.backends.dask.load import Matrix
from robustmf.backends.dask.noise import Sampled
from robustmf.backends.dask.parts import Part
from robustmf.backends.dask.source import pieces_of
from robustmf.backends.dask.start import SHARE, Sample
from robustmf.cli import app
from robustmf.data.hashing import hash_ids
from robustmf.data.holdout import Holdout
from robustmf.exceptions import (
    CheckpointError,
    ClusterLostError,
    DuplicateEntryError,
    ModelFileError,
    NotConvergedWarning,
    UnknownIdsWarning,
)
from robustmf.fitting import _iterated
from robustmf.initialization.prepare import Prepared
from robustmf.io.checkpoint import Progress
from robustmf.kernels.team import Team


@pytest.fixture(scope="module")
def ratings():
    return table()


@pytest.fixture(scope="module")
def observed(ratings):
    return Observed.from_triplets(ratings, **NAMES)


@dataclass
class Begun:
    """The start that a fit on the cluster found, brought here."""

    basis: object
    factors: tuple

    def alone(self, observed, weights=None, holdout=None, **settings):
        """A fit of one machine to the same data from the same start, with the same entries set aside."""
        basis, (U, V) = self.basis, self.factors
        biases = [np.zeros((len(A), 1), A.dtype) for A in (U, V)]
        if basis.center is not None:
            biases = [A[:, -1:] * basis.bias_unit for A in (U, V)]
            U, V = (np.ascontiguousarray(A[:, :-1]) for A in (U, V))
        model = RobustMF(settings.pop("rank", 2), solver="irls", n_jobs=1, **settings)
        prepared = Prepared(
            U, V, basis.sigma, basis.center, *biases, basis.reg, basis.bias_unit, "irls", ""
        )
        with Team(1) as team:
            found = _iterated(
                model._settings(observed, ()),
                prepared,
                CPUOperations(observed, team),
                weights,
                holdout,
                Progress(),
            )
        model._set_model(found, observed, weights, observed.n_entries)
        return model


@pytest.fixture
def begun(monkeypatch):
    """What fits begin with from now on, one after the other."""
    every, start = [], fitting._started

    def recorded(*arguments):
        basis, pair = start(*arguments)
        every.append(Begun(basis, tuple(np.asarray(one) for one in pair)))
        return basis, pair

    monkeypatch.setattr(fitting, "_started", recorded)
    return every


def identical(one, other):
    return (
        np.array_equal(one.row_factors_, other.row_factors_)
        and one.history_["objective"] == other.history_["objective"]
    )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"loss": "lsp"},
        {"loss": "l2", "bias": True, "reg": 0.3},
        {"loss": "huber", "bias": True, "reg_by_count": True, "reg": 0.02},
        {"loss": "l1", "init": "ridge", "tol": 1e-2},
        {"loss": Own(0.4), "reg": 0.5},
    ],
    ids=lambda settings: (
        "-".join(f"{key}={getattr(value, 'name', value)}" for key, value in settings.items())
        or "defaults"
    ),
)
def test_the_answer_of_one_machine(client, ratings, observed, settings, begun):
    model = RobustMF(2, random_state=0, **settings).fit(
        Triplets(in_pieces(ratings), **NAMES), client=client
    )
    assert_same(model, begun[0].alone(observed, **settings))


def test_weights_are_a_column(client, ratings, observed, begun):
    weights = Observed.from_triplets(ratings, row="user", col="item", value="trust").rows.values
    model = RobustMF(2, random_state=0).fit(
        Triplets(in_pieces(ratings), weight="trust", **NAMES), client=client
    )
    assert_same(model, begun[0].alone(observed, weights))
    with pytest.raises(ValueError, match="weight=name"):
        RobustMF(2).fit(in_pieces(ratings), weights=weights, client=client)


def test_every_form_of_input(client, ratings, tmp_path):
    model = RobustMF(2, random_state=0)
    wanted = model.fit(in_pieces(ratings), client=client).row_factors_
    for k, piece in enumerate(in_pieces(ratings)):
        piece.to_parquet(tmp_path / f"{k}.parquet", index=False)
    forms = {
        "a Dask DataFrame": dd.from_pandas(ratings, npartitions=4),
        "a folder": tmp_path,
        "files": sorted(map(str, tmp_path.glob("*.parquet"))),
        "polars": [pl.from_pandas(piece) for piece in in_pieces(ratings)],
        "a mapping": [dict(ratings.items())],
        "futures": Triplets(client.scatter(in_pieces(ratings)), **NAMES),
    }
    for form, data in forms.items():
        np.testing.assert_allclose(
            model.fit(data, client=client).row_factors_, wanted, rtol=1e-9, err_msg=form
        )


def test_rows_are_sent_only_where_they_are_wanted(client, begun):
    """Two communities that share nothing: blocks want few of the others' rows, and get these alone."""
    frame = pd.concat(
        [
            table(seed=1),
            table(seed=2).assign(user=lambda f: "v" + f.user, item=lambda f: f.item + 1),
        ],
        ignore_index=True,
    )
    frame = frame[frame.index % 4 == 0]
    job = fitting.Job(
        client, Triplets(in_pieces(frame), blocks=9, **NAMES), None, None, np.random.default_rng(0)
    )
    wanted = [
        places for side in job.matrix.sides for of_block in side.wanted for places in of_block
    ]
    assert any(places is not None for places in wanted)
    assert any(places is None for places in wanted)
    model = RobustMF(2, loss="huber", reg=0.5, random_state=0).fit(
        Triplets(in_pieces(frame), blocks=9, **NAMES), client=client
    )
    assert_same(
        model, begun[0].alone(Observed.from_triplets(frame, **NAMES), loss="huber", reg=0.5)
    )


def test_more_blocks_than_columns(client, begun):
    frame = table(30, 3, 1, 0.9)
    model = RobustMF(1, random_state=0).fit(Triplets([frame], blocks=7, **NAMES), client=client)
    assert_same(model, begun[0].alone(Observed.from_triplets(frame, **NAMES), rank=1))


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
def test_a_start_from_some_of_the_rows(client, monkeypatch):
    """Data beyond the sample: found on whole rows of it, the others folded in; the fit ends where one machine's does."""
    frame = table(400, 60, 2, 0.3)
    for bias in (False, True):
        one = RobustMF(2, solver="irls", bias=bias, random_state=0, tol=1e-7, max_iter=30).fit(
            Observed.from_triplets(frame, **NAMES)
        )
        with monkeypatch.context() as patched:
            patched.setattr("robustmf.backends.dask.start.SAMPLE", 2500)
            some = RobustMF(
                2, bias=bias, theta=one.theta_, reg=one.reg_, random_state=0, tol=1e-7, max_iter=30
            )
            some.fit(in_pieces(frame), client=client)
        rows, columns = frame.user.tolist(), frame.item.tolist()
        np.testing.assert_allclose(
            some.predict(rows, columns), one.predict(rows, columns), atol=0.02
        )


def test_entries_set_aside(client, ratings, begun):
    seen = []
    model = RobustMF(
        2, validation_fraction=0.1, random_state=3, loss="huber", callbacks=[seen.append]
    )
    model.fit(Triplets(in_pieces(ratings), **NAMES), client=client)
    job = fitting.Job(
        client,
        Triplets(in_pieces(ratings), **NAMES),
        None,
        0.1,
        np.random.default_rng(3).spawn(1)[0],
    )
    rows, columns = (client.gather(side.blocks) for side in job.matrix.sides)
    aside = [
        (block.first + i, block.numbers[j], value)
        for block in rows
        for i, j, value in zip(
            block.aside.rows, block.aside.places, block.aside.values, strict=True
        )
    ]
    assert len(aside) == round(0.1 * len(ratings))
    assert sum(len(block.aside.values) for block in columns) == len(aside)
    for blocks in (rows, columns):
        assert sum(block.observed.n_entries for block in blocks) == len(ratings) - len(aside)
        assert all((block.observed.rows.counts > 0).all() for block in blocks)
    i, j, values = (np.array(column) for column in zip(*aside, strict=True))
    U, V = (
        np.asarray(A)[order]
        for A, order in zip(seen[-1].factors, map(job.matrix.order, (0, 1)), strict=True)
    )
    error = np.abs(values - np.einsum("tq,tq->t", U[i], V[j])).mean()
    assert model.history_["validation"][-1] == pytest.approx(error, rel=1e-12)
    assert model.best_iteration_ == int(np.argmin(model.history_["validation"]))
    i, j = job.matrix.order(0)[i], job.matrix.order(1)[j]
    observed = Observed.from_triplets(ratings, **NAMES)
    chosen = np.zeros(observed.shape, bool)
    chosen[i, j] = True
    left = observed.select(~chosen[observed.rows.group_of_entry(), observed.rows.indices])
    holdout = Holdout(i.astype(np.int32), j.astype(np.int32), values, None)
    one = begun[0].alone(left, holdout=holdout, loss="huber", validation_fraction=0.1)
    assert_same(model, one)
    np.testing.assert_allclose(model.history_["validation"], one.history_["validation"], rtol=1e-5)


def test_callbacks_see_factors_and_can_stop(client, ratings):
    shapes = []

    def stop(snapshot):
        shapes.append(np.asarray(snapshot.factors[0]).shape)
        return snapshot.iteration == 2

    model = RobustMF(2, loss="lsp", random_state=0, callbacks=[stop]).fit(
        in_pieces(ratings), client=client
    )
    assert shapes == [(60, 2)] * 3
    assert (model.n_iter_, model.stop_reason_) == (2, "stopped by a callback")


@pytest.mark.parametrize("duplicates", ["last", "mean"])
def test_duplicates(client, ratings, duplicates, begun):
    twice = pd.concat([ratings, ratings.iloc[:100].assign(rating=1.0)], ignore_index=True)
    pieces = [twice.iloc[:500], twice.iloc[500:]]
    model = RobustMF(2, random_state=0).fit(
        Triplets(pieces, duplicates=duplicates, **NAMES), client=client
    )
    assert_same(
        model, begun[0].alone(Observed.from_triplets(twice, duplicates=duplicates, **NAMES))
    )
    user, item = ratings.user[0], ratings.item[0]
    with pytest.raises(
        DuplicateEntryError, match=r"row 'u\d+', column \d+.*Triplets and duplicates="
    ):
        RobustMF(2).fit(
            Triplets([ratings, ratings[(ratings.user == user) & (ratings.item == item)]], **NAMES),
            client=client,
        )


@pytest.mark.parametrize(
    "convert",
    [lambda k: k, lambda k: date.fromordinal(700_000 + k), lambda k: (k / 2, "x") if k % 2 else k],
    ids=["integers", "dates", "mixed"],
)
def test_ids_of_any_type(client, convert, begun):
    source = table(25, 12, 1, 0.7)
    frame = {
        "user": [convert(int(u[1:])) for u in source.user],
        "item": source.item.tolist(),
        "rating": source.rating.tolist(),
    }
    half = len(source) // 2
    pieces = [
        {name: column[:half] for name, column in frame.items()},
        {name: column[half:] for name, column in frame.items()},
    ]
    model = RobustMF(1, random_state=0).fit(Triplets(pieces, blocks=4, **NAMES), client=client)
    assert set(model.row_ids_) == set(frame["user"])
    i, j = (
        [list(ids).index(key) for key in frame[name]]
        for ids, name in ((model.row_ids_, "user"), (model.column_ids_, "item"))
    )
    one = begun[0].alone(Observed.from_indices(i, j, frame["rating"]), rank=1)
    np.testing.assert_allclose(
        model.predict(frame["user"], frame["item"]), one.predict(i, j), rtol=1e-5, atol=1e-5
    )


def test_ids_have_one_hash_in_every_process():
    code = "from robustmf.data.hashing import hash_ids; print(hash_ids(['a', 'b', (1, 'x')]).tolist(), hash_ids([1, '1', 1.0]).tolist())"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
    assert len(set(hash_ids([1, "1", 1.0, True]).tolist())) == 1
    assert hash_ids(np.array([5, -5]))[0] == hash_ids([5])[0]
    assert hash_ids(np.array([5, -5]))[1] == hash_ids(["-5"])[0]


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
def test_the_bytes_of_a_sweep_are_those_of_the_model(client):
    rng = np.random.default_rng(0)
    i, j = np.divmod(rng.permutation(6000 * 30)[:90_000], 30)
    data = Triplets([{"user": i, "item": j, "rating": rng.normal(size=len(i))}], blocks=3, **NAMES)
    sent = []
    model = RobustMF(
        8, loss="huber", theta=1.0, reg=1.0, init="random", max_iter=8, tol=1e-12, random_state=0
    )
    model.set_params(callbacks=[lambda _: sent.append(traffic.sent_bytes(client))])
    job = fitting.Job(client, data, None, None, np.random.default_rng(0))
    assert sorted(map(len, job.matrix.connection.homes(job.matrix.sides[0].blocks))) == [1, 1, 1]
    job.fit(model._settings(job.matrix, ()))
    said = traffic.predicted(job.matrix, 8)
    assert said.to_columns == 2 * 6000 * 8 * 8  # all of U to the two other workers
    assert said.to_rows == 2 * 30 * 8 * 8
    assert said.copies == 0  # who was sent all has a copy
    assert 0.9 * said.total < np.median(np.diff(sent[1:])) < 1.3 * said.total


def worker_pids(client):
    return client.run(os.getpid)


def kill_at(client, iteration, delay=0.02):
    """A callback that kills a worker process shortly after this iteration, in the middle of the next sweep."""

    def callback(snapshot):
        if snapshot.iteration == iteration:
            victim = sorted(worker_pids(client).values())[0]
            threading.Timer(delay, os.kill, (victim, signal.SIGKILL)).start()

    return callback


STEADY = {"loss": "lsp", "random_state": 0, "tol": 1e-9, "max_iter": 14}


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
def test_a_killed_worker_a_slow_one_and_a_new_one_change_nothing(cluster, client, ratings):
    data = Triplets(in_pieces(ratings), blocks=5, **NAMES)
    wanted = RobustMF(2, **STEADY).fit(data, client=client)
    before = set(worker_pids(client).values())
    killed = RobustMF(2, callbacks=[kill_at(client, 3), kill_at(client, 8, 0.0)], **STEADY).fit(
        data, client=client
    )
    client.wait_for_workers(3)
    assert len(before - set(worker_pids(client).values())) == 2
    assert identical(killed, wanted)

    there, given = set(worker_pids(client)), []

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
    assert any("half_step" in str(key) for key in given), (
        given
    )  # the one that joined has a block of its own


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
def test_workers_killed_while_they_load_and_while_they_look_for_a_start(
    client, ratings, tmp_path, monkeypatch
):
    settings = STEADY | {"max_iter": 3}
    wanted = RobustMF(2, **settings).fit(
        Triplets(in_pieces(ratings), blocks=3, **NAMES), client=client
    )
    pieces = [
        dask.delayed(die_once, pure=False)(str(tmp_path / "reading"), pd.DataFrame, piece)
        for piece in in_pieces(ratings)
    ]
    for module, name in (
        (load, "gather_block"),
        (load, "finish_block"),
        (fitting, "start_on"),
        (fitting, "folded"),
    ):
        monkeypatch.setattr(
            module, name, partial(die_once, str(tmp_path / name), getattr(module, name))
        )
    killed = RobustMF(2, **settings).fit(Triplets(pieces, blocks=3, **NAMES), client=client)
    assert {path.name for path in tmp_path.iterdir()} == {
        "reading",
        "gather_block",
        "finish_block",
        "start_on",
        "folded",
    }
    assert identical(killed, wanted)


#: What holds entries of the data, and what in it has one element for each.
HOLDERS = {
    Part: lambda part: part.values,
    Sample: lambda sample: sample.values,
    Sampled: lambda sample: sample.residual,
    Gathered: lambda gathered: gathered.rows.values,
    Block: lambda block: block.observed.rows.values,
    Observed: lambda observed: observed.rows.values,
    pd.DataFrame: lambda frame: frame,
    np.ndarray: lambda array: array if array.ndim == 1 and array.dtype.kind == "f" else (),
}


def entries_in(value):
    """How many entries of the data a value holds."""
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(one, list) for one in value):
        return max(map(entries_in, value))  # a piece, cut by rows and again by columns
    if isinstance(value, (list, tuple)):
        return sum(map(entries_in, value))
    return next((len(of(value)) for kind, of in HOLDERS.items() if isinstance(value, kind)), 0)


class Watch(distributed.WorkerPlugin):
    """The most entries that a task on a worker was given, or has made."""

    def setup(self, worker):
        self.worker, self.most = worker, 0

    def transition(self, key, start, finish, **_):
        if finish == "memory":
            self.most = max(self.most, entries_in(self.worker.data.get(key)))
        if finish == "executing":
            given = [
                self.worker.data.get(one.key) for one in self.worker.state.tasks[key].dependencies
            ]
            self.most = max(self.most, entries_in(given))


@pytest.mark.parametrize("kind", ["here", "shards", "given"])
def test_no_task_is_given_all_entries(client, ratings, tmp_path, monkeypatch, kind):
    for k, piece in enumerate(in_pieces(ratings)):
        piece.to_parquet(tmp_path / f"{k}.parquet", index=False)
    came, gather = [0], distributed.Client.gather

    def counted(*arguments, **options):
        found = gather(*arguments, **options)
        came.append(entries_in(found))
        return found

    monkeypatch.setattr(distributed.Client, "gather", counted)
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
    # only who looks for a start has nine tenths (of what is not set aside); else a block's entries meet what biases leave of them
    low, high = (0.3, 0.7) if kind == "given" else (0.8 * 0.9, SHARE)
    assert low * len(ratings) < max(most.values()) <= high * len(ratings)
    assert 0 < max(came) <= SHARE * len(ratings)


def test_nothing_is_left_on_the_cluster(client, ratings):
    gc.collect()  # what errors in other tests hold on to
    kept = set(client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks)))
    RobustMF(2, random_state=0).fit(in_pieces(ratings), client=client)
    until = time.monotonic() + 10
    while (
        left := set(client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks)))
        - kept
    ):
        assert time.monotonic() < until, left
        time.sleep(0.05)


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
def test_a_lost_scheduler_and_a_fit_that_goes_on(client, ratings, tmp_path):
    data, path = Triplets(in_pieces(ratings), blocks=3, **NAMES), tmp_path / "kept"
    settings = STEADY | {"validation_fraction": 0.1, "patience": 50}
    wanted = RobustMF(2, **settings).fit(data, client=client)
    script = (
        "import distributed, time\n"
        "if __name__ == '__main__':\n"
        "    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=':0', silence_logs=50) as c:\n"
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
    with pytest.raises(CheckpointError, match="another random_state"):
        RobustMF(2, **settings | {"random_state": 1}).fit(data, client=client, checkpoint=path)
    block = next(path.glob("own-rows-*.rmf"))
    block.write_bytes(block.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match="checksum"):
        RobustMF(2, **settings).fit(data, client=client, resume=path)


def test_checkpoints_that_are_not_there(client, ratings, tmp_path):
    with pytest.raises(
        CheckpointError, match=r"has no manifest\.rmf; checkpoint= would begin anew"
    ):
        RobustMF(2).fit(in_pieces(ratings), client=client, resume=tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="is a file"):
        RobustMF(2).fit(in_pieces(ratings), client=client, checkpoint=tmp_path / "file")


def test_an_ordinary_model(client, ratings, observed, tmp_path, begun):
    model = RobustMF(2, random_state=0).fit(in_pieces(ratings), client=client)
    one = begun[0].alone(observed)
    model.save(tmp_path / "model.rmf")
    loaded = robustmf.load(tmp_path / "model.rmf")
    assert np.array_equal(loaded.row_factors_, model.row_factors_)
    mine, theirs = (np.log(each.outlier_scores(observed)) for each in (loaded, one))
    assert np.array_equal(np.argsort(mine)[:40], np.argsort(theirs)[:40])  # one in twenty is bad
    # the law of the noise is that of the entries which come to the client, most, not all: it decides how small the smallest scores are
    usual = theirs > np.log(1e-4)
    np.testing.assert_allclose(mine[usual], theirs[usual], rtol=0.25, atol=0.05)
    assert (mine[~usual] < np.log(1e-3)).all()
    np.testing.assert_allclose(
        loaded.recommend("u001", exclude_seen=False)[1],
        one.recommend("u001", exclude_seen=False)[1],
        rtol=1e-6,
    )
    with pytest.raises(ValueError, match="stayed on the cluster"):
        loaded.recommend("u001")
    with pytest.raises(
        ValueError,
        match=r"partial_fit needs the entries.*fit old and new ones together with client=",
    ):
        loaded.partial_fit(observed)


def test_answers_over_dask_collections(client, ratings, begun):
    model = RobustMF(2, random_state=0).fit(Triplets(in_pieces(ratings), **NAMES), client=client)
    frame = dd.from_pandas(ratings, npartitions=3)
    found = predict(model, frame, row="user", col="item").compute()
    np.testing.assert_allclose(found, model.predict(ratings.user.tolist(), ratings.item.tolist()))
    assert found.index.equals(ratings.index)
    scores = outlier_scores(model, frame, **NAMES).compute()
    entries = Observed.from_triplets(ratings, **NAMES)
    order = np.lexsort((ratings.item, ratings.user))
    np.testing.assert_allclose(scores.to_numpy()[order], model.outlier_scores(entries), rtol=1e-9)
    users = dd.from_pandas(pd.DataFrame({"user": ["u003", "u007", "u011"]}), npartitions=2)
    best = recommend(model, users, 3, row="user").compute()
    assert (
        best[best.user == "u007"].item.tolist()
        == model.recommend("u007", 3, exclude_seen=False)[0].tolist()
    )
    unseen = recommend(model, users, 4, row="user", seen=frame, col="item").compute()
    one = begun[0].alone(entries)
    for user in ("u003", "u007", "u011"):
        assert unseen[unseen.user == user].item.tolist() == one.recommend(user, 4)[0].tolist()
    with pytest.raises(ValueError, match="col='film' is not a column"):
        predict(model, frame, row="user", col="film")
    with pytest.raises(TypeError, match="Dask DataFrame is needed"):
        predict(model, ratings, row="user", col="item")
    with pytest.raises(NotFittedError):
        outlier_scores(RobustMF(2), frame, **NAMES)


def test_a_cluster_that_is_closed_in_mid_fit(ratings):
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    ) as cluster:
        client = distributed.Client(cluster)

        def close(snapshot):
            if snapshot.iteration == 2:
                client.close()

        with pytest.raises(ClusterLostError, match="checkpoint="):
            RobustMF(2, callbacks=[close], **STEADY).fit(
                Triplets(in_pieces(ratings), **NAMES), client=client
            )


def test_a_cluster_without_workers_is_waited_for_and_given_up(monkeypatch):
    with (
        distributed.LocalCluster(
            n_workers=0, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        lone = connection.Connection(client, "try again")
        threading.Timer(0.3, cluster.scale, (1,)).start()
        assert lone.homes_for(2) == 2 * list(client.nthreads())
        cluster.scale(0)
        monkeypatch.setattr(connection, "_RETURN", 0.5)
        while client.nthreads():
            time.sleep(0.05)
        with pytest.raises(
            ClusterLostError, match=r"no worker is left, and none came in 0\.5 s; try again"
        ):
            lone.homes_for(2)


@pytest.mark.parametrize(
    ("X", "said"),
    [
        (lambda f: dd.from_pandas(f, npartitions=2), "give client="),
        (lambda f: Triplets([f]), "give client="),
        (lambda f: "ratings", "the path 'ratings'"),
    ],
)
def test_data_for_a_cluster_without_one(ratings, X, said):
    with pytest.raises(TypeError, match=said):
        RobustMF(2).fit(X(ratings))


def test_a_checkpoint_wants_a_folder_of_its_own(client, ratings, tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"someone's data")
    with pytest.raises(CheckpointError, match="a folder of its own"):
        RobustMF(2).fit(in_pieces(ratings), client=client, checkpoint=tmp_path)


def test_parameters_are_checked_before_the_data_are_read(client):
    with pytest.raises(ValueError, match="tol must be"):
        RobustMF(2, tol=0).fit("/nowhere", client=client)


@pytest.mark.parametrize("bias", [True, False])
def test_factors_as_shards(client, ratings, tmp_path, bias, monkeypatch):
    data, folder = in_pieces(ratings), tmp_path / "out"
    settings = {"bias": bias, "random_state": 0, "bounds": (-4.0, 4.0)}
    whole = RobustMF(2, **settings).fit(data, client=client)
    with monkeypatch.context() as patched:
        patched.setattr(
            Matrix, "_numbering", property(lambda _: pytest.fail("all ids came to the client"))
        )
        model = RobustMF(2, **settings).fit(Triplets(data, shards=folder, **NAMES), client=client)
    assert len(model.row_factors_) == 0
    rows = pd.read_parquet(sorted((tmp_path / "out").glob("rows-*.parquet"))).sort_values("id")
    assert rows.id.tolist() == whole.row_ids_
    assert np.array_equal(rows[["factor0", "factor1"]].to_numpy(), whole.row_factors_)
    assert rows.entries.tolist() == whole.entries_["row_counts"].tolist()
    assert ("bias" in rows) == bias
    assert not bias or np.array_equal(rows.bias.to_numpy(), whole.row_bias_)
    for ask in (
        lambda: model.predict([1], [1]),
        lambda: model.recommend([1]),
        lambda: model.save(tmp_path / "m.rmf"),
        model.audit,
    ):
        with pytest.raises(
            ValueError, match=r"wrote them as shards; robustmf\.cluster\.ShardedModel"
        ):
            ask()
    answers_of_shards(whole, ShardedModel(folder), ratings)


def answers_of_shards(whole, model, ratings):
    """They are those of an ordinary model, also where ids are not known."""
    frame = dd.from_pandas(ratings, npartitions=3)
    odd = pd.DataFrame(
        {"user": ["u001", "nobody", "nobody", "u002"], "item": [7, 14, 1, 1]}, index=[3, 5, 8, 9]
    )
    for pairs in (ratings, odd, odd.iloc[:0]):
        found = model.predict(dd.from_pandas(pairs, npartitions=2), row="user", col="item")
        assert found.dtype == whole.row_factors_.dtype
        found = found.compute()
        assert found.index.equals(pairs.index)
        np.testing.assert_allclose(
            found, whole.predict(pairs.user.tolist(), pairs.item.tolist()), rtol=1e-12
        )
    scores = model.outlier_scores(frame, **NAMES).compute()
    np.testing.assert_allclose(scores, outlier_scores(whole, frame, **NAMES).compute(), rtol=1e-6)
    for ask in (model.outlier_scores, partial(outlier_scores, whole)):
        gap = ratings.assign(rating=ratings.rating.where(ratings.index != 3))
        with pytest.raises(
            ValueError, match=f"values must not be missing, but 1 of {len(gap)} are"
        ):
            ask(dd.from_pandas(gap, npartitions=1), **NAMES).compute()
        with pytest.raises(DuplicateEntryError, match="duplicate entry at row 'u"):
            ask(
                dd.from_pandas(pd.concat([ratings, ratings[:1]], ignore_index=True), npartitions=1),
                **NAMES,
            ).compute()
    with pytest.raises(ValueError, match="2 entries in rows or columns that the fit did not know"):
        model.outlier_scores(
            dd.from_pandas(odd.iloc[1:3].assign(rating=1.0), npartitions=1), **NAMES
        ).compute()
    users = dd.from_pandas(pd.DataFrame({"user": ["u003", "u007", "u011"]}), npartitions=2)
    for more in ({}, {"seen": frame, "col": "item"}):
        mine, theirs = (
            one.compute().sort_values(["user", "place"], ignore_index=True)
            for one in (
                model.recommend(users, 5, row="user", **more),
                recommend(whole, users, 5, row="user", **more),
            )
        )
        pd.testing.assert_frame_equal(mine, theirs, rtol=1e-12)
    stranger = dd.from_pandas(odd.iloc[1:2], npartitions=1)
    if whole.has_bias_:
        best = model.recommend(stranger, 3, row="user").compute()
        assert best.item.tolist() == whole.recommend("nobody", 3, exclude_seen=False)[0].tolist()
    else:
        assert model.recommend(stranger, 3, row="user").compute().empty
    with pytest.raises(TypeError, match="ids were of type float in fit, got '7'"):
        model.predict(
            dd.from_pandas(odd.assign(item="7"), npartitions=1), row="user", col="item"
        ).compute()


@pytest.fixture(scope="module")
def large_ids(client, ratings, tmp_path_factory):
    """Items whose ids a float rounds, and models of them without biases: an ordinary one, and shards."""
    frame = ratings.assign(item=ratings.item + 2**60)
    folder = tmp_path_factory.mktemp("large") / "shards"
    settings = {"bias": False, "random_state": 0}
    whole = RobustMF(2, **settings).fit(Triplets(in_pieces(frame), **NAMES), client=client)
    RobustMF(2, **settings).fit(Triplets(in_pieces(frame), shards=folder, **NAMES), client=client)
    return frame, whole, ShardedModel(folder)


def of_users(*users, npartitions=1):
    return dd.from_pandas(pd.DataFrame({"user": list(users)}), npartitions=npartitions)


def test_large_ids_that_were_seen_are_left_out(client, large_ids):
    frame, whole, sharded = large_ids
    every = sorted(set(frame.user))
    without = set(every[::3])  # enough of them that each partition of a join has some
    seen = dd.from_pandas(frame[~frame.user.isin(without)], npartitions=2)
    for ask in (partial(recommend, whole), sharded.recommend):
        best = ask(of_users(*every), 40, row="user", seen=seen, col="item").compute()
        assert best.item.dtype == np.int64
        for user in every:
            out = set() if user in without else set(frame.item[frame.user == user])
            ranked = whole.recommend(user, 40, exclude_seen=False)[0].tolist()
            assert best[best.user == user].sort_values("place").item.tolist() == [
                item for item in ranked if item not in out
            ]


@pytest.mark.parametrize("npartitions", [1, 3])
def test_unknown_users_without_biases_cost_no_others(client, large_ids, npartitions):
    """Three partitions: one of strangers alone, one mixed, one of known users."""
    frame, whole, sharded = large_ids
    users = of_users(
        "nobody", "no one", "u003", "stranger", "u007", "u011", npartitions=npartitions
    )
    for ask in (partial(recommend, whole), sharded.recommend):
        for more in ({}, {"seen": dd.from_pandas(frame, npartitions=2), "col": "item"}):
            found = ask(users, 3, row="user", **more).compute()
            assert sorted(found.user) == [
                user for user in ("u003", "u007", "u011") for _ in range(3)
            ]
            assert found.item.dtype == np.int64
        with pytest.warns(UnknownIdsWarning, match="users of a partition are unknown") as told:
            ask(users, 3, row="user").compute(scheduler="sync")
        assert sum(int(str(one.message).split()[0]) for one in told) == 3
        assert ask(of_users("nobody"), 3, row="user").compute().empty


def test_shards_that_are_not_whole(client, ratings, tmp_path):
    folder = tmp_path / "out"
    mixed = {name: ratings[name].tolist() for name in ("item", "rating")} | {
        "user": [(int(u[1:]), "x") for u in ratings.user]
    }
    with pytest.raises(TypeError, match="cannot be written as Parquet shards"):
        RobustMF(2).fit(Triplets([mixed], shards=folder, **NAMES), client=client)
    RobustMF(2, random_state=0).fit(
        Triplets([ratings], shards=folder, blocks=2, **NAMES), client=client
    )
    pairs = dd.from_pandas(ratings, npartitions=1)
    shard = folder / "columns-00001.parquet"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:9] + bytes([whole[9] ^ 1]) + whole[10:])
    with pytest.raises(ModelFileError, match=r"columns-00001\.parquet: is not as it was written"):
        ShardedModel(folder).predict(pairs, row="user", col="item").compute()
    shard.write_bytes(whole[:-1])
    with pytest.raises(ModelFileError, match=r"columns-00001\.parquet: has not the size"):
        ShardedModel(folder)
    shard.unlink()
    with pytest.raises(ModelFileError, match=r"columns-00001\.parquet: is missing"):
        ShardedModel(folder)
    shard.write_bytes(whole)
    manifest = folder / "manifest.json"
    refused_manifests(manifest)
    manifest.write_text(manifest.read_text()[:-3])
    with pytest.raises(ModelFileError, match=r"manifest\.json: is damaged"):
        ShardedModel(folder)
    manifest.unlink()
    with pytest.raises(ModelFileError, match=r"manifest\.json: is not there"):
        ShardedModel(folder)


def refused_manifests(manifest):
    """One by one, and then as it was."""
    text = manifest.read_text()

    def with_file(file):
        facts = json.loads(text)
        facts["files"]["rows"][0] = file
        return facts

    facts = json.loads(text)
    first = facts["files"]["rows"][0]
    bad = [
        ({name: value for name, value in facts.items() if name != "shape"}, "it has no 'shape'"),
        (facts | {"shape": "60"}, "it has shape='60'"),
        (facts | {"kinds": [["str"]]}, r"it has kinds=\[\['str'\]\]"),
        (facts | {"files": facts["files"] | {"columns": []}}, "no rows or no columns"),
        (with_file({}), "a file has no 'name'"),
        (with_file("x"), "a file is 'x'"),
        (
            with_file(first | {"name": "../rows-00000.parquet"}),
            "'../rows-00000.parquet' is not the name of a shard",
        ),
        ([], "is not the manifest of shards"),
    ]
    for one, message in bad:
        manifest.write_text(json.dumps(one))
        with pytest.raises(ModelFileError, match=rf"manifest\.json: .*{message}.*; fit again"):
            ShardedModel(manifest.parent)
    manifest.write_text(text)
    with pytest.raises(ModelFileError, match=r"manifest\.json: cannot be read \(Not a directory\)"):
        ShardedModel(manifest)


def test_shards_in_a_folder_beside_the_client(client, ratings, tmp_path, monkeypatch):
    """A relative path is the client's, whatever folder workers run in; fewer blocks leave no files of the fit before."""
    monkeypatch.chdir(tmp_path)
    ratings.to_parquet("ratings.parquet")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "rows-1.parquet").touch()  # someone else's stays
    for blocks in (3, 2):
        RobustMF(2, random_state=0).fit(
            Triplets("ratings.parquet", shards="out", blocks=blocks, **NAMES), client=client
        )
        names = [f"{side}-{k:05}.parquet" for side in ("columns", "rows") for k in range(blocks)]
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
            [*names, "manifest.json", "rows-1.parquet"]
        )
        found = (
            ShardedModel("out")
            .predict(dd.from_pandas(ratings, npartitions=1), row="user", col="item")
            .compute()
        )
        assert len(found) == len(ratings)


def test_shards_are_written_under_names_of_their_own(tmp_path, monkeypatch):
    """Tasks on two machines may have one process id."""
    names, write = [], pq.write_table
    monkeypatch.setattr(
        pq, "write_table", lambda table, path: (names.append(path), write(table, path))
    )
    block = Block(Observed.from_dense(np.ones((2, 1))), None, 0, np.zeros(1, np.int64), None)
    for _ in range(2):
        shards._write(
            [1, 2],
            block,
            np.ones((2, 1)),
            BiasModel(None, 1.0),
            str(tmp_path / "rows-00000.parquet"),
        )
    assert len(set(names)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["rows-00000.parquet"]


def test_factors_too_large_for_the_client(client, ratings, monkeypatch):
    monkeypatch.setattr(fitting, "CLIENT_BYTES", 1000)
    with pytest.raises(ValueError, match="shards=folder"):
        RobustMF(2).fit(in_pieces(ratings), client=client)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (
            lambda f: Triplets([f], row="who", col="item", value="rating"),
            ValueError,
            "row='who' is not a column of the data; it has",
        ),
        (lambda f: [f.drop(columns=["rating", "trust"])], ValueError, "value=2 is not a position"),
        (lambda f: [f.iloc[:0]], ValueError, "at least one entry, got none"),
        (lambda f: [], ValueError, "at least one table"),
        (lambda f: f, TypeError, "a list of tables, got DataFrame"),
        (lambda f: [7], TypeError, "got one of int"),
        (lambda f: "nowhere", FileNotFoundError, "nowhere is neither"),
        (lambda f: [f.assign(rating=np.inf)], ValueError, "values must be finite"),
        (lambda f: [f.assign(user=None)], ValueError, "row ids must not be missing"),
        (
            lambda f: [f, pl.from_pandas(f.assign(user=7)), pl.from_pandas(f.assign(user="7"))],
            ValueError,
            "both 7 and '7'",
        ),
        (
            lambda f: Triplets([f.assign(trust=-1.0)], weight="trust"),
            ValueError,
            "weights must be finite and >= 0",
        ),
        (
            lambda f: Triplets([f.assign(trust=0.0)], weight="trust"),
            ValueError,
            "weights must not all be 0",
        ),
        (
            lambda f: Triplets([f.assign(trust=np.nan)], weight="trust"),
            ValueError,
            "weights must not be missing",
        ),
        (lambda f: Triplets([f.iloc[:3]], blocks=4), ValueError, "use fewer blocks"),
    ],
)
def test_bad_input(client, ratings, data, error, message):
    with pytest.raises(error, match=message):
        RobustMF(2).fit(data(ratings), client=client)


def test_bad_settings(client, ratings):
    for setting, value in {"solver": "mm", "n_init": 3, "certify": True, "device": "cuda"}.items():
        with pytest.raises(ValueError, match=f"{setting} must be .* with client="):
            RobustMF(2, **{setting: value}).fit([ratings], client=client)
    with pytest.raises(ValueError, match="rank must be an integer from 1 to 40"):
        RobustMF(41).fit([ratings], client=client)
    with pytest.raises(TypeError, match=r"dask\.distributed\.Client, got str"):
        RobustMF(2).fit([ratings], client="tcp://nowhere")
    with pytest.raises(ValueError, match="blocks must be"):
        Triplets([ratings], blocks=0)
    closed = distributed.Client(client.scheduler.address)
    closed.close()
    with pytest.raises(
        ValueError, match="client must be connected to a scheduler, but it is closed"
    ):
        RobustMF(2).fit([ratings], client=closed)


def test_row_groups_are_pieces(tmp_path, ratings, monkeypatch):
    ratings.to_parquet(tmp_path / "x.parquet", row_group_size=100)
    monkeypatch.setattr("robustmf.backends.dask.source._PIECE", 250)
    pieces, columns = pieces_of(Triplets(tmp_path))
    assert (columns.row, columns.col, columns.value) == ("user", "item", "rating")
    groups = [piece.groups for piece in pieces]
    assert max(map(len, groups)) == 2
    assert all(one[-1] + 1 == other[0] for one, other in pairwise(groups))


def test_without_dask(monkeypatch, ratings):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'robustmf\[dask\]'"):
        RobustMF(2).fit([ratings], client=object())


def test_it_warns_at_its_limit(client, ratings):
    with pytest.warns(NotConvergedWarning, match="max_iter=1"):
        RobustMF(2, loss="lsp", max_iter=1, random_state=0).fit([ratings], client=client)


def command(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})


def test_the_command_line(client, ratings, tmp_path):
    path, model = tmp_path / "ratings.parquet", tmp_path / "model.rmf"
    ratings.to_parquet(path, index=False)
    scheduler = client.scheduler.address
    done = command("fit", path, "--scheduler", scheduler, "--rank", 2, "-o", model, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["data"]["rows"], found["data"]["columns"], found["data"]["entries"]) == (
        60,
        40,
        len(ratings),
    )
    assert f"Cluster: {scheduler}" in done.stderr
    assert robustmf.load(model).row_ids_ == sorted(set(ratings.user))
    (tmp_path / "ratings.csv").write_text("a,b,1\n")
    for arguments, code, message in [
        ([tmp_path / "ratings.csv", "--local-workers", 1], 2, "must be a Parquet file or a folder"),
        ([path, "--local-workers", 1, "--scheduler", scheduler], 2, "not both"),
        (
            [path, "--scheduler", scheduler, "--report", tmp_path / "x.html"],
            2,
            "needs the entries here",
        ),
        ([path, "--scheduler", scheduler, "--row", "who"], 3, "'who' is not a column"),
        ([path, "--scheduler", "nowhere"], 2, "is not an address"),
    ]:
        refused = command("fit", *arguments)
        assert refused.exit_code == code, refused.output
        assert message in refused.stderr.splitlines()[-1]
