"""Checkpoints: a fit that was broken off goes on from its file and ends with the same bits; what is not of this fit is refused."""

from __future__ import annotations

import logging
import os
import shutil
import signal

import numpy as np
import pytest
from typer.testing import CliRunner

import robustmf
from conftest import Root, needs_gpu, random_problem
from robustmf import RMFNL, Observed, RobustMF
from robustmf.cli import app
from robustmf.datasets import make_synthetic
from robustmf.exceptions import (
    CheckpointError,
    CheckpointWriteError,
    InterruptedFitWarning,
    ModelFileError,
    NotConvergedWarning,
)
from robustmf.io import model_file as modelfile
from robustmf.io.checkpoint import FileProgress

WAYS = {
    "irls": {"solver": "irls", "loss": "cauchy", "tol": 1e-5},
    "irls, kinked": {"solver": "irls", "loss": "lsp"},
    "irls, biases": {"solver": "irls", "bias": True, "loss": "huber"},
    "irls, own loss": {"solver": "irls", "loss": Root(0.5), "max_iter": 12},
    "mm": {"solver": "mm", "loss": "lsp"},
    "mm, gap rule": {"solver": "mm", "loss": "geman", "inner_gap": 0.1, "max_iter": 8},
    "mm, dense": {"solver": "mm", "loss": "lsp", "inner": "apg-dense", "max_iter": 5},
    "mm, ladmpsap": {
        "solver": "mm",
        "loss": "lsp",
        "inner": "ladmpsap",
        "max_iter": 4,
        "inner_max_iter": 50,
    },
    "varpro": {"solver": "varpro", "tol": 1e-12, "max_iter": 12},
    "certify": {"loss": "l1", "certify": True, "max_iter": 8},
    "n_init": {"solver": "irls", "n_init": 3, "init": "random", "loss": "huber", "tol": 1e-3},
    "validation": {"validation_fraction": 0.1, "loss": "geman"},
    "validation, mm": {"validation_fraction": 0.1, "solver": "mm", "loss": "lsp", "max_iter": 10},
    "λ by count": {"solver": "irls", "reg_by_count": True, "reg": 0.01, "loss": "cauchy"},
}


class BrokenOff(Exception):  # noqa: N818 - no error of ours
    """What a process that dies does not even raise."""


def entries(dtype=np.float64, rows=50):
    data = make_synthetic(rows, rank=3, observed=0.5, random_state=0).train
    by_row = data.rows
    return Observed.from_indices(
        by_row.group_of_entry(), by_row.indices, by_row.values.astype(dtype), data.shape
    )


def model(**settings):
    return RobustMF(**{"rank": 3, "random_state": 1, "n_jobs": 1} | settings)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint"


def break_off(estimator, data, path, after=3, **more):
    """Fit, and leave in the iteration after the given one of this life; whether it came to that."""
    told = []

    def leave(snapshot):
        told.append(snapshot.iteration)
        if len([k for k in told if k > 0]) > after:
            raise BrokenOff

    try:
        estimator.set_params(callbacks=[leave]).fit(
            data, checkpoint=path, checkpoint_every=0, **more
        )
    except BrokenOff:
        return True
    return False


