"""Variable projection: V for given U, and the Gauss–Newton matrix of the projected problem in U.

Entries are by columns. Sums run in column order, and each thread owns a stripe of rows of the
matrix: any partition gives the same bits, and threads need no accumulators.
"""

from __future__ import annotations

import numpy as np

from robustmf.kernels.jit import kernel

#: Relative floor of √ridge in the least squares of a column: a rank-deficient column gets the
#: solution of least norm.
_ROOT_FLOOR = 1e-8


@kernel
def solve_columns(first, last, bounds, pointers, rows, values, w, U, ridge, V, e, Q):
    """v_j = argmin ‖W^½(m_j − U_j v)‖² + ridge‖v‖², its residual e_j, and Q_j, for the blocks.

    Thin QR (Gram–Schmidt, twice) of [W^½ U_j ; √ridge I] = [Q_j ; ·]R. Q_j are the rows that belong
    to entries: the Gauss–Newton matrix depends on W^½(I − Q_j Q_jᵀ)W^½ only.
    """
    m, r = U.shape
    A, R, b = np.empty((r, m + r)), np.zeros((r, r)), np.empty(m + r)
    for j in range(bounds[first], bounds[last]):
        start = pointers[j]
        p = pointers[j + 1] - start
        size = 0.0
        for t in range(p):
            root_w = np.sqrt(w[start + t])
            b[t] = root_w * values[start + t]
            for q in range(r):
                A[q, t] = root_w * U[rows[start + t], q]
                size += A[q, t] * A[q, t]
        root = np.sqrt(max(ridge, _ROOT_FLOOR * _ROOT_FLOOR * size)) if size + ridge > 0.0 else 1.0
        for q in range(r):
            b[p + q] = 0.0
            for k in range(r):
                A[k, p + q] = 0.0
            A[q, p + q] = root
        length = p + r
        for q in range(r):
            for k in range(q):
                R[k, q] = 0.0
            for _ in range(2):
                for k in range(q):
                    s = 0.0
                    for t in range(length):
                        s += A[k, t] * A[q, t]
                    R[k, q] += s
                    for t in range(length):
                        A[q, t] -= s * A[k, t]
            s = 0.0
            for t in range(length):
                s += A[q, t] * A[q, t]
            R[q, q] = np.sqrt(s)
            s = 1.0 / R[q, q]
            for t in range(length):
                A[q, t] *= s
        for q in range(r):
            s = 0.0
            for t in range(length):
                s += A[q, t] * b[t]
            V[j, q] = s
            for t in range(length):
                b[t] -= s * A[q, t]
        for q in range(r - 1, -1, -1):
            s = V[j, q]
            for k in range(q + 1, r):
                s -= R[q, k] * V[j, k]
            V[j, q] = s / R[q, q]
        for t in range(p):
            s = values[start + t]
            for q in range(r):
                s -= U[rows[start + t], q] * V[j, q]
                Q[start + t, q] = A[q, t]
            e[start + t] = s


@kernel
def assemble_rows(first, last, bounds, pointers, rows, w, V, e, Q, H, g):
    """The stripe of H (lower triangle of blocks) and of g for the rows of U in the blocks.

    H = Σ_j [W_j^½(I − Q_j Q_jᵀ)W_j^½] ⊗ v_j v_jᵀ (Ruhe and Wedin's second approximation), and
    g_i = Σ_j w_ij e_ij v_j, minus the gradient without the ridge.
    """
    n, r = V.shape
    low, high = bounds[first], bounds[last]
    vq = np.empty(r)
    H[low * r : high * r, : high * r] = 0.0
    g[low:high] = 0.0
    for j in range(n):
        start, end = pointers[j], pointers[j + 1]
        for a in range(start, end):
            i = rows[a]
            if i < low:
                continue
            if i >= high:
                break
            root_a = np.sqrt(w[a])
            for q in range(r):
                g[i, q] += w[a] * e[a] * V[j, q]
            for c in range(start, a + 1):
                s = 1.0 if c == a else 0.0
                for q in range(r):
                    s -= Q[a, q] * Q[c, q]
                s *= root_a * np.sqrt(w[c])
                k = rows[c] * r
                for q in range(r):
                    vq[q] = s * V[j, q]
                for q in range(r):
                    for p in range(r):
                        H[i * r + q, k + p] += V[j, q] * vq[p]
