"""Entries of a block that are set aside to see when to stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.observed import Compressed

Array = NDArray[np.floating[Any]]

#: Entries looked at in one go.
_SLICE = 1 << 18


@dataclass(frozen=True)
class Aside:
    """Entries that the fit does not see: rows of their block, places in its sections, values, weights."""

    rows: NDArray[np.int32]
    places: NDArray[np.int32]
    values: Array
    weights: Array | None

    def error_sums(
        self, own: Array, other: Array, bounds: tuple[float, float]
    ) -> tuple[float, float]:
        """Σ s|error| and Σ s of the predictions own·other, clipped to ``bounds``."""
        total = 0.0
        for low in range(0, len(self.values), _SLICE):
            part = slice(low, low + _SLICE)
            predicted = np.einsum("tq,tq->t", own[self.rows[part]], other[self.places[part]])
            error = np.abs(self.values[part] - np.clip(predicted, *bounds))
            total += float(
                (error if self.weights is None else error * self.weights[part]).sum(
                    dtype=np.float64
                )
            )
        return total, float(
            len(self.values) if self.weights is None else self.weights.sum(dtype=np.float64)
        )


def split_off(
    entries: Compressed, weights: Array | None, mask: NDArray[np.bool_]
) -> tuple[Compressed, Array | None, Aside]:
    """The entries without those of the mask, and these."""
    pointers = np.concatenate(([0], np.cumsum(~mask)))[entries.pointers].astype(np.int64)
    aside = Aside(
        entries.group_of_entry()[mask],
        entries.indices[mask],
        entries.values[mask],
        None if weights is None else weights[mask],
    )
    left = Compressed(pointers, entries.indices[~mask], entries.values[~mask])
    return left, None if weights is None else weights[~mask], aside
