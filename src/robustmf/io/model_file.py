"""One file for one model: a safetensors container that holds arrays, and a JSON document that says what they are.

The file is data and nothing else: values are of the plain kinds listed in :func:`_encode`, losses go by their registered name, and
reading builds nothing that is not in that list. The checksum (SHA-256, over the whole file with its own place set to zeros) covers every
byte, so what was truncated or altered is refused before it is looked at; what is well sealed and still wrong is refused after.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from robustmf.exceptions import ModelFileError, NotSavableError
from robustmf.losses import Loss, loss_names, make_loss

FORMAT, VERSION = "robustmf", "1"

_DOCUMENT = "document"
_UNSEALED = "0" * 64

#: Lists and dicts within each other, at most: far more than any model has, far less than Python's own limit, which differs by version.
_DEEPEST = 200
_LENGTH_BYTES = 8

_GENERATORS: dict[str, type[np.random.BitGenerator]] = {
    cls.__name__: cls
    for cls in (
        np.random.PCG64,
        np.random.PCG64DXSM,
        np.random.MT19937,
        np.random.Philox,
        np.random.SFC64,
    )
}

#: Kinds of single values beyond JSON's own: how to write them as text, and how to read them.
_TEXTS: dict[type, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    bytes: ("bytes", bytes.hex, bytes.fromhex),
    datetime: ("datetime", datetime.isoformat, datetime.fromisoformat),
    date: ("date", date.isoformat, date.fromisoformat),
    timedelta: (
        "timedelta",
        lambda v: str(v // timedelta(microseconds=1)),
        lambda s: timedelta(microseconds=int(s)),
    ),
    UUID: ("uuid", str, UUID),
    Decimal: ("decimal", str, Decimal),
    float: ("float", repr, float),  # NaN and infinity, which JSON lacks
    complex: ("complex", repr, complex),
}
_READERS = {tag: (kind, read) for kind, (tag, _, read) in _TEXTS.items()}


@dataclass(frozen=True)
class Saved:
    """What a file holds: the class of the model by name, its parameters, and what ``fit`` found."""

    kind: str
    parameters: dict[str, Any]
    state: dict[str, Any]


def write(path: str | os.PathLike[str], saved: Saved) -> None:
    """Write the file: all of it or, if anything fails, nothing; an older file of the name stays until the new one is complete."""
    from safetensors.numpy import save as to_bytes  # noqa: PLC0415 - only needed by those who save

    arrays: dict[str, NDArray[Any]] = {}
    document = {
        "kind": saved.kind,
        "parameters": {
            name: _encode(value, f"parameter {name}", arrays)
            for name, value in saved.parameters.items()
        },
        "state": {name: _encode(value, name, arrays) for name, value in saved.state.items()},
    }
    _require_shallow(document)
    text = json.dumps(document, allow_nan=False, ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )
    arrays[_DOCUMENT] = np.frombuffer(text, np.uint8)
    content = bytearray(to_bytes(arrays, {FORMAT: f"{VERSION} {_UNSEALED}"}))
    _replace_atomically(Path(path), seal(content))


def seal(content: bytearray) -> bytearray:
    """``content`` with its checksum put in its place."""
    place = content.index(_UNSEALED.encode())
    content[place : place + 64] = hashlib.sha256(content).hexdigest().encode()
    return content


def read(path: str | os.PathLike[str]) -> Saved:
    """Read and check a file.

    Raises
    ------
    ModelFileError
        For anything that :func:`write` did not write in this version.
    """
    content = Path(path).read_bytes()
    try:
        return _parse(content)
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)}: {error}") from error.__cause__


def _parse(content: bytes) -> Saved:
    from safetensors import SafetensorError  # noqa: PLC0415
    from safetensors.numpy import load as from_bytes  # noqa: PLC0415

    _check_seal(content)
    try:
        arrays = from_bytes(content)
        document = json.loads(arrays.pop(_DOCUMENT).tobytes().decode("utf-8", "surrogatepass"))
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise ModelFileError("the file is sealed, but not a model file of this format") from error
    if not (
        isinstance(document, dict)
        and set(document) == {"kind", "parameters", "state"}
        and isinstance(document["kind"], str)
    ):
        raise ModelFileError("the document must have kind, parameters and state")
    _require_shallow(document)
    unused = dict(arrays)
    parameters = _decode_named(document["parameters"], arrays, unused)
    state = _decode_named(document["state"], arrays, unused)
    if unused:
        raise ModelFileError(f"arrays that belong to nothing: {sorted(unused)}")
    return Saved(document["kind"], parameters, state)


def _require_shallow(document: dict[str, Any]) -> None:
    """Refuse what nests further than anything that is saved."""
    level: list[Any] = [document]
    for _ in range(_DEEPEST):
        within = (
            part for one in level for part in (one.values() if isinstance(one, dict) else one)
        )
        level = [part for part in within if isinstance(part, (dict, list))]
        if not level:
            return
    raise ModelFileError(f"the document is nested too deeply: more than {_DEEPEST} levels")


def _check_seal(content: bytes) -> None:
    """Refuse what is no file of ours, of another version, or altered since it was written."""
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
    place = _LENGTH_BYTES + header.index(digest.encode())
    unsealed = hashlib.sha256(content[:place])
    unsealed.update(_UNSEALED.encode())
    unsealed.update(memoryview(content)[place + 64 :])
    if unsealed.hexdigest() != digest:
        raise ModelFileError("damaged or truncated: its checksum does not match its content")
    if version != VERSION:
        raise ModelFileError(
            f"written in version {version!r} of the format; this release reads version {VERSION!r}: use the release it is from"
        )


def discard_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove temporary files of this name: a process that was killed while it wrote could not. Nobody else may be writing the file."""
    path = Path(path)
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 16}.tmp"):
        leftover.unlink(missing_ok=True)


