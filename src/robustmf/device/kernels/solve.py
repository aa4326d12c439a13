"""Small ridge systems: one a lane up to rank 16, the elimination written out for each rank so that it stays in registers."""

from __future__ import annotations

from functools import cache
from typing import Any

import triton
import triton.language as tl

from robustmf.device.expression import compiled_function

#: Largest rank whose triangle fits the registers of a lane.
LANE_RANK = 16


@cache
def lane_solver(rank: int) -> Any:
    """The Triton kernel that solves (matrix + reg·I) u = right-hand side for the rows first_row … last_row, one a lane."""
    return compiled_function("solve_lanes", _source(rank))


def _source(rank: int) -> str:
    """Cholesky's method with a guard: a pivot that is not above rounding makes its unknown 0; a result not finite is not written."""
    lines = [
        "def solve_lanes(first_row, last_row, first_chunks, offset, parts, reg, U, tolerance, REGS: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr):",
        "row = first_row + tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
        "inside = row < last_row",
        f"at = parts + (tl.load(first_chunks + row, mask=inside, other=0) - offset) * {rank + 1} * R",
        "ridge = tl.load(reg + (row if REGS else row * 0), mask=inside, other=1.0)",
    ]
    for i in range(rank + 1):
        lines += [f"a{i}_{j} = tl.load(at + {i} * R + {j}, mask=inside, other=0.0)" for j in range(min(i + 1, rank))]
    for k in range(rank):
        lines.append(f"a{k}_{k} += ridge")
        # the pivot's floor is relative to the diagonal before elimination
        lines.append(f"floor{k} = a{k}_{k} * tolerance")
    for k in range(rank):
        lines.append(f"above{k} = a{k}_{k} > floor{k}")
        lines.append(f"a{k}_{k} = tl.where(above{k}, 1.0 / tl.sqrt(tl.where(above{k}, a{k}_{k}, 1.0)), 0.0)")
        lines += [f"a{i}_{k} *= a{k}_{k}" for i in range(k + 1, rank + 1)]
        for j in range(k + 1, rank):
            lines += [f"a{i}_{j} -= a{i}_{k} * a{j}_{k}" for i in range(j, rank + 1)]
    lines.append("good = inside")
    for k in reversed(range(rank)):
        lines += [f"a{rank}_{k} -= a{i}_{k} * a{rank}_{i}" for i in range(k + 1, rank)]
        lines.append(f"a{rank}_{k} *= a{k}_{k}")
        lines.append(f"good &= tl.abs(a{rank}_{k}) <= 3e38")
    lines += [f"tl.store(U + row * {rank} + {k}, a{rank}_{k}, mask=good)" for k in range(rank)]
    return "\n    ".join(lines) + "\n"


@triton.jit
def solve_tile(
    first_row, first_chunks, offset, parts, reg, U, tolerance, REGS: tl.constexpr, RANK: tl.constexpr, R: tl.constexpr
):  # fmt: skip
    """The same for one row a program, by elimination on the whole tile: for ranks above :data:`LANE_RANK`."""
    row = first_row + tl.program_id(0).to(tl.int64)
    at = parts + (tl.load(first_chunks + row) - offset) * (RANK + 1) * R
    i, j = tl.arange(0, R)[:, None], tl.arange(0, R)[None, :]
    ridge = tl.load(reg + row * REGS)
    A = tl.load(at + i * R + j, mask=(i < RANK) & (j < RANK), other=0.0) + tl.where(i == j, ridge, 0.0)
    b = tl.load(at + RANK * R + i, mask=i < RANK, other=0.0)
    # a column vector (R × 1) on the rows' side; pivots' floors are relative to the diagonal before elimination
    floor = tl.sum(tl.where(i == j, A, 0.0), 1)[:, None] * tolerance
    for k in range(RANK):
        column = tl.sum(tl.where(j == k, A, 0.0), 1)[:, None]
        line = tl.sum(tl.where(i == k, A, 0.0), 0)[None, :]
        pivot, least = tl.sum(tl.where(i == k, column, 0.0)), tl.sum(tl.where(i == k, floor, 0.0))
        inverse = tl.where(pivot > least, 1.0 / tl.where(pivot > least, pivot, 1.0), 0.0)
        right = tl.sum(tl.where(i == k, b, 0.0)) * inverse
        others = tl.where(i == k, 0.0, column)
        A -= others * (line * inverse)
        b = tl.where(i == k, right, b - others * right)
    good = tl.sum(tl.where(tl.abs(b) <= 3e38, 0, 1)) == 0
    tl.store(U + row * RANK + i, b, mask=(i < RANK) & good)
