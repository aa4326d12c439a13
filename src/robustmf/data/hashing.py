"""Hashes of ids that are the same in every process.

Python's hash of a string differs between processes. Ids that are equal in Python (1, 1.0, True)
have the same hash. So have 7 and "7", which cannot both be ids of one side.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.ids import Ids

Hashes = NDArray[np.uint64]

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_64_BITS = (1 << 64) - 1


def mix(codes: Hashes) -> Hashes:
    """The finalizer of splitmix64: a permutation of the 64-bit integers without structure."""
    x = codes + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def hash_ids(ids: Ids) -> Hashes:
    """One hash per id."""
    if isinstance(ids, np.ndarray):
        return mix(ids.astype(np.uint64))
    return mix(np.fromiter(map(_code, ids), np.uint64, count=len(ids)))


def _code(key: Hashable) -> int:
    """An integer as it is, the text of any other id through BLAKE2."""
    text = _text(key)
    if _INTEGER.fullmatch(text):
        return int(text) & _64_BITS
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
    )


def _text(key: Any) -> str:
    """A text that is the same for equal ids."""
    if isinstance(key, tuple):
        return f"({','.join(map(_text, key))})"
    if isinstance(key, datetime) and key.tzinfo is not None:
        return key.astimezone(UTC).isoformat()
    if isinstance(key, (bool, int, np.integer, np.bool_)):
        return _digits(int(key))
    if isinstance(key, (float, Decimal, np.number)):
        number = float(key)
        return _digits(int(key)) if number.is_integer() else repr(number)
    return str(key)


def _digits(number: int) -> str:
    # Python does not convert integers of more than 4,300 decimal digits to text
    return str(number) if number.bit_length() < 10_000 else hex(number)
