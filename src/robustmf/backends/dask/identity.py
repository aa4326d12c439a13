"""Ids in many places at once: parts of them merged, looked up, and measured."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.hashing import Ids, compact
from robustmf.data.ids import number_ids

_ID_BYTES = 80  # of an id as an object, and its place in a list


def bytes_of(*parts: Any) -> int:
    """Bytes of arrays and of lists of ids, about."""
    return sum(
        part.nbytes if isinstance(part, np.ndarray) else _ID_BYTES * len(part)
        for part in parts
        if part is not None
    )


def merged_ids(parts: Sequence[Ids], role: str) -> tuple[NDArray[np.integer[Any]], Ids]:
    """The ids of all parts, each once and in order; and the number of each of theirs, part after part."""
    if all(isinstance(part, np.ndarray) for part in parts):
        unique, numbers = np.unique(
            np.concatenate([np.empty(0, np.int64), *parts]), return_inverse=True
        )
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
