"""The embedded manifold of m × n matrices of rank r (Vandereycken 2013)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]

#: (M, U_p, V_p) represents U M Vᵀ + U_p Vᵀ + U V_pᵀ with UᵀU_p = 0 and VᵀV_p = 0.
Tangent = tuple[Array, Array, Array]


@dataclass(frozen=True)
class FixedRank:
    """The point X = U diag(s) Vᵀ with orthonormal U and V."""

    U: Array
    s: Array
    V: Array

    @classmethod
    def from_factors(cls, U: Array, V: Array) -> Self:
        """Return the point UVᵀ for arbitrary factors U and V."""
        Qu, Ru = np.linalg.qr(U)
        Qv, Rv = np.linalg.qr(V)
        P, s, Wt = np.linalg.svd(Ru @ Rv.T)
        return cls(np.ascontiguousarray(Qu @ P), s, np.ascontiguousarray(Qv @ Wt.T))

    def project(self, ZV: Array, ZtU: Array) -> Tangent:
        """Return the projection of a matrix Z onto the tangent space, from ZV and ZᵀU."""
        M = self.U.T @ ZV
        return M, ZV - self.U @ M, ZtU - self.V @ M.T

    def retract(self, x: Tangent, t: float) -> FixedRank:
        """Return the best rank-r approximation of X + t x."""
        M, Up, Vp = x
        r = len(self.s)
        Qu, Ru = np.linalg.qr(np.hstack([self.U, Up]))
        Qv, Rv = np.linalg.qr(np.hstack([self.V, Vp]))
        middle = np.zeros((2 * r, 2 * r), M.dtype)
        middle[:r, :r] = np.diag(self.s) + M.dtype.type(t) * M
        middle[:r, r:] = middle[r:, :r] = M.dtype.type(t) * np.eye(r, dtype=M.dtype)
        P, s, Wt = np.linalg.svd(Ru @ middle @ Rv.T)
        return FixedRank(
            np.ascontiguousarray(Qu @ P[:, :r]), s[:r], np.ascontiguousarray(Qv @ Wt[:r].T)
        )

    def transport(self, origin: FixedRank, x: Tangent) -> Tangent:
        """Project x, which is tangent at ``origin``, onto the tangent space at this point."""
        M, Up, Vp = x
        left = origin.U @ M + Up
        ZV = left @ (origin.V.T @ self.V) + origin.U @ (Vp.T @ self.V)
        ZtU = origin.V @ (left.T @ self.U) + Vp @ (origin.U.T @ self.U)
        return self.project(ZV, ZtU)
