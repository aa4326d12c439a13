"""Load: concurrent fits in threads and processes give the same results as alone."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from robustmf import RobustMF
from robustmf.baselines import AltGrad
from robustmf.datasets import make_synthetic
from robustmf.exceptions import RobustMFWarning
from stress.tally import Tally

TITLE = "24 concurrent fits in threads, forked and spawned processes: same bits as alone"

# Numbers of rounds.
CASES = 12
FEW = 2

#: Number of concurrent fits.
_CONCURRENT_FITS = 24

#: Number of processes that share them, spawned, or forked while threads fit.
_SPAWNED = 6
_FORKED = 6

#: Seconds between the processes that are forked, and exit at once, as long as threads fit.
_FORK_INTERVAL = 0.02

#: A round of this many also forks beside fits that repeat, and the last one spawns processes.
_PERIOD = 4

#: Threads of BLAS before the fits: they limit it to one, and must restore this limit.
_BLAS_THREADS = 2

#: Seconds after which a process counts as hung.
_HUNG = 300

_SETTINGS: list[dict[str, Any]] = [
    {"solver": "mm", "loss": "lsp"},
    {"solver": "varpro"},
    {"solver": "irls", "bias": True},
    {"solver": "irls", "loss": "huber", "n_jobs": 2},
]


def run(tally: Tally, cases: int, seed: int) -> None:
    """Rounds of 24 fits in threads beside forks; some also in forked or spawned processes alone."""
    with warnings.catch_warnings(), threadpool_limits(_BLAS_THREADS, user_api="blas"):
        warnings.simplefilter("ignore", RobustMFWarning)
        # Processes are forked beside threads on purpose. Filters are not changed later, because
        # that would interfere with compilers that change them in a thread.
        warnings.simplefilter("ignore", DeprecationWarning)
        before = _global_state()
        for k in range(cases):
            alone = [_fitted(seed, k, number) for number in range(_CONCURRENT_FITS)]
            in_threads, forked = _in_threads_beside_forks(seed, k)
            _compare(tally, f"round {k}, in threads", in_threads, alone)
            _compare(tally, f"round {k}, forked beside threads", forked, alone)
            if k % _PERIOD == _PERIOD - 1:
                with _background_fits() as background:
                    found = _in_processes("fork", _CONCURRENT_FITS, seed, k)
                _compare(tally, f"round {k}, forked", found, alone)
                with tally.case(f"round {k}: fits in threads of the process that forks"):
                    assert len(set(background)) == len(_BACKGROUND), (
                        "bits differ from a fit alone, or a fit failed"
                    )
            if k == cases - 1 and cases > FEW:
                found = _in_processes("spawn", _SPAWNED, seed, k)
                _compare(tally, f"round {k}, spawned", found, alone)
            with tally.case(f"round {k}: global state"):
                for name, value in _global_state().items():
                    assert value == before[name], f"{name} was {before[name]}, is {value}"


def _compare(tally: Tally, where: str, found: list[str | None], alone: list[str]) -> None:
    for number, (one, expected) in enumerate(zip(found, alone, strict=True)):
        with tally.case(f"{where}, fit {number}: {_SETTINGS[number % len(_SETTINGS)]}"):
            assert one is not None, f"no result in {_HUNG} s"
            assert one == expected, "bits differ from a fit alone"


def _in_threads_beside_forks(seed: int, k: int) -> tuple[list[str | None], list[str | None]]:
    """The fits in threads, and in processes that are forked meanwhile.

    Further processes are forked, and exit at once, until the last thread has finished.
    """
    with ThreadPoolExecutor(_CONCURRENT_FITS + 1) as pool:
        running = [pool.submit(_fitted, seed, k, number) for number in range(_CONCURRENT_FITS)]
        forked = pool.submit(_in_processes, "fork", _FORKED, seed, k)
        while not all(one.done() for one in running):
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
            time.sleep(_FORK_INTERVAL)
        return [one.result() for one in running], forked.result()


def _in_processes(method: str, processes: int, seed: int, k: int) -> list[str | None]:
    """The fits distributed over processes; None for those of a process that hangs."""
    context = multiprocessing.get_context(method)
    share = _CONCURRENT_FITS // processes
    started = []
    for first in range(0, _CONCURRENT_FITS, share):
        here, there = context.Pipe()
        child = context.Process(target=_answer, args=(there, seed, k, range(first, first + share)))
        child.start()
        there.close()
        started.append((child, here))
    found: list[str | None] = []
    deadline = time.monotonic() + _HUNG
    for child, here in started:
        in_time = here.poll(max(0.0, deadline - time.monotonic()))
        found += here.recv() if in_time else [None] * share
        child.kill()
        child.join()
    return found


def _answer(connection: Connection, seed: int, k: int, numbers: range) -> None:
    connection.send([_fitted(seed, k, number) for number in numbers])


def _fitted(seed: int, k: int, number: int) -> str:
    data = make_synthetic(
        60 + number, 50, rank=2, observed=0.5, random_state=[seed, k, number]
    ).train
    model = RobustMF(
        **{"rank": 2, "n_jobs": 1, "random_state": number} | _SETTINGS[number % len(_SETTINGS)]
    ).fit(data)
    return hashlib.sha256(
        model.row_factors_.tobytes() + model.predict(np.arange(50), np.arange(50)).tobytes()
    ).hexdigest()


#: Fits that run in threads while processes are forked: the solvers that use BLAS.
_BACKGROUND: list[tuple[type[Any], dict[str, Any]]] = [
    (AltGrad, {"max_iter": 2, "n_jobs": 2}),
    (RobustMF, {"solver": "mm", "loss": "lsp", "n_jobs": 1}),
]


@contextmanager
def _background_fits() -> Iterator[list[str]]:
    """Repeat fits in two threads of this process; the list receives the digest of each result."""
    over = threading.Event()
    data = make_synthetic(160, rank=2, observed=0.6, random_state=0).train
    digests: list[str] = []

    def repeat(kind: type[Any], settings: dict[str, Any]) -> None:
        while not over.is_set():
            model = kind(rank=2, random_state=0, **settings).fit(data)
            digests.append(hashlib.sha256(model.row_factors_.tobytes()).hexdigest())

    with ThreadPoolExecutor(len(_BACKGROUND)) as pool:
        running = [pool.submit(repeat, *one) for one in _BACKGROUND]
        try:
            yield digests
        finally:
            over.set()
    for one in running:
        one.result()


def _global_state() -> dict[str, Any]:
    return {
        "threads of BLAS": sorted(
            (str(pool["filepath"]), pool["num_threads"]) for pool in threadpool_info()
        ),
        "np.random": repr(np.random.get_state(legacy=False)),  # noqa: NPY002 - the global state
        "warnings": repr(warnings.filters),
        "np.geterr": np.geterr(),
        "threads": threading.active_count(),
    }
