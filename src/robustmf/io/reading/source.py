"""A file to read, on disk or in a zip archive, and errors that name it."""

from __future__ import annotations

import errno
import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from robustmf.exceptions import MalformedFileError
from robustmf.io.reading.options import OPTIONS

#: First bytes of compressed files, which are recognized whatever their name.
_COMPRESSED = {
    rb"\x1f\x8b": "gzip",
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": "bz2",
    rb"\x28\xb5\x2f\xfd": "zstd",
    rb"\x04\x22\x4d\x18": "lz4",
}

#: First bytes of files that are not text, and the remedy. Text may begin with "PAR1", too, but then
#: no control character follows.
_NOT_TEXT = {
    rb"PK\x03\x04": "a zip archive or a spreadsheet, not text; unpack it, or save the sheet as CSV",
    rb"\xd0\xcf\x11\xe0": "a spreadsheet, not text; save the sheet as CSV",
    rb"PAR1.{0,60}?[\x00-\x08]": "a Parquet file, not text; give it the ending .parquet",
    rb"%PDF-[12]\.": "a PDF file, not text",
}

#: Number of first bytes that are compared.
_SIGNATURE_BYTES = 64


@dataclass(frozen=True)
class Source:
    """A file, or a member of a zip archive, which is read without extracting it.

    Parameters
    ----------
    path : Path
        The file or the archive. Text may be compressed (gzip, bzip2, zstd, lz4), whatever the name
        of the file.
    member : str, default=""
        Name within the archive; empty for a plain file.
    """

    path: Path
    member: str = ""

    def __str__(self) -> str:
        return f"{self.path}/{self.member}" if self.member else str(self.path)

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The decompressed bytes; damaged data raise :class:`MalformedFileError`."""
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path} not found, or not a file")
        try:
            with ExitStack() as opened:
                yield opened.enter_context(self._stream(opened))
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
            # damaged data raise OSErrors without a number, or EINVAL for a negative position
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
                raise
            raise self.fault(
                f"the compressed data are damaged or truncated ({error}); get the file again"
            ) from None

    def _stream(self, opened: ExitStack) -> BinaryIO:
        """The decompressed bytes; an archive that was opened for them is closed with ``opened``."""
        if not self.member:
            import pyarrow as pa  # noqa: PLC0415 - import deferred until a file is read

            with self.path.open("rb") as file:
                compression = _match_signature(_COMPRESSED, file.read(_SIGNATURE_BYTES))
            stream = cast("BinaryIO", pa.input_stream(str(self.path), compression=compression))
            return stream if compression is None else self._bounded(stream)
        archive = opened.enter_context(zipfile.ZipFile(self.path))
        if self.member not in archive.namelist():
            raise self.fault("the archive has no such member; get the file again")
        return self._bounded(cast("BinaryIO", archive.open(self.member)))

    def _bounded(self, stream: BinaryIO) -> BinaryIO:
        """A stream of decompressed data that ends with an error if it is implausibly long."""
        limit = largest_size(self.path.stat().st_size)
        return cast(
            "BinaryIO", io.BufferedReader(_Bounded(stream, self, limit), OPTIONS.buffer_bytes)
        )

    def text(self, encoding: str = "utf-8-sig") -> Iterator[str]:
        """The lines of text; bytes that cannot be decoded become lone surrogates.

        Parameters
        ----------
        encoding : str, default="utf-8-sig"
            The encoding of the text.
        """
        with self.open() as stream:
            if reason := _match_signature(_NOT_TEXT, stream.read(_SIGNATURE_BYTES)):
                raise self.fault(reason)
        with (
            self.open() as stream,
            io.TextIOWrapper(
                cast("Any", stream), encoding, errors="surrogateescape", newline=""
            ) as lines,
        ):
            yield from lines

    def fault(self, what: str, line: int | None = None) -> MalformedFileError:
        """An error that names the file.

        Parameters
        ----------
        what : str
            The cause and the remedy.
        line : int, default=None
            Number of the line, counted from 1.
        """
        return MalformedFileError(
            f"{self}, line {line}: {what}" if line is not None else f"{self}: {what}"
        )


class _Bounded(io.RawIOBase):
    """Decompressed data of at most a given length."""

    def __init__(self, stream: BinaryIO, source: Source, limit: int) -> None:
        super().__init__()
        self._stream = stream
        self._source = source
        self._limit = limit
        self._left = limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # not read(): Arrow would not release its memory after an error
        count = cast("Any", self._stream).readinto(buffer)
        self._left -= count
        if self._left < 0:
            size = self._source.path.stat().st_size
            raise self._source.fault(
                f"decompresses to more than {self._limit:.3g} bytes, but the file has {size}; "
                "it is damaged or malicious: if not, decompress it first"
            )
        return int(count)

    def close(self) -> None:
        self._stream.close()
        super().close()


def largest_size(packed: int) -> int:
    """The largest plausible size of the data in a compressed file of ``packed`` bytes."""
    return max(OPTIONS.small_size, OPTIONS.max_compression * packed)


def _match_signature(signatures: dict[bytes, str], beginning: bytes) -> str | None:
    """The value of the first signature that matches."""
    return next(
        (value for pattern, value in signatures.items() if re.match(pattern, beginning, re.DOTALL)),
        None,
    )
