"""One half of an alternating sweep: every row's factors, given those of the columns."""

from __future__ import annotations

import numpy as np

from robustmf.kernels.jit import kernel


@kernel
def solve_positive(A, b):  # type: ignore[no-untyped-def]
    """B ← A⁻¹b by Cholesky, in place (lower triangle of A); false if A is not positive definite in this arithmetic."""
    rank = len(b)
    for q in range(rank):
        for k in range(q + 1):
            s = A[q, k]
            for p in range(k):
                s -= A[q, p] * A[k, p]
            if q == k:
                if not s > 0:
                    return False
                A[q, q] = np.sqrt(s)
            else:
                A[q, k] = s / A[k, k]
    for q in range(rank):
        s = b[q]
        for k in range(q):
            s -= A[q, k] * b[k]
        b[q] = s / A[q, q]
    for q in range(rank - 1, -1, -1):
        s = b[q]
        for k in range(q + 1, rank):
            s -= A[k, q] * b[k]
        b[q] = s / A[q, q]
    return True


@kernel
def half_step(first, last, bounds, pointers, indices, values, weights, reg, U, V):  # type: ignore[no-untyped-def]
    """U_i = argmin_u Σ_j weights·(values − u·v_j)² + reg‖u‖², for the rows of the blocks; a row without entries becomes 0."""
    rank = U.shape[1]
    A = np.empty((rank, rank))
    b = np.empty(rank)
    for i in range(bounds[first], bounds[last]):
        A[:] = 0
        b[:] = 0
        for t in range(pointers[i], pointers[i + 1]):
            j = indices[t]
            for q in range(rank):
                wv = weights[t] * V[j, q]
                b[q] += wv * values[t]
                for p in range(q + 1):
                    A[q, p] += wv * V[j, p]
        for q in range(rank):
            A[q, q] += reg
        if solve_positive(A, b):
            for q in range(rank):
                U[i, q] = b[q]
        elif pointers[i] == pointers[i + 1]:
            for q in range(rank):
                U[i, q] = 0
