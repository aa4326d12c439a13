"""Sums of a loss over the entries, without an array over all of them.

Residuals are gathered row by row in a batch that stays in the L1 cache and is long enough for whole
vectors; then the loss is called through its address (see
:mod:`robustmf.backends.cpu.compiled_loss`), once for each smoothing width ε. So residuals are
computed once for all widths.
"""

from __future__ import annotations

import numpy as np

from robustmf.kernels.half_step import differences, load_block
from robustmf.kernels.jit import inlined, kernel
from robustmf.kernels.vector import call_block, lanes

#: Entries of a batch: residuals, smoothed distances and losses in float64 take 12 KiB.
BATCH = 512


@inlined
def add_losses(e, s, n, sample, eps2, address, params, distance, loss, sums, block):
    """sums[block, q] += sum_t s_t phi(sqrt(e_t^2 + eps_q^2)) over a batch from entry s on."""
    for q in range(len(eps2)):
        if eps2[q] == 0:
            for t in range(n):
                distance[t] = abs(e[t])
        else:
            for t in range(n):
                difference = distance.dtype.type(e[t])
                distance[t] = np.sqrt(difference * difference + eps2[q])
        call_block(address, distance, loss, n, params)
        total = 0.0
        if len(sample) > 0:
            for t in range(n):
                total += loss[t] * sample[np.uint64(s + t)]
        else:
            for t in range(n):
                total += loss[t]
        sums[block, q] += total


@kernel
def loss_sums(
    first,
    last,
    bounds,
    indptr,
    indices,
    values,
    sample,
    none,
    clip,
    V,
    width,
    U,
    eps2,
    address,
    params,
    sums,
):
    """sums[block, q] = sum s_t phi(sqrt((m_t - u'v_t)^2 + eps_q^2)) over the rows of the block.

    Sums are float64. Residuals have the dtype of V, distances and losses that of ``eps2``. V is
    flat, its rows padded with zeros to ``width``; ``sample`` is empty if unused. ``none`` (empty)
    and ``clip`` (unbounded) are the shifts and bounds that `load_block` expects.
    """
    rank, step = U.shape[1], lanes(V)
    padded = BATCH + step
    offset, value, u = (
        np.zeros(padded, np.int64),
        np.zeros(padded, V.dtype),
        np.zeros(width, V.dtype),
    )
    e, distance, loss = (
        np.zeros(padded, V.dtype),
        np.zeros(padded, eps2.dtype),
        np.zeros(padded, eps2.dtype),
    )
    for block in range(first, last):
        for q in range(len(eps2)):
            sums[block, q] = 0
        filled, begin = np.int64(0), indptr[bounds[block]]  # not a literal: see add_block
        for i in range(bounds[block], bounds[block + 1]):
            for q in range(rank):
                u[q] = U[i, q]
            s = indptr[i]
            while s < indptr[i + 1]:
                n = min(BATCH - filled, indptr[i + 1] - s)
                load_block(indices, values, none, clip, s, n, width, offset, value)
                differences(V, offset, value, n, u, width, e, filled)
                filled += n
                s += n
                if filled == BATCH:
                    add_losses(
                        e,
                        begin,
                        filled,
                        sample,
                        eps2,
                        address,
                        params,
                        distance,
                        loss,
                        sums,
                        block,
                    )
                    begin += filled
                    filled = np.int64(0)
        if filled > 0:
            add_losses(e, begin, filled, sample, eps2, address, params, distance, loss, sums, block)
