"""The compilation of kernels as users see it: one line, where it takes long."""

from __future__ import annotations

import gc
import logging
import sys
import time
from typing import Any

from numba.core import event

_log = logging.getLogger(__name__)

#: Seconds of compilation before it is reported.
PATIENCE = 0.5

MESSAGE = "robustmf compiles its kernels for this machine: once, in about ten seconds"


class _Watch(event.Listener):
    """Reports that kernels are compiled, and pauses garbage collection meanwhile.

    Numba calls it while it holds its compiler lock, and only where machine code is not found on
    disk. Events are nested: compiling a kernel compiles what it calls. A compiler creates many
    objects and no garbage that could not wait; collecting takes a tenth of the time.
    """

    def __init__(self) -> None:
        self.reported = False
        self._depth = 0
        self._seconds = 0.0
        self._started = 0.0
        self._collecting = False

    def on_start(self, event: event.Event) -> None:
        """A function begins to be compiled."""
        if self._depth == 0 and not _is_kernel(event.data["dispatcher"]):
            return
        if self._depth == 0:
            self._started = time.perf_counter()
            self._collecting = gc.isenabled()
            gc.disable()
        self._depth += 1
        if self._seconds + time.perf_counter() - self._started > PATIENCE and not self.reported:
            self.reported = True
            report()

    def on_end(self, event: event.Event) -> None:
        """A function was compiled."""
        if self._depth == 0:
            return
        self._depth -= 1
        if self._depth == 0:
            self._seconds += time.perf_counter() - self._started
            if self._collecting:
                gc.enable()


def _is_kernel(dispatcher: Any) -> bool:
    """Whether a function belongs to this package; users compile functions of their own."""
    return str(dispatcher.py_func.__module__).startswith("robustmf.")


def report() -> None:
    """Report that kernels are compiled: a log record, and a line where a person is waiting.

    The line goes to standard error if that is a terminal or a notebook. Output that is redirected
    stays as it is.
    """
    _log.info(MESSAGE)
    if sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules):
        print(MESSAGE, file=sys.stderr, flush=True)


_watch = _Watch()


def watch() -> None:
    """Watch the compilation of kernels in this process."""
    event.register("numba:compile", _watch)
