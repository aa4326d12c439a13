"""The half-step as one would write it in Numba by hand: a reference for the speed of the kernel.

Entries are gathered in blocks, so that the long loops run over entries and are vectorized by the
compiler. The weight of the LSP loss is fixed in the code.
"""

from __future__ import annotations

import numpy as np
from numba import njit

#: Entries gathered together.
_BLOCK = 128


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def plain_half_step(  # type: ignore[no-untyped-def]
    indptr, indices, values, U, V, reg, theta, eps2
):
    """Update all rows of U in place, float32."""
    m, rank = U.shape
    B = np.empty((rank, _BLOCK), np.float32)
    W = np.empty((rank, _BLOCK), np.float32)
    p = np.empty(_BLOCK, np.float32)
    w = np.empty(_BLOCK, np.float32)
    A = np.empty((rank, rank), np.float32)
    b = np.empty(rank, np.float32)
    for i in range(m):
        A[:] = 0
        b[:] = 0
        s = indptr[i]
        end = indptr[i + 1]
        while s < end:
            k = min(_BLOCK, end - s)
            for t in range(k):
                for q in range(rank):
                    B[q, t] = V[indices[s + t], q]
            for t in range(k):
                p[t] = values[s + t]
            for q in range(rank):
                u = U[i, q]
                for t in range(k):
                    p[t] -= u * B[q, t]
            for t in range(k):
                a = np.sqrt(p[t] * p[t] + eps2)
                w[t] = np.float32(1) / ((theta + a) * a)
            for q in range(rank):
                for t in range(k):
                    W[q, t] = w[t] * B[q, t]
                total = np.float32(0)
                for t in range(k):
                    total += W[q, t] * values[s + t]
                b[q] += total
                for j in range(q + 1):
                    total = np.float32(0)
                    for t in range(k):
                        total += W[q, t] * B[j, t]
                    A[q, j] += total
            s += k
        for q in range(rank):
            A[q, q] += reg
        for q in range(rank):
            for k in range(q + 1):
                total = A[q, k]
                for j in range(k):
                    total -= A[q, j] * A[k, j]
                A[q, k] = np.sqrt(total) if q == k else total / A[k, k]
        for q in range(rank):
            total = b[q]
            for k in range(q):
                total -= A[q, k] * b[k]
            b[q] = total / A[q, q]
        for q in range(rank - 1, -1, -1):
            total = b[q]
            for k in range(q + 1, rank):
                total -= A[k, q] * b[k]
            b[q] = total / A[q, q]
        for q in range(rank):
            U[i, q] = b[q]
