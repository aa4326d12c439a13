"""RP: Riemannian preconditioning (R3MC; Mishra & Sepulchre).

X = U R Vᵀ with orthonormal U and V and a nonsingular R (r × r). The metric at (U, R, V) is
g(x, y) = ⟨x_U RRᵀ, y_U⟩ + ⟨x_R, y_R⟩ + ⟨x_V RᵀR, y_V⟩, which approximates the Hessian of
½‖X − M‖².
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.baselines.interface import Baseline
from robustmf.baselines.spectral import truncated_svd

Array = NDArray[np.floating[Any]]

#: A tangent vector (x_U, x_R, x_V).
Tangent = tuple[Array, Array, Array]

_RULES = ("polak-ribiere", "hestenes-stiefel")


@dataclass(frozen=True)
class R3MCOptions:
    """Constants of the Armijo line search, as in the authors' code."""

    #: Required fraction of the decrease that the slope predicts.
    sufficient_decrease: float = 1e-4
    #: Maximum number of halvings of the step size.
    max_halvings: int = 50


_OPTIONS = R3MCOptions()


@dataclass(eq=False, repr=False)
class RP(Baseline):
    """Least squares, ½ Σ e², over the matrices of rank r by Riemannian conjugate gradients.

    The objective is not regularized. The initial point is the truncated SVD of the zero-filled
    matrix.

    Parameters
    ----------
    rank : int, default=10
        Rank r.
    conjugacy : {"polak-ribiere", "hestenes-stiefel"}, default="polak-ribiere"
        Formula of the conjugate direction; both are truncated at 0.
    max_iter : int, default=500
        Maximum number of iterations.
    tol : float, default=1e-4
        Stop when the relative change of the objective or the mean squared residual is below
        ``tol``. The default is the paper's; that of the authors' code is 1e-5.
    random_state : int, Generator or None, default=None
        Seed of the Lanczos iteration for the SVD.
    n_jobs : int or None, default=None
        Number of threads; None means all cores.
    callbacks : sequence of callables, default=()
        See :class:`Baseline`.

    References
    ----------
    B. Mishra and R. Sepulchre, R3MC: a Riemannian three-factor algorithm for low-rank matrix
    completion, CDC 2014; Riemannian preconditioning, SIAM J. Optim. 2016.
    """

    conjugacy: str = "polak-ribiere"
    max_iter: int = 500
    tol: float = 1e-4

    def _check_parameters(self) -> None:
        if self.conjugacy not in _RULES:
            raise ValueError(f"conjugacy must be one of {_RULES}, got conjugacy={self.conjugacy!r}")

    def _solver(
        self, operations: CPUOperations, rng: np.random.Generator
    ) -> tuple[ConjugateGradients, Array, Array]:
        U, s, V = truncated_svd(operations.observed, int(self.rank), rng)
        return ConjugateGradients(operations, self.conjugacy == "hestenes-stiefel"), U * s, V


@dataclass(frozen=True)
class Point:
    """The matrix U R Vᵀ."""

    U: Array
    R: Array
    V: Array

    def retract(self, x: Tangent, t: float) -> Point:
        """Return the retraction of t x: the polar factors of U + t x_U and V + t x_V."""
        step = self.R.dtype.type(t)
        return Point(
            _polar(self.U + step * x[0]), self.R + step * x[1], _polar(self.V + step * x[2])
        )


class Gram:
    """A positive definite r × r matrix with its eigendecomposition.

    Eigenvalues are bounded from below by the rounding error of the largest one, which prevents
    division by 0.
    """

    def __init__(self, matrix: Array) -> None:
        self.matrix = matrix
        values, self._vectors = np.linalg.eigh(matrix)
        self._values = np.maximum(
            values, np.finfo(matrix.dtype).eps * (values[-1] if values[-1] > 0 else 1)
        )
        self.inverse = np.asarray((self._vectors / self._values) @ self._vectors.T)

    def lyapunov(self, B: Array) -> Array:
        """Return the solution X of AX + XA = B."""
        rotated = self._vectors.T @ B @ self._vectors
        return np.asarray(
            self._vectors
            @ (rotated / (self._values[:, None] + self._values[None, :]))
            @ self._vectors.T
        )


