"""Hashes of ids: the same id has the same hash in every process, whatever type it was read as.

Python's own hash of text differs from process to process. Ids that Python holds equal (1, 1.0, True) have one hash here, and so have 7
and "7", which are refused where both meet.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Integers that fit 64 bits as an array, everything else as a list.
Ids = NDArray[np.int64] | list[Any]
Hashes = NDArray[np.uint64]

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_64_BITS = (1 << 64) - 1


def mixed(codes: Hashes) -> Hashes:
    """A permutation of the 64-bit numbers in which neighbours are far apart (splitmix64)."""
    x = codes + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def hashes(ids: Ids) -> Hashes:
    """One hash an id."""
    if isinstance(ids, np.ndarray):
        return mixed(ids.astype(np.uint64))
    return mixed(np.fromiter(map(_code, ids), np.uint64, count=len(ids)))


def compact(ids: Sequence[Hashable]) -> Ids:
    """Ids in the form that is cheapest to keep and to send."""
    if isinstance(ids, np.ndarray):
        return ids
    if {type(key) for key in ids} == {int}:
        try:
            return np.array(ids, np.int64)
        except OverflowError:
            pass
    return list(ids)


def _code(key: Hashable) -> int:
    text = _text(key)
    if _INTEGER.fullmatch(text):
        return int(text) & _64_BITS
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
    )


def _text(key: Any) -> str:
    """Text that equal ids have in common."""
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
    # Python refuses to write out more than 4,300 decimal digits
    return str(number) if number.bit_length() < 10_000 else hex(number)
