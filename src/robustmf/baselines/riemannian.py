"""RP: Riemannian preconditioning, conjugate gradients on three factors with a scaled metric (R3MC; Mishra & Sepulchre).

X = U R Vᵀ with orthonormal U, V and a nonsingular R (r × r). The metric at (U, R, V) is
g(x, y) = ⟨x_U RRᵀ, y_U⟩ + ⟨x_R, y_R⟩ + ⟨x_V RᵀR, y_V⟩, which follows the Hessian of ½‖X − M‖².
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.baselines.interface import Baseline
from robustmf.baselines.spectral import truncated_svd
from robustmf.data.observed import Observed
from robustmf.lazily import cached
from robustmf.solvers.base import Callback

Array = NDArray[np.floating[Any]]
Tangent = tuple[Array, Array, Array]

#: Armijo: accept a step that reaches this share of the decrease promised; halve it at most so often.
_SUFFICIENT, _HALVINGS = 1e-4, 50

_RULES = ("polak-ribiere", "hestenes-stiefel")


class RP(Baseline):
    """Least squares, ½ Σ e² over the matrices of rank r, by Riemannian conjugate gradients. No regularisation.

    Parameters
    ----------
    conjugacy : {"polak-ribiere", "hestenes-stiefel"}
        The rule for the next direction, both with restart.
    tol : float
        Stop when the objective falls by less than this share, or when the mean squared residual is below it.
    rank, max_iter, random_state, n_jobs, callbacks
        See :class:`Baseline`. The start is the truncated SVD of the zero-filled matrix.

    References
    ----------
    B. Mishra and R. Sepulchre, R3MC: a Riemannian three-factor algorithm for low-rank matrix completion, CDC 2014;
    Riemannian preconditioning, SIAM J. Optim. 2016.
    """

    def __init__(
        self,
        rank: int = 10,
        *,
        conjugacy: str = "polak-ribiere",
        max_iter: int = 500,
        tol: float = 1e-4,
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.rank, self.conjugacy = rank, conjugacy
        self.max_iter, self.tol = max_iter, tol
        self.random_state, self.n_jobs, self.callbacks = random_state, n_jobs, callbacks

    def _check_parameters(self, observed: Observed) -> None:
        super()._check_parameters(observed)
        if self.conjugacy not in _RULES:
            raise ValueError(f"conjugacy must be one of {_RULES}, got conjugacy={self.conjugacy!r}")

    def _solver(
        self, operations: CPUOperations, rng: np.random.Generator
    ) -> tuple[ConjugateGradients, Array, Array]:
        U, s, V = truncated_svd(operations.observed, int(self.rank), rng)
        return ConjugateGradients(operations, self.conjugacy == "hestenes-stiefel"), U * s, V


@dataclass(frozen=True)
class Point:
    """U R Vᵀ, with what its metric needs."""

    U: Array
    R: Array
    V: Array

    @cached
    def left(self) -> Gram:
        """RRᵀ."""
        return Gram(self.R @ self.R.T)

    @cached
    def right(self) -> Gram:
        """RᵀR."""
        return Gram(self.R.T @ self.R)

    def inner(self, x: Tangent, y: Tangent) -> float:
        """g(x, y)."""
        rows = np.sum((x[0] @ self.left.matrix) * y[0], dtype=np.float64)
        columns = np.sum((x[2] @ self.right.matrix) * y[2], dtype=np.float64)
        return float(rows + np.sum(x[1] * y[1], dtype=np.float64) + columns)

    def moved(self, x: Tangent, t: float) -> Point:
        """The retraction: polar factors of U + t x_U and V + t x_V."""
        step = self.R.dtype.type(t)
        return Point(
            _polar(self.U + step * x[0]), self.R + step * x[1], _polar(self.V + step * x[2])
        )

    def gradient(self, to_U: Array, to_V: Array) -> Tangent:
        """The Riemannian gradient, from the Euclidean products EV and EᵀU; it is tangent and horizontal."""
        eR = self.U.T @ to_U
        row, column = to_U @ self.R.T, to_V @ self.R
        row = row - self.U @ self.left.lyapunov(2 * _sym(self.left.matrix @ eR @ self.R.T))
        column = column - self.V @ self.right.lyapunov(2 * _sym(self.right.matrix @ eR.T @ self.R))
        return row @ self.left.inverse, eR, column @ self.right.inverse

    def transported(self, x: Tangent, size: float) -> Tangent:
        """X brought here from a point where g(x, x) was ``size``: made tangent, then horizontal, then rescaled.

        The rescaling by the ratio of squared norms (not of norms) is the authors'.
        """
        A, B = self.left, self.right
        row = (
            x[0]
            - self.U @ A.lyapunov(2 * _sym(A.matrix @ (self.U.T @ x[0]) @ A.matrix)) @ A.inverse
        )
        column = (
            x[2]
            - self.V @ B.lyapunov(2 * _sym(B.matrix @ (self.V.T @ x[2]) @ B.matrix)) @ B.inverse
        )
        O1, O2 = self._vertical(row, x[1], column)
        new = (row - self.U @ O1, x[1] - (self.R @ O2 - O1 @ self.R), column - self.V @ O2)
        now = self.inner(new, new)
        scale = self.R.dtype.type(size / now) if now > 0 else self.R.dtype.type(0)
        return scale * new[0], scale * new[1], scale * new[2]

    def _vertical(self, row: Array, middle: Array, column: Array) -> tuple[Array, Array]:
        """Skew (O1, O2) that solve RRᵀO1 + O1RRᵀ − RO2Rᵀ = E, RᵀRO2 + O2RᵀR − RᵀO1R = F, entrywise in the SVD of R."""
        E = _skew((self.U.T @ row) @ self.left.matrix) + _skew(self.R @ middle.T)
        F = _skew((self.V.T @ column) @ self.right.matrix) + _skew(self.R.T @ middle)
        P, s, Qt = np.linalg.svd(self.R)
        A = s[:, None] ** 2 + s[None, :] ** 2
        D = np.maximum(np.outer(s, s), np.finfo(s.dtype).tiny)
        E, F = P.T @ E @ P, Qt @ F @ Qt.T
        # A²/D − D is 3s² on the diagonal, where the skew E and F are 0
        O1 = (F + A * E / D) / np.maximum(A * A / D - D, np.finfo(s.dtype).tiny)
        O2 = (F + D * O1) / np.maximum(A, np.finfo(s.dtype).tiny)
        return P @ O1 @ P.T, Qt.T @ O2 @ Qt


class Gram:
    """A positive definite r × r matrix with its eigenvectors; tiny eigenvalues are held at rounding, so that nothing divides by 0."""

    def __init__(self, matrix: Array) -> None:
        self.matrix = matrix
        values, self._vectors = np.linalg.eigh(matrix)
        self._values = np.maximum(
            values, np.finfo(matrix.dtype).eps * (values[-1] if values[-1] > 0 else 1)
        )

    @cached
    def inverse(self) -> Array:
        """The inverse."""
        return np.asarray((self._vectors / self._values) @ self._vectors.T)

    def lyapunov(self, B: Array) -> Array:
        """X with AX + XA = B."""
        rotated = self._vectors.T @ B @ self._vectors
        return np.asarray(
            self._vectors
            @ (rotated / (self._values[:, None] + self._values[None, :]))
            @ self._vectors.T
        )


class ConjugateGradients:
    """One step: direction, linearised exact step length with backtracking, retraction."""

    def __init__(self, operations: CPUOperations, hestenes_stiefel: bool) -> None:
        self._operations, self._hestenes_stiefel = operations, hestenes_stiefel
        self._step = 1.0

    @property
    def factors(self) -> tuple[Array, Array]:
        """(UR, V)."""
        return self._point.U @ self._point.R, self._point.V

    def begin(self, U: Array, V: Array) -> float:
        """Start at UVᵀ."""
        (Qu, Ru), (Qv, Rv) = np.linalg.qr(U), np.linalg.qr(V)
        P, s, Wt = np.linalg.svd(Ru @ Rv.T)
        self._point = Point(Qu @ P, np.diag(s), Qv @ Wt.T)
        self._residual = self._residual_at(self._point)
        self._gradient = self._gradient_at(self._point, self._residual)
        self._direction = _negative(self._gradient)
        return self._cost(self._residual)

    def _residual_at(self, point: Point) -> Array:
        """Prediction minus data."""
        return -self._operations.residuals(point.U @ point.R, point.V)

    def _gradient_at(self, point: Point, e: Array) -> Tangent:
        return point.gradient(*self._operations.products(e, point.U, point.V))

    @staticmethod
    def _cost(e: Array) -> float:
        return 0.5 * float(np.square(e, dtype=np.float64).sum())

    def step(self) -> float:
        """One iteration."""
        point, gradient, direction = self._point, self._gradient, self._direction
        slope = point.inner(direction, gradient)
        if slope > 0:
            direction = _negative(gradient)
            slope = point.inner(direction, gradient)
        cost = self._cost(self._residual)
        t = self._exact_step(direction)
        for _ in range(_HALVINGS):
            new = point.moved(direction, t)
            residual = self._residual_at(new)
            if cost - self._cost(residual) >= _SUFFICIENT * abs(t * slope):
                break
            t /= 2
        else:
            return cost
        self._step = t
        size = point.inner(gradient, gradient)
        new_gradient = self._gradient_at(new, residual)
        brought = new.transported(gradient, size)
        onward = new.transported(direction, point.inner(direction, direction))
        change = (
            new_gradient[0] - brought[0],
            new_gradient[1] - brought[1],
            new_gradient[2] - brought[2],
        )
        along = new.inner(new_gradient, change)
        below = new.inner(onward, change) if self._hestenes_stiefel else size
        beta = gradient[0].dtype.type(max(0.0, along / below) if below != 0 else 0.0)
        self._direction = tuple(beta * d - g for d, g in zip(onward, new_gradient, strict=True))  # type: ignore[assignment]
        self._point, self._gradient, self._residual = new, new_gradient, residual
        return self._cost(residual)

    def _exact_step(self, x: Tangent) -> float:
        """Minimises ‖e + t s‖ with s the linearised change of the prediction."""
        point, e = self._point, self._residual
        left = np.hstack([point.U @ point.R, x[0] @ point.R + point.U @ x[1]])
        s = self._operations.sampled_product(left, np.hstack([x[2], point.V]))
        below = float(np.square(s, dtype=np.float64).sum())
        t = -float(np.multiply(e, s, dtype=np.float64).sum()) / below if below > 0 else 0.0
        return t if t > 0 else self._step

    def settled(self, before: float, objective: float, tol: float) -> str | None:
        """The objective hardly changes, or the fit is exact."""
        if 2 * objective / len(self._residual) < tol:
            return f"the mean squared residual is below tol={tol:g}"
        return (
            f"the objective changed by less than tol={tol:g}"
            if abs(before - objective) < tol * before
            else None
        )

    def report(self) -> dict[str, float]:
        """The norm of the Riemannian gradient."""
        return {
            "gradient": float(np.sqrt(max(self._point.inner(self._gradient, self._gradient), 0.0)))
        }


def _negative(x: Tangent) -> Tangent:
    return -x[0], -x[1], -x[2]


def _sym(A: Array) -> Array:
    return np.asarray((A + A.T) / 2)


def _skew(A: Array) -> Array:
    return np.asarray((A - A.T) / 2)


def _polar(A: Array) -> Array:
    """The orthonormal factor of A."""
    L, _, Rt = np.linalg.svd(A, full_matrices=False)
    return np.ascontiguousarray(L @ Rt)