class Metric:
    """The scaled metric g at a point, and the projections that depend on it."""

    def __init__(self, point: Point) -> None:
        self.point = point
        self._left = Gram(point.R @ point.R.T)
        self._right = Gram(point.R.T @ point.R)

    def inner(self, x: Tangent, y: Tangent) -> float:
        """Return g(x, y)."""
        rows = np.sum((x[0] @ self._left.matrix) * y[0], dtype=np.float64)
        columns = np.sum((x[2] @ self._right.matrix) * y[2], dtype=np.float64)
        return float(rows + np.sum(x[1] * y[1], dtype=np.float64) + columns)

    def gradient(self, to_U: Array, to_V: Array) -> Tangent:
        """Return the Riemannian gradient, which is tangent and horizontal, from EV and EᵀU."""
        U = self.point.U
        R = self.point.R
        V = self.point.V
        left = self._left
        right = self._right
        eR = U.T @ to_U
        row = to_U @ R.T - U @ left.lyapunov(2 * _sym(left.matrix @ eR @ R.T))
        column = to_V @ R - V @ right.lyapunov(2 * _sym(right.matrix @ eR.T @ R))
        return row @ left.inverse, eR, column @ right.inverse

    def transport(self, x: Tangent, squared_norm: float) -> Tangent:
        """Transport x to this point from one where g(x, x) was ``squared_norm``.

        The vector is projected onto the tangent space and onto the horizontal space, and rescaled.
        As in the authors' code the scale is the ratio of squared norms, not of norms.
        """
        U = self.point.U
        R = self.point.R
        V = self.point.V
        row = _tangent_part(U, x[0], self._left)
        column = _tangent_part(V, x[2], self._right)
        O1, O2 = self._vertical(row, x[1], column)
        new = (row - U @ O1, x[1] - (R @ O2 - O1 @ R), column - V @ O2)
        own = self.inner(new, new)
        scale = R.dtype.type(squared_norm / own) if own > 0 else R.dtype.type(0)
        return scale * new[0], scale * new[1], scale * new[2]

    def _vertical(self, row: Array, middle: Array, column: Array) -> tuple[Array, Array]:
        """Return the skew-symmetric (O1, O2) that define the vertical part of a tangent vector.

        They solve RRᵀO1 + O1RRᵀ − RO2Rᵀ = E and RᵀRO2 + O2RᵀR − RᵀO1R = F, which are elementwise
        equations in the basis of the SVD of R.
        """
        U = self.point.U
        R = self.point.R
        V = self.point.V
        E = _skew((U.T @ row) @ self._left.matrix) + _skew(R @ middle.T)
        F = _skew((V.T @ column) @ self._right.matrix) + _skew(R.T @ middle)
        P, s, Qt = np.linalg.svd(R)
        tiny = np.finfo(s.dtype).tiny
        A = s[:, None] ** 2 + s[None, :] ** 2
        D = np.maximum(np.outer(s, s), tiny)
        E = P.T @ E @ P
        F = Qt @ F @ Qt.T
        # A²/D − D is 3s² on the diagonal, where the skew-symmetric E and F are 0.
        O1 = (F + A * E / D) / np.maximum(A * A / D - D, tiny)
        O2 = (F + D * O1) / np.maximum(A, tiny)
        return P @ O1 @ P.T, Qt.T @ O2 @ Qt


