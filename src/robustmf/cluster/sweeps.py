"""``irls`` on a cluster: the decisions of :class:`~robustmf.solvers.irls.Alternation`, the sweeps as tasks over blocks.

A sweep has two exchanges. Column blocks send their factors, a little ahead, to the row blocks, which solve for theirs and send them to
the column blocks; these solve, and measure the objective with what they have at hand.
"""

from __future__ import annotations

from typing import Any

from robustmf.cluster.factors import Factors, gather_mended
from robustmf.cluster.load import Matrix
from robustmf.cluster.tasks import (
    Terms,
    block_penalty,
    column_measure,
    column_step,
    factors_of,
    half_step,
    offered,
    sums_of,
    sweep_total,
)
from robustmf.losses import rounded
from robustmf.objective import Objective
from robustmf.solvers.irls import Alternation

Pair = tuple[Factors, Factors]


class ClusterIRLS(Alternation):
    """One step is one sweep: all row blocks, then all column blocks."""

    def __init__(self, matrix: Matrix, objective: Objective, sigma: float, terms: Terms) -> None:
        super().__init__(objective, sigma)
        self._matrix, self._terms = matrix, terms
        self._aside = (0.0, 0.0)

    @property
    def factors(self) -> Pair:
        """(U, V) as solved for, where they are; ``np.asarray`` brings them here. With biases, the last column is the bias, in its unit."""
        return self._own  # type: ignore[return-value]

    own_factors = factors

    def validation_error(self, *_: Any) -> float:
        """The mean absolute error on what was set aside, as the last sweep left it."""
        return self._aside[0] / self._aside[1]

    def _placed(self, U: Any, V: Any) -> Any:
        return U, V

    def _values(self, own: Any) -> tuple[float, float]:
        return self._swept(None)[1:]

    def _sweep(self, ahead: float) -> Any:
        return self._swept(ahead)

    def _swept(self, ahead: float | None) -> tuple[Pair, float, float]:
        """Factors after a sweep from a point ahead, and the objective there; with None the present ones."""
        connection, needed = self._matrix.connection, [*self._own, *self._before, self._matrix]
        while True:
            (U_blocks, V_blocks, bound), (sums, penalty) = gather_mended(connection, lambda: self._submitted(ahead), needed)
            connection.unbind(bound)
            # what was lost before it was unbound would wait for its worker for ever
            if all(future.status == "finished" for future in bound):
                break
        self._aside = sums.aside
        values = self._objectives(sums.losses, sums.weight, penalty)
        if ahead is None:
            return self._own, *values  # type: ignore[return-value]
        found: Any = tuple(self._beside(old, blocks) for old, blocks in zip(self._own, (U_blocks, V_blocks), strict=True))
        for factors in found:
            factors.keep_copies()
        return found, *values

    def _beside(self, old: Any, blocks: list[Any]) -> Factors:
        """Factors of the same side in other blocks."""
        return Factors(self._matrix.connection, blocks, old.sizes, old.shape[1], old.dtype, old.order)

    def _submitted(self, ahead: float | None) -> tuple[tuple[list[Any], list[Any], list[Any]], Any]:
        """The tasks of a sweep: futures of its factors and of what is bound to a worker, and one of (:class:`Sums`, penalty)."""
        submit, at, terms = self._matrix.connection.submit, self._matrix.at, self._terms
        (U, V), (U_before, V_before) = ([each.blocks for each in pair] for pair in (self._own, self._before))  # type: ignore[attr-defined]
        rows, columns = self._matrix.sides
        loss, losses = rounded(self._objective.loss, self._tip), self._measured_losses()
        if ahead is not None:
            sections = self._sections(0, V, V_before, ahead)
            U = [
                submit(half_step, block, own, before, ahead, section, loss, terms, **at(k))
                for k, (block, own, before, section) in enumerate(zip(rows.blocks, U, U_before, sections, strict=True))
            ]
        sections = self._sections(1, U, None, 0.0)
        if ahead is None:
            stepped = [
                submit(column_measure, *one, losses, terms, **at(k)) for k, one in enumerate(zip(columns.blocks, V, sections, strict=True))
            ]
        else:
            stepped = [
                submit(column_step, block, own, before, ahead, section, loss, losses, terms, **at(k))
                for k, (block, own, before, section) in enumerate(zip(columns.blocks, V, V_before, sections, strict=True))
            ]
            V = [submit(factors_of, one) for one in stepped]
        penalties = [submit(block_penalty, block, own, terms, **at(k)) for k, (block, own) in enumerate(zip(rows.blocks, U, strict=True))]
        bound = [*stepped, *penalties, *(U if ahead is not None else ())]
        return (U, V, bound), submit(sweep_total, [submit(sums_of, one) for one in stepped], penalties)

    def _sections(self, side: int, others: list[Any], before: list[Any] | None, ahead: float) -> list[list[Any]]:
        """For each block of the side, what it is sent by the blocks of the other: all, or what it wants."""
        submit = self._matrix.connection.submit
        old = others if before is None else before
        # where nothing is ahead, the factors themselves are sent
        whole = others if before is None else [submit(offered, one, was, ahead, None) for one, was in zip(others, old, strict=True)]
        return [
            [whole[c] if places is None else submit(offered, others[c], old[c], ahead, places) for c, places in enumerate(of_block)]
            for of_block in self._matrix.sides[side].wanted
        ]
