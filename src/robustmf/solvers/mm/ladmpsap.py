"""LADMPSAP: linearized alternating directions with parallel splitting and adaptive penalty.

Lin, Liu & Li (2015).

The inner solver of RMF-MM, on dense arrays. The splitting variable is E, the constraint is
E + dU Vᵀ + U dVᵀ = M − UVᵀ. The three blocks are updated in parallel from one estimate of the
multiplier, each linearized with η = 3‖block operator‖².
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.kernels.reductions import squared_norm
from robustmf.solvers.mm.apg_dense import collect, to_dense
from robustmf.solvers.mm.inner import OPTIONS as INNER
from robustmf.solvers.mm.inner import Increment
from robustmf.solvers.mm.options import MM
from robustmf.solvers.mm.surrogate import Surrogate

Array = NDArray[np.floating[Any]]

#: Blocks of variables: E, dU, dV.
_BLOCKS = 3


@dataclass
class Splitting:
    """The variables and the multiplier, kept from one surrogate to the next."""

    E: Array
    dU: Array
    dV: Array
    Y: Array


@dataclass
class LADMPSAP:
    """Inner solver with the settings of RMF-MM's authors.

    Parameters
    ----------
    growth : float, default=1.5
        The factor ρ by which the penalty β grows when the variables have converged.
    settled, feasible : float, default=1e-5 and 1e-4
        Tolerances on the change of the variables and on the constraint, relative to ‖M − UVᵀ‖.
    penalty : float or None, default=None
        The initial penalty β; None is the authors' 0.1 (m+n)·settled. A larger one is often faster.
    max_penalty : float, default=1e5
        The penalty does not grow beyond this.
    gap_interval : int, default=50
        Steps between two evaluations of the duality gap, where the gap decides.
    """

    growth: float = 1.5
    settled: float = 1e-5
    feasible: float = 1e-4
    penalty: float | None = None
    max_penalty: float = 1e5
    gap_interval: int = 50

    def __post_init__(self) -> None:
        self._state: Splitting | None = None

    def solve(self, surrogate: Surrogate, options: MM) -> Increment:
        """Iterate until variables and constraint have converged and the surrogate has decreased.

        ``options.tol`` is not used: with a small initial penalty the objective changes slowly at
        first, and the iteration would stop at once.
        """
        run = LADMPSAPRun(self, surrogate, self._state)
        check_at = options.max_iter
        for k in range(1, INNER.patience * options.max_iter + 1):
            done = run.step()
            if done or k >= check_at or (options.gap is not None and k % self.gap_interval == 0):
                found = run.increment(k)
                decrease = surrogate.at_zero - found.value
                if options.is_accurate(found.gap, decrease) or (
                    options.gap is None and decrease > 0
                ):
                    break
                if k >= check_at:
                    if decrease > 0:
                        break
                    check_at *= 2
        self._state = run.state
        return run.increment(k)

    def state(self) -> dict[str, Any]:
        """The splitting."""
        return {} if self._state is None else dict(vars(self._state))

    def restore(self, state: dict[str, Any], dual_point: Array) -> None:
        """Start the next solve from the splitting."""
        self._state = Splitting(**state)


class LADMPSAPRun:
    """The iteration for one surrogate."""

    def __init__(
        self, settings: LADMPSAP, surrogate: Surrogate, state: Splitting | None = None
    ) -> None:
        self._settings = settings
        self._surrogate = surrogate
        U, V = surrogate.factors
        observed = surrogate.operations.observed
        self._R = to_dense(observed, observed.rows.values) - U @ V.T
        self._W = to_dense(observed, surrogate.weights)
        self._norm = _norm(self._R) or 1.0
        m, n = observed.shape
        self._beta = (
            0.1 * (m + n) * settings.settled if settings.penalty is None else settings.penalty
        )
        self._norm_U = float(np.linalg.norm(U, 2))
        self._norm_V = float(np.linalg.norm(V, 2))
        self.state = state or Splitting(
            self._R.copy(), np.zeros_like(U), np.zeros_like(V), np.zeros_like(self._R)
        )
        self._Y = self.state.Y + self._beta * self._constraint()

    def _constraint(self) -> Array:
        U, V = self._surrogate.factors
        s = self.state
        return np.asarray(s.E + s.dU @ V.T + U @ s.dV.T - self._R)

    def step(self) -> bool:
        """Update the three blocks in parallel, then the multiplier; true on convergence."""
        U, V = self._surrogate.factors
        s = self.state
        beta = self._beta
        reg = self._surrogate.reg
        Y = self._Y
        z = s.E - Y / (_BLOCKS * beta)
        E = np.sign(z) * np.maximum(np.abs(z) - self._W / (_BLOCKS * beta), 0)
        pull_U = _BLOCKS * self._norm_V**2 * beta
        pull_V = _BLOCKS * self._norm_U**2 * beta
        dU = (pull_U * s.dU - Y @ V - reg * U) / (reg + self._surrogate.row_sums + pull_U)[:, None]
        dV = (pull_V * s.dV - Y.T @ U - reg * V) / (reg + self._surrogate.column_sums + pull_V)[
            :, None
        ]
        change = max(
            _norm(E - s.E), self._norm_V * _norm(dU - s.dU), self._norm_U * _norm(dV - s.dV)
        )
        s.E = E.astype(U.dtype)
        s.dU = dU.astype(U.dtype)
        s.dV = dV.astype(U.dtype)
        C = self._constraint()
        s.Y = s.Y + beta * C
        self._Y = s.Y + beta * C
        if np.sqrt(beta) * change / self._norm >= self._settings.settled:
            return False
        self._beta = min(self._settings.max_penalty, self._settings.growth * beta)
        return bool(_norm(C) / self._norm < self._settings.feasible)

    def increment(self, iterations: int) -> Increment:
        """The current increments, certified by the multiplier projected onto the box."""
        surrogate = self._surrogate
        s = self.state
        x = np.clip(
            -collect(surrogate.operations.observed, s.Y), -surrogate.weights, surrogate.weights
        )
        dual = surrogate.dual()
        lower = surrogate.dual_offset - dual.value(
            x, surrogate.operations.products(x, *surrogate.factors)
        )
        value, _ = surrogate.value(s.dU, s.dV, x)
        return Increment(s.dU.copy(), s.dV.copy(), x, value, value - lower, iterations)


def _norm(A: Array) -> float:
    """The Frobenius norm."""
    return math.sqrt(squared_norm(A))
