"""The cluster as the fit sees it: tasks out, results in, and what happens when workers or the scheduler are lost.

Keys whose worker is lost are computed again by Dask, from what they were made of. Factors are made of factors, back to the start; so each
block of them has a copy on a second worker, and what was lost is replaced by its copy before Dask gets far (:class:`Factors`).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from typing import Any

import distributed
from distributed.client import ClosedClientError
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker

from robustmf.backends.dask.tasks import same
from robustmf.exceptions import ClusterLostError

#: What Dask raises where there is nobody to talk to.
_GONE = (CommClosedError, ClosedClientError, OSError)

#: Seconds between looks at whether something was lost.
_TICK = 0.2

#: Seconds between looks at whether results are there.
_NAP = 0.003

#: Seconds that a new worker is waited for when none is left: who watches over them (a nanny, Kubernetes) starts others.
_RETURN = 30.0

#: A task that took down so many workers (times Dask's own ``allowed-failures``) is not tried again.
_TRIES = 3


class Connection:
    """A client of a Dask cluster; ``remedy`` says in errors how to go on."""

    def __init__(self, client: Any, remedy: str) -> None:
        if not isinstance(client, distributed.Client):
            raise TypeError(
                f"client must be a dask.distributed.Client, got {type(client).__name__}"
            )
        if client.status != "running":
            raise ValueError(
                f"client must be connected to a scheduler, but it is {client.status}; make a new Client"
            )
        if client.asynchronous:
            raise ValueError("client must not be asynchronous; make it with Client(address)")
        self.client, self._remedy = client, remedy

    def submit(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """A future of ``function(*arguments)``."""
        try:
            return self.client.submit(function, *arguments, pure=False, **options)
        except (*_GONE, RuntimeError, ValueError) as error:
            if self.client.status == "running":
                raise
            raise self._lost() from error

    def homes_for(self, n: int) -> list[str]:
        """Workers for so many blocks, spread evenly over the threads of the cluster."""
        until = time.monotonic() + _RETURN
        while not (workers := self.workers()):
            if time.monotonic() > until:
                raise self._lost(f"no worker is left, and none came in {_RETURN:g} s")
            time.sleep(_TICK)
        threads = [address for address, number in sorted(workers.items()) for _ in range(number)]
        return [threads[k % len(threads)] for k in range(n)]

    def spread(self, tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Futures of ``(function, *arguments)``, spread evenly over the threads of the cluster, which keep the results.

        Each is bound to its worker while it runs, for Dask would let others take it, and the results would stay with these; not after, so
        that it can be made again anywhere.
        """
        futures: list[Any] = [None] * len(tasks)
        homes, missing = [""] * len(tasks), list(range(len(tasks)))
        while missing:
            for k, home in zip(missing, self.homes_for(len(tasks)), strict=False):
                homes[k], futures[k] = home, self.submit(*tasks[k], workers=[home])
            while not _done(futures) and not self._stranded(futures, homes):
                pass
            self.unbind([future for future in futures if future.status == "finished"])
            missing = self._stranded(futures, homes)
        self.wait(futures)
        return futures

    def unbind(self, futures: Sequence[Any]) -> None:
        """Results that were bound to a worker may be made again anywhere, if that worker is lost."""
        try:
            self.client.sync(
                self.client.scheduler.set_restrictions,
                worker={future.key: () for future in futures},
            )
        except _GONE as error:
            raise self._lost() from error

    def _stranded(self, futures: Sequence[Any], homes: Sequence[str]) -> list[int]:
        """Which of them wait for a worker that is no longer there."""
        there = self.workers()
        return [
            k for k, future in enumerate(futures) if homes[k] not in there and not future.done()
        ]

    def gather(self, futures: Any, mend: Callable[[], bool] = lambda: False) -> Any:
        """The results of futures, in their structure.

        ``mend`` is asked now and then: it replaces what was lost, and says if it did; then :class:`MendedError` is raised, and the tasks
        are to be submitted again.
        """
        flat, tries = list(_flat(futures)), 0
        while True:
            while not _done(flat):
                if mend():
                    raise MendedError
            try:
                return self.client.gather(futures)
            except KilledWorker as error:
                tries += 1
                if tries == _TRIES:
                    raise self._lost(
                        f"a task took down every worker that tried it ({error}); give workers more memory, or use more blocks"
                    ) from error
                self.client.retry(flat)
            except (CancelledError, *_GONE) as error:
                if self.client.status == "running" and mend():
                    raise MendedError from None
                raise self._lost() from error

    def _lost(
        self,
        why: str = "the connection to the scheduler, or data that only lost workers had, is gone",
    ) -> ClusterLostError:
        return ClusterLostError(f"{why}; {self._remedy}")

    def wait(self, futures: Sequence[Any]) -> None:
        """Until all of them are there; an error of one is raised."""
        flat = list(_flat(futures))
        while not _done(flat):
            pass
        failed = [future for future in flat if future.status != "finished"]
        if failed:
            self.gather(failed)

    def constant(self, value: Any) -> Any:
        """A future of a value of this machine; it travels with its task, so that it can be had again when its worker is lost."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")
            return self.submit(same, value)

    def place(self, value: Any) -> Any:
        """A future of a value of this machine, sent to a worker; if that is lost, so is the value."""
        try:
            return self.client.scatter([value], hash=False)[0]
        except (TimeoutError, *_GONE) as error:
            raise self._lost() from error

    def homes(self, futures: Sequence[Any]) -> list[tuple[str, ...]]:
        """The addresses of the workers that hold each result."""
        try:
            held = self.client.who_has(futures)
        except _GONE as error:
            raise self._lost() from error
        return [tuple(held.get(future.key, ())) for future in futures]

    def workers(self) -> dict[str, int]:
        """Addresses of the workers, and the threads of each."""
        try:
            return dict(self.client.nthreads())
        except (
            *_GONE,
            RuntimeError,
            ValueError,
            AttributeError,
        ) as error:  # a closed client has no scheduler to ask
            if self.client.status == "running":
                raise
            raise self._lost() from error


class MendedError(Exception):
    """Something was lost and has been replaced: submit again what depends on it."""


def _done(futures: Sequence[Any]) -> bool:
    """Whether all of them are there, or have failed; waits a while for it."""
    until = time.monotonic() + _TICK
    # not distributed.wait with a timeout: each one that passes leaves a cycle of references that keeps the futures alive
    while not all(future.done() for future in futures):
        if time.monotonic() > until:
            return False
        time.sleep(_NAP)
    return True


def _flat(futures: Any) -> Iterable[Any]:
    if isinstance(futures, distributed.Future):
        yield futures
    else:
        for part in futures:
            yield from _flat(part)
