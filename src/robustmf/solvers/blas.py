"""BLAS on one thread, for fits that may run side by side in one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from threadpoolctl import threadpool_limits

_lock = Lock()
_users = 0
_limits: threadpool_limits | None = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Small dense solves are quicker so, and give the same bits on any machine.

    The limit is the process's: the first user sets it, the last one restores what was there before.
    """
    global _users, _limits  # noqa: PLW0603 - it stands for a state of the process
    with _lock:
        if _users == 0:
            _limits = threadpool_limits(1, user_api="blas")
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and _limits is not None:
                _limits.restore_original_limits()
                _limits = None
