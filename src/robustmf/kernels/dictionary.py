"""Online dictionary learning with missing entries (OMDL).

Codes of rows, running averages, and block coordinate descent on atoms. Atoms are the last axis of
arrays: D and B are (n, r).
"""

from __future__ import annotations

import numpy as np

from robustmf.kernels.jit import inlined, kernel
from robustmf.kernels.small import solve

#: Atoms that were used less than this do not move.
_MIN_USE = 1e-20


@inlined
def row_code(indices, values, D, ridge, gram, out):
    """Out ← (D_sᵀD_s + ridge·I)⁻¹ D_sᵀ x_s over the observed columns s."""
    r = D.shape[1]
    gram[:] = 0
    out[:] = 0
    for t in range(len(values)):
        d = D[indices[t]]
        for q in range(r):
            out[q] += d[q] * values[t]
            for p in range(q + 1):
                gram[q, p] += d[q] * d[p]
    for q in range(r):
        gram[q, q] += ridge
    if len(values) > 0:
        solve(gram, out)


@kernel
def row_codes(first, last, bounds, pointers, indices, values, D, alpha, out):
    """The codes of the rows of the blocks, with the dictionary fixed."""
    gram = np.empty((D.shape[1], D.shape[1]))
    for i in range(bounds[first], bounds[last]):
        a, b = pointers[i], pointers[i + 1]
        row_code(indices[a:b], values[a:b], D, alpha * (b - a) / len(D), gram, out[i])


@kernel
def learn_epoch(
    order,
    batch,
    atom_orders,
    pointers,
    indices,
    values,
    seen,
    alpha,
    decay,
    D,
    P,
    B,
    C,
    counts,
    slack,
):
    """Visit the rows in ``order`` in batches; update the atoms after each batch.

    Atoms move on the columns that the batch observed. ``seen`` is the number of rows visited
    before.
    """
    n, r = D.shape
    gram, average = np.empty((r, r)), np.empty((r, r))
    touched = np.empty(n, np.int64)
    is_touched = np.zeros(n, np.bool_)
    for number, begin in enumerate(range(0, len(order), batch)):
        rows = order[begin : begin + batch]
        keep = 1.0
        for _ in range(len(rows)):
            seen += 1
            keep *= 1 - seen ** (-decay)
        weight = 1 - keep
        average[:] = 0
        size = 0
        for i in rows:
            a, b = pointers[i], pointers[i + 1]
            row_code(indices[a:b], values[a:b], D, alpha * (b - a) / n, gram, P[i])
            for t in range(a, b):
                j = indices[t]
                counts[j] += 1
                own = min(1.0, weight * seen / counts[j])
                for q in range(r):
                    B[j, q] = (1 - own) * B[j, q] + own * values[t] * P[i, q]
                if not is_touched[j]:
                    is_touched[j] = True
                    touched[size] = j
                    size += 1
            for q in range(r):
                for p in range(r):
                    average[q, p] += P[i, q] * P[i, p]
        for q in range(r):
            for p in range(r):
                C[q, p] = (1 - weight) * C[q, p] + weight / len(rows) * average[q, p]
        move_atoms(D, B, C, slack, touched[:size], atom_orders[number])
        for k in range(size):
            is_touched[touched[k]] = False


@inlined
def move_atoms(D, B, C, slack, columns, order):
    """One round of block coordinate descent on the given columns, with ‖D_k‖² + slack_k = 1."""
    r = D.shape[1]
    G, moved = np.empty((len(columns), r)), np.empty(len(columns))
    for k in range(len(columns)):
        j = columns[k]
        for q in range(r):
            slack[q] += D[j, q] * D[j, q]
            g = B[j, q]
            for p in range(r):
                g -= D[j, p] * C[p, q]
            G[k, q] = g
    for q in order:
        norm = 0.0
        for k in range(len(columns)):
            j = columns[k]
            moved[k] = D[j, q] + (G[k, q] / C[q, q] if C[q, q] > _MIN_USE else 0.0)
            norm += moved[k] * moved[k]
        shrink = np.sqrt(slack[q] / norm) if norm > slack[q] else 1.0
        for k in range(len(columns)):
            j = columns[k]
            change = shrink * moved[k] - D[j, q]
            D[j, q] += change
            for p in range(r):
                G[k, p] -= C[q, p] * change
        slack[q] = max(slack[q] - shrink * shrink * norm, 0.0)
