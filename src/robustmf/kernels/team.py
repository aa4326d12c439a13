"""Threads for kernels: fixed blocks of rows, run by a pool that belongs to one fit.

A kernel is compiled without the GIL and without Numba's own threading, and takes the range of blocks it shall do. The blocks
are fixed by the data, never by the number of threads, and each block writes to places of its own; so results are equal bit
for bit for any number of threads, and two fits in one process (or after a fork) cannot disturb each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

#: Below this many units of work (entries × rank) handing blocks to threads costs more than it saves, and so does a turn of less.
_SMALL_WORK = 200_000

#: A turn is this share of the blocks that are left for each thread: large at first, for few calls; small at last, so that all end together.
_SHARE = 0.5


def block_bounds(pointers: NDArray[np.int64], blocks: int) -> NDArray[np.int64]:
    """Row boundaries of at most ``blocks`` blocks that hold about the same number of entries (rows count a little too)."""
    rows = len(pointers) - 1
    work = pointers + np.arange(rows + 1)
    targets = np.linspace(0, work[-1], min(blocks, rows) + 1)
    bounds = np.searchsorted(work, targets[1:-1])
    return np.unique(np.concatenate(([0], bounds, [rows]))).astype(np.int64)


def resolve_n_jobs(n_jobs: int | None) -> int:
    """Threads to use: ``None`` or -1 means every core this process may run on."""
    if n_jobs is None or n_jobs == -1:
        return (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, (int, np.integer)) or n_jobs < 1:
        raise ValueError(
            f"n_jobs must be a positive integer, -1 or None (all cores), got n_jobs={n_jobs!r}"
        )
    return int(n_jobs)


class Team:
    """A pool of threads for the kernels of one fit; use it as a context."""

    def __init__(self, n_jobs: int | None = None) -> None:
        self.n_jobs = resolve_n_jobs(n_jobs)
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def run(self, kernel: Callable[..., None], blocks: int, work: int, *arguments: Any) -> None:
        """Call ``kernel(first, last, *arguments)`` over the blocks 0 … ``blocks``, on all threads where it is worth it.

        ``work`` is about the number of multiply–adds; it decides only who does what, not the result.
        """
        parts = min(blocks, work // max(_SMALL_WORK, 1))
        if self.n_jobs == 1 or parts < 2:
            kernel(0, blocks, *arguments)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_jobs - 1, thread_name_prefix="robustmf")
        ranges = _turns(blocks, self.n_jobs, parts)
        turns = iter(ranges)

        def take_turns() -> None:
            while (turn := next(turns, None)) is not None:
                kernel(*turn, *arguments)

        others = [self._pool.submit(take_turns) for _ in range(min(self.n_jobs, len(ranges)) - 1)]
        try:
            take_turns()
            for future in others:
                future.result()
        except BaseException:
            # nobody may go on writing to arrays that the caller takes back
            for _ in turns:
                pass
            wait(others)
            raise


@lru_cache
def _turns(blocks: int, n_jobs: int, parts: int) -> tuple[tuple[int, int], ...]:
    """The blocks in ranges, each ``_SHARE`` of what a thread has left to do, none smaller than one of ``parts``."""
    least, bounds = blocks // parts, [0]
    while bounds[-1] < blocks:
        left = blocks - bounds[-1]
        turn = max(least, int(_SHARE * left / n_jobs))
        bounds.append(bounds[-1] + turn if left - turn >= least else blocks)
    return tuple(pairwise(bounds))