def _replace_atomically(path: Path, content: bytes | bytearray) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if hasattr(os, "O_DIRECTORY"):  # a folder can be synced on POSIX only
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _encode(value: Any, where: str, arrays: dict[str, NDArray[Any]]) -> Any:  # noqa: PLR0911 - one line a kind
    """A value of a plain kind as JSON, its arrays put aside; subclasses of plain kinds are refused, as they would not come back."""
    kind = type(value)
    if value is None or kind in (bool, int, str) or (kind is float and np.isfinite(value)):
        return value
    if kind in _TEXTS and not (
        kind is datetime and type(value.tzinfo) not in (type(None), timezone)
    ):
        return {_TEXTS[kind][0]: _TEXTS[kind][1](value)}
    if kind is list:
        return [_encode(item, where, arrays) for item in value]
    if kind is tuple:
        return {"tuple": [_encode(item, where, arrays) for item in value]}
    if kind is dict and all(type(key) is str for key in value):
        return {
            "dict": {key: _encode(item, f"{where}[{key!r}]", arrays) for key, item in value.items()}
        }
    if isinstance(value, np.generic) and value.dtype.kind in "biufMm":
        return {"scalar": _put_aside(np.asarray(value), arrays), "dtype": value.dtype.name}
    if kind is np.ndarray:
        return _encode_array(value, where, arrays)
    if isinstance(value, Loss):
        return _encode_loss(value, where, arrays)
    if kind in (np.random.Generator, np.random.RandomState):
        bits = value.bit_generator if kind is np.random.Generator else value._bit_generator
        if type(bits).__name__ in _GENERATORS:
            return {
                "random": kind.__name__,
                "bits": type(bits).__name__,
                "state": _encode(bits.state, where, arrays),
            }
    raise NotSavableError(
        f"cannot save {where}: {value!r} of type {kind.__module__}.{kind.__qualname__} is code or of a kind that a file of plain data "
        f"cannot hold; {_remedy(where)}, or use pickle or joblib, which can hold anything (and so may run code when loaded)"
    )


def _remedy(where: str) -> str:
    if where == "parameter callbacks":
        return "leave it out with model.set_params(callbacks=()).save(…)"
    return "convert it first (ids: to int, float, str, bytes, tuple, date, datetime, timedelta, UUID or Decimal)"


def _put_aside(array: NDArray[Any], arrays: dict[str, NDArray[Any]]) -> str:
    name = f"array{len(arrays)}"
    numbers = array.view(np.int64) if array.dtype.kind in "Mm" else array
    arrays[name] = np.array(numbers, numbers.dtype.newbyteorder("="), order="C")
    return name


