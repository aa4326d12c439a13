"""Products of factors at the entries, and sums of entries, for each chunk."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def residuals(
    chunk_rows, chunk_starts, chunk_ends, indices, values, shifts, U, V, out,
    SHIFTS: tl.constexpr, RANK: tl.constexpr, STRIDE: tl.constexpr, WIDTH: tl.constexpr,
    R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Out = values_t − u_i·v_j − shifts_j."""
    chunk = tl.program_id(0)
    row = tl.load(chunk_rows + chunk).to(tl.int64)
    start = tl.load(chunk_starts + chunk)
    count = (tl.load(chunk_ends + chunk) - start).to(tl.int32)
    indices += start
    values += start
    out += start
    q, t = tl.arange(0, R), tl.arange(0, BLOCK)
    u = tl.load(U + row * RANK + q, mask=q < RANK, other=0.0)
    for o in range(0, count, BLOCK):
        inside = o + t < count
        j = tl.load(indices + o + t, mask=inside, other=0)
        e = tl.load(values + o + t, mask=inside, other=0.0)
        v = tl.load(
            V + (j.to(WIDTH) * STRIDE)[:, None] + q[None, :], mask=(q < STRIDE)[None, :], other=0.0
        )
        if SHIFTS:
            e -= tl.load(shifts + j)
        tl.store(out + o + t, e - tl.sum(v * u[None, :], 1), mask=inside)


@triton.jit
def value_parts(
    chunk_rows, chunk_starts, chunk_ends, indices, values, sample, U, V, numbers, parts,
    value: tl.constexpr, N_EPSILONS: tl.constexpr, T: tl.constexpr, SAMPLE: tl.constexpr,
    RANK: tl.constexpr, STRIDE: tl.constexpr, WIDTH: tl.constexpr, R: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """parts_k,c = Σ s·value(√(e² + ε_k²)) over the chunk for each ε, value and sum in float64.

    ``numbers`` are the four parameters of the loss, then the squares of ε.
    """
    chunk = tl.program_id(0)
    row = tl.load(chunk_rows + chunk).to(tl.int64)
    start = tl.load(chunk_starts + chunk)
    count = (tl.load(chunk_ends + chunk) - start).to(tl.int32)
    indices += start
    values += start
    sample += start
    q, t, k = tl.arange(0, R), tl.arange(0, BLOCK), tl.arange(0, T)
    u = tl.load(U + row * RANK + q, mask=q < RANK, other=0.0)
    p0, p1, p2, p3 = (
        tl.load(numbers),
        tl.load(numbers + 1),
        tl.load(numbers + 2),
        tl.load(numbers + 3),
    )
    eps2 = tl.load(numbers + 4 + k, mask=k < N_EPSILONS, other=1.0)
    total = tl.zeros((BLOCK, T), tl.float64)
    for o in range(0, count, BLOCK):
        inside = o + t < count
        j = tl.load(indices + o + t, mask=inside, other=0)
        e = tl.load(values + o + t, mask=inside, other=0.0)
        v = tl.load(
            V + (j.to(WIDTH) * STRIDE)[:, None] + q[None, :], mask=(q < STRIDE)[None, :], other=0.0
        )
        e = (e - tl.sum(v * u[None, :], 1)).to(tl.float64)
        found = value(tl.sqrt((e * e)[:, None] + eps2[None, :]), p0, p1, p2, p3)
        if SAMPLE:
            found *= tl.load(sample + o + t, mask=inside, other=0.0)[:, None]
        total += tl.where(inside[:, None], found, 0.0)
    tl.store(parts + k * tl.num_programs(0) + chunk, tl.sum(total, 0), mask=k < N_EPSILONS)


@triton.jit
def product_parts(
    chunk_starts, chunk_ends, indices, positions, x, V, parts,
    INDIRECT: tl.constexpr, RANK: tl.constexpr, STRIDE: tl.constexpr, WIDTH: tl.constexpr,
    R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """parts_c = Σ x_t v_j over the chunk; if INDIRECT, x_t is ``x[positions[t]]``."""
    chunk = tl.program_id(0).to(tl.int64)
    start = tl.load(chunk_starts + chunk)
    count = (tl.load(chunk_ends + chunk) - start).to(tl.int32)
    indices += start
    positions += start
    q, t = tl.arange(0, R), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, R), V.dtype.element_ty)
    for o in range(0, count, BLOCK):
        inside = o + t < count
        j = tl.load(indices + o + t, mask=inside, other=0)
        at = tl.load(positions + o + t, mask=inside, other=0) if INDIRECT else start + o + t
        found = tl.load(x + at, mask=inside, other=0.0)
        v = tl.load(
            V + (j.to(WIDTH) * STRIDE)[:, None] + q[None, :], mask=(q < STRIDE)[None, :], other=0.0
        )
        total += found[:, None] * v
    tl.store(parts + chunk * RANK + q, tl.sum(total, 0), mask=q < RANK)


@triton.jit
def sum_parts(
    chunk_starts, chunk_ends, positions, x, parts, INDIRECT: tl.constexpr, BLOCK: tl.constexpr
):
    """parts_c = Σ x_t over the chunk, in float64; if INDIRECT, x_t is ``x[positions[t]]``."""
    chunk = tl.program_id(0)
    start = tl.load(chunk_starts + chunk)
    count = (tl.load(chunk_ends + chunk) - start).to(tl.int32)
    positions += start
    t = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float64)
    for o in range(0, count, BLOCK):
        inside = o + t < count
        at = tl.load(positions + o + t, mask=inside, other=0) if INDIRECT else start + o + t
        total += tl.load(x + at, mask=inside, other=0.0).to(tl.float64)
    tl.store(parts + chunk, tl.sum(total, 0))
