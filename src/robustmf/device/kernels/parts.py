"""Sums over the chunks of a row, in their order: the same bits in every run."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_into_first(rows, first_chunks, offset, parts, size, BLOCK: tl.constexpr):
    """The part of a row's first chunk ← the sum over all its chunks; ``size`` numbers a part, ``offset`` the first chunk held."""
    row = tl.load(rows + tl.program_id(0)).to(tl.int64)
    first, stop = tl.load(first_chunks + row) - offset, tl.load(first_chunks + row + 1) - offset
    q = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(parts + first * size + q, mask=q < size, other=0.0)
    for chunk in range(first + 1, stop):
        total += tl.load(parts + chunk * size + q, mask=q < size, other=0.0)
    tl.store(parts + first * size + q, total, mask=q < size)
