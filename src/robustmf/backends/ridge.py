"""The ridge of every factor of every row, and its penalty."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.observed import Observed
from robustmf.exceptions import CheckpointError
from robustmf.kernels.reductions import squared_norm

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Ridge:
    """The ridge of factor k of row i: ``first[i]·factors[0, k] + second[i]·factors[1, k]``.

    Attributes
    ----------
    first, second : array of shape (m,), or (1,) for the same ridge in all rows
        Where the entries are.
    factors : array of shape (2, r)
        On the host.
    """

    first: Any
    second: Any
    factors: Array


def as_ridge(reg: float | Array | Ridge, rank: int) -> Ridge:
    """A ridge that is the same for all factors, one number or one per row, as :class:`Ridge`."""
    if isinstance(reg, Ridge):
        return reg
    first = np.array([reg]) if isinstance(reg, float) else reg
    return Ridge(first, np.zeros_like(first), np.array([np.ones(rank), np.zeros(rank)]))


@dataclass(frozen=True)
class FactorRidge:
    """A rule for the ridge of one side.

    Factor k of row i has ``rowᵢ·constantₖ + nᵢ·sharedᵢ·by_countₖ``. The constant part is a prior on
    the factors, the noise variance over the variance of the factor; the part that grows with the
    number of entries nᵢ is the uncertainty of the other side's factors, which rows share unequally.
    See docs/design/initialization.md.

    Attributes
    ----------
    constant, by_count : array of shape (r,)
    rows : array of shape (m,), or None
        Multiplies the constant part; 1 if None.
    shared : array of shape (m,), or None
        Multiplies the part that grows with the number of entries; 1 if None.
    """

    constant: Array
    by_count: Array
    rows: Array | None = None
    shared: Array | None = None

    def require_shape(self, n_rows: int, rank: int) -> None:
        """Refuse a rule that is not for this many rows and factors, or not positive."""
        parts = [(self.constant, rank), (self.by_count, rank)]
        parts += [(own, n_rows) for own in (self.rows, self.shared) if own is not None]
        for values, size in parts:
            if values.shape != (size,) or not ((values >= 0) & np.isfinite(values)).all():
                raise CheckpointError("its ridges must be a number per factor, and per row")

    @property
    def common(self) -> FactorRidge:
        """The rule without what differs between rows."""
        return replace(self, rows=None, shared=None)

    def of_new_row(self) -> Array:
        """The constant part of a typical row, and the part that grows with its entries."""
        rows, shared = (1.0 if own is None else np.median(own) for own in (self.rows, self.shared))
        return np.array([rows * self.constant, shared * self.by_count])

    def padded(self, rank: int) -> FactorRidge:
        """With the ridge of the weakest factor for those up to ``rank``."""
        missing = rank - len(self.constant)
        if missing == 0:
            return self
        if missing == rank:  # factors that are zero, with any ridge
            return replace(self, constant=np.ones(rank), by_count=np.zeros(rank))
        return replace(
            self,
            constant=np.pad(self.constant, (0, missing), mode="maximum"),
            by_count=np.pad(self.by_count, (0, missing), mode="maximum"),
        )

    def with_bias(self, reg: float) -> FactorRidge:
        """For augmented factors, whose last column is a bias with ridge ``reg``."""
        constant = np.append(self.constant, reg)
        return replace(self, constant=constant, by_count=np.append(self.by_count, 0.0))

    def on(self, observed: Observed, sample_weights: Any = None) -> Ridge:
        """The ridge of the rows of a matrix; entries count with their weights."""
        rows = observed.rows
        counts = rows.counts.astype(observed.dtype)
        if sample_weights is not None:
            counts = np.bincount(rows.group_of_entry(), sample_weights, minlength=len(counts))
        first = np.ones_like(counts)
        if self.rows is not None:
            first = first * self.rows
        if self.shared is not None:
            counts = counts * self.shared
        return Ridge(first, counts, np.array([self.constant, self.by_count]))


#: The rules of rows and columns.
Ridges = tuple[FactorRidge, FactorRidge]


def ridge(
    reg: float | FactorRidge, by_count: bool, observed: Observed, sample_weights: Any = None
) -> float | Array | Ridge:
    """The ridge of every row: λ, or λ times the number of entries of each row, or by a rule."""
    if isinstance(reg, FactorRidge):
        return reg.on(observed, sample_weights)
    return reg * observed.rows.counts.astype(observed.dtype) if by_count else reg


def penalty(reg: float | Array | Ridge, A: Array) -> float:
    """Half the sum of ridge times square over the elements of A."""
    if isinstance(reg, float):
        return 0.5 * reg * squared_norm(A)
    if not isinstance(reg, Ridge):
        return 0.5 * float((reg * np.einsum("ij,ij->i", A, A, dtype=np.float64)).sum())
    total = 0.0
    for rows, factors in zip((reg.first, reg.second), reg.factors, strict=True):
        sums = np.einsum("ij,ij->i", A * factors.astype(A.dtype), A, dtype=np.float64)
        total += float((rows * sums).sum())
    return 0.5 * total
