"""A file to read from, on disk or inside an archive, with the name it has in messages."""

from __future__ import annotations

import errno
import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from robustmf.exceptions import MalformedFileError

#: How compressed files begin, whatever they are called.
_COMPRESSED = {
    rb"\x1f\x8b": "gzip",
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": "bz2",
    rb"\x28\xb5\x2f\xfd": "zstd",
    rb"\x04\x22\x4d\x18": "lz4",
}

#: How files begin that are no text, and what to do with them; "PAR1" may begin text too, but no control character follows there.
_NO_TEXT = {
    rb"PK\x03\x04": "a zip archive or a spreadsheet, not text; unpack it, or save the sheet as CSV",
    rb"\xd0\xcf\x11\xe0": "a spreadsheet, not text; save the sheet as CSV",
    rb"PAR1.{0,60}?[\x00-\x08]": "a Parquet file, not text; give it the ending .parquet",
    rb"%PDF-[12]\.": "a PDF file, not text",
}

#: Bytes that are enough to tell.
_BEGINNING = 64


@dataclass(frozen=True)
class Source:
    """A file, or a member of a zip archive, which is read where it lies and never extracted.

    Attributes
    ----------
    path : Path
        The file or the archive. Text may be compressed (gzip, bzip2, zstd, lz4), whatever the file is called.
    member : str
        Name within the archive; empty for a plain file.
    """

    path: Path
    member: str = ""

    def __str__(self) -> str:
        return f"{self.path}/{self.member}" if self.member else str(self.path)

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The bytes, decompressed, from the beginning; a stream that is damaged is a fault of the file."""
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path} not found, or not a file")
        try:
            with self._stream() as stream:
                yield stream
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in (
                None,
                errno.EINVAL,
            ):  # invalid: a place before the beginning
                raise  # of the disk, or of whatever is done with the bytes
            raise self.fault(
                f"the compressed data are damaged or cut short ({error}); get the file again"
            ) from None

    def _stream(self) -> BinaryIO:
        if not self.member:
            import pyarrow as pa  # noqa: PLC0415 - only those who read files pay for it

            with self.path.open("rb") as file:
                known = _by_beginning(_COMPRESSED, file.read(_BEGINNING))
            return cast("BinaryIO", pa.input_stream(str(self.path), compression=known))
        archive = zipfile.ZipFile(self.path)
        if self.member not in archive.namelist():
            raise self.fault("the archive has no such member; get the file again")
        return cast("BinaryIO", archive.open(self.member))

    def text(self, encoding: str = "utf-8-sig") -> Iterator[str]:
        """The lines; bytes that are not text come as lone surrogates."""
        with self.open() as stream:
            if reason := _by_beginning(_NO_TEXT, stream.read(_BEGINNING)):
                raise self.fault(reason)
        with (
            self.open() as stream,
            io.TextIOWrapper(
                cast("Any", stream), encoding, errors="surrogateescape", newline=""
            ) as lines,
        ):
            yield from lines

    def fault(self, what: str, line: int | None = None) -> MalformedFileError:
        """An error that says where: file, line (counted from 1), what is wrong and what to do."""
        return MalformedFileError(
            f"{self}, line {line}: {what}" if line is not None else f"{self}: {what}"
        )


def _by_beginning(told: dict[bytes, str], beginning: bytes) -> str | None:
    return next(
        (what for start, what in told.items() if re.match(start, beginning, re.DOTALL)), None
    )
