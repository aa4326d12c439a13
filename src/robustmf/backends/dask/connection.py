"""Tasks and results of a Dask cluster, and recovery when workers or the scheduler are lost.

Dask recomputes results of a lost worker from their inputs. The inputs of factors are the factors of
the previous sweep, back to the initialization; so every block of factors has a copy on a second
worker, which replaces a lost block (:class:`robustmf.backends.dask.matrix.Factors`). A lost worker
therefore costs the sweep that it interrupts, and loading its blocks of entries again.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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
        Seconds between two checks for lost workers; each requests the state of all results.
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

    @contextmanager
    def _reaching_scheduler(self) -> Iterator[None]:
        """Context in which errors of a scheduler that is lost become ClusterLostError."""
        try:
            yield
        except _UNREACHABLE as error:
            raise self._lost() from error
        except (RuntimeError, ValueError, AttributeError) as error:  # of a closed client
            if self.client.status == "running":
                raise
            raise self._lost() from error

    def _lost(self, reason: str = "the scheduler or data on workers are lost") -> ClusterLostError:
        return ClusterLostError(f"{reason}; {self._remedy}")

    def submit(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return a future of ``function(*arguments)``."""
        with self._reaching_scheduler():
            return self.client.submit(function, *arguments, pure=False, **options)

    def map(
        self,
        function: Callable[..., Any],
        *columns: Iterable[Any],
        constants: Sequence[Any] = (),
        workers: Sequence[str] | None = None,
    ) -> list[Any]:
        """Return futures of the function of each tuple of arguments, as the builtin ``map``.

        Parameters
        ----------
        function : callable
        *columns : iterables
            The first arguments of all tasks, the second arguments, and so on.
        constants : sequence, default=()
            Further arguments, which are the same for all tasks.
        workers : sequence of str, default=None
            The address of the worker to which each task is restricted.
        """
        tasks = [(*arguments, *constants) for arguments in zip(*columns, strict=True)]
        options = [{}] * len(tasks) if workers is None else [{"workers": [one]} for one in workers]
        return [
            self.submit(function, *arguments, **of_task)
            for arguments, of_task in zip(tasks, options, strict=True)
        ]

    def map_evenly(
        self, function: Callable[..., Any], *columns: Sequence[Any], constants: Sequence[Any] = ()
    ) -> list[Any]:
        """The same with tasks that are distributed evenly over the threads; waits for them.

        Dask would let idle workers take a task, and its result would stay there.
        """
        placement = Placement(self, len(columns[0]))

        def submit() -> tuple[Any, Any]:
            workers = placement.addresses
            futures = self.map(function, *columns, constants=constants, workers=workers)
            return (futures,), self.map(_ignore, futures, workers=workers)

        futures: list[Any] = self.gather_restricted(submit, [placement])[0][-1]
        return futures

    def workers(self) -> dict[str, int]:
        """Addresses of the workers and their numbers of threads."""
        with self._reaching_scheduler():
            return dict(self.client.nthreads())

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

    def holders(self, futures: Sequence[Any]) -> list[tuple[str, ...]]:
        """The addresses of the workers that hold each result."""
        with self._reaching_scheduler():
            held = self.client.who_has(futures)
        return [tuple(held.get(future.key, ())) for future in futures]

    def gather(self, futures: Any) -> Any:
        """The results of nested lists of futures, in the same structure."""
        return self.gather_with_recovery(lambda: (None, futures))[1]

    def gather_with_recovery(
        self, submit: Callable[[], tuple[Any, Any]], needed: Sequence[Any] = ()
    ) -> tuple[Any, Any]:
        """Call ``submit``, which returns (anything, futures), and gather the futures.

        ``needed`` are data of the tasks with a method ``recover``, which replaces what was lost
        with a worker and returns whether anything was. In this case ``submit`` is called again.
        """
        kept, futures = submit()
        failures = 0
        while True:
            while not (finished := _wait_for_all(futures)) and not _recover(needed):
                pass
            try:
                if finished:
                    return kept, self.client.gather(futures)
            except KilledWorker as error:
                failures += 1
                if failures == OPTIONS.max_retries:
                    raise self._lost(
                        f"a task terminated every worker that ran it ({error}); give workers more "
                        "memory, or use more blocks"
                    ) from error
                self.client.retry(list(_flatten(futures)))
                continue
            except (CancelledError, *_UNREACHABLE) as error:
                if self.client.status != "running" or not _recover(needed):
                    raise self._lost() from error
            del kept, futures  # so that the workers release the results
            kept, futures = submit()

    def gather_restricted(
        self, submit: Callable[[], tuple[Any, Any]], needed: Sequence[Any]
    ) -> tuple[Any, Any]:
        """The same for tasks that are restricted to workers, until they are finished.

        ``submit`` returns a tuple, whose last element are the futures of these tasks, and futures
        to gather. Later their results can be recomputed anywhere.
        """
        while True:
            kept, results = self.gather_with_recovery(submit, needed)
            restrictions = {future.key: () for future in kept[-1]}
            with self._reaching_scheduler():
                self.client.sync(self.client.scheduler.set_restrictions, worker=restrictions)
            # a result lost before its restriction was removed would wait for its worker forever
            if all(future.status == "finished" for future in kept[-1]):
                return kept, results

    def wait(self, futures: Sequence[Any]) -> None:
        """Wait for nested lists of futures; an error of one of them is raised."""
        while not _wait_for_all(futures):
            pass
        failed = [future for future in _flatten(futures) if future.status != "finished"]
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
        with self._reaching_scheduler():
            return self.client.scatter([value], hash=False)[0]


class Placement:
    """Addresses of workers for n blocks, distributed evenly over the threads of the cluster."""

    def __init__(self, connection: Connection, n: int) -> None:
        self._connection = connection
        self.addresses = connection.assign_workers(n)

    def recover(self) -> bool:
        """Assign blocks of lost workers to others; return whether any was."""
        present = self._connection.workers()
        lost = [k for k, address in enumerate(self.addresses) if address not in present]
        if not lost or not present:
            return False
        for k, address in zip(lost, self._connection.assign_workers(len(lost)), strict=True):
            self.addresses[k] = address
        return True


def identity(value: Any) -> Any:
    """The value itself; as a task, a copy under another key on another worker."""
    return value


def _ignore(value: Any) -> None:
    """Nothing, once the value is there."""


def _recover(needed: Sequence[Any]) -> bool:
    return sum(each.recover() for each in needed) > 0


def _wait_for_all(futures: Any) -> bool:
    """Wait for one check interval; return whether all futures are finished or have failed."""
    flat = list(_flatten(futures))
    deadline = time.monotonic() + OPTIONS.check_interval
    # not distributed.wait: after a timeout it leaves a reference cycle that keeps the futures alive
    while not all(future.done() for future in flat):
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
