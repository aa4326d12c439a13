"""Entries set aside to see when to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.data.holdout import n_aside
from robustmf.data.observed import Observed

Array = NDArray[np.floating[Any]]

#: Entries looked at in one go.
_SLICE = 1 << 18


@dataclass(frozen=True)
class Holdout:
    """Entries that a fit does not see, and the mean absolute error there: a few wild ones among them do not decide it.

    Predictions are clipped to ``bounds`` first, as the model's will be.
    """

    rows: NDArray[np.int32]
    cols: NDArray[np.int32]
    values: Array
    weights: Array | None
    bounds: tuple[float, float]

    def error(self, U: Array, V: Array) -> float:
        """(Weighted) mean absolute error of UVᵀ."""
        total = 0.0
        for low in range(0, len(self.values), _SLICE):
            part = slice(low, low + _SLICE)
            predicted = np.einsum("tq,tq->t", U[self.rows[part]], V[self.cols[part]])
            error = np.abs(self.values[part] - np.clip(predicted, *self.bounds))
            total += float(
                (error if self.weights is None else error * self.weights[part]).sum(
                    dtype=np.float64
                )
            )
        return total / (
            len(self.values) if self.weights is None else float(self.weights.sum(dtype=np.float64))
        )


def hold_out(
    operations: EntryOperations,
    weights: Array | None,
    choose: Callable[[Observed, Array | None], NDArray[np.bool_]],
    bounds: tuple[float, float],
) -> tuple[EntryOperations, Array | None, Holdout]:
    """Operations on the entries to fit, their weights, and those set aside: the ones that ``choose`` says.

    They are chosen on the host: equal seeds set the same entries aside on every device.
    """
    observed = operations.observed
    aside: Any = operations.array(
        choose(observed.to_host(), None if weights is None else np.asarray(weights))
    )
    rows, places = observed.rows, np.flatnonzero(aside)
    row = np.searchsorted(rows.pointers, places, side="right") - 1
    holdout = Holdout(
        row.astype(np.int32),
        rows.indices[places],
        rows.values[places],
        None if weights is None else weights[places],
        bounds,
    )
    return (
        operations.on(observed.select(~aside)),
        None if weights is None else weights[~aside],
        holdout,
    )


def drawn(
    observed: Observed, weights: Array | None, fraction: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """A random ``fraction``, whatever rows and columns are called; one entry of every row and column stays, and those of weight 0."""
    rows, n_entries = observed.rows, observed.n_entries
    order = rng.permutation(
        np.arange(n_entries, dtype=np.int32 if n_entries <= np.iinfo(np.int32).max else np.int64)
    )
    free = np.ones(n_entries, bool) if weights is None else weights > 0
    for index, size in zip((rows.group_of_entry(), rows.indices), observed.shape, strict=True):
        # the last of each row (column) in random order among those that could be set aside
        stays = np.full(size, -1)
        movable = order[free[order]]
        stays[index[movable]] = movable
        free[stays[stays >= 0]] = False
    aside = np.zeros(n_entries, bool)
    aside[order[free[order]][: n_aside(fraction, n_entries)]] = True
    return aside