def found(estimator):
    """All that a fit finds, but for the seconds it took."""
    arrays = [
        getattr(estimator, name).tobytes()
        for name in ("row_factors_", "column_factors_", "row_bias_", "column_bias_")
    ]
    history = {name: values for name, values in estimator.history_.items() if name != "seconds"}
    names = (
        "reg_",
        "theta_",
        "center_",
        "n_iter_",
        "best_iteration_",
        "converged_",
        "stop_reason_",
        "solver_",
        "criticality_",
    )
    return arrays, repr(history), repr([getattr(estimator, name) for name in names])


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("way", WAYS)
def test_broken_off_in_every_iteration_a_fit_ends_with_the_same_bits(way, dtype, path):
    data, settings = entries(dtype), WAYS[way]
    undisturbed = model(**settings).fit(data)
    lives = 1
    while break_off(gone_on := model(**settings), data, path, after=1):
        lives += 1
        assert lives < 400
    assert lives > 2
    assert found(gone_on) == found(undisturbed)
    assert np.all(np.diff(gone_on.history_["seconds"]) >= 0)
    assert os.listdir(path.parent) == ["checkpoint"]


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
@pytest.mark.parametrize("way", ["mm, gap rule", "certify", "irls, biases", "varpro"])
def test_broken_off_after_the_last_iteration(way, path, monkeypatch):
    def fail(progress, ended):
        raise BrokenOff

    with monkeypatch.context() as patch:
        patch.setattr(FileProgress, "keep_ended", fail)
        with pytest.raises(BrokenOff):
            model(**WAYS[way]).fit(entries(), checkpoint=path, checkpoint_every=0)
    assert found(model(**WAYS[way]).fit(entries(), resume=path)) == found(
        model(**WAYS[way]).fit(entries())
    )


def test_weights_and_rmfnl(path):
    data = entries()
    weights = np.random.default_rng(0).uniform(0.5, 2, data.n_entries)
    undisturbed = model(loss="lsp").fit(data, weights=weights)
    assert break_off(model(loss="lsp"), data, path, weights=weights)
    with pytest.raises(CheckpointError, match="other weights"):
        model(loss="lsp").fit(data, checkpoint=path)
    assert found(model(loss="lsp").fit(data, weights=weights, resume=path)) == found(undisturbed)
    path.unlink()
    assert break_off(RMFNL(3, random_state=0), data, path)
    assert found(RMFNL(3, random_state=0).fit(data, resume=path)) == found(
        RMFNL(3, random_state=0).fit(data)
    )


def test_once_ended_the_file_holds_the_result_and_is_not_written_again(path):
    data, told = entries(), []
    first = model(loss="lsp").fit(data, checkpoint=path)
    content, when = path.read_bytes(), path.stat().st_mtime_ns
    again = model(loss="lsp", callbacks=[told.append]).fit(data, checkpoint=path)
    assert found(again) == found(first)
    assert again.history_["seconds"] == first.history_["seconds"]
    assert told == []
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (content, when)


def test_the_warning_of_the_limit_comes_again_with_the_result(path):
    for _ in range(2):
        with pytest.warns(NotConvergedWarning, match="max_iter=2"):
            model(loss="lsp", max_iter=2).fit(entries(), checkpoint=path)


def test_what_does_not_decide_the_result_may_change(path, capfd):
    data = entries()
    undisturbed = model(loss="lsp").fit(data)
    assert break_off(model(loss="lsp"), data, path)
    assert found(model(loss="lsp", n_jobs=2, verbose=1).fit(data, checkpoint=path)) == found(
        undisturbed
    )


def test_the_clock_goes_on(path):
    assert break_off(model(loss="lsp"), entries(), path, after=6)
    spent = modelfile.read(path).state["loops"]["fit"]["seconds"]
    seconds = model(loss="lsp").fit(entries(), checkpoint=path).history_["seconds"]
    assert 0 < spent <= seconds[-1]
    assert seconds[6] == spent


def test_without_a_seed_the_one_of_the_file_is_taken(path, tmp_path):
    data, settings = (
        entries(),
        {
            "loss": "huber",
            "init": "random",
            "n_init": 2,
            "validation_fraction": 0.1,
            "random_state": None,
        },
    )
    assert break_off(model(**settings), data, path)
    shutil.copy(path, tmp_path / "copy")
    one, other = (
        found(model(**settings).fit(data, resume=file)) for file in (path, tmp_path / "copy")
    )
    assert one == other
    assert one != found(model(**settings).fit(data))
    with pytest.raises(
        CheckpointError,
        match=r"random_state \(none there, a seed here: give the same as when it was begun\)",
    ):
        model(**settings | {"random_state": 1}).fit(data, resume=path)


