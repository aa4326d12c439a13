"""Limit BLAS to one thread while fits run.

OpenBLAS built with pthreads has one thread pool per process. Since threadpoolctl 3.8 only one
"controlling" thread may resize it; requests from other threads are ignored silently. Fits may run
in any thread, so each change here takes control, sets the limit and releases control again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import RLock, get_ident
from typing import Any

import scipy.linalg  # noqa: F401 - loads its own copy of BLAS, which the controller must find
import threadpoolctl

#: The libraries are searched for once, at import. The search holds the dynamic loader's lock, and a
#: process forked by another thread at that moment would deadlock when it repeated the search.
_libraries: Sequence[Any] = (
    threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
)

_lock = RLock()
_users: list[int] = []  # identifiers of the threads inside `one_blas_thread`
_limits_before: list[int | None] = []


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread: faster for small dense systems, and the same bits on any machine.

    The limit applies to the whole process. The first user saves the previous limits, every user
    sets the limit, and the last one restores the previous limits, in whichever threads they run.
    """
    with _lock:
        if not _users:
            _limits_before[:] = [library.get_num_threads() for library in _libraries]
        _users.append(get_ident())
        _set_limits([1] * len(_libraries))
    try:
        yield
    finally:
        with _lock:
            _users.remove(get_ident())
            _restore_if_unused()


def limited_blas(limited: bool) -> AbstractContextManager[None]:
    """One thread of BLAS, or the limits as they are."""
    return one_blas_thread() if limited else nullcontext()


def _set_limits(limits: Sequence[int | None]) -> None:
    _release_control()
    for library, limit in zip(_libraries, limits, strict=True):
        if limit is not None and library.get_num_threads() != limit:
            library.set_num_threads(limit)
    _release_control()


def _release_control() -> None:
    """Let any thread set limits; versions of threadpoolctl before 3.8 have no such restriction."""
    release = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)


def _restore_if_unused() -> None:
    if not _users and _limits_before:
        _set_limits(_limits_before)
        _limits_before.clear()


def _after_fork_in_child() -> None:
    """Forget the users that were other threads: only the thread that forked exists in the child."""
    _users[:] = [user for user in _users if user == get_ident()]
    _restore_if_unused()
    _lock.release()


if hasattr(os, "register_at_fork"):  # not available on Windows
    # The lock is held across the fork, so that no thread is changing limits at that moment.
    os.register_at_fork(
        before=_lock.acquire,
        after_in_parent=_lock.release,
        after_in_child=_after_fork_in_child,
    )
