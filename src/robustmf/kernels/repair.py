"""New factors for single rows, from random subsets of their entries, under the Welsch loss.

Sweeps do not help a row that is at a poor local minimum, where its outliers keep it. As many of its
entries as there are factors determine a candidate; if none of them is an outlier, the candidate is
in the basin of attraction of the right minimum.
"""

from __future__ import annotations

import numpy as np

from robustmf.kernels.jit import inlined, kernel
from robustmf.kernels.small import add_outer, dot, invert, solve


@inlined
def hashed(x):
    """Splitmix64: the next state of a random stream that depends only on its seed."""
    x += np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@kernel
def mean_weights(first, last, bounds, pointers, indices, values, U, V, rate, out):
    """out_i = mean of exp(−rate·e²) over the entries of row i; 1 for an empty row."""
    for i in range(bounds[first], bounds[last]):
        total = 0.0
        for t in range(pointers[i], pointers[i + 1]):
            e = values[t] - dot(U[i], V[indices[t]])
            total += np.exp(-rate * e * e)
        count = pointers[i + 1] - pointers[i]
        out[i] = total / count if count > 0 else 1.0


@kernel
def normal_inverses(first, last, bounds, pointers, indices, values, U, V, ridge, rate, out):
    """out_i = (Σ_j exp(−rate·e²) v_j v_jᵀ + ridge·I)⁻¹."""
    r = U.shape[1]
    A, L, b = np.empty((r, r)), np.empty((r, r)), np.empty(r)
    for i in range(bounds[first], bounds[last]):
        A[:] = 0
        for t in range(pointers[i], pointers[i + 1]):
            v = V[indices[t]]
            e = values[t] - dot(U[i], v)
            add_outer(A, b, v, np.exp(-rate * e * e), 0.0)
        for q in range(r):
            A[q, q] += ridge
        invert(A, L, out[i])


@inlined
def _reweighted_step(B, y, u, ridge, rate, A, b):
    """U ← weighted ridge regression of y on B with the weights of u."""
    A[:] = 0
    b[:] = 0
    for t in range(y.size):
        e = y[t] - dot(u, B[t])
        add_outer(A, b, B[t], np.exp(-rate * e * e), y[t])
    for q in range(u.size):
        A[q, q] += ridge
    solve(A, b)
    u[:] = b


@inlined
def _cost(B, y, u, ridge, rate):
    """The row's terms of the objective: (1/(2·rate)) Σ (1 − exp(−rate·e²)) + ridge/2 ‖u‖²."""
    lost = 0.0
    for t in range(y.size):
        e = y[t] - dot(u, B[t])
        lost += 1 - np.exp(-rate * e * e)
    return 0.5 / rate * lost + 0.5 * ridge * dot(u, u)


@inlined
def _leave_one_out(pointers, indices, values, i, U, V, inverses, rate, B):
    """B_t ← v_j without the entry (i, j).

    Otherwise a column that fits an outlier of this row would support it.
    """
    r = U.shape[1]
    for t in range(pointers[i], pointers[i + 1]):
        j, k = indices[t], t - pointers[i]
        e = values[t] - dot(U[i], V[j])
        w = np.exp(-rate * e * e)
        leverage = 0.0
        for q in range(r):
            B[k, q] = dot(inverses[j, q], U[i])
            leverage += B[k, q] * U[i, q]
        shift = w * e / max(0.1, 1 - w * leverage)
        for q in range(r):
            B[k, q] = V[j, q] - shift * B[k, q]


@inlined
def _subset_fit(B, y, order, state, ridge, A, u):
    """U ← ridge fit of as many random entries as there are factors; return the random state."""
    A[:] = 0
    u[:] = 0
    for d in range(u.size):
        state = hashed(state)
        z = d + np.int64((state >> np.uint64(11)) % np.uint64(y.size - d))
        order[d], order[z] = order[z], order[d]
        add_outer(A, u, B[order[d]], 1.0, y[order[d]])
    for q in range(u.size):
        A[q, q] += ridge
    solve(A, u)
    return state


@kernel
def repair_rows(
    first, last, pointers, indices, values, U, V, inverses, ridge, rate, rows, n_subsets, seed,
    changed,
):  # fmt: skip
    """The best of the present factors and of subset fits, for the rows ``rows[first:last]``.

    After each subset fit follows one reweighted step. A row changes only if its cost falls by 2 %;
    ``changed`` receives which rows did. Each row has its own random stream.
    """
    r = U.shape[1]
    A, b, u, best_u = np.empty((r, r)), np.empty(r), np.empty(r), np.empty(r)
    for a in range(first, last):
        i = rows[a]
        count = pointers[i + 1] - pointers[i]
        changed[a] = False
        if count < r + 2:
            continue
        y = values[pointers[i] : pointers[i + 1]].astype(np.float64)
        B, order = np.empty((count, r)), np.arange(count)
        _leave_one_out(pointers, indices, values, i, U, V, inverses, rate, B)
        u[:] = U[i]
        for _ in range(3):
            _reweighted_step(B, y, u, ridge, rate, A, b)
        present = _cost(B, y, u, ridge, rate)
        best, state = present, hashed(np.uint64(seed) * np.uint64(0x100000001B3) + np.uint64(i))
        for _ in range(n_subsets[a]):
            state = _subset_fit(B, y, order, state, ridge, A, u)
            _reweighted_step(B, y, u, ridge, rate, A, b)
            cost = _cost(B, y, u, ridge, rate)
            if cost < best:
                best = cost
                best_u[:] = u
        if best < 0.98 * present:
            for _ in range(4):
                _reweighted_step(B, y, best_u, ridge, rate, A, b)
            changed[a] = True
            U[i] = best_u
