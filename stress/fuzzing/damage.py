"""Random changes of bytes, and of values nested in lists and dictionaries."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import numpy as np

#: Bytes that are inserted: numbers, keywords, ends of lines and strings, magic numbers.
PIECES = (
    b"999999999999999999999",
    b"1000000000000",
    b"-1",
    b"0",
    b"2147483648",
    b"9223372036854775807",
    b"nan",
    b"inf",
    b"1e999",
    b"1e308",
    b"-0",
    b"0x10",
    b"1_0",
    b"\x00",
    b"\n",
    b"\r",
    b"\r\n",
    b'"',
    b'""',
    b",",
    b"\t",
    b";",
    b"|",
    b"::",
    b":",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xc3\x28",
    b"\xe2\x80\xa8",
    b"%%MatrixMarket matrix array real symmetric\n",
    b"%",
    b"symmetric",
    b"skew-symmetric",
    b"complex",
    b"pattern",
    b"integer",
    b"array",
    b"coordinate",
    b"PK\x03\x04",
    b"PAR1",
    b"|O8",
    b"<U60000000",
    b"(1000000000000,)",
    b"<f8",
    b"{",
    b"}",
    b"[" * 50,
    b"\x1f\x8b",
    b"BZh91AY&SY",
    "漢é".encode(),
    b" " * 100,
    b"user,item,rating\n",
)

#: Values that replace others in a document.
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31,
    2**63,
    -(2**63) - 1,
    10**30,
    0.5,
    1e308,
    5e-324,
    -0.0,
    "",
    "x",
    "nan",
    "\ud800",
    "a" * 5000,
    [],
    [[]],
    {},
    {"float": "nan"},
    {"float": "inf"},
    {"float": "1e5000"},
    {"tuple": []},
    {"tuple": [1, {"tuple": ["a"]}]},
    {"dict": {}},
    {"decimal": "sNaN"},
    {"decimal": "1E+999999"},
    {"date": "0001-01-01"},
    {"datetime": "9999-12-31T23:59:59+23:59"},
    {"timedelta": "9" * 30},
    {"uuid": "0"},
    {"complex": "nan+infj"},
    {"bytes": "ff"},
    {"loss": "huber", "parameters": {"theta": 0}},
    {"loss": "scad", "parameters": {"theta": {"float": "nan"}}},
    {"loss": "l2", "parameters": {}},
    {"items": ["a"], "dtype": "<U0", "shape": [1]},
    {"items": ["a", 1], "dtype": "|O", "shape": [2, 1]},
    {"items": [], "dtype": "|S9", "shape": [0, 9]},
    {"items": [{"tuple": []}], "dtype": "|O", "shape": [1]},
    {"array": "0", "dtype": "float64"},
    {"scalar": "0", "dtype": "datetime64[D]"},
    {"random": "Generator", "bits": "MT19937", "state": {"dict": {}}},
)


def damaged_bytes(rng: np.random.Generator, content: bytes, other: bytes) -> bytes:
    """One to four changes of a file; ``other`` is a file from which a part may be taken."""
    changed = bytearray(content)
    for _ in range(int(rng.geometric(0.6))):
        _STEPS[int(rng.integers(len(_STEPS)))](rng, changed, other)
    return bytes(changed[:100_000])


def _position(rng: np.random.Generator, content: bytearray) -> int:
    return int(rng.integers(len(content) + 1))


def _length(rng: np.random.Generator) -> int:
    return int(2 ** rng.uniform(0, 7))


def _piece(rng: np.random.Generator) -> bytes:
    return PIECES[int(rng.integers(len(PIECES)))]


def _flip(rng: np.random.Generator, content: bytearray, other: bytes) -> None:
    if content:
        content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))


def _set_byte(rng: np.random.Generator, content: bytearray, other: bytes) -> None:
    if content:
        content[int(rng.integers(len(content)))] = int(rng.integers(256))


def _cut(rng: np.random.Generator, content: bytearray, other: bytes) -> None:
    del content[_position(rng, content) :]


def _remove(rng: np.random.Generator, content: bytearray, other: bytes) -> None:
    first = _position(rng, content)
    del content[first : first + _length(rng)]


def _repeat(rng: np.random.Generator, content: bytearray, other: bytes) -> None:
    first = _position(rng, content)
    content[first:first] = content[first : first + _length(rng)] * int(rng.integers(1, 20))


def _insert(rng: np.random.Generator, content: bytearray, other: bytes) -> None:
    first = _position(rng, content)
    content[first:first] = _piece(rng)


def _overwrite(rng: np.random.Generator, content: bytearray, other: bytes) -> None:
    first = _position(rng, content)
    piece = _piece(rng)
    content[first : first + len(piece)] = piece


def _number(rng: np.random.Generator, content: bytearray, other: bytes) -> None:
    """Replace a number of the text."""
    numbers = list(re.finditer(rb"\d+", content))
    if numbers:
        found = numbers[int(rng.integers(len(numbers)))]
        content[found.start() : found.end()] = _piece(rng)


def _word(rng: np.random.Generator, content: bytearray, other: bytes) -> None:
    """Exchange two words of the text."""
    words = list(re.finditer(rb"[^\s,:;|]+", content))
    if len(words) > 1:
        one, two = (words[int(k)] for k in sorted(rng.choice(len(words), 2, replace=False)))
        first = bytes(content[one.start() : one.end()])
        second = bytes(content[two.start() : two.end()])
        content[two.start() : two.end()] = first
        content[one.start() : one.end()] = second


def _splice(rng: np.random.Generator, content: bytearray, other: bytes) -> None:
    content[_position(rng, content) :] = other[int(rng.integers(len(other) + 1)) :]


_STEPS = (
    _flip,
    _set_byte,
    _cut,
    _remove,
    _repeat,
    _insert,
    _overwrite,
    _number,
    _word,
    _splice,
)


def damaged_value(rng: np.random.Generator, document: Any, other: Any) -> Any:
    """Replace, remove, repeat or rename a part of a nested value; ``document`` is changed."""
    parts = _parts(document)
    container, key = parts[int(rng.integers(len(parts)))]
    how = int(rng.integers(8))
    if how == 0:
        del container[key]
    elif how == 1 and isinstance(container, list):
        container[key:key] = [container[key]] * int(rng.integers(1, 4))
    elif how == 1:
        container[f"{key}_"] = container.pop(key)
    elif how == 2:
        elsewhere, name = parts[int(rng.integers(len(parts)))]
        container[key] = deepcopy(elsewhere[name])
    elif how == 3:
        others = _parts(other)
        from_container, name = others[int(rng.integers(len(others)))]
        container[key] = deepcopy(from_container[name])
    elif how in (4, 5):
        container[key] = _near(rng, container[key])
    else:
        container[key] = deepcopy(VALUES[int(rng.integers(len(VALUES)))])
    return document


def _near(rng: np.random.Generator, value: Any) -> Any:
    """A similar value of the same type, where there is one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + int(rng.integers(-2, 3))
    if isinstance(value, float):
        return float(value * rng.choice([-1.0, 0.0, 1 + 1e-15, 1e300]))
    if isinstance(value, str):
        text = damaged_bytes(rng, value.encode("utf-8", "surrogatepass"), b"")
        return text[:200].decode("utf-8", "replace")
    if isinstance(value, list):
        return value[::-1]
    return value


