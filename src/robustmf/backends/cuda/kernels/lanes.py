"""Passes with one chunk per lane, for ranks whose sums fit into the registers of a lane.

Triton has no arrays of registers, so code is generated for each rank, with one variable per number:
the sums of a lane are a0_0, a1_0, a1_1, … (the lower triangle of the normal matrix, then the
right-hand side as one more row), its factors u0, u1, …, those of an entry's column v0_0, v0_1, ….
"""

from __future__ import annotations

from functools import cache
from typing import Any

from robustmf.backends.cuda.kernels.generated import LANES, compiled, load, store

#: Largest ranks whose sums fit into registers, by the size of a number in bytes.
_MAX_RANK = {4: 16, 8: 8}

#: Largest ranks whose factors fit into registers, by the size of a number in bytes.
_MAX_VALUE_RANK = {4: 64, 8: 8}

#: Entries that a lane loads before it uses the first.
_AHEAD = 2

_ENTRY_ARGUMENTS = (
    "starts, widths, counts, rows, alone, origins, indices, values, sample, shifts, U, V, numbers"
)
_FLAGS = (
    "SAMPLE: tl.constexpr, SHIFTS: tl.constexpr, CLIP: tl.constexpr, UNIT: tl.constexpr, "
    "STRIDE: tl.constexpr, WIDTH: tl.constexpr"
)


def fits(rank: int, itemsize: int) -> bool:
    """Whether the sums of a row fit into the registers of a lane."""
    return rank <= _MAX_RANK[itemsize]


def value_fits(rank: int, itemsize: int) -> bool:
    """Whether the factors of a row and of a column fit into the registers of a lane."""
    return rank <= _MAX_VALUE_RANK[itemsize]


def square_positions(rank: int, width: int) -> list[tuple[int, int]]:
    """Positions of each sum, and of its transpose, in a (rank + 1) × width array."""
    pairs = [(i, k) for i in range(rank + 1) for k in range(min(i + 1, rank))]
    return [(i * width + k, k * width + i if i < rank else i * width + k) for i, k in pairs]


@cache
def half_step(rank: int, wide: bool, ahead: int = _AHEAD) -> Any:
    """A half-step: rows of one chunk are solved; the sums of other chunks are written to ``parts``.

    ``wide``: rows of V are read 16 bytes at a time (float32 on a GPU).
    """
    lines = [
        f"def half_step({_ENTRY_ARGUMENTS}, first, second, factors, min_shares, parts, n_lanes, "
        f"tolerance, weight: tl.constexpr, REGS: tl.constexpr, CURVATURE: tl.constexpr, {_FLAGS}):",
        *_lane_head(rank, wide),
        "low, high = tl.load(numbers), tl.load(numbers + 1)",
        "eps2, largest = tl.load(numbers + 2), tl.load(numbers + 7)",
        "p0, p1 = tl.load(numbers + 3), tl.load(numbers + 4)",
        "p2, p3 = tl.load(numbers + 5), tl.load(numbers + 6)",
        "if CURVATURE:",
        "    min_share = tl.load(min_shares + row)",
        *(f"{name} = tl.zeros(({LANES},), V.dtype.element_ty)" for name in _triangle(rank)),
        f"for o in range(0, width, {ahead}):",
    ]
    body = _entries(rank, wide, ahead)
    for s in range(ahead):
        body += [
            f"inside = o + {s} < count",
            "if CLIP:",
            f"    y{s} = tl.minimum(tl.maximum(y{s}, low), high)",
            "if SHIFTS:",
            f"    y{s} -= tl.load(shifts + j{s})",
            "if UNIT:",
            f"    w = tl.where(inside, 1.0, 0.0).to(y{s}.dtype)",
            "else:",
            f"    e = {_residual(rank, s)}",
            "    w = weight(tl.sqrt(e * e + eps2), p0, p1, p2, p3)",
            "    w = tl.where((w > 0) & inside, w, 0.0)",
            f"    w = tl.where(w < largest, w, largest).to(y{s}.dtype)",
            "    if CURVATURE:",
            "        share = min_share + (1 - min_share) * (eps2 / (e * e + eps2))",
            f"        y{s} += e * (1 / share - 1)",
            "        w *= share",
            "if SAMPLE:",
            f"    w *= tl.load(sample + origin + o + {s}, mask=inside, other=0.0)",
            f"wy = w * y{s}",
        ]
        for i in range(rank):
            body.append(f"x = w * v{s}_{i}")
            body += [f"a{i}_{k} += x * v{s}_{k}" for k in range(i + 1)]
            body.append(f"a{rank}_{i} += wy * v{s}_{i}")
    lines += [f"    {line}" for line in body]
    lines += ["at = parts + p.to(tl.int64)", "shared = (single == 0) & (count > 0)"]
    for name in _triangle(rank):
        lines += [store("at", name, "shared", wide), "at += n_lanes"]
    lines += [
        "if REGS:",
        "    ridge, other = tl.load(first + row), tl.load(second + row)",
        "else:",
        "    ridge, other = tl.load(first), tl.load(second)",
        "if tl.max(single.to(tl.int32), 0) > 0:",
    ]
    lines += [f"    {line}" for line in _solution(rank, "single", wide)]
    return compiled("half_step", lines)


