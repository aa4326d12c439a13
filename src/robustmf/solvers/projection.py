"""Variable projection: points U with V eliminated, and the Levenberg–Marquardt step on U."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from robustmf.data.observed import Observed
from robustmf.kernels import varpro as kernels
from robustmf.kernels.reductions import squared_norm
from robustmf.kernels.team import Team, block_bounds
from robustmf.losses import Loss

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ProjectionOptions:
    """Constants of the passes and of the Levenberg–Marquardt damping.

    Attributes
    ----------
    blocks : int
        Blocks of columns (and of rows) of a pass; the order of sums does not depend on the threads.
    lowest, highest : float
        The damping is at least ``lowest``; a step fails when it would exceed ``highest``.
    growth : float
        The first increase after a failed attempt; each further one is by twice the factor before.
    max_decrease : float
        The largest decrease after a successful step, as a factor.
    """

    blocks: int = 16
    lowest: float = 1e-12
    highest: float = 1e8
    growth: float = 2.0
    max_decrease: float = 0.1


OPTIONS = ProjectionOptions()


@dataclass(frozen=True)
class Point:
    """U, V, the residuals e and, for the weights w that V was solved with, the bases Q.

    Arrays over the entries are in column order.
    """

    U: Array
    V: Array
    e: Array
    Q: Array
    w: Array


class Entries:
    """The entries by columns, in float64, with the passes over them."""

    def __init__(self, observed: Observed, team: Team) -> None:
        self.columns = observed.columns
        self.shape = observed.shape
        self.team = team
        self.values = self.columns.values.astype(np.float64)
        self._column_bounds = block_bounds(self.columns.pointers, OPTIONS.blocks)
        self._row_bounds = block_bounds(np.arange(self.shape[0] + 1), OPTIONS.blocks)

    def project(self, U: Array, w: Array, ridge: float) -> Point:
        """V(U) for the weights w."""
        rank = U.shape[1]
        V = np.empty((self.shape[1], rank))
        e = np.empty(len(self.values))
        Q = np.empty((len(self.values), rank))
        self.team.run(
            kernels.solve_columns,
            len(self._column_bounds) - 1,
            4 * rank * rank * len(e),
            self._column_bounds,
            self.columns.pointers,
            self.columns.indices,
            self.values,
            w,
            U,
            ridge,
            V,
            e,
            Q,
        )
        return Point(U, V, e, Q, w)

    def assemble(self, point: Point, H: Array, g: Array) -> None:
        """The Gauss–Newton matrix and minus the gradient at a point, without the ridge on U."""
        r = point.U.shape[1]
        counts = self.columns.counts
        self.team.run(
            kernels.assemble_rows,
            len(self._row_bounds) - 1,
            r * r * int((counts * counts).sum()) // 2,
            self._row_bounds,
            self.columns.pointers,
            self.columns.indices,
            point.w,
            point.V,
            point.e,
            point.Q,
            H,
            g,
        )


@dataclass(frozen=True)
class Projected:
    """Σ φ(e) + λ_u/2 ‖U‖² + λ_v/2 ‖V‖² with V eliminated.

    λ_u = λ_v, or λ_u = 0 for the problem on subspaces, where UᵀU = mI is maintained.
    """

    entries: Entries
    loss: Loss
    ridge_u: float
    ridge_v: float

    def objective(self, point: Point) -> float:
        """Its value."""
        return float(self.loss.value(point.e).sum()) + 0.5 * (
            self.ridge_u * squared_norm(point.U) + self.ridge_v * squared_norm(point.V)
        )

    def weights(self, e: Array) -> Array:
        """The loss's weights at the residuals e."""
        return np.asarray(self.loss.weight(e), np.float64)

    def at(self, U: Array, w: Array | None = None) -> Point:
        """The point at U, for equal weights unless given."""
        return self.entries.project(
            U, np.ones(len(self.entries.values)) if w is None else w, self.ridge_v
        )


def orthonormal(U: Array) -> Array:
    """The same range with UᵀU = mI."""
    return np.linalg.qr(U)[0] * np.sqrt(len(U))


