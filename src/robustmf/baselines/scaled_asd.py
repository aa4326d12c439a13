"""ScaledASD: scaled alternating steepest descent (Tanner & Wei 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.baselines.alternating_descent import AlternatingDescent
from robustmf.baselines.interface import Baseline
from robustmf.baselines.spectral import truncated_svd

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ScaledASDOptions:
    """Constants of the method.

    Attributes
    ----------
    window : int
        Number of iterations over which the rate of decrease is averaged, as in the authors' code.
    """

    window: int = 15


OPTIONS = ScaledASDOptions()


@dataclass(eq=False, repr=False)
class ScaledASD(Baseline):
    """Least squares by alternating steepest descent, scaled by the other factor's Gram matrix.

    The objective is not regularized. The initial point is the truncated SVD of the zero-filled
    matrix.

    Parameters
    ----------
    rank : int, default=10
        Number of factors.
    rate : float, default=1e-4
        Stop when the relative decrease of ‖e‖ per iteration, averaged over the last fifteen, is
        below ``rate``. The default is the authors'.
    max_iter : int, default=5000
        Maximum number of iterations.
    tol : float, default=1e-5
        Stop when ‖e‖ ≤ tol·‖X‖ over the observed entries. The default is the authors'.
    random_state : int, Generator or None, default=None
        Seed of the Lanczos iteration for the SVD.
    n_jobs : int or None, default=None
        Number of threads; None means all cores.
    callbacks : sequence of callables, default=()
        See :class:`Baseline`.

    References
    ----------
    J. Tanner and K. Wei, Low rank matrix completion by alternating steepest descent methods,
    Appl. Comput. Harmon. Anal. 2016.
    """

    rate: float = 1e-4
    max_iter: int = 5000
    tol: float = 1e-5

    def _solver(
        self, operations: CPUOperations, rng: np.random.Generator
    ) -> tuple[ScaledDescent, Array, Array]:
        U, s, V = truncated_svd(operations.observed, int(self.rank), rng)
        return ScaledDescent(operations, float(self.rate)), U * s, V


class ScaledDescent:
    """Scaled alternating steepest descent with its authors' stopping rule."""

    def __init__(self, operations: CPUOperations, rate: float) -> None:
        self._descent = AlternatingDescent(operations, 0.0, scaled=True)
        self._rate = rate
        self._data_norm = float(np.linalg.norm(operations.observed.rows.values.astype(np.float64)))
        self._norms: list[float] = []

    @property
    def factors(self) -> tuple[Array, Array]:
        """(U, V)."""
        return self._descent.factors

    def begin(self, U: Array, V: Array) -> float:
        """Set the initial point and return the objective there."""
        value = self._descent.begin(U, V)
        self._norms = [float(np.sqrt(2 * value))]
        return value

    def step(self) -> float:
        """Update U, then V, and return the objective."""
        value = self._descent.step()
        self._norms.append(float(np.sqrt(2 * value)))
        return value

    def convergence_reason(self, before: float, objective: float, tol: float) -> str | None:
        """Test the norm of the residual and its average rate of decrease."""
        if self._norms[-1] <= tol * self._data_norm:
            return f"the residual is below tol={tol:g} of the data"
        window = min(OPTIONS.window, len(self._norms) - 1)
        if (self._norms[-1] / self._norms[-1 - window]) ** (1 / window) > 1 - self._rate:
            return f"the residual decreases by less than rate={self._rate:g} per iteration"
        return None

    def report(self) -> dict[str, float]:
        """Return the norm of the residual relative to that of the data."""
        return {"relative_residual": self._norms[-1] / (self._data_norm or 1.0)}
