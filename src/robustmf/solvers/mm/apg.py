"""Accelerated projected gradient on the dual, on the observed entries only.

One step costs O(nnz·r + (m+n)r).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.solvers.mm.acceleration import Step, WarmStartedAPG
from robustmf.solvers.mm.inner import Increment
from robustmf.solvers.mm.surrogate import BoxDual, Surrogate

Array = NDArray[np.floating[Any]]


class SparseSteps:
    """Steps on a :class:`BoxDual` by passes over the entries; ``x`` is overwritten."""

    def __init__(self, dual: BoxDual, x: Array) -> None:
        self.dual = dual
        rank = dual.factors[0].shape[1]
        self._pass = dual.operations.dual_pass(rank)
        self._curvatures = dual.curvatures()
        self.x = x
        self._x_before = x
        self._x_new = np.empty_like(x)
        self._spare = np.empty_like(x)
        self.products = dual.operations.products(x, *dual.factors)
        self._products_new = (np.empty_like(self.products[0]), np.empty_like(self.products[1]))
        self._at_z = tuple(p.copy() for p in self.products)
        self._increments = dual.increments(self.products)
        self._momentum = 0.0

    def step(self, scale: float) -> Step:
        """One pass over the entries and one over rows and columns."""
        dual = self.dual
        allowed, linear, turning = self._pass.step(
            dual.residual,
            dual.weights,
            self._curvatures,
            self._momentum,
            scale,
            dual.factors,
            self._increments,
            self.x,
            self._x_before,
            self._x_new,
            self._products_new,
        )
        value = -linear
        curved = 0.0
        for side in (0, 1):
            quadratic, moved = self._pass.quadratics(
                side,
                dual.inverses[side],
                dual.pulls[side],
                self._products_new[side],
                self._at_z[side],
            )
            value += quadratic
            curved += moved
        return Step(value, curved, allowed, turning)

    def accept(self, momentum: float) -> None:
        """Rotate the buffers; products at the extrapolated point follow by linearity."""
        free = self._spare if self._x_before is self.x else self._x_before
        self._x_before = self.x
        self.x = self._x_new
        self._x_new = free
        before = self.products
        self.products = self._products_new
        self._products_new = before
        self._momentum = momentum
        for side in (0, 1):
            self._pass.extrapolate(
                side,
                self.dual.inverses[side],
                self.dual.pulls[side],
                self.products[side],
                before[side],
                momentum,
                self._at_z[side],
                self._increments[side],
            )


class SparseSurrogateSteps(SparseSteps):
    """Steps on the dual of a surrogate, with primal increments and their certificate."""

    def __init__(self, surrogate: Surrogate, x: Array) -> None:
        super().__init__(surrogate.dual(), x)
        self._surrogate = surrogate
        self.initial_dual = self.dual.value(x, self.products)

    def increment(self, iterations: int) -> Increment:
        """The primal increments for x."""
        dU, dV = self.dual.increments(self.products)
        value, gap = self._surrogate.value(dU, dV, self.x)
        return Increment(dU, dV, self.x, value, gap, iterations)


class SparseAPG(WarmStartedAPG):
    """The paper's inner solver."""

    make_steps = SparseSurrogateSteps
