"""The best columns for a row and the columns like a column: exact, and never more than a block of scores at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustmf.data.observed import Compressed

Array = NDArray[np.floating[Any]]

#: Scores held at once.
_BLOCK = 1 << 22


class Ranked(NamedTuple):
    """Columns, best first, and the score of each; one line a question.

    Where fewer columns than asked for are left, lines end in ``None`` (−1 without ids) and NaN.
    """

    items: NDArray[Any]
    scores: Array


def top_n(
    U: Array,
    V: Array,
    shifts: Array,
    n: int,
    left_out: Callable[[int, int], tuple[Any, Any]] | None,
) -> Ranked:
    """The n largest of u·v_j + shift_j for each row u of U; of equal ones the first column.

    ``left_out(low, high)`` names pairs (row − low, column) that do not take part, for rows low to high.
    """
    most = min(n, len(V))
    numbers = np.full((len(U), n), -1, np.intp)
    scores = np.full((len(U), n), np.nan, U.dtype)
    size = max(1, _BLOCK // len(V))
    for low in range(0, len(U), size):
        block = U[low : low + size] @ V.T + shifts
        if left_out is not None:
            block[left_out(low, low + len(block))] = -np.inf
        for k, (line, best) in enumerate(zip(block, _largest(block, most), strict=True), start=low):
            best = best[np.lexsort((best, -line[best]))]
            kept = best[line[best] > -np.inf]
            numbers[k, : len(kept)], scores[k, : len(kept)] = kept, line[kept]
    return Ranked(numbers, scores)


def _largest(block: Array, n: int) -> list[NDArray[np.intp]]:
    """For each line the n largest (more where several share the last place, and the first of these are not settled yet)."""
    if n == block.shape[1]:
        return [np.arange(n)] * len(block)
    place = block.shape[1] - n
    chosen = np.argpartition(block, place, axis=1)[:, place:]
    last = np.take_along_axis(block, chosen, axis=1).min(axis=1)
    tied = (block == last[:, None]).sum(axis=1) > 1
    return [
        np.concatenate(
            [best[line[best] > bar], np.flatnonzero(line == bar)[: int((line[best] == bar).sum())]]
        )
        if tie
        else best
        for line, best, bar, tie in zip(block, chosen, last, tied, strict=True)
    ]


def seen_pairs(
    rows: Compressed, users: NDArray[np.integer[Any]]
) -> Callable[[int, int], tuple[NDArray[np.intp], NDArray[np.int32]]]:
    """What ``users`` have entries for, in the form that :func:`top_n` leaves out; unknown users (−1) have none."""
    counts = np.where(users < 0, 0, rows.counts[users])

    def pairs(low: int, high: int) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
        columns = [
            rows.indices[rows.pointers[i] : rows.pointers[i + 1]] for i in users[low:high] if i >= 0
        ]
        return np.repeat(np.arange(high - low), counts[low:high]), np.concatenate(
            [np.empty(0, np.int32), *columns]
        )

    return pairs


def similar(U: Array, V: Array, items: NDArray[np.integer[Any]], n: int) -> Ranked:
    """The columns whose predictions over all rows have the largest cosine with those of each item, the item itself left out.

    The predictions of column j are U v_j, so the cosine is v_iᵀG v_j/(‖U v_i‖‖U v_j‖) with G = UᵀU: it does not change with the
    coordinates of the factors. Columns that predict nothing but zeros are like no other.
    """
    # in float64, and in the unit of the largest, so that nothing overflows
    basis = np.asarray(
        np.linalg.qr(U.astype(np.float64) / (float(np.abs(U).max()) or 1.0), mode="r")
    )
    directions = V.astype(np.float64) / (float(np.abs(V).max()) or 1.0) @ basis.T
    lengths = np.linalg.norm(directions, axis=1)
    directions = np.divide(
        directions, lengths[:, None], out=np.zeros_like(directions), where=lengths[:, None] > 0
    )

    def left_out(low: int, high: int) -> tuple[NDArray[np.intp], NDArray[np.integer[Any]]]:
        return np.arange(high - low), items[low:high]

    found = top_n(directions[items], directions, np.zeros(len(V)), n, left_out)
    return Ranked(found.items, np.clip(found.scores, -1, 1))
