"""Failing system calls: each call that writes a file fails in turn, or the process is killed there.

:data:`TARGETS` are the files that are written, in two versions; :func:`attempt` writes one with a
fault at one call, and :func:`require_complete` checks what is left.
"""

from __future__ import annotations

import errno
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import robustmf
from robustmf import RobustMF
from robustmf.datasets import make_synthetic
from robustmf.io.checkpoint import ArrayStorage, Checkpoint, FileProgress
from robustmf.io.model_file import read
from robustmf.report.page import write_page

#: The system calls by which files are written.
CALLS = ("open", "fchmod", "write", "fsync", "replace", "close")

#: Flags with which files are opened to be written, or folders to be flushed.
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_DIRECTORY

#: A write that fails has written this many bytes before.
_PARTIAL_BYTES = 100

Fault = Callable[[], None]


@dataclass
class Counter:
    """System calls made so far, and the names of those that failed."""

    count: int = 0
    failed: str = ""


@contextmanager
def failing_call(number: int, fault: Fault, after: bool = False) -> Iterator[Counter]:
    """Context in which the call of this number (from 0) meets a fault.

    Parameters
    ----------
    number : int
        Which of the calls named in :data:`CALLS`.
    fault : callable
        Raises, or kills the process.
    after : bool, default=False
        Let the call take effect first; of a write, for the first hundred bytes.
    """
    counter = Counter()
    originals = {name: getattr(os, name) for name in CALLS}

    def wrapped(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if name == "open" and not arguments[1] & _WRITING:
                return originals[name](*arguments, **named)
            current = counter.count
            counter.count += 1
            if current != number:
                return originals[name](*arguments, **named)
            counter.failed = name
            if after and name == "write":
                written = originals[name](arguments[0], bytes(arguments[1][:_PARTIAL_BYTES]))
                if fault is interrupted:  # a write that is interrupted later returns its count
                    return written
            elif after or name == "close":  # a close that fails has closed the file
                originals[name](*arguments, **named)
            fault()
            raise AssertionError("a fault raises or kills")

        return call

    try:
        for name in CALLS:
            setattr(os, name, wrapped(name))
        yield counter
    finally:
        for name, original in originals.items():
            setattr(os, name, original)


def raising(number: int) -> Fault:
    """The fault of an OSError with this number."""

    def fault() -> None:
        raise OSError(number, os.strerror(number))

    return fault


disk_full = raising(errno.ENOSPC)
device_error = raising(errno.EIO)
interrupted = raising(errno.EINTR)


def kill() -> None:
    """End this process as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


#: The errors by name. A write that was interrupted is repeated.
ERRORS = {"disk full": disk_full, "input/output error": device_error, "interrupted": interrupted}


@dataclass(frozen=True)
class Target:
    """A kind of file.

    Attributes
    ----------
    write : callable
        Writes a version, 0 or 1, to a path.
    version : callable
        The version of a complete file; raises if it is not complete.
    """

    write: Callable[[Path, int], None]
    version: Callable[[Path], int]


@cache
def _model(version: int) -> RobustMF:
    data = make_synthetic(30, rank=2, observed=0.6, random_state=0)
    return RobustMF(rank=1 + version, random_state=0, n_jobs=1).fit(data.train)


def _save_model(path: Path, version: int) -> None:
    _model(version).save(path)


def _write_checkpoint(path: Path, version: int) -> None:
    checkpoint = Checkpoint(path, 0.0, False, True, "cpu")
    state = {"seed": {}, "ended": [], "prepared": None, "loops": {"version": version}}
    state["loops"]["array"] = np.arange(50_000.0)
    FileProgress(checkpoint, {"version": 0}, ArrayStorage(np.asarray), state).write()


def _write_page(path: Path, version: int) -> None:
    write_page(path, f"version {version}", "", ["text"] * 1000)


def _page_version(path: Path) -> int:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert text.endswith("</html>\n")
    return next(version for version in (0, 1) if f"<h1>version {version}</h1>" in text)


TARGETS = {
    "model file": Target(_save_model, lambda path: len(robustmf.load(path).components_) - 1),
    "checkpoint": Target(_write_checkpoint, lambda path: read(path).state["loops"]["version"]),
    "page": Target(_write_page, _page_version),
}


def attempt(target: Target, path: Path, number: int, fault: Fault, after: bool) -> str:
    """Write version 1 with a fault at this call; the name of the call, "" if there was none.

    The error must name the file. Without an error the new version must be there.
    """
    with failing_call(number, fault, after) as counter:
        try:
            target.write(path, 1)
        except OSError as error:
            assert counter.failed, "an error without a fault"
            assert path.name in str(error), f"{error} does not name the file"
            return counter.failed
    is_repeated = counter.failed == "write" and fault is interrupted
    assert is_repeated or not counter.failed, f"{counter.failed} failed without an error"
    assert target.version(path) == 1
    return counter.failed


def attempt_and_kill(target: Target, path: Path, number: int, after: bool) -> bool:
    """The same in a child process that is killed at this call; whether it was killed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork in a process with threads
        child = os.fork()
    if child == 0:
        try:
            with failing_call(number, kill, after):
                target.write(path, 1)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def require_complete(target: Target, path: Path, existed: bool) -> None:
    """Version 0 or 1 must be there, complete; nothing at all only if there was no version 0."""
    if path.exists() or existed:
        assert target.version(path) in ((0, 1) if existed else (1,))
