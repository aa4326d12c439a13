"""ScaledASD: scaled alternating steepest descent (Tanner & Wei 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.baselines.alternating_descent import AlternatingDescent
from robustmf.baselines.interface import Baseline
from robustmf.baselines.spectral import truncated_svd
from robustmf.solvers.base import Callback

Array = NDArray[np.floating[Any]]

#: The decrease is averaged over this many iterations.
_WINDOW = 15


class ScaledASD(Baseline):
    """Least squares by steepest descent on U and V in turn, each scaled by the other's Gram matrix. No regularisation.

    Parameters
    ----------
    rate : float
        Stop when an iteration lowers ‖e‖ by less than this share, on average over the last fifteen.
    tol : float
        Stop when ‖e‖ ≤ tol·‖X‖ over the entries.
    rank, max_iter, random_state, n_jobs, callbacks
        See :class:`Baseline`. The start is the truncated SVD of the zero-filled matrix.

    References
    ----------
    J. Tanner and K. Wei, Low rank matrix completion by alternating steepest descent methods, ACHA 2016.
    """

    def __init__(
        self,
        rank: int = 10,
        *,
        rate: float = 1e-4,
        max_iter: int = 5000,
        tol: float = 1e-5,
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.rank, self.rate = rank, rate
        self.max_iter, self.tol = max_iter, tol
        self.random_state, self.n_jobs, self.callbacks = random_state, n_jobs, callbacks

    def _solver(
        self, operations: CPUOperations, rng: np.random.Generator
    ) -> tuple[ScaledDescent, Array, Array]:
        U, s, V = truncated_svd(operations.observed, int(self.rank), rng)
        return ScaledDescent(operations, float(self.rate)), U * s, V


class ScaledDescent(AlternatingDescent):
    """The descent with its authors' stopping rule."""

    def __init__(self, operations: CPUOperations, rate: float) -> None:
        super().__init__(operations, 0.0, scaled=True)
        self._rate = rate
        self._size = float(np.linalg.norm(operations.observed.rows.values.astype(np.float64)))
        self._norms: list[float] = []

    def begin(self, U: Array, V: Array) -> float:
        """Start at (U, V)."""
        value = super().begin(U, V)
        self._norms = [float(np.sqrt(2 * value))]
        return value

    def step(self) -> float:
        """U, then V."""
        value = super().step()
        self._norms.append(float(np.sqrt(2 * value)))
        return value

    def settled(self, before: float, objective: float, tol: float) -> str | None:
        """The residual is as small as asked for, or hardly falls any more."""
        if self._norms[-1] <= tol * self._size:
            return f"the residual is below tol={tol:g} of the data"
        window = min(_WINDOW, len(self._norms) - 1)
        if (self._norms[-1] / self._norms[-1 - window]) ** (1 / window) > 1 - self._rate:
            return f"the residual falls by less than rate={self._rate:g} an iteration"
        return None

    def report(self) -> dict[str, float]:
        """Residual relative to the data."""
        return {"relative_residual": self._norms[-1] / (self._size or 1.0)}
