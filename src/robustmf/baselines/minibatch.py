"""PMF with the settings of its authors: mini-batch gradient descent with momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.kernels.gradient import batch_gradient

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class MinibatchOptions:
    """Constants of the authors' pmf.m."""

    #: Number of entries per mini-batch.
    batch_size: int = 100_000
    #: Momentum coefficient.
    momentum: float = 0.8
    #: Learning rate, divided by the number of entries of the batch.
    learning_rate: float = 50.0


_OPTIONS = MinibatchOptions()


class MinibatchGradient:
    """One step is an epoch over the centered values.

    The objective is Σ (e² + λ/2 (‖u_i‖² + ‖v_j‖²)) over the entries: the regularization of a row
    is proportional to its number of entries.

    Parameters
    ----------
    operations : CPUOperations
        Operations on the observed entries.
    reg : float
        λ, applied per entry.
    rng : Generator
        Draws the order of the entries in each epoch.
    epochs : int
        Number of epochs.
    """

    def __init__(
        self, operations: CPUOperations, reg: float, rng: np.random.Generator, epochs: int
    ) -> None:
        self._operations = operations
        self._reg = reg
        self._rng = rng
        self._remaining = epochs
        rows = operations.observed.rows
        self._center = float(rows.values.mean(dtype=np.float64))
        self._entries = (
            rows.group_of_entry(),
            rows.indices,
            (rows.values - self._center).astype(rows.values.dtype),
        )

    @property
    def factors(self) -> tuple[Array, Array]:
        """Factors whose product is the prediction, including the center."""
        U, V = self._centered_factors
        return np.hstack([U, np.ones((len(U), 1), U.dtype)]), np.hstack(
            [V, np.full((len(V), 1), self._center, V.dtype)]
        )

    def begin(self, U: Array, V: Array) -> float:
        """Set the initial point and return the objective there."""
        self._centered_factors = (U, V)
        self._momenta = (np.zeros_like(U), np.zeros_like(V))
        return self._value()

    def step(self) -> float:
        """Run one epoch: the mini-batches of a new random order of the entries."""
        i, j, values = self._entries
        factors = self._centered_factors
        order = self._rng.permutation(len(values))
        size = min(_OPTIONS.batch_size, len(values))
        gradients = tuple(np.empty_like(A) for A in factors)
        reg = values.dtype.type(self._reg)
        for first in range(0, len(values), size):
            batch = order[first : first + size]
            batch_gradient(i[batch], j[batch], values[batch], *factors, reg, *gradients)
            for factor, momentum, gradient in zip(factors, self._momenta, gradients, strict=True):
                momentum *= _OPTIONS.momentum
                momentum += factor.dtype.type(_OPTIONS.learning_rate / len(batch)) * gradient
                factor -= momentum
        self._remaining -= 1
        return self._value()

    def _value(self) -> float:
        """Return the objective."""
        U, V = self._centered_factors
        observed = self._operations.observed
        values = observed.rows.values
        e = values - values.dtype.type(self._center) - self._operations.sampled_product(U, V)
        penalty = np.dot(observed.rows.counts, np.square(U, dtype=np.float64).sum(axis=1)) + np.dot(
            observed.columns.counts, np.square(V, dtype=np.float64).sum(axis=1)
        )
        return float(np.square(e, dtype=np.float64).sum() + 0.5 * self._reg * penalty)

    def convergence_reason(self, before: float, objective: float, tol: float) -> str | None:
        """Stop after the last epoch."""
        return "all epochs made" if self._remaining == 0 else None

    def report(self) -> dict[str, float]:
        """Return nothing in addition to the objective."""
        return {}
