"""The accelerated steps of ``apg`` on dense m × n arrays, the paper's APG(dense), for comparison.

One step costs O(mnr).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.observed import Observed
from robustmf.kernels.reductions import inner_product
from robustmf.solvers.mm.acceleration import Step, WarmStartedAPG
from robustmf.solvers.mm.inner import Increment
from robustmf.solvers.mm.surrogate import Surrogate

Array = NDArray[np.floating[Any]]


def to_dense(observed: Observed, x: Array) -> Array:
    """The entries x as a dense m × n array, zero elsewhere."""
    dense = np.zeros(observed.shape, x.dtype)
    dense[observed.rows.group_of_entry(), observed.rows.indices] = x
    return dense


def collect(observed: Observed, dense: Array) -> Array:
    """The entries of a dense array, in row order."""
    return np.asarray(dense[observed.rows.group_of_entry(), observed.rows.indices])


class DenseSteps:
    """Steps on the surrogate's dual with m × n arrays and matrix products."""

    def __init__(self, surrogate: Surrogate, x: Array) -> None:
        self._surrogate = surrogate
        self._dual = surrogate.dual()
        observed = surrogate.operations.observed
        alpha, gamma = self._dual.curvatures()
        self._curvature = alpha[:, None] + gamma[None, :]
        self._e = to_dense(observed, surrogate.residual)
        self._w = to_dense(observed, surrogate.weights)
        self._X = self._Z = to_dense(observed, x)
        self.initial_dual = self._dual.value(x, self._products(self._X))

    def _products(self, X: Array) -> tuple[Array, Array]:
        U, V = self._surrogate.factors
        return X @ V, X.T @ U

    def step(self, scale: float) -> Step:
        """The gradient at Z, a clipped step, and its quadratic growth."""
        U, V = self._surrogate.factors
        at_z = self._products(self._Z)
        dU, dV = self._dual.increments(at_z)
        curvature = scale * self._curvature
        new = np.clip(self._Z + (self._e - dU @ V.T - U @ dV.T) / curvature, -self._w, self._w)
        moved = new - self._Z
        p, q = self._products(new)
        a, g = self._dual.inverses
        curved = inner_product(a, np.square(p - at_z[0]).sum(1)) + inner_product(
            g, np.square(q - at_z[1]).sum(1)
        )
        pulls = self._dual.pulls
        quadratic = inner_product(a, np.square(p - pulls[0]).sum(1)) + inner_product(
            g, np.square(q - pulls[1]).sum(1)
        )
        self._new = new
        return Step(
            0.5 * quadratic - inner_product(new.ravel(), self._e.ravel()),
            curved,
            inner_product(curvature.ravel(), (moved * moved).ravel()),
            -inner_product(curvature.ravel(), (moved * (new - self._X)).ravel()),
        )

    def accept(self, momentum: float) -> None:
        """Take the new point and extrapolate."""
        self._Z = self._new + momentum * (self._new - self._X)
        self._X = self._new

    def increment(self, iterations: int) -> Increment:
        """The primal increments for x."""
        x = collect(self._surrogate.operations.observed, self._X)
        dU, dV = self._dual.increments(self._products(self._X))
        value, gap = self._surrogate.value(dU, dV, x)
        return Increment(dU, dV, x, value, gap, iterations)


class DenseAPG(WarmStartedAPG):
    """APG(dense) of the paper, warm-started as its sparse counterpart."""

    make_steps = DenseSteps