def _encode_array(array: NDArray[Any], where: str, arrays: dict[str, NDArray[Any]]) -> Any:
    if array.dtype.kind in "biufMm" and array.dtype.itemsize <= 8:
        return {"array": _put_aside(array, arrays), "dtype": array.dtype.newbyteorder("=").name}
    items = [_encode(item, where, arrays) for item in array.ravel().tolist()]
    if array.dtype.kind not in "OUS":
        raise NotSavableError(
            f"cannot save {where}: an array of dtype {array.dtype}; convert it to real numbers, strings or objects first"
        )
    return {"items": items, "dtype": array.dtype.newbyteorder("=").str, "shape": list(array.shape)}


def _encode_loss(loss: Loss, where: str, arrays: dict[str, NDArray[Any]]) -> Any:
    if loss.name not in loss_names() or type(make_loss(loss.name)) is not type(loss):
        raise NotSavableError(
            f"cannot save {where}: {loss!r} is a loss of your own, whose formula is code; use pickle or joblib for this model, or fit with "
            f"one of {', '.join(loss_names())}"
        )
    parameters = {field.name: getattr(loss, field.name) for field in fields(loss)}
    return {
        "loss": loss.name,
        "parameters": {name: _encode(value, where, arrays) for name, value in parameters.items()},
    }


def _decode_named(
    document: Any, arrays: dict[str, NDArray[Any]], unused: dict[str, NDArray[Any]]
) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise ModelFileError(f"names and values expected, got {type(document).__name__}")
    return {name: _decode(value, arrays, unused) for name, value in document.items()}


def _decode(document: Any, arrays: dict[str, NDArray[Any]], unused: dict[str, NDArray[Any]]) -> Any:  # noqa: PLR0911
    """What :func:`_encode` wrote; anything else is refused."""
    if isinstance(document, list):
        return [_decode(item, arrays, unused) for item in document]
    if not isinstance(document, dict):
        return document

    def decode(item: Any) -> Any:
        return _decode(item, arrays, unused)

    def take(name: Any) -> NDArray[Any]:
        if not isinstance(name, str) or name not in unused:
            raise ModelFileError(f"array {name!r} is missing or used twice")
        return unused.pop(name)

    keys = sorted(document)
    try:
        match keys:
            case ["tuple"]:
                return tuple(decode(_a(list, document["tuple"])))
            case ["dict"]:
                return _decode_named(document["dict"], arrays, unused)
            case ["array", "dtype"]:
                return _as_dtype(take(document["array"]), document["dtype"])
            case ["dtype", "scalar"]:
                return _as_dtype(take(document["scalar"]), document["dtype"])[()]
            case ["dtype", "items", "shape"]:
                return _array_of_items(
                    decode(_a(list, document["items"])), document["dtype"], document["shape"]
                )
            case ["loss", "parameters"]:
                return replace(
                    make_loss(_a(str, document["loss"])),
                    **_decode_named(document["parameters"], arrays, unused),
                )
            case ["bits", "random", "state"]:
                bits = _GENERATORS[document["bits"]](0)
                bits.state = decode(document["state"])
                return {"Generator": np.random.Generator, "RandomState": np.random.RandomState}[
                    document["random"]
                ](bits)
            case [tag] if tag in _READERS:
                kind, read_text = _READERS[tag]
                return _a(kind, read_text(_a(str, document[tag])))
    except ModelFileError:
        raise
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        ArithmeticError,
        MemoryError,
    ) as error:
        raise ModelFileError(f"a value with {', '.join(keys)} cannot be read") from error
    raise ModelFileError(f"a value with {', '.join(keys)} is of no kind that this format has")


def _a(kind: type, value: Any) -> Any:
    """``value``, which must be of ``kind``."""
    if type(value) is not kind:
        raise ModelFileError(f"{kind.__name__} expected, got {type(value).__name__}")
    return value


def _as_dtype(array: NDArray[Any], name: Any) -> NDArray[Any]:
    wanted = np.dtype(_a(str, name))
    stored = np.dtype(np.int64) if wanted.kind in "Mm" else wanted
    if wanted.kind not in "biufMm" or array.dtype != stored:
        raise ModelFileError(f"an array said to be {name} is stored as {array.dtype}")
    return array.view(wanted) if wanted.kind in "Mm" else array


def _array_of_items(items: list[Any], dtype: Any, shape: Any) -> NDArray[Any]:
    wanted = np.dtype(_a(str, dtype))
    if wanted.kind not in "OUS":
        raise ModelFileError(f"an array of items cannot have dtype {dtype}")
    array = np.empty(len(items), wanted)
    for k, item in enumerate(items):
        array[k] = item
    return array.reshape([int(_a(int, size)) for size in _a(list, shape)])
