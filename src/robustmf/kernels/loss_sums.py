"""Sums of a loss over the entries, without an array over all of them.

Residuals are gathered row by row, in a batch that stays in the L1 cache and is long enough for whole vectors; then the loss is called
through its address (see :mod:`robustmf.backends.cpu.compiled_loss`), once for each tip. So residuals are computed once for all tips.
"""

from __future__ import annotations

import numpy as np

from robustmf.kernels.half_step import differences, load_block
from robustmf.kernels.jit import inlined, kernel
from robustmf.kernels.vector import call_block, lanes

BATCH = 512  # residuals, their distances and losses, in float64: 12 KiB


@inlined
def add_losses(e, s, n, sample, tips2, address, params, distance, loss, sums, block):
    """sums[block, q] += sum_t s_t phi(sqrt(e_t^2 + tip_q^2)) over a batch whose first entry is the s-th."""
    for q in range(len(tips2)):
        if tips2[q] == 0:
            for t in range(n):
                distance[t] = abs(e[t])
        else:
            for t in range(n):
                difference = distance.dtype.type(e[t])
                distance[t] = np.sqrt(difference * difference + tips2[q])
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
    tips2,
    address,
    params,
    sums,
):
    """sums[block, q] = sum s_t phi(sqrt((m_t - u'v_t)^2 + tip_q^2)) over the entries of the block's rows, summed in float64.

    Differences have V's type, distances and losses that of tips2. V is flat, its rows padded with zeros to `width`; `sample` is empty
    when unused. `none` (empty) and `clip` (unbounded) stand for the shifts and bounds of the half-step's values, read in the same way.
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
        np.zeros(padded, tips2.dtype),
        np.zeros(padded, tips2.dtype),
    )
    for block in range(first, last):
        for q in range(len(tips2)):
            sums[block, q] = 0
        filled, begin = 0, indptr[bounds[block]]
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
                        tips2,
                        address,
                        params,
                        distance,
                        loss,
                        sums,
                        block,
                    )
                    begin += filled
                    filled = 0
        if filled > 0:
            add_losses(
                e, begin, filled, sample, tips2, address, params, distance, loss, sums, block
            )
