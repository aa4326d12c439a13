"""Sweeps of alternating least squares as tasks over blocks.

A sweep has two exchanges. Row blocks solve and send their factors to the column blocks; these solve
and send theirs to the row blocks, which evaluate the objective with them and use them again in the
next sweep. A block is one task on one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import Measurement
from robustmf.backends.biases import BiasModel
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.backends.dask.matrix import Block, Factors, Matrix
from robustmf.backends.ridge import Ridges
from robustmf.backends.sweeps import Regressions
from robustmf.kernels.team import Team
from robustmf.losses import Loss

Array = NDArray[np.floating[Any]]
Point = tuple[Factors, Factors]


@dataclass(frozen=True)
class Terms:
    """The parts of the model that are constant over the sweeps.

    ``reg`` is λ, or the ridge of each factor of rows and columns; ``side`` is which of the two a
    task is for.
    """

    reg: float | Ridges
    reg_by_count: bool
    biases: BiasModel
    bounds: tuple[float, float]
    side: int = 0

    def of_side(self, side: int) -> Terms:
        """The terms of the rows, or of the columns."""
        return replace(self, side=side)

    def regressions(self, block: Block) -> Regressions:
        """The regressions of a block, on the thread of the task."""
        reg = self.reg[self.side] if isinstance(self.reg, tuple) else self.reg
        operations = CPUOperations(block.observed, Team(1))
        return Regressions(operations, self.biases, reg, self.reg_by_count, block.weights)


class DaskSweeps:
    """The protocol :class:`~robustmf.backends.base.Sweeps` over the blocks of a cluster.

    Parameters
    ----------
    matrix : Matrix
    terms : Terms

    Attributes
    ----------
    holdout_error : float
        The mean absolute error on the held-out entries at the last point that was measured; NaN
        if no entries are held out.
    """

    supports_single = True

    def __init__(self, matrix: Matrix, terms: Terms) -> None:
        self._matrix = matrix
        self._terms = terms
        self.dtype = matrix.dtype
        self.n_entries = matrix.n_entries
        self.holdout_error = float("nan")

    def entries_size(self) -> tuple[float, float, int]:
        """Σ value², the sum of the entries' weights and the number of positive ones."""
        connection = self._matrix.connection
        blocks = self._matrix.sides[0].blocks
        sizes = connection.gather(connection.map(_entries_size, blocks, constants=(self._terms,)))
        values, weights, n_weighted = zip(*sizes, strict=True)
        return sum(values), sum(weights), sum(n_weighted)

    def place(self, U: Any, V: Any) -> Point:
        """The factors as blocks; arrays are in the order of the ids."""
        A, B = (
            one if isinstance(one, Factors) else self._matrix.distribute(side, one)
            for side, one in enumerate((U, V))
        )
        return A, B

    def predictors(self, point: Point) -> Point:
        """Factors whose product is the prediction, biases included."""
        return point[0].predictors(self._terms.biases), point[1].predictors(self._terms.biases)

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
        """Solve for all row blocks, then for all column blocks.

        See :meth:`robustmf.backends.base.Sweeps.sweep`.
        """
        matrix = self._matrix

        def solve(side: int, sections: Sequence[Any], previous_sections: Sequence[Any]) -> Any:
            own = (matrix.sides[side].blocks, point[side].blocks, previous[side].blocks)
            blocks = (*own, sections, previous_sections)
            workers = matrix.placement.addresses
            terms = self._terms.of_side(side)
            constants = (extrapolation, loss, terms, curvature, single)
            return matrix.connection.map(half_step, *blocks, constants=constants, workers=workers)

        def sweep() -> tuple[Any, Any, Any]:
            rows = solve(0, self._sections_of(point[1]), self._sections_of(previous[1]))
            columns = solve(1, matrix.sections(1, rows), [None] * matrix.n_blocks)
            return rows, columns, matrix.sections(0, columns)

        needed = [*point, *previous]
        (rows, columns, sections, _), measured = self._run(sweep, needed, losses, single)
        width = point[0].shape[1]
        new = (Factors(matrix, 0, rows, width), Factors(matrix, 1, columns, width))
        new[1].sections = sections
        return new, measured

    def measure(self, point: Point, losses: Sequence[Loss], *, single: bool) -> Measurement:
        """Sums of losses and penalties at a point."""
        U, V = point

        def blocks() -> tuple[Any, Any, Any]:
            return U.blocks, V.blocks, self._sections_of(V)

        return self._run(blocks, point, losses, single)[1]

    def _run(
        self, solve: Any, needed: Sequence[Any], losses: Sequence[Loss], single: bool
    ) -> tuple[Any, Measurement]:
        """Measure at the point whose blocks, with the sections of V, ``solve`` returns as futures.

        All tasks are submitted at once, and again if workers are lost.
        """
        matrix = self._matrix
        matrix.add_workers()
        row_blocks, column_blocks = (side.blocks for side in matrix.sides)

        def submit() -> tuple[Any, Any]:
            rows, columns, sections = solve()
            workers = matrix.placement.addresses
            constants = (self._terms, losses, single)
            by_row = matrix.connection.map(
                _measure_rows, row_blocks, rows, sections, constants=constants, workers=workers
            )
            by_column = matrix.connection.map(
                _penalty,
                column_blocks,
                columns,
                constants=(self._terms.of_side(1),),
                workers=workers,
            )
            tasks = [*rows, *columns, *by_row, *by_column]
            total = matrix.connection.submit(_total, by_row, by_column)
            return (rows, columns, sections, tasks), total

        kept, (measured, (error, weight)) = matrix.connection.gather_restricted(
            submit, [*needed, matrix.placement]
        )
        self.holdout_error = error / weight if weight else float("nan")
        return kept, measured

    def _sections_of(self, V: Factors) -> list[list[Any]]:
        """The sections of V for the row blocks, which have most of them from the measurement."""
        if V.sections is None:
            V.sections = self._matrix.sections(0, V.blocks)
        return V.sections


