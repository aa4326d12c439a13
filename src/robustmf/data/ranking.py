"""Exact rankings of columns: the best ones for a row, and the ones most similar to a column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustmf.data.compressed import Compressed
from robustmf.data.factorization import UNKNOWN

Array = NDArray[np.floating[Any]]

#: Scores computed at once, which bounds the memory.
_SCORES_PER_BLOCK = 1 << 22

#: Pairs (row − low, column) to leave out of the ranking of the rows from low to high.
Excluded = Callable[[int, int], tuple[Any, Any]]


class Ranked(NamedTuple):
    """Columns, best first, and their scores; one row per query.

    Where fewer columns than requested are left, rows end in ``None`` (−1 without ids) and NaN.

    Attributes
    ----------
    items, scores : ndarray
    """

    items: NDArray[Any]
    scores: Array


def top_n(U: Array, V: Array, offsets: Array, n: int, excluded: Excluded | None) -> Ranked:
    """The n largest of u·v_j + offset_j for each row u of U; ties go to the first column."""
    most = min(n, len(V))
    indices = np.full((len(U), n), UNKNOWN, np.intp)
    scores = np.full((len(U), n), np.nan, U.dtype)
    size = max(1, _SCORES_PER_BLOCK // len(V))
    for low in range(0, len(U), size):
        block = U[low : low + size] @ V.T + offsets
        if excluded is not None:
            block[excluded(low, low + len(block))] = -np.inf
        for k, (row, best) in enumerate(zip(block, _largest(block, most), strict=True), start=low):
            best = best[np.lexsort((best, -row[best]))]
            kept = best[row[best] > -np.inf]
            indices[k, : len(kept)] = kept
            scores[k, : len(kept)] = row[kept]
    return Ranked(indices, scores)


def _largest(block: Array, n: int) -> list[NDArray[np.intp]]:
    """The indices of the n largest scores of each row; ties at the end go to the first."""
    if n == block.shape[1]:
        return [np.arange(n)] * len(block)
    position = block.shape[1] - n
    chosen = np.argpartition(block, position, axis=1)[:, position:]
    smallest = np.take_along_axis(block, chosen, axis=1).min(axis=1)
    tied = (block == smallest[:, None]).sum(axis=1) > 1
    return [
        _break_tie(row, best, bar) if tie else best
        for row, best, bar, tie in zip(block, chosen, smallest, tied, strict=True)
    ]


def _break_tie(row: Array, best: NDArray[np.intp], bar: Any) -> NDArray[np.intp]:
    at_bar = np.flatnonzero(row == bar)[: int((row[best] == bar).sum())]
    return np.concatenate([best[row[best] > bar], at_bar])


def observed_pairs(rows: Compressed, users: NDArray[np.integer[Any]]) -> Excluded:
    """The observed entries of ``users`` (row indices), to exclude them from :func:`top_n`."""
    counts = np.where(users == UNKNOWN, 0, rows.counts[users])

    def pairs(low: int, high: int) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
        columns = [
            rows.indices[rows.pointers[i] : rows.pointers[i + 1]]
            for i in users[low:high]
            if i != UNKNOWN
        ]
        of_query = np.repeat(np.arange(high - low), counts[low:high])
        return of_query, np.concatenate([np.empty(0, np.int32), *columns])

    return pairs


def similar_columns(U: Array, V: Array, items: NDArray[np.integer[Any]], n: int) -> Ranked:
    """The columns whose predictions over all rows have the largest cosine with those of each item.

    The predictions of column j are U v_j, so the cosine is v_iᵀG v_j/(‖U v_i‖‖U v_j‖) with
    G = UᵀU, whatever the basis of the factors. The item itself is excluded; columns whose
    predictions are all zero have cosine 0.
    """
    # In float64, and scaled by the largest element, so that nothing overflows.
    scaled_U = U.astype(np.float64) / (float(np.abs(U).max()) or 1.0)
    scaled_V = V.astype(np.float64) / (float(np.abs(V).max()) or 1.0)
    basis = np.asarray(np.linalg.qr(scaled_U, mode="r"))
    directions = scaled_V @ basis.T
    norms = np.linalg.norm(directions, axis=1)[:, None]
    directions = np.divide(directions, norms, out=np.zeros_like(directions), where=norms > 0)

    def itself(low: int, high: int) -> tuple[NDArray[np.intp], NDArray[np.integer[Any]]]:
        return np.arange(high - low), items[low:high]

    found = top_n(directions[items], directions, np.zeros(len(V)), n, itself)
    return Ranked(found.items, np.clip(found.scores, -1, 1))
