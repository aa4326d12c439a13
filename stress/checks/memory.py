"""Memory: the peak of a fit lies within the estimate of ``RobustMF.memory_estimate``."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import re
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from robustmf import MM, Observed, RobustMF
from robustmf.exceptions import RobustMFWarning
from stress.tally import Tally

TITLE = "peak memory of a fit within the estimate and 20 %"
CASES = 12
FEW = 2

_SETTINGS: list[dict[str, Any]] = [
    {"solver": MM(max_iter=20), "loss": "lsp"},
    {"solver": "irls", "init": "random", "bias": True},
    {"solver": "irls"},
    {"solver": "varpro"},
    {"solver": "irls", "validation_fraction": 0.1, "init": "ridge"},
]

#: Bytes kept by the allocator, which the estimate does not include.
_SLACK = 12 << 20


def run(tally: Tally, cases: int, seed: int) -> None:
    """Run each fit in a forked process, which measures the increase of its peak memory."""
    for case, rng in enumerate(np.random.default_rng(seed).spawn(cases)):
        settings = _SETTINGS[case % len(_SETTINGS)]
        shape, n_entries, rank, dtype = _drawn(settings, rng)
        model = RobustMF(rank=rank, max_iter=2, n_jobs=2, random_state=0, **settings)
        with tally.case(f"{settings}, shape {shape}, {n_entries} entries, rank {rank}, {dtype}"):
            estimate = model.memory_estimate(shape=shape, n_entries=n_entries, dtype=dtype)
            peak = _peak(model, shape, n_entries, dtype, int(rng.integers(1 << 30)))
            assert peak <= 1.2 * estimate + _SLACK, (
                f"{peak / 1e6:.1f} MB, estimated {estimate / 1e6:.1f} MB"
            )


def _drawn(
    settings: dict[str, Any], rng: np.random.Generator
) -> tuple[tuple[int, int], int, int, str]:
    dtype = str(rng.choice(["float32", "float64"]))
    if settings["solver"] == "varpro":
        shape = (int(rng.integers(10, 60)), int(rng.integers(2_000, 8_000)))
        return (
            shape,
            int(rng.uniform(0.3, 0.8) * shape[0] * shape[1]),
            int(rng.integers(2, 5)),
            dtype,
        )
    m, n = (int(np.exp(rng.uniform(np.log(1_000), np.log(60_000)))) for _ in range(2))
    n_entries = min(int(np.exp(rng.uniform(np.log(2e5), np.log(8e5)))), m * n // 4)
    return (m, n), n_entries, int(rng.integers(2, 13)), dtype


def _peak(
    model: RobustMF,
    shape: tuple[int, int],
    n_entries: int,
    dtype: str,
    seed: int,
) -> int:
    here, there = multiprocessing.Pipe()
    with warnings.catch_warnings():
        # The process is forked beside idle BLAS threads on purpose.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = multiprocessing.get_context("fork").Process(
            target=_measure, args=(there, model, shape, n_entries, dtype, seed)
        )
        child.start()
    there.close()
    try:
        return here.recv()
    except EOFError:
        raise AssertionError("the process ended without a result") from None
    finally:
        child.join()


def _measure(
    connection: Connection,
    model: RobustMF,
    shape: tuple[int, int],
    n_entries: int,
    dtype: str,
    seed: int,
) -> None:
    """Send the increase of the peak by the second of two equal fits.

    The first compiles and loads the code that the fit needs, which is not part of its memory: the
    compiler alone takes more than 50 MB.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobustMFWarning)
        model.fit(_entries(shape, n_entries, dtype, seed))
        _return_freed()
        before = _status("VmRSS")
        entries = _entries(shape, n_entries, dtype, seed)
        _return_freed()
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        model.fit(entries)
    connection.send(_status("VmHWM") - before)


def _return_freed() -> None:
    """Return freed memory to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _status(name: str) -> int:
    """A line of the process's status, in bytes."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    assert found is not None
    return 1024 * int(found[1])


def _entries(shape: tuple[int, int], n_entries: int, dtype: str, seed: int) -> Observed:
    """Random entries of a low-rank matrix with noise and some gross errors."""
    rng = np.random.default_rng(seed)
    positions = np.unique(rng.integers(shape[0] * shape[1], size=n_entries))
    i, j = (index.astype(np.int32) for index in np.divmod(positions, shape[1]))
    U, V = (rng.standard_normal((size, 2)) for size in shape)
    values = (
        np.einsum("tq,tq->t", U[i], V[j])
        + 0.2 * rng.standard_normal(len(positions))
        + 5 * (rng.random(len(positions)) < 0.03)
    )
    return Observed.from_indices(i, j, values.astype(dtype), shape)
