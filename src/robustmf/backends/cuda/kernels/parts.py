"""Sums over the chunks of a row in a fixed order, so that every run gives the same bits."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_into_first(rows, first_chunks, offset, parts, size, BLOCK: tl.constexpr):
    """Replace the part of the first chunk of a row by the sum over all its chunks.

    A part has ``size`` numbers; ``offset`` is the chunk of the first part in memory.
    """
    row = tl.load(rows + tl.program_id(0)).to(tl.int64)
    first, stop = tl.load(first_chunks + row) - offset, tl.load(first_chunks + row + 1) - offset
    q = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(parts + first * size + q, mask=q < size, other=0.0)
    for chunk in range(first + 1, stop):
        total += tl.load(parts + chunk * size + q, mask=q < size, other=0.0)
    tl.store(parts + first * size + q, total, mask=q < size)


@triton.jit
def gather(
    rows, first_chunks, lanes, parts, n_lanes, positions, size, totals, total_size,
    Q: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Row k of ``totals`` is the sum over the chunks of the k-th of ``rows``.

    The numbers of a chunk are ``parts[number, lane]``. ``positions`` has, for each number, its two
    positions in the row of ``totals``.
    """
    k = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + k)
    first, stop = tl.load(first_chunks + row), tl.load(first_chunks + row + 1)
    q, c = tl.arange(0, Q)[:, None].to(tl.int64), tl.arange(0, C)[None, :]
    total = tl.zeros((Q, C), parts.dtype.element_ty)
    for chunk in range(first, stop, C):
        inside = chunk + c < stop
        lane = tl.load(lanes + chunk + c, mask=inside, other=0)
        total += tl.load(parts + q * n_lanes + lane, mask=inside & (q < size), other=0.0)
    number, found = tl.arange(0, Q), tl.sum(total, 1)
    for twice in tl.static_range(2):
        at = tl.load(positions + number * 2 + twice, mask=number < size, other=0)
        tl.store(totals + k * total_size + at, found, mask=number < size)