def test_a_generator_counts_by_its_state(path):
    data = entries()

    def rng(advanced):
        made = np.random.default_rng(5)
        made.spawn(advanced)
        return made

    undisturbed = model(loss="lsp", random_state=rng(1)).fit(data)
    assert break_off(model(loss="lsp", random_state=rng(1)), data, path)
    with pytest.raises(
        CheckpointError,
        match=r"with other random_state \(another seed: give the same as when it was begun\); it is left",
    ):
        model(loss="lsp", random_state=rng(0)).fit(data, checkpoint=path)
    assert found(model(loss="lsp", random_state=rng(1)).fit(data, checkpoint=path)) == found(
        undisturbed
    )


def test_ctrl_c_leaves_a_file_to_go_on_from(path):
    data = entries()

    def interrupt(snapshot):
        if snapshot.iteration == 5:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.warns(InterruptedFitWarning):
        model(loss="lsp", callbacks=[interrupt]).fit(data, checkpoint=path, checkpoint_every=0)
    assert found(model(loss="lsp").fit(data, resume=path)) == found(model(loss="lsp").fit(data))


def test_a_fit_that_a_callback_ended_can_be_gone_on_with(path):
    data = entries()
    stopped = model(loss="lsp", callbacks=[lambda snapshot: snapshot.iteration == 5]).fit(
        data, checkpoint=path
    )
    assert (
        stopped.n_iter_ == modelfile.read(path).state["loops"]["fit"]["outcome"]["iterations"] == 5
    )
    assert found(model(loss="lsp").fit(data, checkpoint=path)) == found(model(loss="lsp").fit(data))


def test_it_is_written_at_the_interval_and_no_more(path, caplog):
    caplog.set_level(logging.INFO, "robustmf")
    fitted = model(loss="lsp").fit(entries(), checkpoint=path, checkpoint_every=3600)
    assert (
        caplog.text.count(": written") == 3
    )  # when it begins, when the start is found, at the end
    path.unlink()
    caplog.clear()
    model(loss="lsp").fit(entries(), checkpoint=path, checkpoint_every=0)
    assert caplog.text.count(": written") == 3 + fitted.n_iter_


def test_what_a_killed_process_left_is_removed(path):
    left = path.with_name(f".checkpoint.{'a1' * 8}.tmp")
    others = path.with_name(".checkpoint.notes.tmp")
    for file in (left, others):
        file.write_bytes(b"half")
    model().fit(entries(), checkpoint=path)
    assert sorted(os.listdir(path.parent)) == [".checkpoint.notes.tmp", "checkpoint"]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"rank": 2}, r"rank \(3 there, 2 here\)"),
        ({"loss": "geman"}, "loss"),
        ({"tol": 1e-5}, r"tol \(0.0001 there, 1e-05 here\)"),
        ({"random_state": 2}, "random_state"),
        ({"init": (np.zeros((50, 3)), np.zeros((50, 3)))}, "init"),
        ({"inner_max_iter": 7}, "mm"),
    ],
)
def test_another_fit_is_refused_by_what_differs(changed, named, path):
    assert break_off(model(loss="lsp"), entries(), path)
    before = path.read_bytes()
    with pytest.raises(
        CheckpointError, match=f"checkpoint of another fit, with other {named}"
    ) as raised:
        model(**{"loss": "lsp"} | changed).fit(entries(), checkpoint=path)
    assert str(path) in str(raised.value)
    assert path.read_bytes() == before


def test_other_data_are_refused(path):
    assert break_off(model(loss="lsp"), entries(), path)
    other = entries()
    other.rows.values[7] += 1e-9
    with pytest.raises(CheckpointError, match="with other X "):
        model(loss="lsp").fit(other, checkpoint=path)
    with pytest.raises(
        CheckpointError, match=r"with other X .*, shape \(\(50, 50\) there, \(40, 40\) here\)"
    ):
        model(loss="lsp").fit(entries(rows=40), checkpoint=path)