def half_step(
    block: Block,
    own: Array,
    previous: Array,
    sections: Sequence[Array],
    previous_sections: Sequence[Array] | None,
    extrapolation: float,
    loss: Loss,
    terms: Terms,
    curvature: float,
    single: bool,
) -> Array:
    """Solve for the factors of a block, starting at an extrapolated point.

    The other side is extrapolated too if ``previous_sections`` are given.
    """
    other = np.concatenate(sections)
    if previous_sections is not None:
        other = other + extrapolation * (other - np.concatenate(previous_sections))
    factors = own + extrapolation * (own - previous)
    terms.regressions(block).solve(factors, other, loss, curvature, single)
    return factors


def _entries_size(block: Block, terms: Terms) -> tuple[float, float, int]:
    return terms.regressions(block).entries_size()


def _measure_rows(
    block: Block,
    U: Array,
    sections: Sequence[Array],
    terms: Terms,
    losses: Sequence[Loss],
    single: bool,
) -> tuple[Measurement, tuple[float, float]]:
    """The terms of a row block, and Σ s|error| and Σ s over its held-out entries."""
    V = np.concatenate(sections)
    measured = terms.regressions(block).measure(U, V, losses, single)
    if block.holdout is None:
        return measured, (0.0, 0.0)
    return measured, block.holdout.error_sums(*terms.biases.predictors(U, V), terms.bounds)


def _penalty(block: Block, own: Array, terms: Terms) -> float:
    return terms.regressions(block).penalty(own)


def _total(
    rows: Sequence[tuple[Measurement, tuple[float, float]]], column_penalties: Sequence[float]
) -> tuple[Measurement, tuple[float, float]]:
    """The sum over all blocks, in their order."""
    measured = [one for one, _ in rows]
    total = Measurement(
        [sum(column) for column in zip(*(one.loss_sums for one in measured), strict=True)],
        sum(one.weight for one in measured),
        sum(one.n_weighted for one in measured),
        sum(one.penalty for one in measured) + sum(column_penalties),
    )
    return total, (sum(one[0] for _, one in rows), sum(one[1] for _, one in rows))
