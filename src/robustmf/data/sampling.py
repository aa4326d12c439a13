"""Evenly spaced samples of indices, values, rows and entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from robustmf.data.compressed import Compressed

if TYPE_CHECKING:
    from robustmf.data.observed import Observed


def evenly_spaced(n: int, at_most: int) -> NDArray[np.int64]:
    """All of the indices 0, …, n − 1, or ``at_most`` of them, evenly spaced."""
    if n <= at_most:
        return np.arange(n)
    return np.linspace(0, n - 1, at_most).astype(np.int64)


def strided(values: Any, about: int) -> Any:
    """Every k-th of the values: all, or from ``about`` to twice as many.

    A view of an array, in host memory or on a GPU, where indices would need a copy.
    """
    return values[:: max(1, len(values) // about)]


def strided_rows(observed: Observed, every: int) -> tuple[Observed, Any]:
    """Every k-th row with all its entries, and the mask of these entries.

    The memory is that of the entries, on the host or on a GPU.
    """
    rows = observed.rows
    counts = rows.counts
    # not arange, which would be in the memory of the host wherever the entries are
    kept = np.repeat((np.cumsum(np.ones_like(counts)) - 1) % every == 0, counts)
    pointers = np.concatenate(([0], np.cumsum(counts[::every])))
    part = type(observed)(
        Compressed(pointers, rows.indices[kept], rows.values[kept]),
        (len(pointers) - 1, observed.shape[1]),
    )
    return part, kept


@dataclass(frozen=True)
class EntrySample:
    """Some entries in host memory, and how many there are of each row and column.

    Attributes
    ----------
    i, j, values : array
        Indices and values of the entries of the sample.
    row_counts, column_counts : array of int
        The number of all entries of each row and column.
    reliability : array or None, default=None
        The factor of the loss of each entry of the sample in the fit; None where all are 1.
    """

    i: NDArray[Any]
    j: NDArray[Any]
    values: NDArray[Any]
    row_counts: NDArray[np.int64]
    column_counts: NDArray[np.int64]
    reliability: NDArray[Any] | None = None

    @classmethod
    def from_kept(cls, kept: Mapping[str, Any], at_most: int) -> Self:
        """Of the sample that a model keeps of entries which stayed on a cluster."""
        chosen = evenly_spaced(len(kept["values"]), at_most)
        i, j, values = (kept[name][chosen] for name in ("rows", "columns", "values"))
        return cls(i, j, values, kept["row_counts"], kept["column_counts"])

    def selected(self, chosen: NDArray[Any]) -> Self:
        """Some of the entries of the sample."""
        own = (self.i[chosen], self.j[chosen], self.values[chosen])
        reliability = None if self.reliability is None else self.reliability[chosen]
        return type(self)(*own, self.row_counts, self.column_counts, reliability)

    @property
    def influence(self) -> NDArray[np.float64]:
        """The influence of each entry on the fit, from 0 (that of a held-out entry) to 1."""
        if self.reliability is None:
            return np.ones(len(self.values))
        return self.reliability.astype(np.float64)
