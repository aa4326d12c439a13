"""Checkpoints: a resumed fit has bitwise equal results; checkpoints of other fits are refused."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
from copy import deepcopy
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pytest
from typer.testing import CliRunner

import robustmf
from conftest import Root, needs_gpu, random_problem
from robustmf import MM, RMFNL, Observed, RobustMF
from robustmf.cli import app
from robustmf.datasets import make_synthetic
from robustmf.exceptions import (
    CheckpointError,
    CheckpointWriteError,
    InterruptedFitWarning,
    ModelFileError,
    NotConvergedWarning,
)
from robustmf.io import checkpoint as checkpoint_module
from robustmf.io import model_file
from robustmf.io.checkpoint import Checkpoint, FileProgress
from robustmf.solvers.base import require_same_layout

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
    "λ by count": {"solver": "irls", "reg_by_count": True, "reg": 0.01, "loss": "cauchy"},
}


class Aborted(Exception):  # noqa: N818 - stands for the end of a process
    """Stands for the death of the process."""


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


def abort_fit(estimator, data, path, after=3, **more):
    """Fit, and abort after this number of iterations; whether that number was exceeded."""
    iterations = []

    def abort(snapshot):
        iterations.append(snapshot.iteration)
        if len([k for k in iterations if k > 0]) > after:
            raise Aborted

    try:
        estimator.set_params(callbacks=[abort]).fit(
            data, checkpoint=path, checkpoint_every=0, **more
        )
    except Aborted:
        return True
    return False


def results(estimator):
    """The results of a fit, except the times."""
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


def with_ids(data, prefix):
    """The same entries with ids in the same order."""
    ids = [[f"{prefix}{k:03}" for k in range(size)] for size in data.shape]
    return Observed(data.rows, data.shape, *ids)


@pytest.mark.parametrize("finished", [False, True])
def test_other_ids_are_refused_where_they_select_the_entries_held_out(path, finished):
    data = entries()
    settings = {"validation_fraction": 0.1, "loss": "geman"}
    if finished:
        model(**settings).fit(with_ids(data, "a"), checkpoint=path)
    else:
        assert abort_fit(model(**settings), with_ids(data, "a"), path, after=1)
    for other in (with_ids(data, "b"), data):
        with pytest.raises(CheckpointError, match="another fit, with other ids"):
            model(**settings).fit(other, checkpoint=path)
    resumed = model(**settings).fit(with_ids(data, "a"), checkpoint=path)
    assert results(resumed) == results(model(**settings).fit(with_ids(data, "a")))
    assert results(resumed) != results(model(**settings).fit(with_ids(data, "b")))


def test_other_ids_are_accepted_where_nothing_is_held_out(path):
    data = entries()
    assert abort_fit(model(loss="lsp"), with_ids(data, "a"), path, after=1)
    resumed = model(loss="lsp").fit(with_ids(data, "b"), checkpoint=path)
    assert results(resumed) == results(model(loss="lsp").fit(data))
    assert resumed.row_ids_[0] == "b000"


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


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"rank": 2}, r"rank \(3 there, 2 here\)"),
        ({"loss": "geman"}, "loss"),
        ({"tol": 1e-5}, r"tol \(0.0001 there, 1e-05 here\)"),
        ({"random_state": 2}, "random_state"),
        ({"init": (np.zeros((50, 3)), np.zeros((50, 3)))}, "init"),
        ({"solver": MM(max_iter=7)}, "mm"),
    ],
)
def test_the_checkpoint_of_another_fit_is_refused_with_the_difference(changed, named, path):
    assert abort_fit(model(loss="lsp"), entries(), path)
    before = path.read_bytes()
    with pytest.raises(
        CheckpointError, match=f"checkpoint of another fit, with other {named}"
    ) as raised:
        model(**{"loss": "lsp"} | changed).fit(entries(), checkpoint=path)
    assert str(path) in str(raised.value)
    assert path.read_bytes() == before


def test_the_checkpoint_of_other_data_is_refused(path):
    assert abort_fit(model(loss="lsp"), entries(), path)
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
    "part",
    [
        "state",
        "initialization",
        "its shape",
        "values of the solver",
        "shape of the solver",
        "type of the result",
    ],
)
def test_invalid_content_with_a_valid_checksum_is_refused(part, path):
    assert abort_fit(model(loss="lsp"), entries(), path)
    saved = model_file.read(path)
    state = saved.state
    if part == "state":
        del state["loops"]
    elif part == "initialization":
        del state["prepared"]["sigma"]
    elif part == "its shape":
        state["prepared"]["factorization"]["row_factors"] = np.zeros((7, 3))
    elif part == "values of the solver":
        state["loops"]["fit"]["solver"]["point"][0][0] = np.nan
    elif part == "shape of the solver":
        state["loops"]["fit"]["solver"]["point"] = (np.zeros((7, 3)), np.zeros((7, 3)))
    else:
        state["ended"] = [{"U": 1}]
    model_file.write(path, saved)
    content = path.read_bytes()
    with pytest.raises(
        CheckpointError, match="the checksum is valid, but the content is not"
    ) as raised:
        model(loss="lsp").fit(entries(), checkpoint=path)
    assert str(path) in str(raised.value)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("names", "value"),
    [
        (("prepared", "sigma"), 0.0),
        (("prepared", "theta"), "x"),
        (("prepared", "reg"), -1.0),
        (("prepared", "bias_unit"), np.nan),
        (("prepared", "solver"), "none"),
        (("prepared", "reason"), None),
        (("prepared", "scales"), (np.ones(50), np.zeros(50))),
        (("prepared", "scales"), (np.ones(50), np.ones(3))),
        (("prepared", "factorization", "center"), True),
        (("prepared", "factorization", "row_bias"), np.full(50, np.inf)),
        (("loops", "fit", "solver", "momentum"), Decimal("sNaN")),
        (("loops", "fit", "solver", "smoothing"), (1.0, None, 0.5)),
        (("loops", "fit", "solver", "smoothing"), [1.0, 0.5, 0.5]),
        (("loops", "fit", "solver", "single"), 0.5),
        (("loops", "fit", "objective"), np.nan),
        (("loops", "fit", "seconds"), None),
        (("loops", "fit", "outcome", "iterations"), datetime(2020, 1, 1, tzinfo=UTC)),
        (("loops", "fit", "outcome", "iterations"), 1.5),
        (("loops", "fit", "outcome", "history", "objective"), 3),
        (("loops", "fit", "outcome", "history", "objective"), [1.0]),
        (("loops", "fit", "outcome", "history", "objective"), ["a"] * 4),
        (("loops", "fit", "outcome", "reason"), None),
        (("loops", "fit", "outcome", "converged"), 1.0),
        (("loops", "fit", "outcome", "best"), (np.ones((7, 3)), np.ones((50, 3)))),
    ],
)
def test_invalid_values_with_a_valid_checksum_are_refused(names, value, aborted, path):
    saved = model_file.Saved(aborted.kind, aborted.parameters, deepcopy(aborted.state))
    part = saved.state
    for name in names[:-1]:
        part = part[name]
    part[names[-1]] = value
    model_file.write(path, saved)
    with pytest.raises(CheckpointError, match="content is not what this release writes") as raised:
        model(loss="lsp").fit(entries(), checkpoint=path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("exists", [False, True])
def test_a_file_that_cannot_be_written_is_reported_before_the_first_iteration(
    exists, path, monkeypatch
):
    if exists:
        assert abort_fit(model(loss="lsp"), entries(), path)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    iterations = []
    monkeypatch.setattr(checkpoint_module, "write_atomically", full)
    monkeypatch.setattr(model_file, "write_atomically", full)
    with pytest.raises(CheckpointWriteError, match="No space left"):
        model(loss="lsp", callbacks=[iterations.append]).fit(entries(), checkpoint=path)
    assert iterations == []


@pytest.fixture(scope="module")
def aborted(tmp_path_factory):
    """The checkpoint of an aborted fit."""
    path = tmp_path_factory.mktemp("aborted") / "checkpoint"
    assert abort_fit(model(loss="lsp"), entries(), path)
    return model_file.read(path)


@pytest.mark.parametrize("value", [np.zeros((2, 0)), np.eye(20), Decimal("sNaN"), {"entropy": []}])
@pytest.mark.parametrize("name", ["tol", "version", "random_state"])
def test_settings_that_cannot_be_compared_are_those_of_another_fit(name, value, path):
    current = {"version": 4, "robustmf": "1", "tol": 0.1, "random_state": {"entropy": [1]}}
    saved = current | {name: value}
    with pytest.raises(CheckpointError, match=r"another fit|is of version") as raised:
        checkpoint_module.require_same_fit(path, saved, current)
    assert "\n" not in str(raised.value)


def test_arguments(path):
    for arguments, kind, match in (
        ({"checkpoint": path, "resume": path}, ValueError, "not both"),
        ({"checkpoint": path, "checkpoint_every": -1}, ValueError, "checkpoint_every=-1"),
        ({"checkpoint": path, "checkpoint_every": float("nan")}, ValueError, "checkpoint_every"),
        ({"checkpoint": 7}, TypeError, "checkpoint=7"),
        ({"resume": ""}, TypeError, "resume=''"),
        ({"resume": path}, CheckpointError, "does not exist; checkpoint= would start a new fit"),
        ({"checkpoint": path / "below"}, CheckpointWriteError, "No such file or directory"),
    ):
        with pytest.raises(kind, match=match):
            model().fit(entries(), **arguments)
    assert not path.exists()


def test_an_error_in_a_callback_is_not_attributed_to_the_file(path):
    def fail(snapshot):
        raise TypeError("from the callback")

    with pytest.raises(TypeError, match="from the callback"):
        model(callbacks=[fail]).fit(entries(), checkpoint=path)


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


def test_the_checkpoint_of_another_device_is_refused(path):
    data = entries()

    def opened(device):
        checkpoint = Checkpoint(path, 0.0, False, True, device)
        rng = np.random.default_rng(0)
        return checkpoint.open({"validation_fraction": None}, data, None, rng, np.asarray)

    opened("cpu")
    opened("cpu")
    with pytest.raises(CheckpointError, match=r"other device \('cpu' there, 'cuda' here\)"):
        opened("cuda")


def test_digests_distinguish_types_and_shapes():
    zeros = np.zeros(4)
    others = [zeros.astype(np.int64), zeros.reshape(2, 2), zeros[:3], np.zeros(8, np.float32)]
    digests = {checkpoint_module._digest(array) for array in (zeros, *others)}
    assert len(digests) == 5
    assert checkpoint_module._digest(zeros) == checkpoint_module._digest(zeros.copy())
    assert checkpoint_module._digest(zeros[:2], zeros) != checkpoint_module._digest(
        zeros, zeros[:2]
    )


def test_saved_arrays_must_have_the_shapes_and_types_of_the_fit():
    own = (np.zeros((3, 2)), np.zeros((4, 2)))
    assert require_same_layout(own, own) == own
    for saved in (
        own[:1],
        own[::-1],
        (own[0], own[1][:3]),
        (own[0].astype(np.float32), own[1]),
    ):
        with pytest.raises(CheckpointError, match="not those of this fit"):
            require_same_layout(saved, own)