class ConjugateGradients:
    """One step: conjugate direction, linearized exact step size with backtracking, retraction.

    Parameters
    ----------
    operations : CPUOperations
        Operations on the observed entries.
    hestenes_stiefel : bool
        Whether to use the Hestenes–Stiefel formula instead of Polak–Ribière.
    """

    def __init__(self, operations: CPUOperations, hestenes_stiefel: bool) -> None:
        self._operations = operations
        self._hestenes_stiefel = hestenes_stiefel
        self._step = 1.0

    @property
    def factors(self) -> tuple[Array, Array]:
        """(UR, V)."""
        point = self.metric.point
        return point.U @ point.R, point.V

    def begin(self, U: Array, V: Array) -> float:
        """Set the initial point UVᵀ and return the objective there."""
        Qu, Ru = np.linalg.qr(U)
        Qv, Rv = np.linalg.qr(V)
        P, s, Wt = np.linalg.svd(Ru @ Rv.T)
        self.metric = Metric(Point(Qu @ P, np.diag(s), Qv @ Wt.T))
        self._residual = self.residual_at(self.metric.point)
        self.gradient = self._gradient_at(self.metric, self._residual)
        self._direction = _negative(self.gradient)
        return self.cost(self._residual)

    def residual_at(self, point: Point) -> Array:
        """Return prediction minus data at the observed entries."""
        return -self._operations.residuals(point.U @ point.R, point.V)

    def _gradient_at(self, metric: Metric, e: Array) -> Tangent:
        """Return the Riemannian gradient for the residuals e."""
        return metric.gradient(*self._operations.products(e, metric.point.U, metric.point.V))

    @staticmethod
    def cost(e: Array) -> float:
        """Return the objective for the residuals e."""
        return 0.5 * float(np.square(e, dtype=np.float64).sum())

    def step(self) -> float:
        """Take one step; keep the point if the line search fails."""
        metric = self.metric
        point = metric.point
        gradient = self.gradient
        direction = self._direction
        slope = metric.inner(direction, gradient)
        if slope > 0:
            direction = _negative(gradient)
            slope = metric.inner(direction, gradient)
        cost = self.cost(self._residual)
        t = self._exact_step(direction)
        for _ in range(_OPTIONS.max_halvings):
            new_point = point.retract(direction, t)
            residual = self.residual_at(new_point)
            if cost - self.cost(residual) >= _OPTIONS.sufficient_decrease * abs(t * slope):
                break
            t /= 2
        else:
            return cost
        self._step = t
        new_metric = Metric(new_point)
        new_gradient = self._gradient_at(new_metric, residual)
        self._direction = self._conjugate_direction(metric, direction, new_metric, new_gradient)
        self.metric = new_metric
        self.gradient = new_gradient
        self._residual = residual
        return self.cost(residual)

    def _conjugate_direction(
        self, metric: Metric, direction: Tangent, new_metric: Metric, new_gradient: Tangent
    ) -> Tangent:
        """Return the direction of the next step."""
        gradient = self.gradient
        squared_norm = metric.inner(gradient, gradient)
        old_gradient = new_metric.transport(gradient, squared_norm)
        old_direction = new_metric.transport(direction, metric.inner(direction, direction))
        change = (
            new_gradient[0] - old_gradient[0],
            new_gradient[1] - old_gradient[1],
            new_gradient[2] - old_gradient[2],
        )
        numerator = new_metric.inner(new_gradient, change)
        denominator = (
            new_metric.inner(old_direction, change) if self._hestenes_stiefel else squared_norm
        )
        ratio = max(0.0, numerator / denominator) if denominator != 0 else 0.0
        beta = gradient[0].dtype.type(ratio)
        return (
            beta * old_direction[0] - new_gradient[0],
            beta * old_direction[1] - new_gradient[1],
            beta * old_direction[2] - new_gradient[2],
        )

    def _exact_step(self, x: Tangent) -> float:
        """Return the minimizer t of ‖e + t s‖, where s is the linearized change of prediction."""
        point = self.metric.point
        e = self._residual
        left = np.hstack([point.U @ point.R, x[0] @ point.R + point.U @ x[1]])
        s = self._operations.sampled_product(left, np.hstack([x[2], point.V]))
        curvature = float(np.square(s, dtype=np.float64).sum())
        if not curvature > 0:
            return self._step
        t = -float(np.multiply(e, s, dtype=np.float64).sum()) / curvature
        return t if t > 0 else self._step

    def convergence_reason(self, before: float, objective: float, tol: float) -> str | None:
        """Test the mean squared residual and the relative change of the objective."""
        if 2 * objective / len(self._residual) < tol:
            return f"the mean squared residual is below tol={tol:g}"
        if abs(before - objective) < tol * before:
            return f"the objective changed by less than tol={tol:g}"
        return None

    def report(self) -> dict[str, float]:
        """Return the norm of the Riemannian gradient."""
        squared_norm = self.metric.inner(self.gradient, self.gradient)
        return {"gradient": float(np.sqrt(max(squared_norm, 0.0)))}


def _tangent_part(U: Array, x: Array, gram: Gram) -> Array:
    """Return the projection of x onto the tangent space at the orthonormal factor U."""
    A = gram.matrix
    return np.asarray(x - U @ gram.lyapunov(2 * _sym(A @ (U.T @ x) @ A)) @ gram.inverse)


def _negative(x: Tangent) -> Tangent:
    return -x[0], -x[1], -x[2]


def _sym(A: Array) -> Array:
    return np.asarray((A + A.T) / 2)


def _skew(A: Array) -> Array:
    return np.asarray((A - A.T) / 2)


def _polar(A: Array) -> Array:
    """Return the orthonormal factor of the polar decomposition of A."""
    L, _, Rt = np.linalg.svd(A, full_matrices=False)
    return np.ascontiguousarray(L @ Rt)
