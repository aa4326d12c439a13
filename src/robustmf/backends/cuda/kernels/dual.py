"""One step of accelerated projected gradient on the dual of the MM surrogate, and its loss.

See :mod:`robustmf.kernels.dual` for the mathematics.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def step_parts(
    chunk_rows, chunk_starts, chunk_ends, indices, e, w, row_curvature, column_curvature, numbers,
    U, V, dU, dV, x, x_before, x_new, parts, sums,
    RANK: tl.constexpr, STRIDE: tl.constexpr, WIDTH: tl.constexpr, R: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """x_new = clip(z + ρ(z)/c), and the chunk's part of the row product and of the three sums.

    ``numbers`` are the momentum and the scale of the curvatures.
    """
    chunk = tl.program_id(0).to(tl.int64)
    row = tl.load(chunk_rows + chunk).to(tl.int64)
    start = tl.load(chunk_starts + chunk)
    count = (tl.load(chunk_ends + chunk) - start).to(tl.int32)
    indices += start
    x += start
    e += start
    w += start
    x_before += start
    x_new += start
    q, t = tl.arange(0, R), tl.arange(0, BLOCK)
    u = tl.load(U + row * RANK + q, mask=q < RANK, other=0.0)
    du = tl.load(dU + row * RANK + q, mask=q < RANK, other=0.0)
    momentum, scale = tl.load(numbers), tl.load(numbers + 1)
    own_curvature = tl.load(row_curvature + row)
    product = tl.zeros((BLOCK, R), V.dtype.element_ty)
    moved, linear, restart = (
        tl.zeros((BLOCK,), tl.float64),
        tl.zeros((BLOCK,), tl.float64),
        tl.zeros((BLOCK,), tl.float64),
    )
    for o in range(0, count, BLOCK):
        inside = o + t < count
        j = tl.load(indices + o + t, mask=inside, other=0)
        at = (j.to(WIDTH) * STRIDE)[:, None] + q[None, :]
        v = tl.load(V + at, mask=(q < STRIDE)[None, :], other=0.0)
        dv = tl.load(dV + at, mask=(q < STRIDE)[None, :], other=0.0)
        residual = tl.load(e + o + t, mask=inside, other=0.0)
        rho = residual - tl.sum(du[None, :] * v + u[None, :] * dv, 1)
        old = tl.load(x + o + t, mask=inside, other=0.0)
        z = old + momentum * (old - tl.load(x_before + o + t, mask=inside, other=0.0))
        c = scale * (own_curvature + tl.load(column_curvature + j))
        bound = tl.load(w + o + t, mask=inside, other=0.0)
        new = tl.minimum(tl.maximum(z + rho / c, -bound), bound)
        new = tl.where(inside, new, 0.0)
        tl.store(x_new + o + t, new, mask=inside)
        product += new[:, None] * v
        shift, c = (new - z).to(tl.float64), c.to(tl.float64)
        moved += c * shift * shift
        linear += new.to(tl.float64) * residual
        restart -= c * shift * (new - old)
    tl.store(parts + chunk * RANK + q, tl.sum(product, 0), mask=q < RANK)
    tl.store(sums + chunk * 3, tl.sum(moved, 0))
    tl.store(sums + chunk * 3 + 1, tl.sum(linear, 0))
    tl.store(sums + chunk * 3 + 2, tl.sum(restart, 0))


@triton.jit
def linearised_parts(
    chunk_rows, chunk_starts, chunk_ends, indices, e, w, U, V, dU, dV, x, sums,
    RANK: tl.constexpr, STRIDE: tl.constexpr, WIDTH: tl.constexpr, R: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The chunk's part of Σ w|ρ| and of Σ (w|ρ| − xρ)."""
    chunk = tl.program_id(0).to(tl.int64)
    row = tl.load(chunk_rows + chunk).to(tl.int64)
    start = tl.load(chunk_starts + chunk)
    count = (tl.load(chunk_ends + chunk) - start).to(tl.int32)
    indices += start
    x += start
    e += start
    w += start
    q, t = tl.arange(0, R), tl.arange(0, BLOCK)
    u = tl.load(U + row * RANK + q, mask=q < RANK, other=0.0)
    du = tl.load(dU + row * RANK + q, mask=q < RANK, other=0.0)
    loss, gap = tl.zeros((BLOCK,), tl.float64), tl.zeros((BLOCK,), tl.float64)
    for o in range(0, count, BLOCK):
        inside = o + t < count
        j = tl.load(indices + o + t, mask=inside, other=0)
        at = (j.to(WIDTH) * STRIDE)[:, None] + q[None, :]
        v = tl.load(V + at, mask=(q < STRIDE)[None, :], other=0.0)
        dv = tl.load(dV + at, mask=(q < STRIDE)[None, :], other=0.0)
        rho = tl.load(e + o + t, mask=inside, other=0.0) - tl.sum(
            du[None, :] * v + u[None, :] * dv, 1
        )
        rho = tl.where(inside, rho, 0.0).to(tl.float64)
        weighted = tl.load(w + o + t, mask=inside, other=0.0) * tl.abs(rho)
        loss += weighted
        gap += weighted - tl.load(x + o + t, mask=inside, other=0.0) * rho
    tl.store(sums + chunk * 2, tl.sum(loss, 0))
    tl.store(sums + chunk * 2 + 1, tl.sum(gap, 0))
