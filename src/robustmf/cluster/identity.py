"""Ids in many places at once: the same id has the same hash in every process, whatever type it was read as.

Python's own hash of text differs from process to process. Ids that Python holds equal (1, 1.0, True) have one hash here, and so have 7
and "7": they meet in one block, where they are refused as the one id of mixed types that they are.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.ids import number_ids

#: Integers that fit 64 bits as an array, everything else as a list.
Ids = NDArray[np.int64] | list[Any]
Hashes = NDArray[np.uint64]

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_ID_BYTES = 80  # of an id as an object, and its place in a list
_64_BITS = (1 << 64) - 1


def bytes_of(*parts: Any) -> int:
    """Bytes of arrays and of lists of ids, about."""
    return sum(part.nbytes if isinstance(part, np.ndarray) else _ID_BYTES * len(part) for part in parts if part is not None)


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


def merged_ids(parts: Sequence[Ids], role: str) -> tuple[NDArray[np.integer[Any]], Ids]:
    """The ids of all parts, each once and in order; and the number of each of theirs, part after part."""
    if all(isinstance(part, np.ndarray) for part in parts):
        unique, numbers = np.unique(np.concatenate([np.empty(0, np.int64), *parts]), return_inverse=True)
        return numbers, unique
    every = list(chain.from_iterable(map(listed, parts)))
    of_every, ids = number_ids(every, role)
    return of_every, compact(ids)


def taken(ids: Ids, places: NDArray[Any]) -> Ids:
    """Some of the ids."""
    return ids[places] if isinstance(ids, np.ndarray) else [ids[k] for k in places.tolist()]


def positions(known: Ids, asked: Ids) -> NDArray[np.int32]:
    """Where each id asked for stands among the known ones; all of them do."""
    if isinstance(known, np.ndarray) and isinstance(asked, np.ndarray):
        return np.searchsorted(known, asked).astype(np.int32)
    place = {key: k for k, key in enumerate(listed(known))}
    return np.fromiter((place[key] for key in listed(asked)), np.int32, count=len(asked))


def listed(ids: Ids) -> list[Any]:
    """The ids as Python has them."""
    return ids.tolist() if isinstance(ids, np.ndarray) else ids


def _code(key: Hashable) -> int:
    text = _text(key)
    if _INTEGER.fullmatch(text):
        return int(text) & _64_BITS
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _text(key: Any) -> str:
    """Text that equal ids have in common."""
    if isinstance(key, tuple):
        return f"({','.join(map(_text, key))})"
    if isinstance(key, datetime) and key.tzinfo is not None:
        return key.astimezone(UTC).isoformat()
    if isinstance(key, (bool, int, float, Decimal, np.number, np.bool_)):
        number = float(key)
        if number.is_integer():
            return str(int(key))
        return repr(number)
    return str(key)
