"""Small dense linear algebra for kernels that work row by row: lower triangles, in place."""

from __future__ import annotations

import numpy as np

from robustmf.kernels.jit import inlined

#: Lower bounds of pivots, absolute and relative to the diagonal: below, they are rounding errors.
_MIN_PIVOT = 1e-280
_ROUNDING = 1e-14

#: Systems that are solved together.
LANES = 8


@inlined
def cholesky(A):
    """A ← L with A = LLᵀ, in the lower triangle."""
    r = A.shape[0]
    for q in range(r):
        for k in range(q + 1):
            s = A[q, k]
            least = max(_MIN_PIVOT, _ROUNDING * s)
            for p in range(k):
                s -= A[q, p] * A[k, p]
            A[q, k] = np.sqrt(max(s, least)) if q == k else s / A[k, k]


@inlined
def solve(A, b):
    """B ← A⁻¹b for a positive definite A, whose lower triangle is replaced by its factor."""
    cholesky(A)
    substitute(A, b)


@inlined
def substitute(L, b):
    """B ← (LLᵀ)⁻¹b."""
    r = b.size
    for q in range(r):
        for k in range(q):
            b[q] -= L[q, k] * b[k]
        b[q] /= L[q, q]
    for q in range(r - 1, -1, -1):
        for k in range(q + 1, r):
            b[q] -= L[k, q] * b[k]
        b[q] /= L[q, q]


@inlined
def solve_lanes(A, b):
    """B ← A⁻¹b for eight systems, of which each has an index of the last axis, as :func:`solve`.

    The loops over systems are vectorized. The diagonal of A receives the reciprocals of the pivots.
    """
    r = b.shape[0]
    for q in range(r):
        for k in range(q + 1):
            for p in range(k):
                for z in range(LANES):
                    A[q, k, z] -= A[q, p, z] * A[k, p, z]
            if q == k:
                for z in range(LANES):
                    A[q, q, z] = 1 / np.sqrt(max(A[q, q, z], _MIN_PIVOT))
            else:
                for z in range(LANES):
                    A[q, k, z] *= A[k, k, z]
    for q in range(r):
        for k in range(q):
            for z in range(LANES):
                b[q, z] -= A[q, k, z] * b[k, z]
        for z in range(LANES):
            b[q, z] *= A[q, q, z]
    for q in range(r - 1, -1, -1):
        for k in range(q + 1, r):
            for z in range(LANES):
                b[q, z] -= A[k, q, z] * b[k, z]
        for z in range(LANES):
            b[q, z] *= A[q, q, z]


@inlined
def invert(A, M, S):
    """S ← A⁻¹ (both triangles) for a positive definite A, which is overwritten; M is workspace.

    M receives the transposed inverse of the Cholesky factor: all sums are over contiguous rows.
    """
    r = A.shape[0]
    cholesky(A)
    for c in range(r):
        for q in range(c, r):
            s = 1.0 if q == c else 0.0
            for k in range(c, q):
                s -= A[q, k] * M[c, k]
            M[c, q] = s / A[q, q]
    for q in range(r):
        for k in range(q + 1):
            s = 0.0
            for p in range(q, r):
                s += M[q, p] * M[k, p]
            S[q, k] = s
            S[k, q] = s


@inlined
def add_outer(A, b, v, w, y):
    """A += w vvᵀ (lower triangle), b += w y v."""
    for q in range(v.size):
        x = w * v[q]
        b[q] += x * y
        for k in range(q + 1):
            A[q, k] += x * v[k]


@inlined
def dot(a, b):
    """a·b in float64."""
    s = 0.0
    for q in range(a.size):
        s += a[q] * b[q]
    return s


@inlined
def copy(a, b):
    """B ← a. An assignment to a slice would also compile the message for shapes that differ."""
    for q in range(a.size):
        b[q] = a[q]
