"""Steps on the dual of the MM surrogate on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robustmf.kernels import dual, entries

if TYPE_CHECKING:
    from robustmf.backends.cpu.operations import CPUOperations

Array = NDArray[np.floating[Any]]


class CPUDualPass:
    """One accelerated gradient step on the dual as a pass over the entries.

    The contract is :class:`robustmf.backends.base.DualPass`. Buffers are kept between steps.
    """

    def __init__(self, operations: CPUOperations, rank: int) -> None:
        observed = operations.observed
        self._team = operations.team
        self._rows = observed.rows
        self._bounds = operations.part_bounds(rank)
        self._side_bounds = (operations.row_bounds, operations.column_bounds)
        self._parts = np.empty((len(self._bounds) - 1, observed.shape[1], rank), observed.dtype)
        self._sums = np.empty((len(self._parts), 3))
        self._work = 4 * rank * observed.n_entries

    def step(
        self,
        e: Array,
        w: Array,
        curvatures: tuple[Array, Array],
        momentum: float,
        scale: float,
        factors: tuple[Array, Array],
        increments: tuple[Array, Array],
        x: Array,
        x_before: Array,
        x_new: Array,
        products: tuple[Array, Array],
    ) -> tuple[float, float, float]:
        """Write x_new and its products; return three sums, see the contract."""
        number = e.dtype.type
        self._team.run(
            dual.dual_step,
            len(self._parts),
            self._work,
            self._bounds,
            self._rows.pointers,
            self._rows.indices,
            e,
            w,
            *curvatures,
            number(momentum),
            number(scale),
            *factors,
            *increments,
            x,
            x_before,
            x_new,
            products[0],
            self._parts,
            self._sums,
        )
        bounds = self._side_bounds[1]
        self._team.run(
            entries.add_parts, len(bounds) - 1, self._parts.size, bounds, self._parts, products[1]
        )
        moved, linear, restart = self._sums.sum(axis=0)
        return float(moved), float(linear), float(restart)

    def quadratics(
        self, side: int, inverse: Array, pull: Array, products: Array, products_at_z: Array
    ) -> tuple[float, float]:
        """½ Σ ‖products − pull‖²·inverse and Σ ‖products − products_at_z‖²·inverse."""
        bounds = self._side_bounds[side]
        sums = np.empty((len(bounds) - 1, 2))
        self._team.run(
            dual.side_quadratics,
            len(sums),
            4 * pull.size,
            bounds,
            inverse,
            pull,
            products,
            products_at_z,
            sums,
        )
        return float(sums[:, 0].sum()), float(sums[:, 1].sum())

    def extrapolate(
        self,
        side: int,
        inverse: Array,
        pull: Array,
        products: Array,
        products_before: Array,
        momentum: float,
        at_z: Array,
        increments: Array,
    ) -> None:
        """Write products and increments at z = x + momentum·(x − x_before)."""
        bounds = self._side_bounds[side]
        self._team.run(
            dual.side_extrapolate,
            len(bounds) - 1,
            4 * pull.size,
            bounds,
            inverse,
            pull,
            products,
            products_before,
            pull.dtype.type(momentum),
            at_z,
            increments,
        )
