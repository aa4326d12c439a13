"""Medians of numbers that lie in parts on many workers: exact, from a few rounds of counts, and no task has all of them.

Numbers are looked at as unsigned integers in the same order, 16 bits at a time: how many begin with each of the 65,536 digits says in
which the one looked for lies. When few are left that begin as it does, these are put in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.dask.connection import Connection
from robustmf.initialization.scales import Held

Keys = NDArray[np.unsignedinteger[Any]]

#: Which numbers there are, and how many of each.
Histogram = tuple[NDArray[Any], NDArray[np.int64]]

_DIGIT = 16

#: So many numbers are few enough to be put in order by one task, if they are no more than half of all.
_FEW = 1 << 12


def added(parts: Sequence[Histogram]) -> Histogram:
    """All of them together."""
    numbers, place = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    times = np.zeros(len(numbers), np.int64)
    np.add.at(times, place, np.concatenate([part[1] for part in parts]))
    return numbers, times


def of_ranks(
    connection: Connection,
    parts: Sequence[Any],
    dtype: np.dtype[Any],
    ranks: Callable[[int], Sequence[int]],
) -> NDArray[Any]:
    """The numbers of these ranks (0 is the smallest) among those of all parts, futures of arrays; ``ranks`` is told how many there are."""
    submit, bits = connection.submit, 8 * dtype.itemsize
    sought: list[tuple[int, int]] = []
    few = 0
    for depth in range(_DIGIT, bits + 1, _DIGIT):
        begun = sorted({prefix for prefix, _ in sought})
        counted = [submit(_counted, part, begun, bits - depth) for part in parts]
        numbers, times = connection.gather(submit(added, counted))
        if not sought:
            few = min(_FEW, int(times.sum()) // 2)
            sought = [(0, rank) for rank in ranks(int(times.sum()))]
        sought = [_narrowed(prefix, rank, numbers, times) for prefix, rank in sought]
        left = {
            prefix: int(times[np.searchsorted(numbers, np.uint64(prefix))]) for prefix, _ in sought
        }
        if sum(left.values()) <= few and depth < bits:
            starting = [submit(_starting, part, sorted(left), bits - depth) for part in parts]
            return _numbers(
                connection.gather(submit(_picked, starting, sought, bits - depth)), dtype
            )
    return _numbers(np.array([prefix for prefix, _ in sought], f"u{dtype.itemsize}"), dtype)


def _keys(numbers: NDArray[Any]) -> Keys:
    """Unsigned integers in the order of the numbers."""
    if numbers.dtype.kind == "u":
        return numbers
    bits = numbers.view(f"u{numbers.itemsize}")
    sign = bits.dtype.type(1 << (8 * numbers.itemsize - 1))
    return np.where(bits & sign, ~bits, bits | sign)


def _numbers(keys: Keys, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The numbers that these are the keys of."""
    if dtype.kind == "u":
        return keys
    sign = keys.dtype.type(1 << (8 * dtype.itemsize - 1))
    return np.where(keys & sign, keys ^ sign, ~keys).view(dtype)


def _counted(numbers: NDArray[Any], begun: Sequence[int], shift: int) -> Histogram:
    """How many of the numbers have which digits before the last ``shift`` bits, of those that begin with one of ``begun`` (empty: all)."""
    keys, found = _keys(numbers), []
    for prefix in begun or [0]:
        chosen = keys[_begins(keys, prefix, shift + _DIGIT)] if begun else keys
        digits = ((chosen >> keys.dtype.type(shift)) & keys.dtype.type((1 << _DIGIT) - 1)).astype(
            np.int64
        )
        counts = np.bincount(digits)
        present = np.flatnonzero(counts)
        found.append(((prefix << _DIGIT) + present.astype(np.uint64), counts[present]))
    return np.concatenate([one[0] for one in found]), np.concatenate([one[1] for one in found])


def _begins(keys: Keys, prefix: int, shift: int) -> NDArray[np.bool_]:
    return keys >> keys.dtype.type(shift) == keys.dtype.type(prefix)


def _narrowed(
    prefix: int, rank: int, numbers: NDArray[Any], times: NDArray[np.int64]
) -> tuple[int, int]:
    """The longer prefix in which the one of this rank lies, and its rank there."""
    first = prefix << _DIGIT
    low = int(np.searchsorted(numbers, np.uint64(first)))
    high = int(np.searchsorted(numbers, np.uint64(first + (1 << _DIGIT) - 1), side="right"))
    before = np.concatenate(([0], np.cumsum(times[low:high])))
    place = int(np.searchsorted(before, rank, side="right")) - 1
    return int(numbers[low + place]), rank - int(before[place])


def _starting(numbers: NDArray[Any], begun: Sequence[int], shift: int) -> Keys:
    """The keys that begin with one of these."""
    keys = _keys(numbers)
    return keys[np.any([_begins(keys, prefix, shift) for prefix in begun], axis=0)]


def _picked(parts: Sequence[Keys], sought: Sequence[tuple[int, int]], shift: int) -> Keys:
    """Of each prefix the key of this rank."""
    keys = np.sort(np.concatenate(parts))
    firsts = [int(np.searchsorted(keys, keys.dtype.type(prefix << shift))) for prefix, _ in sought]
    return keys[[first + rank for first, (_, rank) in zip(firsts, sought, strict=True)]]


@dataclass(frozen=True)
class Scattered:
    """Numbers in parts on workers, futures of arrays of this precision, measured as :class:`~robustmf.initialization.scales.Held` are."""

    connection: Connection
    parts: Sequence[Any]
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return self._count

    @cached_property
    def _count(self) -> int:
        return sum(
            self.connection.gather([self.connection.submit(len, part) for part in self.parts])
        )

    def median(self) -> float:
        """The middle one, or the mean of the two in the middle."""
        return Held(of_ranks(self.connection, self.parts, self.dtype, _middle)).median()

    def mean(self) -> float:
        """Their mean."""
        sums = self.connection.gather([self.connection.submit(_sum, part) for part in self.parts])
        return sum(sums) / len(self)

    def distances(self, middle: float) -> Scattered:
        """|x − middle|."""
        return self._each(_distances, middle)

    def within(self, middle: float, most: float) -> Scattered:
        """Those no further from ``middle`` than ``most``."""
        return self._each(_within, middle, most)

    def _each(self, function: Callable[..., Any], *arguments: float) -> Scattered:
        return Scattered(
            self.connection,
            [self.connection.submit(function, part, *arguments) for part in self.parts],
            self.dtype,
        )


def _middle(n: int) -> list[int]:
    return sorted({(n - 1) // 2, n // 2})


def _sum(part: NDArray[Any]) -> float:
    return float(part.sum(dtype=np.float64))


def _distances(part: NDArray[Any], middle: float) -> NDArray[Any]:
    return Held(part).distances(middle).array


def _within(part: NDArray[Any], middle: float, most: float) -> NDArray[Any]:
    return Held(part).within(middle, most).array
