"""Factors with biases: the one representation that fits, models and predictions share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]

#: Index of a row or column that is not part of the factorization.
UNKNOWN = -1

#: Pairs predicted at once, which bounds the memory of gathered factors.
_PAIRS_PER_BLOCK = 1 << 18


@dataclass(frozen=True)
class Factorization:
    """The matrix center + b_i + c_j + u_i·v_j.

    Attributes
    ----------
    row_factors, column_factors : array of shape (m, r) and (n, r)
        U and V.
    center : float or None
        None for a model without biases: u_i·v_j alone.
    row_bias, column_bias : array of shape (m,) and (n,)
        b and c; zeros for a model without biases.
    """

    row_factors: Array
    column_factors: Array
    center: float | None
    row_bias: Array
    column_bias: Array

    @classmethod
    def without_biases(cls, U: Array, V: Array) -> Factorization:
        """UVᵀ."""
        return cls(U, V, None, np.zeros_like(U[:, 0]), np.zeros_like(V[:, 0]))

    @classmethod
    def from_augmented(
        cls, A: Array, B: Array, center: float | None, bias_unit: float
    ) -> Factorization:
        """Split augmented factors, see :meth:`augmented`."""
        if center is None:
            return cls.without_biases(A, B)
        unit = A.dtype.type(bias_unit)
        return cls(A[:, :-1].copy(), B[:, :-1].copy(), center, A[:, -1] * unit, B[:, -1] * unit)

    def with_augmented(self, A: Array, B: Array, bias_unit: float) -> Factorization:
        """The same model with other augmented factors."""
        if self.center is None:  # its zero biases are in the memory of the entries already
            return replace(self, row_factors=A, column_factors=B)
        return self.from_augmented(A, B, self.center, bias_unit)

    @property
    def has_bias(self) -> bool:
        """Whether the model has biases."""
        return self.center is not None

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return len(self.row_factors), len(self.column_factors)

    @property
    def rank(self) -> int:
        """The number of factors."""
        return int(self.row_factors.shape[1])

    @property
    def transposed(self) -> Factorization:
        """The factorization of the transposed matrix."""
        return Factorization(
            self.column_factors, self.row_factors, self.center, self.column_bias, self.row_bias
        )

    def padded(self, rank: int) -> Factorization:
        """The same with factors that are zero, to this rank."""
        if rank == self.rank:
            return self
        missing = [
            np.zeros_like(A, shape=(len(A), rank - self.rank))
            for A in (self.row_factors, self.column_factors)
        ]
        return Factorization(
            np.hstack([self.row_factors, missing[0]]),
            np.hstack([self.column_factors, missing[1]]),
            self.center,
            self.row_bias,
            self.column_bias,
        )

    def scaled(self, row_scale: Array, column_scale: Array) -> Factorization:
        """The factorization of the matrix with rows and columns multiplied by these scales.

        For a model without biases, or with those of the columns alone if only columns are scaled:
        biases of the rows are zero. The same for rows. The center becomes part of the biases.
        """
        center, row_bias, column_bias = self.center, self.row_bias, self.column_bias
        if center is not None:
            offset = column_bias.dtype.type(center)
            center = 0.0
            if (row_scale == 1).all():
                row_bias = row_bias * 0
                column_bias = (column_bias + offset) * column_scale
            else:
                assert (column_scale == 1).all()
                row_bias = (row_bias + offset) * row_scale
                column_bias = column_bias * 0
        return Factorization(
            self.row_factors * row_scale[:, None],
            self.column_factors * column_scale[:, None],
            center,
            row_bias,
            column_bias,
        )

    @property
    def centered(self) -> Factorization:
        """The same model, with the median of the biases of each side in the center."""
        if self.center is None:
            return self
        middle = [float(np.median(bias)) for bias in (self.row_bias, self.column_bias)]
        number = self.row_bias.dtype.type
        return replace(
            self,
            center=self.center + sum(middle),
            row_bias=self.row_bias - number(middle[0]),
            column_bias=self.column_bias - number(middle[1]),
        )

    @property
    def column_offsets(self) -> Array:
        """The prediction for each column of a row about which nothing is known: center + c_j."""
        return self.column_bias + self.column_bias.dtype.type(self.center or 0.0)

    def augmented(self, bias_unit: float) -> tuple[Array, Array]:
        """(U, V), each with its own bias in units of ``bias_unit`` as last column.

        Solvers regress each side on the other side's factors and a constant, so a bias is one more
        factor. Without biases these are (U, V).
        """
        if self.center is None:
            return self.row_factors, self.column_factors
        unit = self.row_factors.dtype.type(bias_unit)
        return (
            np.hstack([self.row_factors, self.row_bias[:, None] / unit]),
            np.hstack([self.column_factors, self.column_bias[:, None] / unit]),
        )

    def predictors(self) -> tuple[Array, Array]:
        """Factors whose product is the prediction, biases included."""
        if self.center is None:
            return self.row_factors, self.column_factors
        ones = [np.ones_like(A[:, :1]) for A in (self.row_factors, self.column_factors)]
        return (
            np.hstack([self.row_factors, self.row_bias[:, None], ones[0]]),
            np.hstack([self.column_factors, ones[1], self.column_offsets[:, None]]),
        )

    def predict_pairs(
        self,
        rows: NDArray[np.integer[Any]],
        columns: NDArray[np.integer[Any]],
        fallback: float = 0.0,
    ) -> Array:
        """One prediction per pair of indices, in the shape to which the two broadcast.

        The bias and the factors of an unknown row or column (index :data:`UNKNOWN`) are zero. A
        model without biases predicts ``fallback`` there.
        """
        try:
            i, j = np.broadcast_arrays(rows, columns)
        except ValueError:
            raise ValueError(
                "rows and columns must be paired one to one, or broadcast; "
                f"got shapes {rows.shape} and {columns.shape}"
            ) from None
        flat_i = i.ravel()
        flat_j = j.ravel()
        out = np.empty(flat_i.shape, self.row_factors.dtype)
        for low in range(0, len(out), _PAIRS_PER_BLOCK):
            block = slice(low, low + _PAIRS_PER_BLOCK)
            out[block] = self._predict_block(flat_i[block], flat_j[block], fallback)
        return out.reshape(i.shape)

    def _predict_block(
        self, i: NDArray[np.integer[Any]], j: NDArray[np.integer[Any]], fallback: float
    ) -> Array:
        number = self.row_factors.dtype.type
        values = np.einsum("tq,tq->t", self.row_factors[i], self.column_factors[j])
        row_bias = self.row_bias[i]
        column_bias = self.column_bias[j]
        unknown_row = i == UNKNOWN
        unknown_column = j == UNKNOWN
        unknown = unknown_row | unknown_column
        if unknown.any():
            row_bias[unknown_row] = 0
            column_bias[unknown_column] = 0
            values[unknown] = 0
        values = values + row_bias + column_bias + number(self.center or 0.0)
        if self.center is None:
            values[unknown] = number(fallback)
        return np.asarray(values)

    def to_host(self) -> Factorization:
        """The same with NumPy arrays in the memory of the host."""
        return Factorization(
            np.asarray(self.row_factors),
            np.asarray(self.column_factors),
            self.center,
            np.asarray(self.row_bias),
            np.asarray(self.column_bias),
        )
