"""RMC: robust matrix completion with a smoothed l1 loss (Cambier & Absil 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.baselines.fixed_rank import FixedRank, Tangent
from robustmf.baselines.interface import Baseline
from robustmf.baselines.spectral import truncated_svd
from robustmf.validation import require_integer, require_positive

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class RMCOptions:
    """Constants of the conjugate gradient iteration (defaults of Manopt, which the authors use)."""

    #: Required fraction of the decrease that the slope predicts.
    sufficient_decrease: float = 0.5
    #: Number of step sizes tried per iteration.
    max_trials: int = 10
    #: Norm of the gradient at which the iteration stops; in units of the mean absolute residual.
    gradient_tol: float = 1e-8


_OPTIONS = RMCOptions()


@dataclass(eq=False, repr=False)
class RMC(Baseline):
    """Σ √(δ² + e²) over the matrices of rank r by conjugate gradients, for decreasing δ.

    The initial point is the truncated SVD of the zero-filled matrix.

    Parameters
    ----------
    rank : int, default=10
        Rank r.
    reg : float, default=0.0
        λ of the authors' penalty λ·Σ X² over the *unobserved* entries.
    delta : float, default=1.0
        Smoothing width δ of the first round, in units of the data.
    shrinking : float, default=0.05
        Factor by which δ is multiplied after each round.
    inner_max_iter : int, default=40
        Number of conjugate gradient steps per round. The default is the authors', with which the
        rounds do not converge; with 500 they do, and the result is more accurate.
    max_iter : int, default=7
        Number of rounds. The default is the authors'.
    tol : float, default=1e-8
        Stop when the mean absolute residual changes by less than ``tol`` between two rounds.
    random_state : int, Generator or None, default=None
        Seed of the Lanczos iteration for the SVD.
    n_jobs : int or None, default=None
        Number of threads; None means all cores.
    callbacks : sequence of callables, default=()
        See :class:`Baseline`.

    References
    ----------
    L. Cambier and P.-A. Absil, Robust low-rank matrix completion by Riemannian optimization,
    SIAM J. Sci. Comput. 2016.
    """

    reg: float = 0.0
    delta: float = 1.0
    shrinking: float = 0.05
    inner_max_iter: int = 40
    max_iter: int = 7
    tol: float = 1e-8

    def _check_parameters(self) -> None:
        if self.reg != 0:
            require_positive("reg", self.reg, also="0")
        require_positive("delta", self.delta)
        require_positive("shrinking", self.shrinking)
        if self.shrinking >= 1:
            raise ValueError(f"shrinking must be below 1, got shrinking={self.shrinking!r}")
        require_integer("inner_max_iter", self.inner_max_iter, 1)

    def _solver(
        self, operations: CPUOperations, rng: np.random.Generator
    ) -> tuple[SmoothingRounds, Array, Array]:
        U, s, V = truncated_svd(operations.observed, int(self.rank), rng)
        rounds = SmoothingRounds(
            operations,
            reg=float(self.reg),
            delta=float(self.delta),
            shrinking=float(self.shrinking),
            inner_max_iter=int(self.inner_max_iter),
            rounds=int(self.max_iter),
        )
        return rounds, U * s, V


class SmoothingRounds:
    """One step is a round: conjugate gradients for one δ, initialized with the previous round.

    Parameters
    ----------
    operations : CPUOperations
        Operations on the observed entries.
    reg : float
        λ of the penalty on unobserved entries.
    delta : float
        Smoothing width δ of the first round.
    shrinking : float
        Factor by which δ is multiplied after each round.
    inner_max_iter : int
        Number of conjugate gradient steps per round.
    rounds : int
        Number of rounds.
    """

    def __init__(
        self,
        operations: CPUOperations,
        reg: float,
        delta: float,
        shrinking: float,
        inner_max_iter: int,
        rounds: int,
    ) -> None:
        self._operations = operations
        self._reg = reg
        self._delta = delta
        self._shrinking = shrinking
        self._inner_max_iter = inner_max_iter
        self._remaining = rounds
        self._inner_iterations = 0

    @property
    def factors(self) -> tuple[Array, Array]:
        """(US, V)."""
        return self._point.U * self._point.s, self._point.V

    def begin(self, U: Array, V: Array) -> float:
        """Set the initial point UVᵀ and return the objective there."""
        self._point = FixedRank.from_factors(U, V)
        self._error = self._mean_absolute_residual()
        return self.cost(self._point)[0]

    def step(self) -> float:
        """Run one round and decrease δ."""
        self._error_before = self._error
        value = self._minimize()
        self._error = self._mean_absolute_residual()
        self._remaining -= 1
        self._delta *= self._shrinking
        return value

    def _mean_absolute_residual(self) -> float:
        return float(np.abs(self._operations.residuals(*self.factors)).mean(dtype=np.float64))

    def cost(self, point: FixedRank) -> tuple[float, Array, Array]:
        """Return the objective, the predictions at the entries, and predictions minus data."""
        predicted = self._operations.sampled_product(point.U * point.s, point.V)
        z = predicted - self._operations.observed.rows.values
        total = float(np.sqrt(self._delta**2 + np.square(z, dtype=np.float64)).sum())
        if self._reg > 0:
            unobserved = float(
                np.square(point.s, dtype=np.float64).sum()
                - np.square(predicted, dtype=np.float64).sum()
            )
            total += self._reg * unobserved
        return total / len(z), predicted, z

    def gradient(self, point: FixedRank, predicted: Array, z: Array) -> Tangent:
        """Return the Riemannian gradient, given the predictions and predictions minus data."""
        k = len(z)
        q = z / np.sqrt(self._delta**2 + z * z) / k
        if self._reg > 0:
            q -= (2 * self._reg / k) * predicted
        products = self._operations.products(q.astype(z.dtype, copy=False), point.U, point.V)
        M, Up, Vp = point.project(*products)
        if self._reg > 0:
            M = M + np.diag(point.s) * z.dtype.type(2 * self._reg / k)
        return M, Up, Vp

    def _minimize(self) -> float:
        """Conjugate gradients (Hestenes–Stiefel, with restart) with adaptive backtracking."""
        point = self._point
        value, predicted, z = self.cost(point)
        gradient = self.gradient(point, predicted, z)
        direction = _scaled(gradient, -1.0)
        next_step: float | None = None
        for _ in range(self._inner_max_iter):
            if np.sqrt(_inner(gradient, gradient)) < _OPTIONS.gradient_tol:
                break
            slope = _inner(gradient, direction)
            if slope >= 0:
                direction = _scaled(gradient, -1.0)
                slope = -_inner(gradient, gradient)
            t = 1 / np.sqrt(_inner(direction, direction)) if next_step is None else next_step
            evaluations = 0
            while True:
                new = point.retract(direction, t)
                new_value, predicted, z = self.cost(new)
                evaluations += 1
                sufficient = new_value <= value + _OPTIONS.sufficient_decrease * t * slope
                if sufficient or evaluations == _OPTIONS.max_trials:
                    break
                t /= 2
            if new_value > value:
                break
            self._inner_iterations += 1
            next_step = t if evaluations == 2 else 2 * t
            new_gradient = self.gradient(new, predicted, z)
            change = _plus(new_gradient, new.transport(point, gradient), -1.0)
            old_direction = new.transport(point, direction)
            denominator = _inner(change, old_direction)
            ratio = _inner(new_gradient, change) / denominator if denominator != 0 else 0.0
            direction = _plus(_scaled(old_direction, max(0.0, ratio)), new_gradient, -1.0)
            point = new
            value = new_value
            gradient = new_gradient
        self._point = point
        return value

    def convergence_reason(self, before: float, objective: float, tol: float) -> str | None:
        """Test the change of the mean absolute residual between rounds."""
        if abs(self._error_before - self._error) < tol:
            return f"the mean absolute residual changed by less than tol={tol:g}"
        return "all rounds made" if self._remaining == 0 else None

    def report(self) -> dict[str, float]:
        """Return δ of the next round, the mean absolute residual and the inner iterations."""
        return {
            "delta": self._delta,
            "mean_absolute_residual": self._error,
            "inner_iterations": self._inner_iterations,
        }


def _inner(x: Tangent, y: Tangent) -> float:
    """Return the inner product of tangent vectors, accumulated in float64."""
    return sum(float(np.multiply(a, b, dtype=np.float64).sum()) for a, b in zip(x, y, strict=True))


def _scaled(x: Tangent, c: float) -> Tangent:
    """Return c x."""
    number = x[0].dtype.type(c)
    return number * x[0], number * x[1], number * x[2]


def _plus(x: Tangent, y: Tangent, c: float) -> Tangent:
    """Return x + c y."""
    number = x[0].dtype.type(c)
    return x[0] + number * y[0], x[1] + number * y[1], x[2] + number * y[2]
