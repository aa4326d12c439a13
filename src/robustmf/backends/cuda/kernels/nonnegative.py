"""Non-negative ridge systems, one row per program; see :mod:`robustmf.kernels.nonnegative`."""

from __future__ import annotations

import triton
import triton.language as tl

from robustmf.backends.cuda.kernels.solve import guarded_solution, load_system


@triton.jit
def _coordinate_descent(A, b, inverses, x, i, j, RANK: tl.constexpr, PASSES: tl.constexpr):
    """Passes over the elements of x; an element without a diagonal element becomes 0."""
    for _ in range(PASSES):
        for k in range(RANK):
            column = tl.sum(tl.where(j == k, A, 0.0), 1)[:, None]
            others = tl.sum(tl.where(i == k, 0.0, column * x))
            value = (tl.sum(tl.where(i == k, b, 0.0)) - others) * tl.sum(
                tl.where(i == k, inverses, 0.0)
            )
            # 0 if it is negative or NaN
            x = tl.where(i == k, tl.where(value > 0, value, 0.0), x)
    return x


@triton.jit
def solve_nonnegative(
    rows,
    slots,
    offset,
    systems,
    first,
    second,
    factors,
    U,
    tolerance,
    REGS: tl.constexpr,
    RANK: tl.constexpr,
    R: tl.constexpr,
    PASSES: tl.constexpr,
):
    """Lower ½ u'(matrix + ridge)u − u'(right-hand side) over u >= 0, beginning at the row of U.

    Coordinate descent finds the elements that are zero; a Newton step in the others follows, as far
    as they stay non-negative. A result that is not finite is not written.
    """
    row = tl.load(rows + tl.program_id(0))
    at = systems + (tl.load(slots + tl.program_id(0)) - offset) * (RANK + 1) * R
    i, j = tl.arange(0, R)[:, None], tl.arange(0, R)[None, :]
    A, b = load_system(row, at, first, second, factors, i, j, REGS, RANK, R)
    x = tl.load(U + row * RANK + i, mask=i < RANK, other=0.0)
    diagonal = tl.sum(tl.where(i == j, A, 0.0), 1)[:, None]
    positive = diagonal > 0
    inverses = tl.where(positive, 1.0 / tl.where(positive, diagonal, 1.0), 0.0)
    x = _coordinate_descent(A, b, inverses, x, i, j, RANK, PASSES)
    free = tl.where(x > 0, 1.0, 0.0)
    among_free = free * tl.trans(free) > 0
    z = guarded_solution(
        tl.where(among_free, A, 0.0),
        tl.where(free > 0, b, 0.0),
        diagonal * tolerance,
        i,
        j,
        RANK,
        R,
    )
    # an element with z < 0 is positive in x
    limits = tl.where(z < 0, x / tl.where(z < 0, x - z, 1.0), 1.0)
    share = tl.minimum(tl.min(limits), 1.0)
    u = tl.maximum(x + share * (z - x), 0.0)
    u = tl.where((z < 0) & (limits <= share), 0.0, u)
    bad = tl.sum(tl.where((tl.abs(z) <= 3e38) & (x <= 3e38), 0, 1))
    tl.store(U + row * RANK + i, u, mask=i < tl.where(bad == 0, RANK, 0))
