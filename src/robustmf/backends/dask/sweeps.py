"""``irls`` on a cluster: the decisions of :class:`~robustmf.solvers.alternation.Alternation`, the sweeps as tasks over blocks.

A sweep has two exchanges. Row blocks solve, and send their factors to the column blocks; these solve, and send theirs to the row blocks,
which measure the objective with them, and begin the next sweep with what they have.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from robustmf.backends.base import Measurement
from robustmf.backends.dask.factors import Factors, gather_mended
from robustmf.backends.dask.load import Matrix
from robustmf.backends.dask.tasks import (
    Terms,
    block_penalty,
    entries_size,
    half_step,
    row_sums,
    sweep_total,
)
from robustmf.solvers.alternation import Alternation
from robustmf.solvers.objective import Objective
from robustmf.solvers.precision import is_large, least_width
from robustmf.solvers.smoothing import ObjectiveByWidth

Pair = tuple[Factors, Factors]


class ClusterIRLS(Alternation):
    """One step is one sweep: all row blocks, then all column blocks."""

    def __init__(self, matrix: Matrix, objective: Objective, sigma: float, terms: Terms) -> None:
        least = math.inf
        if is_large(np.dtype(matrix.dtype), matrix.n_entries):
            connection = matrix.connection
            sizes = connection.gather(
                [connection.submit(entries_size, block) for block in matrix.sides[0].blocks]
            )
            power, weight, entries = map(sum, zip(*sizes, strict=True))
            least = least_width(power, weight, entries, objective)
        super().__init__(objective, sigma, least)
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

    def _measured(self, own: Any, ahead: bool = False) -> ObjectiveByWidth:
        return self._swept(None, math.inf)[1]

    def _sweep(self, ahead: float, curvature: float) -> Any:
        return self._swept(ahead, curvature)

    def _swept(self, ahead: float | None, curvature: float) -> tuple[Pair, ObjectiveByWidth]:
        """Factors after a sweep from a point ahead, and the objective there; with None the present ones."""
        connection, needed = self._matrix.connection, [*self._own, *self._before, self._matrix]
        self._matrix.welcome()
        while True:
            (U_blocks, V_blocks, sections, bound), (sums, penalty) = gather_mended(
                connection, lambda: self._submitted(ahead, curvature), needed
            )
            connection.unbind(bound)
            # what was lost before it was unbound would wait for its worker for ever
            if all(future.status == "finished" for future in bound):
                break
        self._aside = sums.aside
        measured = self._tip.objective(Measurement(sums.losses, sums.weight, sums.entries, penalty))
        if ahead is None:
            return self._own, measured  # type: ignore[return-value]
        width = self._own[0].shape[1]
        found: Any = tuple(
            self._matrix.factors(side, blocks, width)
            for side, blocks in enumerate((U_blocks, V_blocks))
        )
        found[1].sections = sections
        for factors in found:
            factors.keep_copies()
        return found, measured

    def _submitted(
        self, ahead: float | None, curvature: float
    ) -> tuple[tuple[list[Any], list[Any], Any, list[Any]], Any]:
        """The tasks of a sweep: futures of its factors, of V as row blocks get it, of all that is bound to a worker; one of the sums."""
        submit, at, terms = self._matrix.connection.submit, self._matrix.at, self._terms
        (U, V), (U_before, V_before) = self._own, self._before
        rows, columns = self._matrix.sides
        loss, losses, single = (
            self._tip.loss,
            self._tip.losses(ahead is not None),
            self._single,
        )
        U_blocks, V_blocks, sections = U.blocks, V.blocks, self._kept_sections(V)  # type: ignore[attr-defined]
        bound: list[Any] = []
        if ahead is not None:
            U_blocks = [
                submit(
                    half_step,
                    rows.blocks[k],
                    own,
                    before,
                    ahead,
                    section,
                    section_before,
                    loss,
                    terms,
                    curvature,
                    single,
                    **at(k),
                )
                for k, (own, before, section, section_before) in enumerate(
                    zip(
                        U.blocks,  # type: ignore[attr-defined]
                        U_before.blocks,  # type: ignore[attr-defined]
                        sections,
                        self._kept_sections(V_before),
                        strict=True,
                    )
                )
            ]
            V_blocks = [
                submit(
                    half_step,
                    columns.blocks[k],
                    own,
                    before,
                    ahead,
                    section,
                    None,
                    loss,
                    terms,
                    curvature,
                    single,
                    **at(k),
                )
                for k, (own, before, section) in enumerate(
                    zip(V.blocks, V_before.blocks, self._matrix.sections(1, U_blocks), strict=True)  # type: ignore[attr-defined]
                )
            ]
            bound = [*U_blocks, *V_blocks]
            sections = self._matrix.sections(0, V_blocks)
        measured = [
            submit(row_sums, rows.blocks[k], own, section, losses, terms, single, **at(k))
            for k, (own, section) in enumerate(zip(U_blocks, sections, strict=True))
        ]
        penalties = [
            submit(block_penalty, columns.blocks[k], own, terms, **at(k))
            for k, own in enumerate(V_blocks)
        ]
        return (U_blocks, V_blocks, sections, [*bound, *measured, *penalties]), submit(
            sweep_total, measured, penalties
        )

    def _kept_sections(self, V: Any) -> list[list[Any]]:
        """V as the row blocks get it: most of it is with them since it was measured."""
        if V.sections is None:
            V.sections = self._matrix.sections(0, V.blocks)
        return V.sections