def test_damaged_files_and_other_files_are_refused(path, tmp_path):
    fitted = model(loss="lsp").fit(entries(), checkpoint=path)
    whole = path.read_bytes()
    for content, match in (
        (whole[:-1], "damaged"),
        (whole[:400] + b"?" + whole[401:], "damaged"),
        (b"", "not a model file"),
    ):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=match):
            model(loss="lsp").fit(entries(), checkpoint=path)
        assert path.read_bytes() == content
    fitted.save(path)
    with pytest.raises(CheckpointError, match="holds a RobustMF, not a checkpoint"):
        model(loss="lsp").fit(entries(), checkpoint=path)
    path.write_bytes(whole)
    with pytest.raises(ModelFileError, match="'checkpoint'"):
        robustmf.load(path)
    with pytest.raises(CheckpointError, match="Is a directory"):
        model().fit(entries(), checkpoint=tmp_path)


@pytest.mark.parametrize(
    "part", ["state", "start", "shape of the start", "shape of the solver", "kind of the result"]
)
def test_sealed_files_with_other_parts_are_refused(part, path):
    assert break_off(model(loss="lsp"), entries(), path)
    saved = modelfile.read(path)
    state = saved.state
    if part == "state":
        del state["loops"]
    elif part == "start":
        del state["prepared"]["sigma"]
    elif part == "shape of the start":
        state["prepared"]["U"] = np.zeros((7, 3))
    elif part == "shape of the solver":
        state["loops"]["fit"]["solver"]["point"] = (np.zeros((7, 3)), np.zeros((7, 3)))
    else:
        state["ended"] = [{"U": 1}]
    modelfile.write(path, saved)
    with pytest.raises(
        CheckpointError, match="is sealed, but not what this release writes"
    ) as raised:
        model(loss="lsp").fit(entries(), checkpoint=path)
    assert str(path) in str(raised.value)


def test_arguments(path):
    for arguments, kind, match in (
        ({"checkpoint": path, "resume": path}, ValueError, "not both"),
        ({"checkpoint": path, "checkpoint_every": -1}, ValueError, "checkpoint_every=-1"),
        ({"checkpoint": path, "checkpoint_every": float("nan")}, ValueError, "checkpoint_every"),
        ({"checkpoint": 7}, TypeError, "checkpoint=7"),
        ({"resume": ""}, TypeError, "resume=''"),
        ({"resume": path}, CheckpointError, "does not exist; checkpoint= would begin anew"),
        ({"checkpoint": path / "below"}, CheckpointWriteError, "No such file or directory"),
    ):
        with pytest.raises(kind, match=match):
            model().fit(entries(), **arguments)
    assert not path.exists()


def test_an_error_in_a_callback_is_not_blamed_on_the_file(path):
    def fail(snapshot):
        raise TypeError("my own")

    with pytest.raises(TypeError, match="my own"):
        model(callbacks=[fail]).fit(entries(), checkpoint=path)


@needs_gpu
@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
@pytest.mark.parametrize(
    "settings",
    [{"solver": "irls", "bias": True}, {"solver": "mm", "inner_max_iter": 3}],
    ids=["irls", "mm"],
)
def test_on_the_card(settings, path):
    observed, *_ = random_problem(24, 20, 2)
    settings = settings | {
        "rank": 2,
        "loss": "lsp",
        "init": "ridge",
        "device": "cuda",
        "max_iter": 3,
    }
    undisturbed = model(**settings).fit(observed)
    while break_off(gone_on := model(**settings), observed, path, after=1):
        pass
    assert found(gone_on) == found(undisturbed)
    with pytest.raises(CheckpointError, match="other device"):
        model(**settings | {"device": "cpu"}).fit(observed, checkpoint=path)


def test_on_the_command_line(tmp_path, monkeypatch):
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
