"""PMF as its authors ran it: mini-batches with momentum on centred values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.kernels.gradient import batch_gradient

Array = NDArray[np.floating[Any]]

#: The authors' settings: entries a batch, momentum, step (divided by the entries of a batch).
_BATCH, _MOMENTUM, _STEP = 100_000, 0.8, 50.0


class MinibatchGradient:
    """One step is an epoch. Σ e² + λ/2 (‖u_i‖² + ‖v_j‖²), summed over the entries: a row counts as often as it has entries."""

    def __init__(
        self, operations: CPUOperations, reg: float, rng: np.random.Generator, epochs: int
    ) -> None:
        self._operations, self._reg, self._rng, self._left = operations, reg, rng, epochs
        rows = operations.observed.rows
        self._center = float(rows.values.mean(dtype=np.float64))
        self._entries = (
            rows.group_of_entry(),
            rows.indices,
            (rows.values - self._center).astype(rows.values.dtype),
        )

    @property
    def factors(self) -> tuple[Array, Array]:
        """Factors whose product is the prediction, center included."""
        U, V = self._own
        return np.hstack([U, np.ones((len(U), 1), U.dtype)]), np.hstack(
            [V, np.full((len(V), 1), self._center, V.dtype)]
        )

    def begin(self, U: Array, V: Array) -> float:
        """Start at (U, V)."""
        self._own, self._momenta = (U, V), (np.zeros_like(U), np.zeros_like(V))
        return self._value()

    def step(self) -> float:
        """An epoch: the entries in a new random order, batch by batch."""
        i, j, values = self._entries
        order = self._rng.permutation(len(values))
        size = min(_BATCH, len(values))
        gradients = tuple(np.empty_like(A) for A in self._own)
        for first in range(0, len(values), size):
            batch = order[first : first + size]
            batch_gradient(
                i[batch],
                j[batch],
                values[batch],
                *self._own,
                values.dtype.type(self._reg),
                *gradients,
            )
            for own, momentum, gradient in zip(self._own, self._momenta, gradients, strict=True):
                momentum *= _MOMENTUM
                momentum += own.dtype.type(_STEP / len(batch)) * gradient
                own -= momentum
        self._left -= 1
        return self._value()

    def _value(self) -> float:
        U, V = self._own
        values = self._operations.observed.rows.values
        rows, columns = (
            self._operations.observed.rows.counts,
            self._operations.observed.columns.counts,
        )
        e = values - values.dtype.type(self._center) - self._operations.sampled_product(U, V)
        penalty = np.dot(rows, np.square(U, dtype=np.float64).sum(axis=1)) + np.dot(
            columns, np.square(V, dtype=np.float64).sum(axis=1)
        )
        return float(np.square(e, dtype=np.float64).sum() + 0.5 * self._reg * penalty)

    def settled(self, before: float, objective: float, tol: float) -> str | None:
        """All epochs are made."""
        return "all epochs made" if self._left == 0 else None

    def report(self) -> dict[str, float]:
        """Nothing beside the objective."""
        return {}
