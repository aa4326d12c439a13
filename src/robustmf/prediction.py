"""Predicted values at pairs of rows and columns, also where one of the two is not known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.factorization import UNKNOWN

Array = NDArray[np.floating[Any]]

#: Pairs looked at in one go.
_SLICE = 1 << 18


@dataclass(frozen=True)
class Predictor:
    """center + b_i + c_j + u_i·v_j, clipped to ``bounds``.

    Of an unknown row or column nothing is known: its bias and factors are 0. A model without biases answers with ``fallback`` then.
    """

    U: Array
    V: Array
    center: float
    row_bias: Array
    column_bias: Array
    fallback: float | None
    bounds: tuple[float, float]

    def pairs(self, rows: NDArray[np.integer[Any]], cols: NDArray[np.integer[Any]]) -> Array:
        """One prediction a pair, in the order and shape of the two (which broadcast); −1 is unknown."""
        try:
            i, j = np.broadcast_arrays(rows, cols)
        except ValueError:
            raise ValueError(
                f"rows and cols must go together pair by pair, got shapes {rows.shape} and {cols.shape}"
            ) from None
        flat_i, flat_j = i.ravel(), j.ravel()
        out = np.empty(flat_i.shape, self.U.dtype)
        for low in range(0, len(out), _SLICE):
            part = slice(low, low + _SLICE)
            out[part] = self._some(flat_i[part], flat_j[part])
        return out.reshape(i.shape)

    def _some(self, i: NDArray[np.integer[Any]], j: NDArray[np.integer[Any]]) -> Array:
        number = self.U.dtype.type
        values = np.einsum("tq,tq->t", self.U[i], self.V[j])
        row_bias, column_bias = self.row_bias[i], self.column_bias[j]
        no_row, no_column = i == UNKNOWN, j == UNKNOWN
        if no_row.any() or no_column.any():
            row_bias[no_row] = column_bias[no_column] = values[no_row | no_column] = 0
        values = values + row_bias + column_bias + number(self.center)
        if self.fallback is not None:
            values[no_row | no_column] = number(self.fallback)
        return self.clip(values)

    def factors(self, dtype: np.dtype[Any]) -> tuple[Array, Array]:
        """Factors whose product is the prediction before clipping, biases included."""
        shifts = self.column_bias[:, None] + self.V.dtype.type(self.center)
        left, right = (
            [self.U, self.row_bias[:, None], np.ones_like(self.U[:, :1])],
            [self.V, np.ones_like(self.V[:, :1]), shifts],
        )
        if self.fallback is not None:  # no biases
            left, right = left[:1], right[:1]
        return np.hstack(left).astype(dtype, copy=False), np.hstack(right).astype(dtype, copy=False)

    def clip(self, values: Array) -> Array:
        """Within the bounds."""
        return np.clip(values, *self.bounds, out=values) if self.bounded else values

    @property
    def bounded(self) -> bool:
        """There are bounds."""
        return self.bounds != (-np.inf, np.inf)
