"""Factors for new rows with the columns held fixed: robust regression row by row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.backends.cpu.blas import one_blas_thread
from robustmf.backends.ridge import FactorRidge, Ridge
from robustmf.data.factorization import Factorization
from robustmf.data.observed import Observed
from robustmf.data.statistics import MAD_TO_SIGMA
from robustmf.losses import L1, L2, Loss, smoothed

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class FoldInOptions:
    """Constants of fold-in.

    Attributes
    ----------
    sweeps : (int, int, int)
        Sweeps of least squares, of the convex l1 loss, and of the loss itself.
    smoothing : float
        The smoothing width of a nonsmooth loss, in units of a typical value.
    n_folds : int
        The number of parts of a row's entries that are left out in turn.
    log_variance : float
        The variance of the logarithm of a scale that is estimated from the median of one absolute
        residual; that from n of them is an n-th.
    truncated_at, truncations : float, int
        Residuals larger than ``truncated_at`` scales are left out of that median, and the scale is
        estimated again, ``truncations`` times.
    """

    sweeps: tuple[int, int, int] = (1, 8, 12)
    smoothing: float = 1e-3
    n_folds: int = 5
    log_variance: float = 1.36
    truncated_at: float = 4.0
    truncations: int = 3


OPTIONS = FoldInOptions()


def fold_in(
    operations: EntryOperations,
    loss: Loss,
    reg: float | Array | Ridge,
    V: Array,
    shifts: Array | None = None,
    weights: Array | None = None,
    typical: float | None = None,
    sweeps: tuple[int, int, int] = OPTIONS.sweeps,
    nonnegative: bool = False,
) -> Array:
    """U that minimizes the objective with V held fixed, by reweighted least squares.

    The rows start from l1 regression, which is convex: their outliers are known before a loss takes
    over whose result depends on the initial point.

    Parameters
    ----------
    operations : EntryOperations
        On the entries of the rows.
    loss : Loss
    reg : float, array of shape (m,), or Ridge
        The ridge: one for all rows, one per row, or one per factor of each row.
    V : array of shape (n, r)
    shifts : array of shape (n,), optional
        A term of the prediction for each column.
    weights : array over the entries, optional
        The factor of each entry's loss.
    typical : float, optional
        The size of a typical value; by default that of these rows. If it is the same in all calls,
        the result for a row does not depend on the other rows.
    sweeps : (int, int, int), default=OPTIONS.sweeps
        Sweeps of least squares, of the l1 loss, and of the loss itself.
    nonnegative : bool, default=False
        Constrain U to be non-negative.
    """
    observed = operations.observed
    if typical is None:
        typical = float(np.median(np.abs(observed.rows.values)))
    smoothing = OPTIONS.smoothing * (typical or 1.0)
    stages = (L2(), smoothed(L1(), smoothing), smoothed(loss, smoothing))
    U = operations.array(np.zeros((observed.shape[0], V.shape[1]), V.dtype))
    for stage, n_sweeps in zip(stages, sweeps, strict=True):
        for _ in range(n_sweeps):
            operations.half_step(stage, reg, U, V, weights, shifts, nonnegative=nonnegative)
    return U


@dataclass(frozen=True)
class Columns:
    """The columns of a fitted model, for rows that it has not seen.

    Attributes
    ----------
    V : array of shape (n, r)
    loss : Loss
    reg : float
        λ.
    reg_by_count : bool
    shifts : array of shape (n,) or None
        The prediction for each column of a row about which nothing is known. With it, rows have a
        bias, as last factor.
    typical : float
        The size of a typical value.
    bias_unit : float
        The ridge on a bias is λ/bias_unit².
    scales : array of shape (n,) or None, default=None
        Scales of the noise of the columns, for a model without biases of rows.
    row_noise : (float, float) or None, default=None
        The noise of a typical row of the fit, and the standard deviation of the logarithm of the
        noise between rows. With None, or without ``scales``, new rows have the noise of a typical
        one.
    nonnegative : bool, default=False
        Whether factors of rows are constrained to be non-negative; for a model without biases.
    ridge : array of shape (2, k), or None, default=None
        The ridge of each factor of a row, its bias included, and what it grows by with each entry;
        None for λ.
    """

    V: Array
    loss: Loss
    reg: float
    reg_by_count: bool
    shifts: Array | None
    typical: float
    bias_unit: float
    scales: Array | None = None
    row_noise: tuple[float, float] | None = None
    nonnegative: bool = False
    ridge: Array | None = None

    def _design(self, dtype: np.dtype[Any]) -> tuple[Array, Array | None]:
        V = self.V.astype(dtype, copy=False)
        if self.shifts is None:
            return V, None
        return np.hstack([V, np.ones((len(V), 1), dtype)]), self.shifts.astype(dtype)

    def _placed_design(self, operations: EntryOperations) -> tuple[Array, Array | None]:
        V, shifts = self._design(operations.observed.dtype)
        return operations.array(V), None if shifts is None else operations.array(shifts)

    def fold_in(self, operations: EntryOperations, weights: Array | None = None) -> Array:
        """Factors of the rows; zeros for a row without an entry of positive weight."""
        return self.fold_in_with_scales(operations, weights)[0]

    def fold_in_with_scales(
        self, operations: EntryOperations, weights: Array | None = None
    ) -> tuple[Array, Array]:
        """Factors of the rows, and the scales of their noise relative to a typical row."""
        m = operations.observed.shape[0]
        if self.scales is None:
            return self._fold_in(operations, weights), np.ones(m)
        dtype = operations.observed.dtype
        of_columns = operations.array(self.scales.astype(dtype))
        operations = operations.on(operations.observed.divided(None, of_columns))
        column_scales = self.scales.astype(self.V.dtype)
        shifts = None if self.shifts is None else self.shifts / column_scales
        divided = replace(self, V=self.V / column_scales[:, None], shifts=shifts, scales=None)
        scales = np.ones(m)
        if self.row_noise is not None:
            convex = replace(divided, loss=L1())._fold_in(operations, weights)
            residual = np.asarray(operations.residuals(convex, operations.array(divided.V)))
            scales = self._estimated_scales(operations.observed, residual, weights)
        of_rows = operations.array(scales.astype(dtype))
        ones = operations.array(np.ones(len(self.V), dtype))
        operations = operations.on(operations.observed.divided(of_rows, ones))
        return divided._fold_in(operations, weights) * of_rows[:, None], scales

    def _estimated_scales(
        self, observed: Observed, residual: Array, weights: Array | None
    ) -> NDArray[np.float64]:
        """Scales of rows, from residuals of l1 regression.

        The regression interpolates as many entries as there are factors. The median of the other
        absolute residuals gives the noise of the row; its logarithm is shrunk as in the posterior
        mean under a normal prior.
        """
        assert self.row_noise is not None
        typical, deviation = self.row_noise
        pointers = np.asarray(observed.rows.pointers)
        used = np.ones(len(residual), bool) if weights is None else np.asarray(weights) > 0
        scales = np.ones(len(pointers) - 1)
        for k in range(len(scales)):
            row = slice(pointers[k], pointers[k + 1])
            size = np.sort(np.abs(residual[row][used[row]]).astype(np.float64))[self.V.shape[1] :]
            kept = size
            noise = 0.0
            for _ in range(OPTIONS.truncations if len(size) else 0):
                noise = MAD_TO_SIGMA * float(np.median(kept))
                kept = size[size <= OPTIONS.truncated_at * noise]
            if noise > 0:
                shrinkage = deviation**2 / (deviation**2 + OPTIONS.log_variance / len(size))
                scales[k] = (noise / typical) ** shrinkage
        return scales

    def _fold_in(self, operations: EntryOperations, weights: Array | None) -> Array:
        """Factors of rows whose noise is that of the loss."""
        observed = operations.observed
        V, shifts = self._placed_design(operations)
        counts = observed.rows.counts if weights is None else _counts(observed, weights)
        reg: float | Array | Ridge = self.reg
        if self.ridge is not None:
            used = None if weights is None else (weights > 0).astype(observed.dtype)
            reg = FactorRidge(*self.ridge).on(observed, used)
        elif self.reg_by_count:
            reg = self.reg * np.maximum(counts, 1).astype(np.float64)
        if shifts is None:
            return fold_in(
                operations,
                self.loss,
                reg,
                V,
                weights=weights,
                typical=self.typical,
                nonnegative=self.nonnegative,
            )
        unit = V.dtype.type(self.bias_unit)
        V[:, -1] = unit
        T = fold_in(operations, self.loss, reg, V, shifts, weights, self.typical)
        T[:, -1] = T[:, -1] * unit
        return T

    @one_blas_thread()
    def predict(self, T: Array) -> Array:
        """The dense rows that factors predict."""
        V, shifts = self._design(T.dtype)
        return np.asarray(T @ V.T if shifts is None else T @ V.T + shifts)

    def left_out(self, operations: EntryOperations) -> Array:
        """A prediction for every entry by the other entries of its row alone.

        Each row is folded in once per fold, without the entries of that fold. The fold of an entry
        is determined by its position within the row, so that the result for a row depends on
        nothing else.
        """
        observed = operations.observed
        rows = observed.rows
        V, shifts = self._placed_design(operations)
        i = rows.group_of_entry()
        j = rows.indices
        position = operations.array(np.arange(observed.n_entries)) - rows.pointers[i]
        fold = position % OPTIONS.n_folds
        predicted = np.zeros_like(rows.values) if shifts is None else shifts[j]
        for k in range(OPTIONS.n_folds):
            out = fold == k
            T = self.fold_in(operations, (~out).astype(observed.dtype))
            predicted[out] += np.einsum("tq,tq->t", T[i[out]], V[j[out]])
        return predicted


def _counts(observed: Observed, weights: Array) -> NDArray[np.intp]:
    return np.bincount(observed.rows.group_of_entry()[weights > 0], minlength=observed.shape[0])


def extend(
    operations: EntryOperations, weights: Array | None, columns: Columns, known: Factorization
) -> Factorization:
    """A factorization of a larger matrix, with new rows and columns folded in.

    New rows are folded into the columns, then new columns into all rows.

    Known rows and columns keep their factors; ``columns`` has the loss, λ and the other settings.
    """
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
    for side, side_weights in ((operations, weights), (operations.transposed, by_column)):
        m, n = side.observed.shape
        shifts = None
        if columns.shifts is not None:
            shifts = _padded(c, n)[:, 0] + c.dtype.type(known.center)
        ridge = columns.ridge if side is operations else None
        other = replace(columns, V=_padded(V, n), shifts=shifts, ridge=ridge)
        if m > len(U):
            T = other.fold_in(*_later_rows(side, side_weights, len(U)))
            rank = U.shape[1]
            biases = np.zeros_like(T[:, :1]) if columns.shifts is None else T[:, rank:]
            U = np.concatenate([U, T[:, :rank]])
            b = np.concatenate([b, biases])
        U, b, V, c = V, c, U, b
    return Factorization(U, V, known.center, b[:, 0], c[:, 0])


def _padded(A: Array, length: int) -> Array:
    return np.concatenate([A, np.zeros((length - len(A), A.shape[1]), A.dtype)])


def _later_rows(
    operations: EntryOperations, weights: Array | None, first: int
) -> tuple[EntryOperations, Array | None]:
    """Operations on the rows from ``first`` on, and their weights."""
    later = operations.observed.later_rows(first)
    if weights is None:
        return operations.on(later), None
    return operations.on(later), weights[len(weights) - later.n_entries :]
