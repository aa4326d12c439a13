"""The manifold of m × n matrices of rank r, as embedded in all matrices (Vandereycken 2013)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]

#: (M, U_p, V_p) stands for U M Vᵀ + U_p Vᵀ + U V_pᵀ with UᵀU_p = 0, VᵀV_p = 0.
Tangent = tuple[Array, Array, Array]


@dataclass(frozen=True)
class FixedRank:
    """X = U diag(s) Vᵀ with orthonormal U and V."""

    U: Array
    s: Array
    V: Array

    @classmethod
    def of(cls, U: Array, V: Array) -> Self:
        """The point UVᵀ."""
        (Qu, Ru), (Qv, Rv) = np.linalg.qr(U), np.linalg.qr(V)
        P, s, Wt = np.linalg.svd(Ru @ Rv.T)
        return cls(np.ascontiguousarray(Qu @ P), s, np.ascontiguousarray(Qv @ Wt.T))

    def projected(self, ZV: Array, ZtU: Array) -> Tangent:
        """The orthogonal projection of a matrix Z on the tangent space, from ZV and ZᵀU."""
        M = self.U.T @ ZV
        return M, ZV - self.U @ M, ZtU - self.V @ M.T

    def moved(self, x: Tangent, t: float) -> FixedRank:
        """The retraction: the best rank-r approximation of X + t x."""
        M, Up, Vp = x
        r = len(self.s)
        (Qu, Ru), (Qv, Rv) = (
            np.linalg.qr(np.hstack([self.U, Up])),
            np.linalg.qr(np.hstack([self.V, Vp])),
        )
        middle = np.zeros((2 * r, 2 * r), M.dtype)
        middle[:r, :r] = np.diag(self.s) + M.dtype.type(t) * M
        middle[:r, r:] = middle[r:, :r] = M.dtype.type(t) * np.eye(r, dtype=M.dtype)
        P, s, Wt = np.linalg.svd(Ru @ middle @ Rv.T)
        return FixedRank(
            np.ascontiguousarray(Qu @ P[:, :r]), s[:r], np.ascontiguousarray(Qv @ Wt[:r].T)
        )

    def transported(self, origin: FixedRank, x: Tangent) -> Tangent:
        """X, tangent at ``origin``, projected on the tangent space here."""
        M, Up, Vp = x
        left = origin.U @ M + Up
        ZV = left @ (origin.V.T @ self.V) + origin.U @ (Vp.T @ self.V)
        ZtU = origin.V @ (left.T @ self.U) + Vp @ (origin.U.T @ self.U)
        return self.projected(ZV, ZtU)
