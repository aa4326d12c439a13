"""Checkpoints of other fits, damaged ones and invalid content are refused."""

from __future__ import annotations

import errno
import os
from copy import deepcopy
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pytest

import robustmf
from checkpoints import abort_fit, entries, model, results
from robustmf import MM, Observed
from robustmf.exceptions import (
    CheckpointError,
    CheckpointWriteError,
    ModelFileError,
)
from robustmf.io import checkpoint as checkpoint_module
from robustmf.io import model_file
from robustmf.io.checkpoint import Checkpoint
from robustmf.io.fit_identity import digest, require_same_fit
from robustmf.solvers.base import require_same_layout


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint"


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
        require_same_fit(path, saved, current)
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
    digests = {digest(array) for array in (zeros, *others)}
    assert len(digests) == 5
    assert digest(zeros) == digest(zeros.copy())
    assert digest(zeros[:2], zeros) != digest(zeros, zeros[:2])


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
