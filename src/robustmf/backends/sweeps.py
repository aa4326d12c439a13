"""Sweeps of alternating least squares on one machine, on the CPU or a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations, Measurement, Point
from robustmf.backends.biases import BiasModel, entries_weight
from robustmf.backends.ridge import FactorRidge, Ridge, Ridges, penalty, ridge
from robustmf.exceptions import NumericalError
from robustmf.kernels.reductions import squared_norm
from robustmf.losses import Loss

Array = NDArray[np.floating[Any]]


#: The model u_i·v_j.
NO_BIASES = BiasModel(None, 1.0)


@dataclass
class Regressions:
    """The regressions of one side on the other: of all rows, or of the rows of a block.

    Attributes
    ----------
    operations : EntryOperations
        On the entries of these rows.
    biases : BiasModel
    reg : float or FactorRidge
        λ, or a ridge for each factor.
    reg_by_count : bool
        Multiply λ by the number of entries of the row.
    sample_weights : array over the entries, or None
        The factor of each entry's loss.
    nonnegative : bool, default=False
        Constrain the factors to be non-negative.
    """

    operations: EntryOperations
    biases: BiasModel
    reg: float | FactorRidge
    reg_by_count: bool
    sample_weights: Array | None
    nonnegative: bool = False
    _found_ridge: float | Array | Ridge | None = field(default=None, init=False, repr=False)
    _found_weight: tuple[float, int] | None = field(default=None, init=False, repr=False)

    @property
    def _ridge(self) -> float | Array | Ridge:
        if self._found_ridge is None:
            observed = self.operations.observed
            self._found_ridge = ridge(self.reg, self.reg_by_count, observed, self.sample_weights)
        return self._found_ridge

    @property
    def _weight(self) -> tuple[float, int]:
        if self._found_weight is None:
            self._found_weight = entries_weight(self.operations.observed, self.sample_weights)
        return self._found_weight

    def entries_size(self) -> tuple[float, float, int]:
        """The sums of squared values and of weights, and the number of positive weights."""
        return squared_norm(self.operations.observed.rows.values[None]), *self._weight

    def solve(self, own: Array, other: Array, loss: Loss, curvature: float, single: bool) -> None:
        """Update the augmented factors ``own`` of the rows in place, with the others fixed."""
        design, offsets = self.biases.design(other)
        self.operations.half_step(
            loss,
            self._ridge,
            own,
            design,
            self.sample_weights,
            offsets,
            curvature=curvature,
            single=single,
            nonnegative=self.nonnegative,
        )

    def penalty(self, own: Array) -> float:
        """Half the sum of ridge times square over the factors of the rows."""
        return penalty(self._ridge, own)

    def measure(
        self, own: Array, other: Array, losses: Sequence[Loss], single: bool
    ) -> Measurement:
        """Sums of losses, and the penalty of the rows."""
        predictors = self.biases.predictors(own, other)
        sums = self.operations.loss_sums(losses, *predictors, self.sample_weights, single)
        return Measurement(sums, *self._weight, self.penalty(own))


class LocalSweeps:
    """The protocol :class:`~robustmf.backends.base.Sweeps` by operations on entries in one memory.

    Parameters
    ----------
    operations : EntryOperations
    reg : float or (FactorRidge, FactorRidge)
        λ, or the ridge of each factor of the rows and of the columns.
    biases : BiasModel, default=NO_BIASES
        The bias model.
    sample_weights : array over the entries, optional
        The factor of each entry's loss.
    reg_by_count : bool, default=False
        Multiply λ by the number of entries of the row or column.
    nonnegative : bool, default=False
        Constrain the factors to be non-negative. Extrapolated factors are projected.
    """

    def __init__(
        self,
        operations: EntryOperations,
        reg: float | Ridges,
        biases: BiasModel = NO_BIASES,
        sample_weights: Array | None = None,
        reg_by_count: bool = False,
        nonnegative: bool = False,
    ) -> None:
        observed = operations.observed
        self.biases = biases
        self._nonnegative = nonnegative
        self._observed = observed
        by_column = None if sample_weights is None else sample_weights[observed.column_order]
        by_row, by_col = reg if isinstance(reg, tuple) else (reg, reg)
        self._sides = (
            Regressions(operations, biases, by_row, reg_by_count, sample_weights, nonnegative),
            Regressions(
                operations.transposed, biases, by_col, reg_by_count, by_column, nonnegative
            ),
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of the entries."""
        return self._observed.dtype

    @property
    def n_entries(self) -> int:
        """The number of entries."""
        return self._observed.n_entries

    @property
    def supports_single(self) -> bool:
        """Whether passes over float64 entries can be computed in float32."""
        return self._sides[0].operations.capabilities.float32_sweeps

    def entries_size(self) -> tuple[float, float, int]:
        """The sums of squared values and of weights, and the number of positive weights."""
        return self._sides[0].entries_size()

    def place(self, U: Array, V: Array) -> Point:
        """The initial factors, where the entries are."""
        operations = self._sides[0].operations
        point = (operations.array(U), operations.array(V))
        self._require_layout(point, point)
        return point

    def _require_layout(self, point: Point, expected: Point) -> None:
        """Refuse factors that are not of the matrix, or not of the rank and type of ``expected``.

        Kernels index factors without checks.
        """
        for A, B, size in zip(point, expected, self._observed.shape, strict=True):
            if A.shape != (size, expected[0].shape[1]) or A.dtype != B.dtype:
                raise NumericalError(
                    f"factors of shape {A.shape} and type {A.dtype} do not belong to a matrix of "
                    f"shape {self._observed.shape} with factors of shape {B.shape}"
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
        if self._nonnegative:
            zero = self.dtype.type(0)
            factors = (np.maximum(factors[0], zero), np.maximum(factors[1], zero))
        for side, regressions in enumerate(self._sides):
            regressions.solve(factors[side], factors[1 - side], loss, curvature, single)
        self._require_layout(factors, point)
        return factors, self.measure(factors, losses, single=single)

    def measure(self, point: Point, losses: Sequence[Loss], *, single: bool) -> Measurement:
        """Sums of losses and penalties at a point."""
        by_row = self._sides[0].measure(*point, losses, single)
        return replace(by_row, penalty=by_row.penalty + self._sides[1].penalty(point[1]))
