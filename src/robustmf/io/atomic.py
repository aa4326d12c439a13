"""Writing of files such that the old or the new file is there, complete, whatever happens.

Content goes to a temporary file in the same folder, which is flushed to disk and renamed. Model
files, checkpoints, pages and tables are all written this way.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import io
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

#: Longest name, in bytes, from which the name of the temporary file is made; file systems allow
#: 255 bytes.
_MAX_NAME_BYTES = 200

#: Bytes that are collected before they are written.
_BUFFER_BYTES = 1 << 20

#: A flag that Windows requires.
_BINARY = getattr(os, "O_BINARY", 0)

#: Names of open files of the process, which must not be replaced by a new file.
_OPEN_FILES = ("/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/")

#: What file systems report that cannot flush folders.
_CANNOT_FLUSH_FOLDERS = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file for new content, which replaces ``path`` if the context ends without an error.

    A symbolic link is followed, so that the file to which it points is replaced. The permissions of
    an existing file are kept, and a read-only file is refused; a new file has the default
    permissions. What is not a regular file (a terminal, a pipe, ``/dev/null``) cannot be replaced
    and is written directly. An OSError while the file is written names ``path``.
    """
    name = os.fspath(path)
    target = Path(os.path.realpath(name))
    mode = _mode(target)
    if os.path.abspath(name).startswith(_OPEN_FILES) or not (mode is None or stat.S_ISREG(mode)):
        with _naming(name):
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY)
        with _buffered(descriptor, name) as file:
            yield file
        return
    if mode is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    temporary = target.with_name(f".{_prefix(target)}.{secrets.token_hex(8)}.tmp")
    try:
        with _naming(name):
            descriptor = _create(temporary, mode)
        with _buffered(descriptor, name) as file:
            yield file
            file.flush()
            with _naming(name):
                os.fsync(descriptor)
        with _naming(name):
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):  # the first error is reported
            temporary.unlink()
        raise
    with _naming(name):
        _flush_folder(target.parent)


def write_atomically(path: str | os.PathLike[str], content: bytes | bytearray) -> None:
    """Write a complete file; see :func:`replacing`."""
    with replacing(path) as file:
        file.write(content)


def discard_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove the temporary files of processes that were killed while they wrote this file.

    No other process may be writing the file.
    """
    target = Path(os.path.realpath(path))
    pattern = f".{glob.escape(_prefix(target))}.{'[0-9a-f]' * 16}.tmp"
    for leftover in target.parent.glob(pattern):
        leftover.unlink(missing_ok=True)


def _buffered(descriptor: int, name: str) -> BinaryIO:
    """A buffered file of a descriptor, which it closes; errors name the file ``name``."""
    return cast(
        "BinaryIO", io.BufferedWriter(cast("Any", _Output(descriptor, name)), _BUFFER_BYTES)
    )


class _Output(io.RawIOBase):
    """A file descriptor to write to; errors name the file."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._name = name

    def write(self, data: Any) -> int:
        with _naming(self._name):
            return os.write(self._descriptor, data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return os.lseek(self._descriptor, offset, whence)

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            super().close()
            with _naming(self._name):
                os.close(self._descriptor)


def _mode(target: Path) -> int | None:
    """Type and permissions of an existing file; None if there is none."""
    try:
        return target.stat().st_mode
    except FileNotFoundError:
        return None


def _create(temporary: Path, mode: int | None) -> int:
    """Create the temporary file; it is never more accessible than the file that it replaces."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY
    permissions = 0o666 if mode is None else stat.S_IMODE(mode)
    descriptor = os.open(temporary, flags, permissions)
    if mode is not None and hasattr(os, "fchmod"):
        try:
            os.fchmod(descriptor, permissions)  # the umask may have removed some
        except BaseException:
            os.close(descriptor)
            raise
    return descriptor


def _prefix(target: Path) -> str:
    """The name of the file, or its digest if the temporary name would be too long."""
    encoded = os.fsencode(target.name)
    if len(encoded) <= _MAX_NAME_BYTES:
        return target.name
    return hashlib.sha256(encoded).hexdigest()


def _flush_folder(folder: Path) -> None:
    """Flush a renamed file to disk, on systems on which folders can be flushed."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_FLUSH_FOLDERS:
            raise


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Context in which an OSError names the file that the user gave."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise type(error)(f"{name}: {error}") from error
        raise type(error)(error.errno, error.strerror, name) from error