@cache
def value(rank: int, n_epsilons: int, wide: bool, ahead: int = _AHEAD) -> Any:
    """parts_k,lane = Σ s·value(√(e² + ε_k²)) over the chunk for each ε, value and sum in float64.

    ``numbers`` are the four parameters of the loss, then the squares of ε.
    """
    lines = [
        f"def value({_ENTRY_ARGUMENTS}, parts, n_lanes, of: tl.constexpr, {_FLAGS}):",
        *_lane_head(rank, wide),
        "p0, p1 = tl.load(numbers), tl.load(numbers + 1)",
        "p2, p3 = tl.load(numbers + 2), tl.load(numbers + 3)",
        *(f"eps2_{k} = tl.load(numbers + {4 + k})" for k in range(n_epsilons)),
        *(f"total{k} = tl.zeros(({LANES},), tl.float64)" for k in range(n_epsilons)),
        f"for o in range(0, width, {ahead}):",
    ]
    body = _entries(rank, wide, ahead)
    for s in range(ahead):
        body += [
            f"inside = o + {s} < count",
            f"e = ({_residual(rank, s)}).to(tl.float64)",
            "if SAMPLE:",
            f"    share = tl.load(sample + origin + o + {s}, mask=inside, other=0.0)",
        ]
        for k in range(n_epsilons):
            body += [
                f"found = of(tl.sqrt(e * e + eps2_{k}), p0, p1, p2, p3)",
                "if SAMPLE:",
                "    found *= share",
                f"total{k} += tl.where(inside, found, 0.0)",
            ]
    lines += [f"    {line}" for line in body]
    lines += [f"tl.store(parts + {k} * n_lanes + p, total{k})" for k in range(n_epsilons)]
    return compiled("value", lines)


def _triangle(rank: int) -> list[str]:
    """The names of the sums."""
    return [f"a{i}_{k}" for i in range(rank + 1) for k in range(min(i + 1, rank))]


def _lane_head(rank: int, wide: bool) -> list[str]:
    """Code that loads the chunk of the lane and the factors of its row."""
    return [
        "group = tl.program_id(0)",
        f"lane = tl.arange(0, {LANES})",
        f"p = group * {LANES} + lane",
        "start, width = tl.load(starts + group), tl.load(widths + group)",
        "count, row = tl.load(counts + p), tl.load(rows + p).to(tl.int64)",
        "single, origin = tl.load(alone + p) > 0, tl.load(origins + p)",
        "indices += start",
        "values += start",
        *(f"u{k} = {load(f'U + row * {rank} + {k}', wide)}" for k in range(rank)),
    ]


def _entries(rank: int, wide: bool, ahead: int) -> list[str]:
    """Code that loads the next ``ahead`` entries, before any of them is used."""
    lines = []
    for s in range(ahead):
        at = f"(o + {s}) * {LANES} + lane"
        lines += [f"j{s} = tl.load(indices + {at})", f"y{s} = tl.load(values + {at})"]
    for s in range(ahead):
        if wide:
            lines += [_wide_load(s, k) for k in range(0, rank, 4)]
        else:
            lines += [f"v{s}_{k} = tl.load(V + j{s}.to(WIDTH) * STRIDE + {k})" for k in range(rank)]
    return lines


def _wide_load(s: int, k: int) -> str:
    """Code that loads four numbers of a lane by one instruction; Triton would use four."""
    names = ", ".join(f"v{s}_{k + c}" for c in range(4))
    kinds = ", ".join(["tl.float32"] * 4)
    address = f"(V + j{s}.to(WIDTH) * STRIDE + {k}).to(tl.int64)"
    code = "'ld.global.nc.v4.f32 {$0, $1, $2, $3}, [$4];', '=f,=f,=f,=f,l'"
    arguments = f"{code}, [{address}], dtype=({kinds}), is_pure=True, pack=1"
    return f"{names} = tl.inline_asm_elementwise({arguments})"


def _residual(rank: int, s: int) -> str:
    """Code of the residual of entry s."""
    return f"y{s} - (" + " + ".join(f"u{k} * v{s}_{k}" for k in range(rank)) + ")"


def _solution(rank: int, mask: str, wide: bool) -> list[str]:
    """Code of a guarded Cholesky solution.

    An unknown whose pivot is not above rounding errors is 0. A solution that is not finite is not
    written.
    """
    lines = []
    for k in range(rank):
        # the floor of a pivot is relative to the diagonal before elimination
        own = f"ridge * tl.load(factors + {k}) + other * tl.load(factors + {rank + k})"
        lines += [f"a{k}_{k} += {own}", f"floor{k} = a{k}_{k} * tolerance"]
    for k in range(rank):
        lines.append(f"above = a{k}_{k} > floor{k}")
        lines.append(
            f"a{k}_{k} = tl.where(above, 1.0 / tl.sqrt(tl.where(above, a{k}_{k}, 1.0)), 0.0)"
        )
        lines += [f"a{i}_{k} *= a{k}_{k}" for i in range(k + 1, rank + 1)]
        for j in range(k + 1, rank):
            lines += [f"a{i}_{j} -= a{i}_{k} * a{j}_{k}" for i in range(j, rank + 1)]
    lines.append(f"good = {mask}")
    for k in reversed(range(rank)):
        lines += [f"a{rank}_{k} -= a{i}_{k} * a{rank}_{i}" for i in range(k + 1, rank)]
        lines += [f"a{rank}_{k} *= a{k}_{k}", f"good &= tl.abs(a{rank}_{k}) <= 3e38"]
    return lines + [
        store(f"U + row * {rank} + {k}", f"a{rank}_{k}", "good", wide) for k in range(rank)
    ]
