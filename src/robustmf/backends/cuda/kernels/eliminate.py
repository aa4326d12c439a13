"""Ridge systems of 17 to 64 unknowns, one per warp; code is generated for each rank.

A lane keeps HALVES whole rows of the matrix in registers, i = HALVES·lane + h; the element in
column j of row h is a{h}_{j}. The remaining matrix stays symmetric, so the row of the pivot is its
column, whose elements are broadcast from their lanes (by shuffles, if machine instructions are
available). Columns move to the front as those before them are finished, so that the loop over
pivots uses the same registers in every iteration.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from robustmf.backends.cuda.kernels.generated import LANES, compiled, load

#: Pivots of a loop; after it the finished columns are dropped.
_PANEL = 16


def fits(rank: int, itemsize: int) -> bool:
    """Whether a lane's rows fit into registers, and there are enough rows for the lanes."""
    return itemsize == 4 and LANES // 2 < rank <= 2 * LANES


@cache
def solve(rank: int, wide: bool) -> Any:
    """Solve (matrix + ridge) u = right-hand side for one row; its system is at slot − ``offset``.

    An unknown whose pivot is not above rounding errors is 0. A solution that is not finite is not
    written.
    """
    halves = 1 if rank <= LANES else 2
    columns = -(-rank // halves) * halves
    each = range(halves)
    lines = [
        "def solve(rows, slots, offset, systems, first, second, factors, U, tolerance, "
        "REGS: tl.constexpr, R: tl.constexpr):",
        "row = tl.load(rows + tl.program_id(0))",
        f"at = systems + (tl.load(slots + tl.program_id(0)) - offset) * ({rank + 1} * R)",
        f"lane = tl.arange(0, {LANES})",
        "if REGS:",
        "    first += row",
        "    second += row",
        "x, y = tl.load(first), tl.load(second)",
    ]
    for h in each:
        lines += [
            f"i{h} = lane * {halves} + {h}",
            f"b{h} = tl.where(i{h} < {rank}, {load(f'at + {rank} * R + i{h}', wide)}, 0.0)",
            f"floor{h}, inverse{h} = b{h} * 0.0, b{h} * 0.0",
            f"inside = i{h} < {rank}",
            f"ridge{h} = x * tl.load(factors + i{h}, mask=inside, other=0.0)",
            f"ridge{h} += y * tl.load(factors + {rank} + i{h}, mask=inside, other=0.0)",
        ]
        for j in range(columns):
            # by symmetry a column: neighbouring lanes then read neighbouring memory
            found = f"tl.where(i{h} < {rank}, {load(f'at + {j} * R + i{h}', wide)}, 0.0)"
            lines.append(f"a{h}_{j} = {found if j < rank else f'b{h} * 0.0'}")
            if j % halves == h:
                lines += [
                    f"a{h}_{j} += tl.where(i{h} == {j}, ridge{h}, 0.0)",
                    # the floor of a pivot is relative to the diagonal before elimination
                    f"floor{h} = tl.where(i{h} == {j}, a{h}_{j} * tolerance, floor{h})",
                ]
    for start in range(0, columns, _PANEL):
        lines += _panel(start, columns, halves, wide)
    lines.append(
        "bad = "
        + " + ".join(
            f"tl.sum(tl.where((tl.abs(b{h} * inverse{h}) <= 3e38) | (i{h} >= {rank}), 0, 1), 0)"
            for h in each
        )
    )
    for h in each:
        lines.append(
            f"tl.store(U + row * {rank} + i{h}, b{h} * inverse{h}, "
            f"mask=i{h} < tl.where(bad == 0, {rank}, 0))"
        )
    return compiled("solve", lines)


def _panel(start: int, columns: int, halves: int, wide: bool) -> list[str]:
    """The pivots ``start`` … of one panel, HALVES per iteration; column ``start + c`` is a_c."""
    width = columns - start
    each = range(halves)
    body = [f"step = {start // halves} + t"]
    for s in each:
        body += [f"column{h} = a{h}_{s}" for h in each]
        if wide:
            # element c belongs to row `start + HALVES·t + …` + c: the lanes to copy from are then
            # constants of the generated code
            body += [f"rotated{h} = {_from('column' + str(h), '(step + lane) % 32')}" for h in each]
        body += [
            f"pivot = {_pivot_row(s, halves, wide)}",
            f"least = {_broadcast(f'floor{s}', 'step', wide)}",
            "inverse = tl.where(pivot > least, 1.0 / tl.where(pivot > least, pivot, 1.0), 0.0)",
            f"right = {_broadcast(f'b{s}', 'step', wide)}",
        ]
        for h in each:
            own = f"tl.where(lane == step, 0.0, column{h})" if h == s else f"column{h}"
            body += [f"share{h} = {own} * inverse", f"b{h} -= share{h} * right"]
        body.append(f"inverse{s} = tl.where(lane == step, inverse, inverse{s})")
        moved = halves if s == halves - 1 else 0
        for c in range(s + 1, width):
            body.append(f"element = {_pivot_row(c, halves, wide)}")
            body += [
                f"a{h}_{c - moved} = a{h}_{c} - share{h} * element" for h in each if c >= moved
            ]
    return [
        f"for t in range(0, {min(_PANEL, width) // halves}):",
        *(f"    {line}" for line in body),
    ]


def _pivot_row(c: int, halves: int, wide: bool) -> str:
    """Element c of the row of the pivot, counted from the first of the iteration, for all lanes."""
    lane, half = divmod(c, halves)
    return (
        _from(f"rotated{half}", str(lane))
        if wide
        else _broadcast(f"column{half}", f"step + {lane}", wide)
    )


def _broadcast(name: str, lane: str, wide: bool) -> str:
    """The value of a lane whose number is known at run time only, for all lanes."""
    return _from(name, lane) if wide else f"tl.sum(tl.where(lane == {lane}, {name}, 0.0), 0)"


def _from(name: str, lane: str) -> str:
    """A shuffle instruction that reads ``name`` of a lane."""
    if lane.isdigit():
        code, arguments = f"'shfl.sync.idx.b32 $0, $1, {lane}, 31, -1;', '=f,f'", f"[{name}]"
    else:
        code, arguments = "'shfl.sync.idx.b32 $0, $1, $2, 31, -1;', '=f,f,r'", f"[{name}, {lane}]"
    return f"tl.inline_asm_elementwise({code}, {arguments}, dtype=tl.float32, is_pure=True, pack=1)"
