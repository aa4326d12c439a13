"""Factors for new rows, the columns held: robust regression row by row, with the model's own loss."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.data.factorization import Factorization
from robustmf.data.observed import Observed
from robustmf.losses import L1, L2, Loss, smoothed

Array = NDArray[np.floating[Any]]

#: Sweeps of least squares, of the convex l1 loss, and of the loss itself.
_SWEEPS = (1, 8, 12)

#: Width of the rounded tip of a kinked loss, in units of the typical value.
_ROUNDING = 1e-3

#: Parts that a row's entries are left out in.
_FIFTHS = 5


def fold_in(
    operations: EntryOperations,
    loss: Loss,
    reg: float | Array,
    V: Array,
    shifts: Array | None = None,
    weights: Array | None = None,
    typical: float | None = None,
) -> Array:
    """U minimising the objective with V held (and a shift for each column), by reweighted least squares.

    The rows start from l1 regression, which is convex; so a row's bad entries are already known when a loss that can be
    fooled by its start takes over.

    Parameters
    ----------
    weights : array over the entries, optional
        What each entry's loss is multiplied by.
    typical : float, optional
        Size of a typical value; by default that of these rows. With one for all calls, a row's answer does not depend on the
        rows it comes with.
    """
    observed = operations.observed
    if typical is None:
        typical = float(np.median(np.abs(observed.rows.values)))
    tip = _ROUNDING * (typical or 1.0)
    U = operations.array(np.zeros((observed.shape[0], V.shape[1]), V.dtype))
    for stage, sweeps in zip(
        (L2(), smoothed(L1(), tip), smoothed(loss, tip)), _SWEEPS, strict=True
    ):
        for _ in range(sweeps):
            operations.half_step(stage, reg, U, V, weights, shifts)
    return U


@dataclass(frozen=True)
class Columns:
    """The columns of a fitted model, for rows it has not seen. With ``shifts`` (one a column) the rows have a bias, as last factor.

    The ridge on it is λ/``bias_unit``².
    """

    V: Array
    loss: Loss
    reg: float
    reg_by_count: bool
    shifts: Array | None
    typical: float
    bias_unit: float

    def _design(self, dtype: np.dtype[Any]) -> tuple[Array, Array | None]:
        V = self.V.astype(dtype, copy=False)
        if self.shifts is None:
            return V, None
        return np.hstack([V, np.ones((len(V), 1), dtype)]), self.shifts.astype(dtype)

    def _placed_design(self, operations: EntryOperations) -> tuple[Array, Array | None]:
        V, shifts = self._design(operations.observed.dtype)
        return operations.array(V), None if shifts is None else operations.array(shifts)

    def fold_in(self, operations: EntryOperations, weights: Array | None = None) -> Array:
        """Factors of the rows; zeros for a row without an entry (of weight > 0), which leaves it the shifts."""
        observed = operations.observed
        V, shifts = self._placed_design(operations)
        counts = observed.rows.counts if weights is None else _counts(observed, weights)
        reg = self.reg * np.maximum(counts, 1).astype(np.float64) if self.reg_by_count else self.reg
        if shifts is None:
            return fold_in(operations, self.loss, reg, V, shifts, weights, self.typical)
        unit = V.dtype.type(self.bias_unit)
        V[:, -1] = unit
        T = fold_in(operations, self.loss, reg, V, shifts, weights, self.typical)
        T[:, -1] = T[:, -1] * unit
        return T

    def predict(self, T: Array) -> Array:
        """The rows that factors predict, dense."""
        V, shifts = self._design(T.dtype)
        return np.asarray(T @ V.T if shifts is None else T @ V.T + shifts)

    def left_out(self, operations: EntryOperations) -> Array:
        """A prediction for every entry, by its row's other entries alone: each row is folded in five times, a fifth of it left out.

        Which fifth an entry belongs to follows from its place within the row, so a row's answer depends on nothing but the row.
        """
        observed = operations.observed
        rows, (V, shifts) = observed.rows, self._placed_design(operations)
        i, j = rows.group_of_entry(), rows.indices
        fifth = (operations.array(np.arange(observed.n_entries)) - rows.pointers[i]) % _FIFTHS
        predicted = np.zeros_like(rows.values) if shifts is None else shifts[j]
        for k in range(_FIFTHS):
            out = fifth == k
            T = self.fold_in(operations, (~out).astype(observed.dtype))
            predicted[out] += np.einsum("tq,tq->t", T[i[out]], V[j[out]])
        return predicted


def _counts(observed: Observed, weights: Array) -> NDArray[np.intp]:
    return np.bincount(observed.rows.group_of_entry()[weights > 0], minlength=observed.shape[0])


def extend(
    operations: EntryOperations, weights: Array | None, columns: Columns, known: Factorization
) -> Factorization:
    """A fit's factors for a larger matrix: new rows folded into the columns, then new columns into all rows.

    ``columns`` has loss, λ and the rest of the fit; the rows and columns known keep their factors.
    """
    by_row = weights
    by_column = None if weights is None else weights[operations.observed.column_order]
    U, b, V, c = map(
        operations.array,
        (
            known.row_factors,
            known.row_bias[:, None],
            known.column_factors,
            known.column_bias[:, None],
        ),
    )
    for side, side_weights in ((operations, by_row), (operations.transposed, by_column)):
        m, n = side.observed.shape
        other = replace(
            columns,
            V=_padded(V, n),
            shifts=None
            if columns.shifts is None
            else _padded(c, n)[:, 0] + c.dtype.type(known.center),
        )
        if m > len(U):
            T = other.fold_in(*_later_rows(side, side_weights, len(U)))
            biases = T[:, U.shape[1] :] if columns.shifts is not None else np.zeros_like(T[:, :1])
            U, b = np.concatenate([U, T[:, : U.shape[1]]]), np.concatenate([b, biases])
        U, b, V, c = V, c, U, b
    return Factorization(U, V, known.center, b[:, 0], c[:, 0])


def _padded(A: Array, length: int) -> Array:
    return np.concatenate([A, np.zeros((length - len(A), A.shape[1]), A.dtype)])


def _later_rows(
    operations: EntryOperations, weights: Array | None, first: int
) -> tuple[EntryOperations, Array | None]:
    """The rows from number ``first`` on."""
    later = operations.observed.later_rows(first)
    return operations.on(later), None if weights is None else weights[
        len(weights) - later.n_entries :
    ]
