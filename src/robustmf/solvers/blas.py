"""BLAS on one thread, for fits that may run side by side in one process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, get_ident
from typing import Any

import scipy.linalg  # noqa: F401 - brings its own BLAS, which must be there to be found
from threadpoolctl import ThreadpoolController

#: Libraries are looked for here and never again: the dynamic loader's lock is held meanwhile, and a process forked by another thread in
#: such a moment would wait for it for ever when it looks for them itself.
_libraries = ThreadpoolController()

_lock = Lock()
_users: list[int] = []  # by thread
_limits: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Small dense solves are quicker so, and give the same bits on any machine.

    The limit is the process's: the first user sets it, the last one restores what was there before.
    """
    global _limits  # noqa: PLW0603 - it stands for a state of the process
    with _lock:
        if not _users:
            _limits = _libraries.limit(limits=1, user_api="blas")
        _users.append(get_ident())
    try:
        yield
    finally:
        with _lock:
            _users.remove(get_ident())
            _restore_if_unused()


def _restore_if_unused() -> None:
    global _limits  # noqa: PLW0603
    if not _users and _limits is not None:
        _limits.restore_original_limits()
        _limits = None


def _after_fork() -> None:
    """Of all threads only the one that forked goes on in the new process; the others cannot give back what they hold."""
    global _lock  # noqa: PLW0603
    _lock = Lock()
    _users[:] = [user for user in _users if user == get_ident()]
    _restore_if_unused()


if hasattr(os, "register_at_fork"):  # there are no forks elsewhere
    os.register_at_fork(after_in_child=_after_fork)
