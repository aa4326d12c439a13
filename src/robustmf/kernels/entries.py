"""Products of factors at the observed entries, and of entries with factors.

Every kernel takes a range of row blocks ``[first, last)`` of ``bounds`` and the compressed rows
``pointers``, ``indices``. Sums over a column cross row blocks, so each block has its own partial
sums, which are added in block order afterwards.
"""

from __future__ import annotations

from robustmf.kernels.jit import kernel


@kernel
def residuals(first, last, bounds, pointers, indices, values, U, V, shifts, out):
    """Out = values_t − u_i·v_j − shifts_j for the entries from the first one of ``bounds``.

    Empty ``values`` and ``shifts`` are zeros.
    """
    rank = U.shape[1]
    begin = pointers[bounds[0]]
    for i in range(bounds[first], bounds[last]):
        for t in range(pointers[i], pointers[i + 1]):
            j = indices[t]
            e = values[t] if len(values) > 0 else U[i, 0] * 0
            if len(shifts) > 0:
                e -= shifts[j]
            for q in range(rank):
                e -= U[i, q] * V[j, q]
            out[t - begin] = e


@kernel
def entry_products(first, last, bounds, pointers, indices, x, U, V, row_products, column_parts):
    """row_products = XV and column_parts[block] = the block's part of XᵀU, for X with entries x."""
    rank = U.shape[1]
    for block in range(first, last):
        part = column_parts[block]
        part[:] = 0
        for i in range(bounds[block], bounds[block + 1]):
            for q in range(rank):
                row_products[i, q] = 0
            for t in range(pointers[i], pointers[i + 1]):
                j = indices[t]
                for q in range(rank):
                    row_products[i, q] += x[t] * V[j, q]
                    part[j, q] += x[t] * U[i, q]


@kernel
def row_products(first, last, bounds, pointers, indices, x, V, out):
    """out_i = Σ_j x_ij v_j: the rows of XV."""
    rank = V.shape[1]
    for i in range(bounds[first], bounds[last]):
        for q in range(rank):
            out[i, q] = 0
        for t in range(pointers[i], pointers[i + 1]):
            j = indices[t]
            for q in range(rank):
                out[i, q] += x[t] * V[j, q]


@kernel
def entry_sums(first, last, bounds, pointers, indices, x, row_sums, column_parts):
    """row_sums_i = Σ_j x_ij and column_parts[block, j] = the block's part of Σ_i x_ij (float64)."""
    for block in range(first, last):
        part = column_parts[block]
        part[:] = 0
        for i in range(bounds[block], bounds[block + 1]):
            total = 0.0
            for t in range(pointers[i], pointers[i + 1]):
                total += x[t]
                part[indices[t]] += x[t]
            row_sums[i] = total


@kernel
def add_parts(first, last, bounds, parts, out):
    """Out = Σ_block parts[block] in block order, for the column blocks ``[first, last)``."""
    rank = out.shape[1]
    for j in range(bounds[first], bounds[last]):
        for q in range(rank):
            out[j, q] = parts[0, j, q]
        for block in range(1, len(parts)):
            for q in range(rank):
                out[j, q] += parts[block, j, q]


@kernel
def grams(first, last, bounds, pointers, indices, V, out):
    """out_i = Σ_{j observed in row i} v_j v_jᵀ."""
    rank = V.shape[1]
    for i in range(bounds[first], bounds[last]):
        gram = out[i]
        gram[:] = 0
        for t in range(pointers[i], pointers[i + 1]):
            j = indices[t]
            for q in range(rank):
                for p in range(q + 1):
                    gram[q, p] += V[j, q] * V[j, p]
        for q in range(rank):
            for p in range(q):
                gram[p, q] = gram[q, p]
