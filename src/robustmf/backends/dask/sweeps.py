"""Sweeps of alternating least squares as tasks over blocks.

A sweep has two exchanges. Row blocks solve and send their factors to the column blocks; these solve
and send theirs to the row blocks, which evaluate the objective with them and use them again in the
next sweep. A block is one task on one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import Capabilities, Measurement
from robustmf.backends.biases import BiasModel
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.backends.dask import DaskBackend
from robustmf.backends.dask.matrix import Block, Factors, Matrix, Predictors
from robustmf.backends.ridge import FactorRidge, Ridges
from robustmf.backends.sweeps import Regressions
from robustmf.kernels.team import Team
from robustmf.losses import Loss

Array = NDArray[np.floating[Any]]
Point = tuple[Factors, Factors]


@dataclass(frozen=True)
class DaskOperations:
    """What a cluster offers of :class:`~robustmf.backends.base.EntryOperations`: sweeps.

    With held-out entries it is also their :class:`~robustmf.data.holdout.Holdout`.
    """

    observed: Matrix
    capabilities: ClassVar[Capabilities] = DaskBackend.capabilities

    def sweeps(
        self,
        reg: float | Ridges,
        biases: BiasModel,
        sample_weights: None = None,
        reg_by_count: bool = False,
        nonnegative: bool = False,
    ) -> DaskSweeps:
        """Sweeps over the blocks, which have the weights of their entries."""
        by_row, by_column = reg if isinstance(reg, tuple) else (reg, reg)
        terms = (Terms(by_row, reg_by_count, biases), Terms(by_column, reg_by_count, biases))
        return DaskSweeps(self.observed, terms)

    def error(self, U: Predictors, V: Predictors, bounds: tuple[float, float]) -> float:
        """The (weighted) mean absolute error on the held-out entries; see ``Holdout.error``."""
        matrix = self.observed

        def submit() -> tuple[None, list[Any], Any]:
            columns = (U.factors.blocks, V.factors.sections)
            sums = matrix.map(0, _error_sums, *columns, constants=(U.biases, bounds))
            return None, sums, sums

        needed = [U.factors, V.factors, matrix.placement]
        total, weight = np.sum(matrix.connection.run(submit, needed)[1], axis=0)
        return float(total / weight)


@dataclass(frozen=True)
class Terms:
    """What is constant over the sweeps of the model of one side, and the tasks on its blocks."""

    reg: float | FactorRidge
    reg_by_count: bool
    biases: BiasModel

    def _regressions(self, block: Block) -> Regressions:
        operations = CPUOperations(block.observed, Team(1))  # the thread of the task
        return Regressions(operations, self.biases, self.reg, self.reg_by_count, block.weights)

    def half_step(
        self,
        block: Block,
        own: Array,
        previous: Array,
        sections: Sequence[Array],
        previous_sections: Sequence[Array] | None,
        extrapolation: float,
        *options: Any,
    ) -> Array:
        """Solve for the factors of a block, starting at an extrapolated point.

        The other side is extrapolated too if ``previous_sections`` are given. The options are those
        of :meth:`robustmf.backends.sweeps.Regressions.solve`.
        """
        other = np.concatenate(sections)
        if previous_sections is not None:
            other = other + extrapolation * (other - np.concatenate(previous_sections))
        factors = own + extrapolation * (own - previous)
        self._regressions(block).solve(factors, other, *options)
        return factors

    def entries_size(self, block: Block) -> tuple[float, float, int]:
        """The size of the entries of a block."""
        return self._regressions(block).entries_size()

    def measure(
        self, block: Block, own: Array, sections: Sequence[Array], *options: Any
    ) -> Measurement:
        """Sums over the entries of a block."""
        return self._regressions(block).measure(own, np.concatenate(sections), *options)

    def penalty(self, block: Block, own: Array) -> float:
        """The penalty of a block."""
        return self._regressions(block).penalty(own)


class DaskSweeps:
    """The protocol :class:`~robustmf.backends.base.Sweeps` over the blocks of a cluster.

    Parameters
    ----------
    matrix : Matrix
    terms : (Terms, Terms)
        Of rows and columns.
    """

    supports_single = True

    def __init__(self, matrix: Matrix, terms: tuple[Terms, Terms]) -> None:
        self._matrix = matrix
        self._terms = terms
        self.dtype = matrix.dtype
        self.n_entries = matrix.n_entries

    def entries_size(self) -> tuple[float, float, int]:
        """Σ value², the sum of the entries' weights and the number of positive ones."""
        matrix = self._matrix
        tasks = matrix.connection.map(self._terms[0].entries_size, matrix.sides[0].blocks)
        values, weights, n_weighted = zip(*matrix.connection.gather(tasks), strict=True)
        return sum(values), sum(weights), sum(n_weighted)

    def place(self, U: Any, V: Any) -> Point:
        """The factors as blocks; arrays are in the order of the ids."""
        A, B = (
            one if isinstance(one, Factors) else self._matrix.distribute(side, one)
            for side, one in enumerate((U, V))
        )
        return A, B

    def predictors(self, point: Point) -> tuple[Predictors, Predictors]:
        """Factors whose product is the prediction, biases included."""
        biases = self._terms[0].biases
        return Predictors(point[0], biases), Predictors(point[1], biases)

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
        matrix.balance()

        def solve(side: int, *sections: Any) -> Factors:
            columns = (point[side].blocks, previous[side].blocks, *sections)
            constants = (extrapolation, loss, curvature, single)
            blocks = matrix.map(side, self._terms[side].half_step, *columns, constants=constants)
            return Factors(matrix, side, blocks, point[side].shape[1])

        def sweep() -> Point:
            rows = solve(0, point[1].sections, previous[1].sections)
            return rows, solve(1, rows.sections, [None] * matrix.n_blocks)

        (rows, columns), measured = self._measured(sweep, [*point, *previous], losses, single)
        return (rows.replicated(), columns.replicated()), measured

    def measure(self, point: Point, losses: Sequence[Loss], *, single: bool) -> Measurement:
        """Sums of losses and penalties at a point."""
        return self._measured(lambda: point, point, losses, single)[1]

    def _measured(
        self,
        solve: Callable[[], Point],
        needed: Sequence[Any],
        losses: Sequence[Loss],
        single: bool,
    ) -> tuple[Point, Measurement]:
        """The point that ``solve`` returns, whose tasks may not be finished, and its measurement.

        All tasks are submitted at once, and again if workers are lost.
        """
        matrix = self._matrix
        of_rows, of_columns = self._terms

        def submit() -> tuple[Point, list[Any], Any]:
            U, V = solve()
            constants = (losses, single)
            by_row = matrix.map(0, of_rows.measure, U.blocks, V.sections, constants=constants)
            by_column = matrix.map(1, of_columns.penalty, V.blocks)
            total = matrix.connection.submit(_total, by_row, by_column)
            return (U, V), [*U.blocks, *V.blocks, *by_row, *by_column], total

        return matrix.connection.run(submit, [*needed, matrix.placement])


def _total(rows: Sequence[Measurement], column_penalties: Sequence[float]) -> Measurement:
    """The sum over all blocks, in their order."""
    sums = zip(*(one.loss_sums for one in rows), strict=True)
    weight, n_weighted, penalty = (
        sum(getattr(one, name) for one in rows) for name in ("weight", "n_weighted", "penalty")
    )
    return Measurement(list(map(sum, sums)), weight, n_weighted, penalty + sum(column_penalties))


def _error_sums(
    block: Block,
    U: Array,
    sections: Sequence[Array],
    biases: BiasModel,
    bounds: tuple[float, float],
) -> tuple[float, float]:
    """Σ s|error| and Σ s over the held-out entries of a row block."""
    if block.holdout is None:
        return 0.0, 0.0
    return block.holdout.error_sums(*biases.predictors(U, np.concatenate(sections)), bounds)
