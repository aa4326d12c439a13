"""Tasks and results of a Dask cluster, and recovery when workers or the scheduler are lost.

Dask recomputes results of a lost worker from their inputs. The inputs of factors are the factors of
the previous sweep, back to the initialization; so every block of factors has a copy on a second
worker, which replaces a lost block (:class:`robustmf.backends.dask.factors.Factors`). A lost worker
therefore costs the sweep that it interrupts, and loading its blocks of entries again.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, Protocol

import distributed
from distributed.client import ClosedClientError
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker

from robustmf.exceptions import ClusterLostError

#: Exceptions of Dask for a scheduler that cannot be reached.
_UNREACHABLE = (CommClosedError, ClosedClientError, OSError)


@dataclass(frozen=True)
class ConnectionOptions:
    """Intervals and limits of a connection.

    Attributes
    ----------
    poll_interval : float
        Seconds between two checks for finished results; small against a sweep.
    check_interval : float
        Seconds between two checks for lost workers; each asks for the state of all results.
    worker_timeout : float
        Seconds to wait for a new worker when none is left: a nanny or Kubernetes starts others.
    max_retries : int
        Attempts at a task that terminates its workers, each of Dask's ``allowed-failures``.
    """

    poll_interval: float = 0.003
    check_interval: float = 0.2
    worker_timeout: float = 30.0
    max_retries: int = 3


OPTIONS = ConnectionOptions()


class RecoveredError(Exception):
    """Lost data have been replaced: tasks that depend on them must be submitted again."""


class Recoverable(Protocol):
    """Data on workers that can be replaced after a loss."""

    def recover(self) -> bool:
        """Replace what was lost; return whether anything was."""


class Connection:
    """A client of a Dask cluster; ``remedy`` is the advice in errors about a lost cluster."""

    def __init__(self, client: Any, remedy: str) -> None:
        if not isinstance(client, distributed.Client):
            raise TypeError(
                f"client must be a dask.distributed.Client, got {type(client).__name__}"
            )
        if client.status != "running":
            raise ValueError(
                f"client must be connected to a scheduler, but it is {client.status}; "
                "make a new Client"
            )
        if client.asynchronous:
            raise ValueError("client must not be asynchronous; make it with Client(address)")
        self.client = client
        self._remedy = remedy

    def submit(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return a future of ``function(*arguments)``."""
        try:
            return self.client.submit(function, *arguments, pure=False, **options)
        except (*_UNREACHABLE, RuntimeError, ValueError) as error:
            if self.client.status == "running":
                raise
            raise self._lost() from error

    def map(self, function: Callable[..., Any], *columns: Iterable[Any]) -> list[Any]:
        """Return futures of the function of each tuple of arguments, as the builtin ``map``."""
        return [self.submit(function, *arguments) for arguments in zip(*columns, strict=True)]

    def attributes(self, objects: Iterable[Any], name: str) -> list[Any]:
        """Return futures of an attribute of each of the objects."""
        return [self.submit(getattr, one, name) for one in objects]

    def assign_workers(self, n: int) -> list[str]:
        """Addresses of workers for n blocks, distributed evenly over the threads of the cluster."""
        deadline = time.monotonic() + OPTIONS.worker_timeout
        while not (workers := self.workers()):
            if time.monotonic() > deadline:
                raise self._lost(
                    f"no worker is left, and none joined within {OPTIONS.worker_timeout:g} s"
                )
            time.sleep(OPTIONS.check_interval)
        threads = [address for address, number in sorted(workers.items()) for _ in range(number)]
        return [threads[k % len(threads)] for k in range(n)]

    def submit_evenly(self, tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Futures of ``(function, *arguments)``, distributed evenly over the threads.

        A task is restricted to its worker while it runs, because Dask would let idle workers take
        it, and its result would stay there. The restriction is removed afterwards, so that a lost
        result can be recomputed anywhere.
        """
        futures: list[Any] = [None] * len(tasks)
        addresses = [""] * len(tasks)
        missing = list(range(len(tasks)))
        while missing:
            for k, address in zip(missing, self.assign_workers(len(tasks)), strict=False):
                addresses[k] = address
                futures[k] = self.submit(*tasks[k], workers=[address])
            while not _wait_for_all(futures) and not self._stranded(futures, addresses):
                pass
            self.remove_restrictions([one for one in futures if one.status == "finished"])
            missing = self._stranded(futures, addresses)
        self.wait(futures)
        return futures

    def remove_restrictions(self, futures: Sequence[Any]) -> None:
        """Allow results that were restricted to a worker to be recomputed anywhere."""
        restrictions = {future.key: () for future in futures}
        try:
            self.client.sync(self.client.scheduler.set_restrictions, worker=restrictions)
        except _UNREACHABLE as error:
            raise self._lost() from error

    def _stranded(self, futures: Sequence[Any], addresses: Sequence[str]) -> list[int]:
        """The positions of futures that wait for a worker that is lost."""
        present = self.workers()
        return [
            k
            for k, (future, address) in enumerate(zip(futures, addresses, strict=True))
            if address not in present and not future.done()
        ]

    def gather(self, futures: Any, needed: Sequence[Recoverable] = ()) -> Any:
        """The results of nested lists of futures, in the same structure.

        If data among ``needed`` are lost meanwhile, they are recovered and RecoveredError is
        raised; see :meth:`gather_with_recovery`.
        """
        flat = list(_flatten(futures))
        attempts = 0
        while True:
            while not _wait_for_all(flat):
                if _recover(needed):
                    raise RecoveredError
            try:
                return self.client.gather(futures)
            except KilledWorker as error:
                attempts += 1
                if attempts == OPTIONS.max_retries:
                    raise self._lost(
                        f"a task terminated every worker that ran it ({error}); give workers more "
                        "memory, or use more blocks"
                    ) from error
                self.client.retry(flat)
            except (CancelledError, *_UNREACHABLE) as error:
                if self.client.status == "running" and _recover(needed):
                    raise RecoveredError from None
                raise self._lost() from error

    def gather_with_recovery(
        self, submit: Callable[[], tuple[Any, Any]], needed: Sequence[Recoverable]
    ) -> tuple[Any, Any]:
        """Call ``submit``, which returns (anything, futures), and gather the futures.

        It is called again whenever data that its tasks need were lost and recovered.
        """
        while True:
            kept, futures = submit()
            try:
                return kept, self.gather(futures, needed)
            except RecoveredError:
                del kept, futures

    def _lost(self, reason: str = "the scheduler or data on workers are lost") -> ClusterLostError:
        return ClusterLostError(f"{reason}; {self._remedy}")

    def wait(self, futures: Sequence[Any]) -> None:
        """Wait for nested lists of futures; an error of one of them is raised."""
        flat = list(_flatten(futures))
        while not _wait_for_all(flat):
            pass
        failed = [future for future in flat if future.status != "finished"]
        if failed:
            self.gather(failed)

    def constant(self, value: Any) -> Any:
        """A future of a value of this machine, which is sent with its task.

        It can be recomputed when its worker is lost.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")
            return self.submit(identity, value)

    def scatter(self, value: Any) -> Any:
        """A future of a value of this machine on one worker; it is lost with that worker."""
        try:
            return self.client.scatter([value], hash=False)[0]
        except (TimeoutError, *_UNREACHABLE) as error:
            raise self._lost() from error

    def holders(self, futures: Sequence[Any]) -> list[tuple[str, ...]]:
        """The addresses of the workers that hold each result."""
        try:
            held = self.client.who_has(futures)
        except _UNREACHABLE as error:
            raise self._lost() from error
        return [tuple(held.get(future.key, ())) for future in futures]

    def workers(self) -> dict[str, int]:
        """Addresses of the workers and their numbers of threads."""
        try:
            return dict(self.client.nthreads())
        # a closed client has no scheduler
        except (*_UNREACHABLE, RuntimeError, ValueError, AttributeError) as error:
            if self.client.status == "running":
                raise
            raise self._lost() from error


def identity(value: Any) -> Any:
    """The value itself; as a task, a copy under another key on another worker."""
    return value


def _recover(needed: Sequence[Recoverable]) -> bool:
    return sum(each.recover() for each in needed) > 0


def _wait_for_all(futures: Sequence[Any]) -> bool:
    """Wait for one check interval; return whether all futures are finished or have failed."""
    deadline = time.monotonic() + OPTIONS.check_interval
    # not distributed.wait: after a timeout it leaves a reference cycle that keeps the futures alive
    while not all(future.done() for future in futures):
        if time.monotonic() > deadline:
            return False
        time.sleep(OPTIONS.poll_interval)
    return True


def _flatten(futures: Any) -> Iterable[Any]:
    if isinstance(futures, distributed.Future):
        yield futures
    else:
        for part in futures:
            yield from _flatten(part)
