"""The normal equations of every row, for each chunk.

For chunk c of row i, with entries t (column j, value m_t, optional sample weight s_t) and the
current u = U_i:

    a_t = √((m_t − u·v_j)² + ε²),   w_t = s_t · weight(a_t),
    part_c = (Σ w_t v_j v_jᵀ, Σ w_t m_t v_j).

A part is a (rank + 1) × R array: the matrix, and the right-hand side as its last row.

The matrix is XᵀX with rows x_t = √w_t v_j. Tensor cores multiply bfloat16 numbers, whose
significand has 8 bits: x = a + b + c in three of them has the 24 bits of float32, and XᵀX = AᵀA +
BᵀB + (AᵀB + AᵀC) + (AᵀB + AᵀC)ᵀ up to its last bit: four products, those in brackets used twice.
Tensor cores add in float32 and truncate instead of rounding: the relative error over a chunk is
3·10⁻⁶, as of a plain float32 sum of that length.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _add_products(x, normal, mixed, PART: tl.constexpr):
    """``normal`` plus the symmetric products, ``mixed`` plus those that are used twice."""
    if PART is None:
        normal += tl.sum(x[:, :, None] * x[:, None, :], 0)
    else:
        a = x.to(PART)
        rest = x - a.to(tl.float32)
        b = rest.to(PART)
        c = (rest - b.to(tl.float32)).to(PART)
        normal = tl.dot(tl.trans(b), b, tl.dot(tl.trans(a), a, normal))
        mixed = tl.dot(tl.trans(a), c, tl.dot(tl.trans(a), b, mixed))
    return normal, mixed


@triton.jit
def _curvatures(w, y, e, eps2, min_share):
    """Curvatures in place of the weights, and values such that the gradient is unchanged."""
    share = min_share + (1 - min_share) * (eps2 / (e * e + eps2))
    return w * share, y + e * (1 / share - 1)


@triton.jit
def accumulate(
    first_chunk, chunk_rows, chunk_starts, chunk_ends, indices, values, sample, shifts, U, V,
    numbers, min_shares, parts,
    weight: tl.constexpr, SAMPLE: tl.constexpr, SHIFTS: tl.constexpr, CLIP: tl.constexpr,
    UNIT: tl.constexpr, CURVATURE: tl.constexpr, RANK: tl.constexpr, STRIDE: tl.constexpr,
    WIDTH: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """Write the part of one chunk.

    V has rows of STRIDE numbers, zeros from RANK on. ``numbers`` are the bounds of the clip, ε²,
    the parameters of the weight and its upper bound; UNIT is least squares; with CURVATURE,
    ``min_shares`` has the smallest share of a weight that counts as curvature, for each row; PART
    is the dtype of products on tensor cores, or None to avoid them. If the tile has a spare column
    (RANK < R), it contains the values: one product gives both sums.
    """
    at = tl.program_id(0).to(tl.int64)
    chunk = at + first_chunk
    row = tl.load(chunk_rows + chunk).to(tl.int64)
    start = tl.load(chunk_starts + chunk)
    count = (tl.load(chunk_ends + chunk) - start).to(tl.int32)
    indices, values, sample = indices + start, values + start, sample + start
    q, t = tl.arange(0, R), tl.arange(0, BLOCK)
    number = V.dtype.element_ty
    u = tl.load(U + row * RANK + q, mask=q < RANK, other=0.0)
    low, high, eps2 = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
    p0, p1, p2, p3 = (
        tl.load(numbers + 3),
        tl.load(numbers + 4),
        tl.load(numbers + 5),
        tl.load(numbers + 6),
    )
    largest = tl.load(numbers + 7)
    min_share = tl.load(min_shares + row) if CURVATURE else 1.0
    normal, mixed = tl.zeros((R, R), number), tl.zeros((R, R), number)
    right = tl.zeros((BLOCK, R), number)
    for o in range(0, count, BLOCK):
        inside = o + t < count
        j = tl.load(indices + o + t, mask=inside, other=0)
        y = tl.load(values + o + t, mask=inside, other=0.0)
        v = tl.load(
            V + (j.to(WIDTH) * STRIDE)[:, None] + q[None, :], mask=(q < STRIDE)[None, :], other=0.0
        )
        if CLIP:
            y = tl.minimum(tl.maximum(y, low), high)
        if SHIFTS:
            y -= tl.load(shifts + j)
        if UNIT:
            w = tl.where(inside, 1.0, 0.0).to(number)
        else:
            e = y - tl.sum(v * u[None, :], 1)
            w = weight(tl.sqrt(e * e + eps2), p0, p1, p2, p3)
            # 0 if it is negative or NaN
            w = tl.where((w > 0) & inside, w, 0.0)
            w = tl.where(w < largest, w, largest).to(number)
            if CURVATURE:
                w, y = _curvatures(w, y, e, eps2, min_share)
        if SAMPLE:
            w *= tl.load(sample + o + t, mask=inside, other=0.0)
        if RANK < R:
            v = tl.where((q == RANK)[None, :], y[:, None], v)
        root = tl.sqrt(w)
        x = v * root[:, None]
        if RANK == R:
            right += x * (root * y)[:, None]
        normal, mixed = _add_products(x, normal, mixed, PART)
    if PART is not None:
        normal += mixed + tl.trans(mixed)
    out = parts + at * (RANK + 1) * R
    if RANK < R:
        tl.store(out + q[:, None] * R + q[None, :], normal, mask=(q <= RANK)[:, None])
    else:
        tl.store(out + q[:, None] * R + q[None, :], normal)
        tl.store(out + R * R + q, tl.sum(right, 0))
