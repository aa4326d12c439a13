"""Checkpoints: full or read-only disks and files of other fits raise a named error."""

from __future__ import annotations

import resource
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from robustmf import MM, Observed, RobustMF
from robustmf.datasets import make_synthetic
from robustmf.exceptions import CheckpointError, CheckpointWriteError, RobustMFWarning
from robustmf.io.model_file import Saved, read, write
from stress import small_disk
from stress.expected import refusal
from stress.tally import Tally

TITLE = "checkpoints: full and read-only disks, damaged files, files of other fits"
CASES = 240
FEW = 20

#: Largest number of writes before a limit on the size of files is set.
_MAX_WRITES = 8

#: That limit in bytes, below the size of the checkpoints.
_LIMIT = 500

#: The last iteration after which a fit is interrupted.
_LAST = 11


def run(tally: Tally, cases: int, seed: int) -> None:
    """A quarter of the cases on a small disk, a quarter with a limit on files, half with faults."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobustMFWarning)
        _run_all(tally, cases, seed)


def _run_all(tally: Tally, cases: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        found = small_disk.run(cases // 4, seed, Path(folder))
    if found is None:
        print(
            "no small disk can be mounted here: only the size of files is limited",
            file=sys.stderr,
        )
    else:
        tally.add(found)
    for case in range(cases // 4):
        data = make_synthetic(int(rng.integers(40, 80)), rank=2, random_state=rng).train
        with tally.case(f"file size limit, case {case}"), tempfile.TemporaryDirectory() as folder:
            _limited(data, Path(folder) / "checkpoint", int(rng.integers(_MAX_WRITES)))
    data = make_synthetic(60, rank=2, random_state=rng).train
    faults = sorted(_FAULTS)
    for case in range(cases // 2):
        fault = faults[case % len(faults)]
        with tally.case(f"{fault}, case {case}"), tempfile.TemporaryDirectory() as folder:
            _refused(_FAULTS[fault], data, Path(folder) / "checkpoint", rng)


def _model(**changes: Any) -> RobustMF:
    # More iterations than the last one after which it is interrupted.
    return RobustMF(
        **{
            "rank": 2,
            "loss": "lsp",
            "random_state": 0,
            "n_jobs": 1,
            "tol": 1e-12,
            "max_iter": _LAST + 3,
        }
        | changes
    )


@contextmanager
def _small_files() -> Iterator[None]:
    """Limit the size of files that this process writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LIMIT, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class _Stop(Exception):  # noqa: N818 - interrupts a fit
    pass


def _interrupted_fit(model: RobustMF, data: Observed, path: Path, iterations: int) -> None:
    """Write the checkpoint of an interrupted fit."""

    def leave(snapshot: Any) -> None:
        if snapshot.iteration > iterations:
            raise _Stop

    try:
        model.set_params(callbacks=[leave]).fit(data, checkpoint=path, checkpoint_every=0)
    except _Stop:
        return


def _limited(data: Observed, path: Path, iterations: int) -> None:
    if iterations:
        _interrupted_fit(_model(), data, path, iterations)
    good = path.read_bytes() if iterations else None
    with _small_files():
        message = refusal(
            CheckpointWriteError, lambda: _model().fit(data, checkpoint=path, checkpoint_every=0)
        )
    assert str(path) in message, f"the error does not name the file: {message}"
    assert (path.read_bytes() if path.exists() else None) == good, "the last good file was not kept"
    assert {left.name for left in path.parent.iterdir()} <= {"checkpoint"}, "left behind"
    resumed = _model().fit(data, checkpoint=path)
    undisturbed = _model().fit(data)
    assert resumed.row_factors_.tobytes() == undisturbed.row_factors_.tobytes(), (
        "different bits after the limit was removed"
    )


#: Damages a valid checkpoint and returns the model and data whose fit must refuse it.
Fault = Callable[[Path, Observed, np.random.Generator], tuple[RobustMF, Observed]]


def _refused(fault: Fault, data: Observed, path: Path, rng: np.random.Generator) -> None:
    _interrupted_fit(_model(), data, path, int(rng.integers(1, _LAST + 1)))
    model, other = fault(path, data, rng)
    wrong = path.read_bytes()
    for how in ("checkpoint", "resume"):
        message = refusal(CheckpointError, partial(model.fit, other, **{how: path}))
        assert str(path) in message, f"the error does not name the file: {message}"
    assert path.read_bytes() == wrong, "the file was modified"
    assert [left.name for left in path.parent.iterdir()] == ["checkpoint"], "left behind"


