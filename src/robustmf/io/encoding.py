"""The values that a model file can hold, as JSON and arrays.

:func:`encode` lists their types; :class:`Decoder` constructs values of these types and no others,
and validates what it reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from robustmf.exceptions import ModelFileError, NotSavableError
from robustmf.losses import Loss, loss_names, make_loss

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

#: Largest values of the integers in their states.
_RANDOM_LIMITS = {
    "state": 2**128 - 1,
    "inc": 2**128 - 1,
    "pos": 624,
    "buffer_pos": 4,
    "has_uint32": 1,
    "uinteger": 2**32 - 1,
}

#: Names of the dtypes of arrays of numbers and dates, and of items.
_NUMBER_TYPE = re.compile(
    r"bool|u?int(8|16|32|64)|float(16|32|64)"
    r"|(datetime|timedelta)64(\[[0-9]{0,9}(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"
)
_ITEM_TYPE = re.compile(r"\|O|[<>]U[0-9]{1,9}|\|S[0-9]{1,9}")

#: Errors of checks that meet values of other types than any release writes.
CONTENT_ERRORS = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)

#: Arrays of strings of fixed length may take this many times the length of the file.
_MAX_EXPANSION = 1000

#: Types of scalars that JSON lacks: tag, conversion to text, conversion from text.
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
    float: ("float", repr, float),  # NaN and infinity
    complex: ("complex", repr, complex),
}


def _zoned_text(value: datetime) -> str:
    """A time with a time zone as text: with its offset from UTC, and the name of the zone."""
    zone = value.tzinfo
    name = getattr(zone, "key", None) or getattr(zone, "zone", None) or ""
    return f"{value.isoformat()} {name}".strip()


def _zoned_time(text: str) -> datetime:
    """The inverse; a zone that this system does not know is the offset alone, the same time."""
    moment, _, name = text.partition(" ")
    value = datetime.fromisoformat(moment)
    if value.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    if not name:
        return value
    try:
        return value.astimezone(ZoneInfo(name))
    except (ValueError, OSError, KeyError, OverflowError):
        return value


_ZONED = "zoned datetime"
_READERS = {tag: (kind, read) for kind, (tag, _, read) in _TEXTS.items()}
_READERS[_ZONED] = (datetime, _zoned_time)


def encode(  # noqa: PLR0911 - one line per type
    value: Any, where: str, arrays: dict[str, NDArray[Any]]
) -> Any:
    """A value as JSON, with its arrays appended to ``arrays``.

    Subclasses of the supported types are refused, since they would be read as the base class.
    """
    kind = type(value)
    if value is None or kind in (bool, int, str) or (kind is float and np.isfinite(value)):
        return value
    if kind is datetime and type(value.tzinfo) not in (type(None), timezone):
        return {_ZONED: _zoned_text(value)}
    if kind in _TEXTS:
        return {_TEXTS[kind][0]: _TEXTS[kind][1](value)}
    if kind is list:
        return [encode(item, where, arrays) for item in value]
    if kind is tuple:
        return {"tuple": [encode(item, where, arrays) for item in value]}
    if kind is dict and all(type(key) is str for key in value):
        return {
            "dict": {key: encode(item, f"{where}[{key!r}]", arrays) for key, item in value.items()}
        }
    if isinstance(value, np.generic) and value.dtype.kind in "biufMm":
        return {"scalar": _append_array(np.asarray(value), arrays), "dtype": value.dtype.name}
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
                "state": encode(bits.state, where, arrays),
            }
    raise NotSavableError(
        f"cannot save {where}: {value!r} of type {kind.__module__}.{kind.__qualname__} is code, "
        f"or of a type that a data file cannot hold; {_remedy(where)}, "
        "or use pickle or joblib, which can hold any object (and may run code when loaded)"
    )


def _remedy(where: str) -> str:
    if where == "parameter callbacks":
        return "leave it out with model.set_params(callbacks=()).save(…)"
    return (
        "convert it first (ids: to int, float, str, bytes, tuple, date, datetime, timedelta, UUID "
        "or Decimal)"
    )


def _append_array(array: NDArray[Any], arrays: dict[str, NDArray[Any]]) -> str:
    name = f"array{len(arrays)}"
    numbers = array.view(np.int64) if array.dtype.kind in "Mm" else array
    arrays[name] = np.array(numbers, numbers.dtype.newbyteorder("="), order="C")
    return name


def _encode_array(array: NDArray[Any], where: str, arrays: dict[str, NDArray[Any]]) -> Any:
    if array.dtype.kind in "biufMm" and array.dtype.itemsize <= 8:
        return {"array": _append_array(array, arrays), "dtype": array.dtype.newbyteorder("=").name}
    values = array.ravel().tolist()
    items = [encode(item, where, arrays) for item in values]
    if array.dtype.kind not in "OUS":
        raise NotSavableError(
            f"cannot save {where}: an array of dtype {array.dtype}; "
            "convert it to real numbers, strings or objects first"
        )
    if array.dtype.kind in "US" and array.nbytes > _MAX_EXPANSION * sum(
        2 + len(value) for value in values
    ):
        raise NotSavableError(
            f"cannot save {where}: an array of dtype {array.dtype} that consists almost entirely "
            "of padding; convert it with astype(object) first"
        )
    return {"items": items, "dtype": array.dtype.newbyteorder("=").str, "shape": list(array.shape)}


def _encode_loss(loss: Loss, where: str, arrays: dict[str, NDArray[Any]]) -> Any:
    if loss.name not in loss_names() or type(make_loss(loss.name)) is not type(loss):
        raise NotSavableError(
            f"cannot save {where}: {loss!r} is a user-defined loss, whose formula is code; "
            f"use pickle or joblib for this model, or fit with one of {', '.join(loss_names())}"
        )
    parameters = {field.name: getattr(loss, field.name) for field in fields(loss)}
    return {
        "loss": loss.name,
        "parameters": {name: encode(value, where, arrays) for name, value in parameters.items()},
    }


class Decoder:
    """The inverse of :func:`encode`: constructs values of the types listed there and no others.

    Parameters
    ----------
    arrays : dict
        The arrays of the file, each of which is used once.
    n_bytes : int
        Length of the file, which bounds the memory of the decoded values.
    """

    def __init__(self, arrays: dict[str, NDArray[Any]], n_bytes: int) -> None:
        self.unused = dict(arrays)
        self._budget = _MAX_EXPANSION * n_bytes

    def named(self, document: Any) -> dict[str, Any]:
        """Decode the values of a dict with string keys."""
        if not isinstance(document, dict):
            raise ModelFileError(f"names and values expected, got {type(document).__name__}")
        return {name: self.value(value) for name, value in document.items()}

    def value(self, document: Any) -> Any:
        """Decode a value."""
        if isinstance(document, list):
            return [self.value(item) for item in document]
        if not isinstance(document, dict):
            return document
        keys = sorted(document)
        try:
            return self._tagged(keys, document)
        except ModelFileError:
            raise
        except (*CONTENT_ERRORS, MemoryError) as error:
            raise ModelFileError(f"a value with {', '.join(keys)} cannot be read") from error

    def _tagged(self, keys: list[str], document: dict[str, Any]) -> Any:  # noqa: PLR0911
        """Decode a value by the names in its document."""
        match keys:
            case ["tuple"]:
                return tuple(self.value(_require_type(list, document["tuple"])))
            case ["dict"]:
                return self.named(document["dict"])
            case ["array", "dtype"]:
                return _as_dtype(self._take(document["array"]), document["dtype"])
            case ["dtype", "scalar"]:
                array = _as_dtype(self._take(document["scalar"]), document["dtype"])
                if array.ndim:
                    raise ModelFileError(f"a scalar is stored with shape {array.shape}")
                return array[()]
            case ["dtype", "items", "shape"]:
                items = self.value(_require_type(list, document["items"]))
                return self._array_of_items(items, document["dtype"], document["shape"])
            case ["loss", "parameters"]:
                loss = make_loss(_require_type(str, document["loss"]))
                return replace(loss, **self.named(document["parameters"]))
            case ["bits", "random", "state"]:
                return _random(document["random"], document["bits"], self.value(document["state"]))
            case [tag] if tag in _READERS:
                kind, read_text = _READERS[tag]
                return _require_type(kind, read_text(_require_type(str, document[tag])))
        raise ModelFileError(f"a value with {', '.join(keys)} is of no type that this format has")

    def _take(self, name: Any) -> NDArray[Any]:
        """An array of the file, for the first time."""
        if not isinstance(name, str) or name not in self.unused:
            raise ModelFileError(f"array {name!r} is missing or used twice")
        return self.unused.pop(name)

    def _array_of_items(self, items: list[Any], dtype: Any, shape: Any) -> NDArray[Any]:
        """An array of strings, bytes or objects."""
        if not _ITEM_TYPE.fullmatch(_require_type(str, dtype)):
            raise ModelFileError(f"an array of items cannot have dtype {dtype}")
        wanted = np.dtype(dtype)
        # strings of fixed length: one long item makes all others as long
        self._budget -= len(items) * wanted.itemsize
        if self._budget < 0:
            raise ModelFileError(
                f"an array of {len(items)} items of dtype {dtype} is too large for a file of this "
                "length"
            )
        array = np.empty(len(items), wanted)
        for k, item in enumerate(items):
            array[k] = item
        return array.reshape([int(_require_type(int, size)) for size in _require_type(list, shape)])


def _require_type(kind: type, value: Any) -> Any:
    """``value``, if its type is ``kind``."""
    if type(value) is not kind:
        raise ModelFileError(f"{kind.__name__} expected, got {type(value).__name__}")
    return value


def _as_dtype(array: NDArray[Any], name: Any) -> NDArray[Any]:
    if not _NUMBER_TYPE.fullmatch(_require_type(str, name)):
        raise ModelFileError(f"an array cannot have dtype {name}")
    wanted = np.dtype(name)
    stored = np.dtype(np.int64) if wanted.kind in "Mm" else wanted
    if array.dtype != stored:
        raise ModelFileError(f"an array of dtype {name} is stored as {array.dtype}")
    return array.view(wanted) if wanted.kind in "Mm" else array


def _random(kind: Any, bits: Any, state: Any) -> np.random.Generator | np.random.RandomState:
    """A random generator with a state that is valid: NumPy follows positions in it unchecked."""
    generator = _GENERATORS[_require_type(str, bits)](0)
    _require_same_form(state, generator.state, "state")
    generator.state = state
    if kind == "Generator":
        return np.random.Generator(generator)
    if kind == "RandomState":
        return np.random.RandomState(generator)
    raise ModelFileError(f"{kind!r} is no random generator of this format")


def _require_same_form(value: Any, reference: Any, name: str) -> None:
    """Refuse a state of a generator that has other names, types, shapes or larger numbers."""
    same = type(value) is type(reference)
    if same and isinstance(reference, dict):
        same = set(value) == set(reference)
        if same:
            for key, part in reference.items():
                _require_same_form(value[key], part, key)
    elif same and isinstance(reference, np.ndarray):
        same = value.shape == reference.shape and value.dtype == reference.dtype
    elif same and isinstance(reference, int):
        same = 0 <= value <= _RANDOM_LIMITS[name]
    elif same:
        same = value == reference
    if not same:
        raise ModelFileError(f"the state of a random generator has an invalid {name}")
