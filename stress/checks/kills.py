"""Checkpoints: a fit killed repeatedly and resumed gives the bits of an undisturbed fit."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from robustmf import Observed, RobustMF
from robustmf.datasets import make_synthetic
from robustmf.exceptions import RobustMFWarning
from robustmf.io.model_file import read
from stress.tally import Tally

TITLE = "SIGKILL at random times, resumed from the checkpoint: same bits"

# Numbers of kills.
CASES = 150
FEW = 12

_SETTINGS: list[dict[str, Any]] = [
    {"solver": "irls", "loss": "lsp"},
    {"solver": "mm", "loss": "lsp"},
    {"solver": "varpro", "tol": 1e-10},
    {"solver": "irls", "loss": "l1", "certify": True, "max_iter": 25},
    {"solver": "irls", "bias": True, "loss": "cauchy", "tol": 1e-8},
    {"solver": "irls", "loss": "huber", "n_init": 3, "init": "random", "tol": 1e-7},
    {"solver": "irls", "loss": "geman", "validation_fraction": 0.1, "patience": 15},
]

#: Mean time in seconds until a process is killed; some live long enough for any initialization.
_LIFETIME = 0.12


def run(tally: Tally, cases: int, seed: int) -> None:
    """Fit problems until ``cases`` processes were killed; each kill and each result is a case."""
    rng = np.random.default_rng(seed)
    killed = 0
    number = 0
    while killed < cases:
        settings = _SETTINGS[number % len(_SETTINGS)]
        data = make_synthetic(int(rng.integers(60, 160)), rank=3, random_state=rng).train
        if number % 2:
            rows = data.rows
            data = Observed.from_indices(
                rows.group_of_entry(), rows.indices, rows.values.astype(np.float32), data.shape
            )
        label = f"{settings}, {data.shape[0]} rows, {data.dtype}"
        number += 1
        with tempfile.TemporaryDirectory() as folder:
            undisturbed = _Results(_fitted(settings, data, None))
            while killed < cases:
                lifetime = rng.exponential(_LIFETIME)
                with tally.case(f"{label}, kill {killed + 1} after {lifetime:.3f} s"):
                    if not _dies(settings, data, Path(folder), lifetime):
                        break
                    killed += 1
                    assert len(list(Path(folder).iterdir())) <= 2, (
                        f"files accumulate: {os.listdir(folder)}"
                    )
                    if (Path(folder) / "checkpoint").exists():
                        read(Path(folder) / "checkpoint")
            with tally.case(f"{label}, result"):
                _Results(_fitted(settings, data, Path(folder) / "checkpoint")).require(undisturbed)
                assert os.listdir(folder) == ["checkpoint"], f"left behind: {os.listdir(folder)}"


def _fitted(settings: dict[str, Any], data: Observed, path: Path | None) -> RobustMF:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobustMFWarning)
        return RobustMF(rank=3, n_jobs=1, random_state=7, **settings).fit(
            data, checkpoint=path, checkpoint_every=0
        )


class _Results:
    """The results of a fit that must be equal: all but the seconds it took."""

    def __init__(self, model: RobustMF) -> None:
        self.arrays = {
            name: getattr(model, name).tobytes()
            for name in ("row_factors_", "column_factors_", "row_bias_", "column_bias_")
        }
        history = {name: values for name, values in model.history_.items() if name != "seconds"}
        plain = (
            "n_iter_",
            "best_iteration_",
            "stop_reason_",
            "reg_",
            "theta_",
            "center_",
            "criticality_",
            "solver_",
        )
        self.plain = repr(history) + repr([getattr(model, name) for name in plain])

    def require(self, other: _Results) -> None:
        """Raise unless all results are equal, bit for bit."""
        for name, content in self.arrays.items():
            assert content == other.arrays[name], f"{name} differs"
        assert self.plain == other.plain, f"{self.plain} is not {other.plain}"


def _dies(settings: dict[str, Any], data: Observed, folder: Path, lifetime: float) -> bool:
    """Whether a process that fits from the checkpoint was killed before it ended by itself."""
    with warnings.catch_warnings():
        # The process is forked beside idle BLAS threads on purpose.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = multiprocessing.get_context("fork").Process(
            target=_fitted, args=(settings, data, folder / "checkpoint")
        )
        child.start()
    time.sleep(lifetime)
    # Until it is joined the process keeps its id, even if it has ended.
    os.kill(child.pid, signal.SIGKILL)  # type: ignore[arg-type]
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL), f"the process exited with {child.exitcode}"
    return child.exitcode != 0
