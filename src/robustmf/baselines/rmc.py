"""RMC: robust matrix completion, a smoothed l1 loss on the manifold of fixed-rank matrices (Cambier & Absil 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.baselines.fixed_rank import FixedRank, Tangent
from robustmf.baselines.interface import Baseline
from robustmf.baselines.spectral import truncated_svd
from robustmf.data.observed import Observed
from robustmf.solvers.base import Callback
from robustmf.validation import require_integer, require_positive

Array = NDArray[np.floating[Any]]

#: A step must reach this share of the decrease that the slope promises; so many trials.
_SUFFICIENT, _TRIALS = 0.5, 10
_SMALL_GRADIENT = 1e-8


class RMC(Baseline):
    """Σ √(δ² + e²) over the matrices of rank r, by conjugate gradients, for δ that shrinks round by round.

    Parameters
    ----------
    reg : float
        λ of the authors' λ·Σ X² over the *unobserved* entries; 0 for none.
    delta : float
        δ of the first round, in the unit of the data.
    shrinking : float
        What δ is multiplied by after each round.
    inner_max_iter : int
        Conjugate gradient steps a round. The authors' 40 do not converge; 500 do, and are more accurate.
    max_iter : int
        Rounds.
    tol : float
        Stop when the mean absolute residual changes by less than this between two rounds.
    rank, random_state, n_jobs, callbacks
        See :class:`Baseline`. The start is the truncated SVD of the zero-filled matrix.

    References
    ----------
    L. Cambier and P.-A. Absil, Robust low-rank matrix completion by Riemannian optimization, SIAM J. Sci. Comput. 2016.
    """

    def __init__(
        self,
        rank: int = 10,
        *,
        reg: float = 0.0,
        delta: float = 1.0,
        shrinking: float = 0.05,
        inner_max_iter: int = 40,
        max_iter: int = 7,
        tol: float = 1e-8,
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.rank, self.reg, self.delta, self.shrinking, self.inner_max_iter = (
            rank,
            reg,
            delta,
            shrinking,
            inner_max_iter,
        )
        self.max_iter, self.tol = max_iter, tol
        self.random_state, self.n_jobs, self.callbacks = random_state, n_jobs, callbacks

    def _check_parameters(self, observed: Observed) -> None:
        super()._check_parameters(observed)
        if self.reg != 0:
            require_positive("reg", self.reg, also="0")
        require_positive("delta", self.delta)
        require_positive("shrinking", self.shrinking)
        if self.shrinking >= 1:
            raise ValueError(f"shrinking must be below 1, got shrinking={self.shrinking!r}")
        require_integer("inner_max_iter", self.inner_max_iter, 1)

    def _solver(
        self, operations: CPUOperations, rng: np.random.Generator
    ) -> tuple[ShrinkingRounds, Array, Array]:
        U, s, V = truncated_svd(operations.observed, int(self.rank), rng)
        rounds = ShrinkingRounds(
            operations,
            float(self.reg),
            float(self.delta),
            float(self.shrinking),
            int(self.inner_max_iter),
            int(self.max_iter),
        )
        return rounds, U * s, V


class ShrinkingRounds:
    """One step is a round: conjugate gradients at one δ, from where the last round ended."""

    def __init__(
        self,
        operations: CPUOperations,
        reg: float,
        delta: float,
        shrinking: float,
        inner_max_iter: int,
        rounds: int,
    ) -> None:
        self._operations, self._reg, self._delta, self._shrinking = (
            operations,
            reg,
            delta,
            shrinking,
        )
        self._inner_max_iter, self._left = inner_max_iter, rounds
        self._inner_iterations = 0

    @property
    def factors(self) -> tuple[Array, Array]:
        """(US, V)."""
        return self._point.U * self._point.s, self._point.V

    def begin(self, U: Array, V: Array) -> float:
        """Start at UVᵀ."""
        self._point = FixedRank.of(U, V)
        self._error = self._mean_error()
        return self._cost(self._point)[0]

    def step(self) -> float:
        """A round."""
        self._error_before = self._error
        value = self._descend()
        self._error = self._mean_error()
        self._left -= 1
        self._delta *= self._shrinking
        return value

    def _mean_error(self) -> float:
        return float(np.abs(self._operations.residuals(*self.factors)).mean(dtype=np.float64))

    def _cost(self, point: FixedRank) -> tuple[float, Array, Array]:
        """f_δ, the predictions at the entries, and their differences from the data."""
        predicted = self._operations.sampled_product(point.U * point.s, point.V)
        z = predicted - self._operations.observed.rows.values
        total = float(np.sqrt(self._delta**2 + np.square(z, dtype=np.float64)).sum())
        if self._reg > 0:
            unseen = float(
                np.square(point.s, dtype=np.float64).sum()
                - np.square(predicted, dtype=np.float64).sum()
            )
            total += self._reg * unseen
        return total / len(z), predicted, z

    def _gradient(self, point: FixedRank, predicted: Array, z: Array) -> Tangent:
        k = len(z)
        q = z / np.sqrt(self._delta**2 + z * z) / k
        if self._reg > 0:
            q -= (2 * self._reg / k) * predicted
        tangent = point.projected(
            *self._operations.products(q.astype(z.dtype, copy=False), point.U, point.V)
        )
        if self._reg > 0:
            tangent = (
                tangent[0] + np.diag(point.s) * z.dtype.type(2 * self._reg / k),
                *tangent[1:],
            )
        return tangent

    def _descend(self) -> float:
        """Conjugate gradients (Hestenes–Stiefel, with restart) and adaptive backtracking."""
        point = self._point
        value, predicted, z = self._cost(point)
        gradient = self._gradient(point, predicted, z)
        direction = _scaled(gradient, -1.0)
        trial: float | None = None
        for _ in range(self._inner_max_iter):
            if np.sqrt(_inner(gradient, gradient)) < _SMALL_GRADIENT:
                break
            slope = _inner(gradient, direction)
            if slope >= 0:
                direction = _scaled(gradient, -1.0)
                slope = -_inner(gradient, gradient)
            t = 1 / np.sqrt(_inner(direction, direction)) if trial is None else trial
            evaluations = 0
            while True:
                new = point.moved(direction, t)
                new_value, predicted, z = self._cost(new)
                evaluations += 1
                if new_value <= value + _SUFFICIENT * t * slope or evaluations == _TRIALS:
                    break
                t /= 2
            if new_value > value:
                break
            self._inner_iterations += 1
            trial = t if evaluations == 2 else 2 * t
            new_gradient = self._gradient(new, predicted, z)
            change = _plus(new_gradient, new.transported(point, gradient), -1.0)
            onward = new.transported(point, direction)
            below = _inner(change, onward)
            beta = max(0.0, _inner(new_gradient, change) / below) if below != 0 else 0.0
            direction = _plus(_scaled(onward, beta), new_gradient, -1.0)
            point, value, gradient = new, new_value, new_gradient
        self._point = point
        return value

    def settled(self, before: float, objective: float, tol: float) -> str | None:
        """The residual hardly changes from round to round, or all rounds are made."""
        if abs(self._error_before - self._error) < tol:
            return f"the mean absolute residual changed by less than tol={tol:g}"
        return "all rounds made" if self._left == 0 else None

    def report(self) -> dict[str, float]:
        """δ of the next round, the mean absolute residual, inner iterations so far."""
        return {
            "delta": self._delta,
            "mean_absolute_residual": self._error,
            "inner_iterations": self._inner_iterations,
        }


def _inner(x: Tangent, y: Tangent) -> float:
    return sum(float(np.multiply(a, b, dtype=np.float64).sum()) for a, b in zip(x, y, strict=True))


def _scaled(x: Tangent, c: float) -> Tangent:
    number = x[0].dtype.type(c)
    return number * x[0], number * x[1], number * x[2]


def _plus(x: Tangent, y: Tangent, c: float) -> Tangent:
    number = x[0].dtype.type(c)
    return x[0] + number * y[0], x[1] + number * y[1], x[2] + number * y[2]
