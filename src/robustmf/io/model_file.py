"""Files of models: a safetensors container of arrays with a JSON document that describes them.

The file contains data only: values are of the types listed in :func:`~robustmf.io.encoding.encode`,
losses are given by their registered name, and reading constructs no other objects. The checksum
(SHA-256 of the whole file with the checksum itself set to zeros) covers every byte, so that
truncated or altered files are refused before their content is interpreted. The content is
validated nevertheless.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.exceptions import ModelFileError
from robustmf.io.atomic import write_atomically
from robustmf.io.encoding import CONTENT_ERRORS, Decoder, encode

#: Name and version of the format.
FORMAT = "robustmf"
VERSION = "1"

#: Name of the array that holds the JSON document.
_DOCUMENT = "document"

#: Stands for the checksum while it is computed.
_NO_CHECKSUM = "0" * 64

#: Largest depth of nested lists and dicts: far more than any model has, and far below the recursion
#: limit of Python, which differs between versions.
_MAX_DEPTH = 200

#: Bytes of the length of the header, at the beginning of a safetensors file.
_LENGTH_BYTES = 8


@dataclass(frozen=True)
class Saved:
    """The content of a file.

    Attributes
    ----------
    kind : str
        Name of the class of the model.
    parameters : dict
        Its parameters.
    state : dict
        Its fitted attributes.
    """

    kind: str
    parameters: dict[str, Any]
    state: dict[str, Any]


def write(path: str | os.PathLike[str], saved: Saved) -> None:
    """Write a file atomically: a previous file is replaced only if the new one is complete.

    Raises
    ------
    NotSavableError
        If ``saved`` contains values of types that the format does not have.
    OSError
        If the file cannot be written.
    """
    from safetensors.numpy import save as to_bytes  # noqa: PLC0415 - when a file is written

    arrays: dict[str, NDArray[Any]] = {}
    document = {
        "kind": saved.kind,
        "parameters": {
            name: encode(value, f"parameter {name}", arrays)
            for name, value in saved.parameters.items()
        },
        "state": {name: encode(value, name, arrays) for name, value in saved.state.items()},
    }
    _require_shallow(document)
    text = json.dumps(document, allow_nan=False, ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )
    arrays[_DOCUMENT] = np.frombuffer(text, np.uint8)
    content = bytearray(to_bytes(arrays, {FORMAT: f"{VERSION} {_NO_CHECKSUM}"}))
    write_atomically(path, insert_checksum(content))


def insert_checksum(content: bytearray) -> bytearray:
    """Replace the zeros that stand for the checksum by the checksum, in place."""
    position = content.index(_NO_CHECKSUM.encode())
    content[position : position + 64] = hashlib.sha256(content).hexdigest().encode()
    return content


def read(path: str | os.PathLike[str]) -> Saved:
    """Read and validate a file.

    Raises
    ------
    ModelFileError
        If the file was not written by :func:`write` in this version of the format.
    """
    content = _regular_file(path)
    with refusing(path):
        return _parse(content)


@contextmanager
def refusing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Context in which errors of content become a :class:`ModelFileError` that names the file.

    Texts and values in the file may have several lines; the message has one.
    """
    try:
        yield
    except ModelFileError as error:
        reason = " ".join(str(error).split())
        raise ModelFileError(f"{os.fspath(path)}: {reason}") from error.__cause__
    except CONTENT_ERRORS as error:
        reason = " ".join(str(error).split())
        raise ModelFileError(
            f"{os.fspath(path)}: the checksum is valid, but the content is not what this release "
            f"writes ({reason})"
        ) from error


def _regular_file(path: str | os.PathLike[str]) -> bytes:
    """The content of a file; a device or a pipe, which may not end, is refused."""
    with open(path, "rb", opener=_opened_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ModelFileError(f"{os.fspath(path)}: not a regular file")
        return file.read()


def _opened_at_once(path: str, flags: int) -> int:
    """A file descriptor, also of a pipe that nobody writes to; Windows has no such pipes."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _parse(content: bytes) -> Saved:
    from safetensors import SafetensorError  # noqa: PLC0415
    from safetensors.numpy import load as from_bytes  # noqa: PLC0415

    _verify_checksum(content)
    try:
        arrays = from_bytes(content)
        document = json.loads(arrays.pop(_DOCUMENT).tobytes().decode("utf-8", "surrogatepass"))
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise ModelFileError(
            "the checksum is valid, but it is not a model file of this format"
        ) from error
    if not (
        isinstance(document, dict)
        and set(document) == {"kind", "parameters", "state"}
        and isinstance(document["kind"], str)
    ):
        raise ModelFileError("the document must have kind, parameters and state")
    _require_shallow(document)
    decoder = Decoder(arrays, len(content))
    parameters = decoder.named(document["parameters"])
    state = decoder.named(document["state"])
    if decoder.unused:
        raise ModelFileError(f"arrays that are not used: {sorted(decoder.unused)}")
    return Saved(document["kind"], parameters, state)


def _require_shallow(document: dict[str, Any]) -> None:
    """Refuse a document that is nested more deeply than any that is saved."""
    level: list[Any] = [document]
    for _ in range(_MAX_DEPTH):
        children = (
            part for one in level for part in (one.values() if isinstance(one, dict) else one)
        )
        level = [part for part in children if isinstance(part, (dict, list))]
        if not level:
            return
    raise ModelFileError(f"the document is nested too deeply: more than {_MAX_DEPTH} levels")


def _verify_checksum(content: bytes) -> None:
    """Refuse files of other formats or versions, and files that were altered."""
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    if len(content) < _LENGTH_BYTES or length > len(content) - _LENGTH_BYTES:
        raise ModelFileError("not a model file, or truncated: it ends before its own header does")
    header = content[_LENGTH_BYTES : _LENGTH_BYTES + length]
    try:
        version, digest = json.loads(header)["__metadata__"][FORMAT].split(" ")
        unambiguous = len(digest) == 64 and header.count(digest.encode()) == 1
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelFileError("not a model file, or damaged: its header cannot be read") from error
    if not unambiguous:
        raise ModelFileError("damaged: its checksum cannot be read")
    position = _LENGTH_BYTES + header.index(digest.encode())
    computed = hashlib.sha256(content[:position])
    computed.update(_NO_CHECKSUM.encode())
    computed.update(memoryview(content)[position + 64 :])
    if computed.hexdigest() != digest:
        raise ModelFileError("damaged or truncated: its checksum does not match its content")
    if version != VERSION:
        raise ModelFileError(
            f"written in version {version!r} of the format; this release reads version "
            f"{VERSION!r}: use the release that wrote it"
        )
