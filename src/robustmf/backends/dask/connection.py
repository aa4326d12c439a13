"""Tasks and results of a Dask cluster, and recovery when workers or the scheduler are lost.

Dask recomputes results of a lost worker from their inputs. The inputs of factors are the factors of
the previous sweep, back to the initialization; so every block of factors has a copy on a second
worker, which replaces a lost block (:class:`robustmf.backends.dask.matrix.Factors`). A lost worker
therefore costs the sweep that it interrupts, and loading its blocks of entries again.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import distributed
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker

from robustmf.exceptions import ClusterLostError


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
    """

    poll_interval: float = 0.003
    check_interval: float = 0.2
    worker_timeout: float = 30.0


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
    def guarded(self) -> Iterator[None]:
        """Context in which errors of a cluster that is lost become ClusterLostError."""
        try:
            yield
        except ClusterLostError:
            raise
        except KilledWorker as error:
            raise self._lost(
                f"a task terminated every worker that ran it ({error}); give workers more "
                "memory, or use more blocks"
            ) from error
        except Exception as error:
            is_lost = isinstance(error, (CancelledError, CommClosedError))
            if not is_lost and self.client.status == "running":
                raise
            raise self._lost("the scheduler or data on workers are lost") from error

    def _lost(self, reason: str) -> ClusterLostError:
        return ClusterLostError(f"{reason}; {self._remedy}")

    def submit(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return a future of ``function(*arguments)``."""
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
        return [
            self.submit(function, *arguments, *constants, workers=workers and [workers[k]])
            for k, arguments in enumerate(zip(*columns, strict=True))
        ]

    def workers(self) -> dict[str, int]:
        """Addresses of the workers and their numbers of threads."""
        return dict(self.client.nthreads())

    def assign_workers(self, n: int, present: Sequence[str] = ()) -> list[str]:
        """Addresses of workers for n blocks, distributed evenly over the threads of the cluster.

        A block stays with its ``present`` worker unless that is lost or has more than its share.
        """
        deadline = time.monotonic() + OPTIONS.worker_timeout
        while not (threads := self.workers()):
            if time.monotonic() > deadline:
                raise self._lost(
                    f"no worker is left, and none joined within {OPTIONS.worker_timeout:g} s"
                )
            time.sleep(OPTIONS.check_interval)
        held = Counter(present)
        quota: Counter[str] = Counter()
        for _ in range(n):
            quota[min(sorted(threads), key=lambda a: ((quota[a] + 1) / threads[a], -held[a]))] += 1
        kept = {}
        for k, address in enumerate(present):
            if quota[address] > 0:
                quota[address] -= 1
                kept[k] = address
        left = quota.elements()
        return [kept.get(k) or next(left) for k in range(n)]

    def holders(self, futures: Sequence[Any]) -> list[tuple[str, ...]]:
        """The addresses of the workers that hold each result."""
        held = self.client.who_has(futures)
        return [tuple(held.get(future.key, ())) for future in futures]

    def gather(self, futures: Any) -> Any:
        """The results of nested lists of futures, in the same structure."""
        return self.run(lambda: (None, (), futures))[1]

    def run(
        self, submit: Callable[[], tuple[Any, Sequence[Any], Any]], needed: Sequence[Any] = ()
    ) -> tuple[Any, Any]:
        """Submit tasks, and submit them again if workers are lost.

        Parameters
        ----------
        submit : callable
            Returns anything, the futures of tasks that are restricted to workers, and futures to
            gather.
        needed : sequence, default=()
            Data of the tasks with a method ``recover``, which replaces what was lost with a worker
            and returns whether anything was.

        Returns
        -------
        kept, results
            The first thing that ``submit`` returned, and the results. The restricted tasks are
            finished; their results can be recomputed anywhere.
        """
        while True:
            with self.guarded():  # OSError would be attributed to a file that is being written
                kept, restricted, futures = submit()
                try:
                    while not _wait_for_all([restricted, futures]):
                        if _recover(needed):
                            break
                    else:
                        results = self.client.gather(futures)
                        self._release(restricted)
                        # a result lost while it was restricted would wait for its worker forever
                        if all(future.status == "finished" for future in restricted):
                            return kept, results
                except (CancelledError, CommClosedError):
                    if self.client.status != "running" or not _recover(needed):
                        raise
                del kept, restricted, futures  # so that the workers release the results

    def _release(self, restricted: Sequence[Any]) -> None:
        """Allow results to be recomputed on any worker; an error of a task is raised."""
        if restricted:
            self.wait(restricted)
            keys = {future.key: () for future in restricted}
            self.client.sync(self.client.scheduler.set_restrictions, worker=keys)

    def wait(self, futures: Sequence[Any]) -> None:
        """Wait for futures; an error of one of them is raised."""
        while not _wait_for_all(futures):
            pass
        for future in futures:
            if future.status != "finished":
                future.result()

    def constant(self, value: Any) -> Any:
        """A future of a value of this machine, which is sent with its task.

        It can be recomputed when its worker is lost.
        """
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")
            return self.submit(identity, value)

    def copy(self, future: Any, worker: str) -> Any:
        """A future of the same result under another key, if possible on this worker."""
        return self.submit(identity, future, workers=[worker], allow_other_workers=True)


class Placement:
    """Addresses of workers for n blocks, distributed evenly over the threads of the cluster."""

    def __init__(self, connection: Connection, n: int) -> None:
        self._connection = connection
        self.addresses = connection.assign_workers(n)

    def submit(self, function: Callable[..., Any], *columns: Any, **options: Any) -> list[Any]:
        """As :meth:`Connection.map`, with each block's task restricted to its worker."""
        return self._connection.map(function, *columns, workers=self.addresses, **options)

    def map(self, function: Callable[..., Any], *columns: Any, **options: Any) -> list[Any]:
        """The same; waits for all tasks, and removes the restrictions.

        Dask would let idle workers take a task, and its result would stay there.
        """

        def submit() -> tuple[list[Any], list[Any], list[Any]]:
            futures = self.submit(function, *columns, **options)
            return futures, futures, []

        futures: list[Any] = self._connection.run(submit, [self])[0]
        return futures

    def update(self) -> list[int]:
        """Assign blocks of lost workers to others, and their share to new ones; which moved."""
        before = self.addresses
        self.addresses = self._connection.assign_workers(len(before), before)
        pairs = zip(before, self.addresses, strict=True)
        return [k for k, (old, new) in enumerate(pairs) if old != new]

    def recover(self) -> bool:
        """The same if a worker is lost; return whether one was."""
        is_lost = not set(self.addresses) <= self._connection.workers().keys()
        return is_lost and bool(self.update())


def identity(value: Any) -> Any:
    """The value itself; as a task, a copy under another key on another worker."""
    return value


def _recover(needed: Sequence[Any]) -> bool:
    return sum(each.recover() for each in needed) > 0


def _wait_for_all(futures: Any) -> bool:
    """Wait for one check interval; return whether all futures are finished or have failed."""
    flat = distributed.futures_of(futures)
    deadline = time.monotonic() + OPTIONS.check_interval
    # not distributed.wait: after a timeout it leaves a reference cycle that keeps the futures alive
    while not all(future.done() for future in flat):
        if time.monotonic() > deadline:
            return False
        time.sleep(OPTIONS.poll_interval)
    return True