def _parts(document: Any) -> list[tuple[Any, Any]]:
    """All containers of a nested value with the keys of their parts."""
    found: list[tuple[Any, Any]] = []
    level = [document]
    while level:
        container = level.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            found.append((container, key))
            if isinstance(container[key], (dict, list)) and container[key]:
                level.append(container[key])
    return found


def damaged_array(rng: np.random.Generator, array: Any) -> Any:
    """An array with another value, type, shape or length."""
    how = int(rng.integers(7))
    changed = array.copy()
    if how <= 2 and changed.size:
        position = int(rng.integers(changed.size))
        if changed.dtype.kind == "f":
            values = [np.nan, np.inf, -1.0, 0.0, 1e300, 5e-324, -np.inf]
        else:
            values = [-1, 0, 1, 2, 127, 2**31 - 1, 2**62]
        with np.errstate(all="ignore"):
            changed.flat[position] = np.asarray(values[int(rng.integers(7))]).astype(changed.dtype)
    elif how == 3:
        with np.errstate(all="ignore"):
            names = ["float64", "float32", "int64", "int32", "uint8", "bool", "float16"]
            changed = changed.astype(names[int(rng.integers(7))])
    elif how == 4:
        changed = changed.reshape(-1)
    elif how == 5 and changed.ndim:
        changed = changed[: int(rng.integers(len(changed) + 1))]
    elif changed.ndim:
        changed = np.concatenate([changed, changed[: int(rng.integers(len(changed) + 1))]])
    return np.ascontiguousarray(changed)