def balanced(U: Array, V: Array) -> tuple[Array, Array]:
    """The factors of the same UVᵀ with UᵀU = VᵀV, which have the least ‖U‖² + ‖V‖²."""
    Qu, Ru = np.linalg.qr(U)
    Qv, Rv = np.linalg.qr(V)
    A, s, Bt = np.linalg.svd(Ru @ Rv.T)
    return Qu @ (A * np.sqrt(s)), Qv @ (Bt.T * np.sqrt(s))


class LevenbergMarquardt:
    """Steps on U for one projected problem; the objective never rises."""

    def __init__(self, problem: Projected, point: Point, damping: float) -> None:
        self.problem = problem
        self.point = point
        self.damping = damping
        self.value = problem.objective(point)
        m, r = point.U.shape
        self._H = np.zeros((m * r, m * r))
        self._g = np.zeros((m, r))

    def step(self) -> bool:
        """Update the weights and make a damped step; false if none lowers the objective."""
        self._refresh()
        problem = self.problem
        point = self.point
        problem.entries.assemble(point, self._H, self._g)
        m, r = point.U.shape
        if problem.ridge_u > 0:
            self._H[np.diag_indices(m * r)] += problem.ridge_u
            self._g -= problem.ridge_u * point.U
        else:
            self._g -= point.U @ (point.U.T @ self._g) / m
        growth = OPTIONS.growth
        while self.damping < OPTIONS.highest:
            if self._try():
                return True
            self.damping *= growth
            growth *= 2
        return False

    def _refresh(self) -> None:
        """Update the weights, and solve for V with them: the weighted squares majorize the loss.

        V is kept if the objective rises by rounding.
        """
        problem = self.problem
        new = problem.at(self.point.U, problem.weights(self.point.e))
        value = problem.objective(new)
        if value <= self.value:
            self.point = new
            self.value = value
        else:
            self.point = replace(self.point, Q=new.Q, w=new.w)

    def _try(self) -> bool:
        problem = self.problem
        point = self.point
        try:
            d = _damped_step(self._H, self._g, point.U, self.damping)
        except (LinAlgError, np.linalg.LinAlgError):
            return False
        new = problem.at(point.U + d if problem.ridge_u > 0 else orthonormal(point.U + d), point.w)
        value = problem.objective(new)
        if not value < self.value:
            return False
        gain = min((self.value - value) / max(0.5 * float((d * self._g).sum()), 1e-300), 1.0)
        factor = max(OPTIONS.max_decrease, 1 - (2 * gain - 1) ** 3)
        self.damping = max(self.damping * factor, OPTIONS.lowest)
        if problem.ridge_u > 0:
            U, V = balanced(new.U, new.V)
            new = replace(new, U=U, V=V)
            value = min(value, problem.objective(new))
        self.point = new
        self.value = value
        return True


def _damped_step(H: Array, g: Array, U: Array, damping: float) -> Array:
    """Solve (H + c(μI + UU⁺) ⊗ D)d = g with D = m(UᵀU)⁻¹, c = tr H/(m tr D).

    D makes the step of UVᵀ the same in every gauge; UU⁺ fills the r² directions d = UA, in which H
    vanishes without a ridge.
    """
    m, r = U.shape
    P, s, Bt = np.linalg.svd(U, full_matrices=False)
    s = np.maximum(s, max(1e-6 * s[0], 1e-150))
    D = m * (Bt.T / s**2) @ Bt
    B = H.copy()
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        c = float(np.trace(H) / (m * np.trace(D))) or 1.0
        K = c * (P @ P.T)
        K[np.diag_indices(m)] += c * damping
        B.reshape(m, r, m, r)[...] += K[:, None, :, None] * D[None, :, None, :]
    if not np.isfinite(B).all():
        raise LinAlgError("the curvature is not finite")
    # the lower triangle of the C-ordered B is the upper one of Bᵀ for LAPACK: no copy
    factor = cho_factor(B.T, lower=False, overwrite_a=True, check_finite=False)
    return np.asarray(cho_solve(factor, g.ravel(), check_finite=False)).reshape(m, r)
