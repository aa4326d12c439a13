"""Threads for kernels: fixed blocks of rows, run by a pool that belongs to one fit.

A kernel releases the GIL, does not use Numba's own threading, and takes a range of blocks. The
blocks depend on the data, never on the number of threads, and each block writes to its own part of
the output. So results are bitwise equal for any number of threads, and two fits in one process (or
after a fork) cannot interfere.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TeamOptions:
    """How blocks are passed to threads; no result depends on it.

    Attributes
    ----------
    small_work : int
        Multiply–adds below which passing blocks to threads costs more than it saves; also the least
        work of one range of blocks.
    share : float
        Size of a range of blocks as a share of the remaining blocks per thread: large ranges first,
        for few calls, and small ones last, so that all threads finish together.
    """

    small_work: int = 200_000
    share: float = 0.5


OPTIONS = TeamOptions()


def block_bounds(pointers: NDArray[np.int64], blocks: int) -> NDArray[np.int64]:
    """Row boundaries of at most ``blocks`` blocks with about equally many entries plus rows."""
    rows = len(pointers) - 1
    work = pointers + np.arange(rows + 1)
    targets = np.linspace(0, work[-1], min(blocks, rows) + 1)
    bounds = np.searchsorted(work, targets[1:-1])
    return np.unique(np.concatenate(([0], bounds, [rows]))).astype(np.int64)


def n_cores() -> int:
    """Number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resolve_n_jobs(n_jobs: int | None) -> int:
    """Return the number of threads for the value of a parameter ``n_jobs``.

    Parameters
    ----------
    n_jobs : int or None
        None means all cores. Negative values count from the number of cores, as in joblib:
        -1 means all cores, -2 all but one; the result is at least 1.

    Returns
    -------
    int
        The number of threads.

    Raises
    ------
    ValueError
        If ``n_jobs`` is 0 or not an integer.
    """
    if n_jobs is None:
        return n_cores()
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, (int, np.integer)) or n_jobs == 0:
        raise ValueError(
            "n_jobs must be a positive integer, None or -1 (all cores), -2 (all but one) "
            f"and so on, got n_jobs={n_jobs!r}"
        )
    return int(n_jobs) if n_jobs > 0 else max(1, n_cores() + 1 + int(n_jobs))


class Team:
    """A pool of threads for the kernels of one fit; use it as a context manager.

    Parameters
    ----------
    n_jobs : int or None, default=None
        See :func:`resolve_n_jobs`.
    """

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
        """Call ``kernel(first, last, *arguments)`` for ranges that cover all blocks.

        Parameters
        ----------
        kernel : callable
            Processes the blocks ``first`` to ``last - 1``.
        blocks : int
            The number of blocks.
        work : int
            About the number of multiply–adds. It decides whether threads are used, and the ranges,
            but not the result.
        *arguments : object
            Passed to the kernel.
        """
        parts = min(blocks, work // max(OPTIONS.small_work, 1))
        if self.n_jobs == 1 or parts < 2:
            kernel(0, blocks, *arguments)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_jobs - 1, thread_name_prefix="robustmf")
        ranges = _block_ranges(blocks, self.n_jobs, parts)
        remaining = iter(ranges)

        def work_off() -> None:
            while (block_range := next(remaining, None)) is not None:
                kernel(*block_range, *arguments)

        others = [self._pool.submit(work_off) for _ in range(min(self.n_jobs, len(ranges)) - 1)]
        try:
            work_off()
            for future in others:
                future.result()
        except BaseException:
            # no thread may continue to write to arrays that belong to the caller again
            for _ in remaining:
                pass
            wait(others)
            raise


@lru_cache
def _block_ranges(blocks: int, n_jobs: int, parts: int) -> tuple[tuple[int, int], ...]:
    """Ranges that cover the blocks, of decreasing size, none smaller than one of ``parts``."""
    least = blocks // parts
    bounds = [0]
    while bounds[-1] < blocks:
        left = blocks - bounds[-1]
        size = max(least, int(OPTIONS.share * left / n_jobs))
        bounds.append(bounds[-1] + size if left - size >= least else blocks)
    return tuple(pairwise(bounds))