def _flip(path: Path, data: Observed, rng: np.random.Generator) -> tuple[RobustMF, Observed]:
    content = bytearray(path.read_bytes())
    content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)
    return _model(), data


def _cut(path: Path, data: Observed, rng: np.random.Generator) -> tuple[RobustMF, Observed]:
    content = path.read_bytes()
    path.write_bytes(content[: int(rng.integers(len(content)))])
    return _model(), data


def _inconsistent(
    path: Path, data: Observed, rng: np.random.Generator
) -> tuple[RobustMF, Observed]:
    """A part of the state is missing or has another size, and the checksum is correct."""
    saved = read(path)
    state = saved.state
    prepared = state["prepared"]
    kind = int(rng.integers(4))
    if kind == 0:
        del state[str(rng.choice(sorted(state)))]
    elif kind == 1:
        del prepared[str(rng.choice(sorted(prepared)))]
    elif kind == 2:
        factors = prepared["factorization"]
        factors["row_factors"] = factors["row_factors"][:-1].copy()
    else:
        state["loops"]["fit"]["solver"]["point"] = (np.zeros((3, 2)), np.zeros((3, 2)))
    write(path, Saved(saved.kind, saved.parameters, state))
    return _model(), data


def _other_version(
    path: Path, data: Observed, rng: np.random.Generator
) -> tuple[RobustMF, Observed]:
    saved = read(path)
    key, value = [("version", 0), ("robustmf", "0.0.1")][int(rng.integers(2))]
    write(path, Saved(saved.kind, saved.parameters | {key: value}, saved.state))
    return _model(), data


def _other_value(path: Path, data: Observed, rng: np.random.Generator) -> tuple[RobustMF, Observed]:
    rows = data.rows
    values = rows.values.copy()
    at = int(rng.integers(len(values)))
    values[at] = np.nextafter(values[at], np.inf)
    return _model(), Observed.from_indices(rows.group_of_entry(), rows.indices, values, data.shape)


def _other_shape(path: Path, data: Observed, rng: np.random.Generator) -> tuple[RobustMF, Observed]:
    rows = data.rows
    return _model(), Observed.from_indices(
        rows.group_of_entry(), rows.indices, rows.values, (data.shape[0], data.shape[1] + 1)
    )


def _other_precision(
    path: Path, data: Observed, rng: np.random.Generator
) -> tuple[RobustMF, Observed]:
    rows = data.rows
    return _model(), Observed.from_indices(
        rows.group_of_entry(), rows.indices, rows.values.astype(np.float32), data.shape
    )


def _other_parameter(
    path: Path, data: Observed, rng: np.random.Generator
) -> tuple[RobustMF, Observed]:
    changes: list[dict[str, Any]] = [
        {"rank": 3},
        {"loss": "geman"},
        {"theta": 0.7},
        {"reg": 0.5},
        {"solver": "mm"},
        {"max_iter": 299},
        {"tol": 1e-5},
        {"random_state": 1},
        {"random_state": None},
        {"n_init": 2},
        {"validation_fraction": 0.1},
        {"bounds": (-9, 9)},
        {"bias": True},
        {"init": "ridge"},
        {"certify": True},
        {"certify": MM(gap=0.1)},
        {"patience": 6},
        {"reg_by_count": True},
        {"random_state": np.random.default_rng(1)},
    ]
    return _model(**changes[int(rng.integers(len(changes)))]), data


def _a_model(path: Path, data: Observed, rng: np.random.Generator) -> tuple[RobustMF, Observed]:
    _model().fit(data).save(path)
    return _model(), data


def _noise(path: Path, data: Observed, rng: np.random.Generator) -> tuple[RobustMF, Observed]:
    path.write_bytes(rng.bytes(int(rng.integers(5000))))
    return _model(), data


_FAULTS: dict[str, Fault] = {
    "one bit flipped": _flip,
    "truncated": _cut,
    "inconsistent parts with a valid checksum": _inconsistent,
    "another version": _other_version,
    "one value changed": _other_value,
    "another shape": _other_shape,
    "another precision": _other_precision,
    "another parameter": _other_parameter,
    "a model file": _a_model,
    "noise": _noise,
}
