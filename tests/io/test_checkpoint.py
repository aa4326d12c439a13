"""Checkpoints: a resumed fit has bitwise equal results."""

from __future__ import annotations

import logging
import os
import shutil
import signal

import numpy as np
import pytest
from typer.testing import CliRunner

from checkpoints import Aborted, abort_fit, entries, model, results
from conftest import Root, needs_gpu, random_problem
from robustmf import MM, RMFNL
from robustmf.cli import app
from robustmf.exceptions import (
    CheckpointError,
    InterruptedFitWarning,
    NotConvergedWarning,
)
from robustmf.io import model_file
from robustmf.io.checkpoint import FileProgress

WAYS = {
    "irls": {"solver": "irls", "loss": "cauchy", "tol": 1e-5},
    "irls, nonsmooth loss": {"solver": "irls", "loss": "lsp"},
    "irls, biases": {"solver": "irls", "bias": True, "loss": "huber"},
    "irls, user-defined loss": {"solver": "irls", "loss": Root(0.5), "max_iter": 12},
    "mm": {"solver": "mm", "loss": "lsp"},
    "mm, gap rule": {"solver": MM(gap=0.1), "loss": "geman", "max_iter": 8},
    "mm, dense": {"solver": MM(inner="apg-dense"), "loss": "lsp", "max_iter": 5},
    "mm, ladmpsap": {
        "solver": MM(inner="ladmpsap", max_iter=50),
        "loss": "lsp",
        "max_iter": 4,
    },
    "varpro": {"solver": "varpro", "tol": 1e-12, "max_iter": 12},
    "certify": {"loss": "l1", "certify": True, "max_iter": 8},
    "n_init": {"solver": "irls", "n_init": 3, "init": "random", "loss": "huber", "tol": 1e-3},
    "validation": {"validation_fraction": 0.1, "loss": "geman"},
    "validation, mm": {"validation_fraction": 0.1, "solver": "mm", "loss": "lsp", "max_iter": 10},
    "non-negative": {"nonnegative": True, "loss": "cauchy", "tol": 1e-5, "max_iter": 12},
    "λ by count": {"solver": "irls", "reg_by_count": True, "reg": 0.01, "loss": "cauchy"},
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint"


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("way", WAYS)
def test_a_fit_aborted_in_every_iteration_has_equal_results(way, dtype, path):
    data = entries(dtype)
    settings = WAYS[way]
    uninterrupted = model(**settings).fit(data)
    runs = 1
    while abort_fit(resumed := model(**settings), data, path, after=1):
        runs += 1
        assert runs < 400
    assert runs > 2
    assert results(resumed) == results(uninterrupted)
    assert np.all(np.diff(resumed.history_["seconds"]) >= 0)
    assert os.listdir(path.parent) == ["checkpoint"]


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
@pytest.mark.parametrize("way", ["mm, gap rule", "certify", "irls, biases", "varpro"])
def test_a_fit_aborted_after_the_last_iteration_has_equal_results(way, path, monkeypatch):
    def fail(progress, ended):
        raise Aborted

    with monkeypatch.context() as patch:
        patch.setattr(FileProgress, "save_result", fail)
        with pytest.raises(Aborted):
            model(**WAYS[way]).fit(entries(), checkpoint=path, checkpoint_every=0)
    assert results(model(**WAYS[way]).fit(entries(), resume=path)) == results(
        model(**WAYS[way]).fit(entries())
    )


def test_weights_and_rmfnl(path):
    data = entries()
    weights = np.random.default_rng(0).uniform(0.5, 2, data.n_entries)
    uninterrupted = model(loss="lsp").fit(data, weights=weights)
    assert abort_fit(model(loss="lsp"), data, path, weights=weights)
    with pytest.raises(CheckpointError, match="other weights"):
        model(loss="lsp").fit(data, checkpoint=path)
    assert results(model(loss="lsp").fit(data, weights=weights, resume=path)) == results(
        uninterrupted
    )
    path.unlink()
    assert abort_fit(RMFNL(3, random_state=0), data, path)
    assert results(RMFNL(3, random_state=0).fit(data, resume=path)) == results(
        RMFNL(3, random_state=0).fit(data)
    )


def test_the_file_of_a_complete_fit_holds_the_result_and_is_not_written_again(path):
    data = entries()
    snapshots = []
    first = model(loss="lsp").fit(data, checkpoint=path)
    content = path.read_bytes()
    when = path.stat().st_mtime_ns
    again = model(loss="lsp", callbacks=[snapshots.append]).fit(data, checkpoint=path)
    assert results(again) == results(first)
    assert again.history_["seconds"] == first.history_["seconds"]
    assert snapshots == []
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (content, when)


def test_the_warning_of_the_iteration_limit_is_repeated_with_the_result(path):
    for _ in range(2):
        with pytest.warns(NotConvergedWarning, match="max_iter=2"):
            model(loss="lsp", max_iter=2).fit(entries(), checkpoint=path)


def test_parameters_that_do_not_affect_the_result_may_change(path, capfd):
    data = entries()
    uninterrupted = model(loss="lsp").fit(data)
    assert abort_fit(model(loss="lsp"), data, path)
    assert results(model(loss="lsp", n_jobs=2, verbose=1).fit(data, checkpoint=path)) == results(
        uninterrupted
    )


def test_the_elapsed_time_continues(path):
    assert abort_fit(model(loss="lsp"), entries(), path, after=6)
    elapsed = model_file.read(path).state["loops"]["fit"]["seconds"]
    seconds = model(loss="lsp").fit(entries(), checkpoint=path).history_["seconds"]
    assert 0 < elapsed <= seconds[-1]
    assert seconds[6] == elapsed


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
def test_without_a_seed_that_of_the_file_is_used(path, tmp_path):
    data = entries()
    settings = {
        "loss": "huber",
        "init": "random",
        "n_init": 2,
        "validation_fraction": 0.1,
        "random_state": None,
    }
    assert abort_fit(model(**settings), data, path)
    shutil.copy(path, tmp_path / "copy")
    one, other = (
        results(model(**settings).fit(data, resume=file)) for file in (path, tmp_path / "copy")
    )
    assert one == other
    assert one != results(model(**settings).fit(data))
    with pytest.raises(
        CheckpointError,
        match=r"random_state \(none there, a seed here: give the one that the fit was started",
    ):
        model(**settings | {"random_state": 1}).fit(data, resume=path)


def test_generators_are_compared_by_their_state(path):
    data = entries()

    def rng(advanced):
        made = np.random.default_rng(5)
        made.spawn(advanced)
        return made

    uninterrupted = model(loss="lsp", random_state=rng(1)).fit(data)
    assert abort_fit(model(loss="lsp", random_state=rng(1)), data, path)
    with pytest.raises(
        CheckpointError,
        match=r"with other random_state \(another seed: give the one that the fit was started "
        r"with\); the file is not",
    ):
        model(loss="lsp", random_state=rng(0)).fit(data, checkpoint=path)
    assert results(model(loss="lsp", random_state=rng(1)).fit(data, checkpoint=path)) == results(
        uninterrupted
    )


def test_a_fit_interrupted_by_ctrl_c_can_be_resumed(path):
    data = entries()

    def interrupt(snapshot):
        if snapshot.iteration == 5:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.warns(InterruptedFitWarning):
        model(loss="lsp", callbacks=[interrupt]).fit(data, checkpoint=path, checkpoint_every=0)
    assert results(model(loss="lsp").fit(data, resume=path)) == results(model(loss="lsp").fit(data))


def test_a_fit_stopped_by_a_callback_can_be_resumed(path):
    data = entries()
    stopped = model(loss="lsp", callbacks=[lambda snapshot: snapshot.iteration == 5]).fit(
        data, checkpoint=path
    )
    assert (
        stopped.n_iter_ == model_file.read(path).state["loops"]["fit"]["outcome"]["iterations"] == 5
    )
    assert results(model(loss="lsp").fit(data, checkpoint=path)) == results(
        model(loss="lsp").fit(data)
    )


def test_the_file_is_written_once_per_interval(path, caplog):
    caplog.set_level(logging.INFO, "robustmf")
    fitted = model(loss="lsp").fit(entries(), checkpoint=path, checkpoint_every=3600)
    # at the start of the fit, after the initialization, and at the end
    assert caplog.text.count(": written") == 3
    path.unlink()
    caplog.clear()
    model(loss="lsp").fit(entries(), checkpoint=path, checkpoint_every=0)
    assert caplog.text.count(": written") == 3 + fitted.n_iter_


def test_temporary_files_of_killed_processes_are_removed(path):
    left = path.with_name(f".checkpoint.{'a1' * 8}.tmp")
    others = path.with_name(".checkpoint.notes.tmp")
    for file in (left, others):
        file.write_bytes(b"half")
    model().fit(entries(), checkpoint=path)
    assert sorted(os.listdir(path.parent)) == [".checkpoint.notes.tmp", "checkpoint"]


@needs_gpu
@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
@pytest.mark.parametrize(
    "settings",
    [{"solver": "irls", "bias": True}, {"solver": MM(max_iter=3)}],
    ids=["irls", "mm"],
)
def test_checkpoint_on_the_gpu(settings, path):
    observed, *_ = random_problem(24, 20, 2)
    settings = settings | {
        "rank": 2,
        "loss": "lsp",
        "init": "ridge",
        "device": "cuda",
        "max_iter": 3,
    }
    uninterrupted = model(**settings).fit(observed)
    while abort_fit(resumed := model(**settings), observed, path, after=1):
        pass
    assert results(resumed) == results(uninterrupted)
    with pytest.raises(CheckpointError, match="other device"):
        model(**settings | {"device": "cpu"}).fit(observed, checkpoint=path)


def test_checkpoint_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = [f"{i},{j},{rng.normal() + i % 3 * j % 5:.3f}" for i in range(30) for j in range(20)]
    (tmp_path / "data.csv").write_text("\n".join(["row,col,value", *lines]))

    def fit(*arguments):
        return CliRunner().invoke(
            app, ["fit", "data.csv", "--rank", "2", "--checkpoint", "c", *arguments]
        )

    assert fit("-o", "one").exit_code == 0
    assert fit("-o", "two").exit_code == 0
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    refused = fit("--loss", "l1")
    assert refused.exit_code == 3
    assert "another fit" in refused.output
    assert fit("--checkpoint", "no/such/folder").exit_code == 2
