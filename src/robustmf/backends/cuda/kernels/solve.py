"""Ridge systems, one row per program, by elimination on the whole tile."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_system(
    row,
    at,
    first,
    second,
    factors,
    i,
    j,
    REGS: tl.constexpr,
    RANK: tl.constexpr,
    R: tl.constexpr,
):
    """The matrix of a row's system at ``at`` plus its ridge, and the right-hand side."""
    if REGS:
        first += row
        second += row
    ridge = tl.load(first) * tl.load(factors + i, mask=i < RANK, other=0.0)
    ridge += tl.load(second) * tl.load(factors + RANK + i, mask=i < RANK, other=0.0)
    A = tl.load(at + i * R + j, mask=(i < RANK) & (j < RANK), other=0.0) + tl.where(
        i == j, ridge, 0.0
    )
    b = tl.load(at + RANK * R + i, mask=i < RANK, other=0.0)
    return A, b


@triton.jit
def guarded_solution(A, b, floor, i, j, RANK: tl.constexpr, R: tl.constexpr):
    """A⁻¹b by elimination; an unknown whose pivot is not above ``floor`` is 0."""
    inverses = tl.zeros((R, 1), A.dtype)
    for k in range(RANK):
        column = tl.sum(tl.where(j == k, A, 0.0), 1)[:, None]
        # the remaining matrix is symmetric; columns before k are finished
        pivot_row = tl.where(j > k, tl.trans(column), 0.0)
        pivot, least = tl.sum(tl.where(i == k, column, 0.0)), tl.sum(tl.where(i == k, floor, 0.0))
        inverse = tl.where(pivot > least, 1.0 / tl.where(pivot > least, pivot, 1.0), 0.0)
        others = tl.where(i == k, 0.0, column) * inverse
        A -= others * pivot_row
        b -= others * tl.sum(tl.where(i == k, b, 0.0))
        inverses = tl.where(i == k, inverse, inverses)
    return b * inverses


@triton.jit
def solve_tile(
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
):
    """Solve (matrix + ridge) u = right-hand side for one row; its system is at slot − ``offset``.

    An unknown whose pivot is not above rounding errors is 0. A solution that is not finite is not
    written.
    """
    row = tl.load(rows + tl.program_id(0))
    at = systems + (tl.load(slots + tl.program_id(0)) - offset) * (RANK + 1) * R
    i, j = tl.arange(0, R)[:, None], tl.arange(0, R)[None, :]
    A, b = load_system(row, at, first, second, factors, i, j, REGS, RANK, R)
    # the floor of a pivot is relative to the diagonal before elimination
    floor = tl.sum(tl.where(i == j, A, 0.0), 1)[:, None] * tolerance
    u = guarded_solution(A, b, floor, i, j, RANK, R)
    bad = tl.sum(tl.where(tl.abs(u) <= 3e38, 0, 1))
    tl.store(U + row * RANK + i, u, mask=i < tl.where(bad == 0, RANK, 0))
