"""Sweeps of alternating least squares on one machine, on the CPU or a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations, Measurement, Point
from robustmf.backends.biases import BiasModel, entries_weight, penalty, ridge
from robustmf.exceptions import NumericalError
from robustmf.kernels.reductions import squared_norm
from robustmf.losses import Loss

Array = NDArray[np.floating[Any]]


#: The model u_i·v_j.
NO_BIASES = BiasModel(None, 1.0)


class LocalSweeps:
    """The protocol :class:`~robustmf.backends.base.Sweeps` by operations on entries in one memory.

    Parameters
    ----------
    operations : EntryOperations
    reg : float
        λ.
    biases : BiasModel, default=NO_BIASES
        The bias model.
    sample_weights : array over the entries, optional
        The factor of each entry's loss.
    reg_by_count : bool, default=False
        Multiply λ by the number of entries of the row or column.
    """

    def __init__(
        self,
        operations: EntryOperations,
        reg: float,
        biases: BiasModel = NO_BIASES,
        sample_weights: Array | None = None,
        reg_by_count: bool = False,
    ) -> None:
        observed = operations.observed
        self.biases = biases
        self._sides = (operations, operations.transposed)
        self._weight = entries_weight(observed, sample_weights)
        by_column = None if sample_weights is None else sample_weights[observed.column_order]
        self._sample_weights = (sample_weights, by_column)
        self._reg = tuple(ridge(reg, reg_by_count, side.observed) for side in self._sides)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of the entries."""
        return self._sides[0].observed.dtype

    @property
    def n_entries(self) -> int:
        """The number of entries."""
        return self._sides[0].observed.n_entries

    @property
    def supports_single(self) -> bool:
        """Whether passes over float64 entries can be computed in float32."""
        return self._sides[0].capabilities.float32_sweeps

    def entries_size(self) -> tuple[float, float, int]:
        """The sums of squared values and of weights, and the number of positive weights."""
        return squared_norm(self._sides[0].observed.rows.values[None]), *self._weight

    def place(self, U: Array, V: Array) -> Point:
        """The initial factors, where the entries are."""
        point = (self._sides[0].array(U), self._sides[0].array(V))
        self._require_layout(point, point)
        return point

    def _require_layout(self, point: Point, expected: Point) -> None:
        """Refuse factors that are not of the matrix, or not of the rank and type of ``expected``.

        Kernels index factors without checks.
        """
        for A, B, size in zip(point, expected, self._sides[0].observed.shape, strict=True):
            if A.shape != (size, expected[0].shape[1]) or A.dtype != B.dtype:
                raise NumericalError(
                    f"factors of shape {A.shape} and type {A.dtype} do not belong to a matrix of "
                    f"shape {self._sides[0].observed.shape} with factors of shape {B.shape}"
                )

    def predictors(self, point: Point) -> Point:
        """Factors whose product is the prediction, biases included."""
        return self.biases.predictors(*point)

    def sweep(
        self,
        point: Point,
        previous: Point,
        extrapolation: float,
        loss: Loss,
        losses: Sequence[Loss],
        *,
        curvature: float,
        single: bool,
    ) -> tuple[Point, Measurement]:
        """Solve for all rows, then for all columns; see :class:`~robustmf.backends.base.Sweeps`."""
        self._require_layout(previous, point)
        factors = (
            point[0] + extrapolation * (point[0] - previous[0]),
            point[1] + extrapolation * (point[1] - previous[1]),
        )
        for side, operations in enumerate(self._sides):
            design, offsets = self.biases.design(factors[1 - side])
            operations.half_step(
                loss,
                self._reg[side],
                factors[side],
                design,
                self._sample_weights[side],
                offsets,
                curvature=curvature,
                single=single,
            )
        self._require_layout(factors, point)
        return factors, self.measure(factors, losses, single=single)

    def measure(self, point: Point, losses: Sequence[Loss], *, single: bool) -> Measurement:
        """Sums of losses and penalties at a point."""
        sums = self._sides[0].loss_sums(
            losses, *self.predictors(point), self._sample_weights[0], single
        )
        return Measurement(sums, *self._weight, sum(map(penalty, self._reg, point)))
