"""Memory: the peak of a fit lies within what ``RobustMF.memory_estimate`` says."""

from __future__ import annotations

import ctypes
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
CASES, FEW = 12, 2

_WAYS: list[dict[str, Any]] = [
    {"solver": MM(max_iter=20), "loss": "lsp"},
    {"solver": "irls", "init": "random", "bias": True},
    {"solver": "irls"},
    {"solver": "varpro"},
    {"solver": "irls", "validation_fraction": 0.1, "init": "ridge"},
]

#: What the allocator keeps and the estimate does not count.
_SLACK = 12 << 20


def run(tally: Tally, cases: int, seed: int) -> None:
    """Each fit in a forked process, which measures its own peak beyond what it began with."""
    for way in _WAYS[:cases]:
        _warm_up(way)
    for case, rng in enumerate(np.random.default_rng(seed).spawn(cases)):
        way = _WAYS[case % len(_WAYS)]
        shape, n_entries, rank, dtype = _drawn(way, rng)
        model = RobustMF(rank=rank, max_iter=2, n_jobs=2, random_state=0, **way)
        with tally.case(f"{way}, shape {shape}, {n_entries} entries, rank {rank}, {dtype}"):
            estimate = model.memory_estimate(shape=shape, n_entries=n_entries, dtype=dtype)
            peak = _peak(way, model, shape, n_entries, dtype, int(rng.integers(1 << 30)))
            assert peak <= 1.2 * estimate + _SLACK, (
                f"{peak / 1e6:.1f} MB, estimated {estimate / 1e6:.1f} MB"
            )


def _drawn(way: dict[str, Any], rng: np.random.Generator) -> tuple[tuple[int, int], int, int, str]:
    dtype = str(rng.choice(["float32", "float64"]))
    if way["solver"] == "varpro":
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


def _warm_up(way: dict[str, Any]) -> None:
    """Compile, and load the pages of code that a fit may need: they come once a process, and belong to no fit.

    Beside a problem with entries enough to see the noise, one with so few that λ is searched for. That search has kernels of its own, and
    to load them brings 57 MB of the compiler. (Variable projection is for short sides, and has no use for it.)
    """
    few = [((900, 1_100), 5_000)] if way["solver"] != "varpro" else []
    for shape, n_entries in [((60, 200), 9_000), *few]:
        for dtype in ("float32", "float64"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RobustMFWarning)
                RobustMF(rank=3, max_iter=2, random_state=0, n_jobs=2, **way).fit(
                    _entries(shape, n_entries, dtype, 0)
                )


def _peak(
    way: dict[str, Any],
    model: RobustMF,
    shape: tuple[int, int],
    n_entries: int,
    dtype: str,
    seed: int,
) -> int:
    here, there = multiprocessing.Pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # a fork beside idle BLAS threads is meant here
        child = multiprocessing.get_context("fork").Process(
            target=_measure, args=(there, way, model, shape, n_entries, dtype, seed)
        )
        child.start()
    there.close()
    try:
        return here.recv()
    except EOFError:
        raise AssertionError("the process ended without a word") from None
    finally:
        child.join()


def _measure(
    connection: Connection,
    way: dict[str, Any],
    model: RobustMF,
    shape: tuple[int, int],
    n_entries: int,
    dtype: str,
    seed: int,
) -> None:
    _warm_up(way)  # a fork begins without the pages of libraries
    before = _status("VmRSS")
    entries = _entries(shape, n_entries, dtype, seed)
    ctypes.CDLL(None).malloc_trim(0)  # what the entries were made from has been let go
    Path("/proc/self/clear_refs").write_text(
        "5"
    )  # the peak so far, of making the entries, is forgotten
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobustMFWarning)
        model.fit(entries)
    connection.send(_status("VmHWM") - before)


def _status(name: str) -> int:
    """A line of the process's status, in bytes."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    assert found is not None
    return 1024 * int(found[1])


def _entries(shape: tuple[int, int], n_entries: int, dtype: str, seed: int) -> Observed:
    """Random places of a low-rank matrix with noise and some gross errors."""
    rng = np.random.default_rng(seed)
    place = np.unique(rng.integers(shape[0] * shape[1], size=n_entries))
    i, j = (index.astype(np.int32) for index in np.divmod(place, shape[1]))
    U, V = (rng.standard_normal((size, 2)) for size in shape)
    values = (
        np.einsum("tq,tq->t", U[i], V[j])
        + 0.2 * rng.standard_normal(len(place))
        + 5 * (rng.random(len(place)) < 0.03)
    )
    return Observed.from_indices(i, j, values.astype(dtype), shape)
