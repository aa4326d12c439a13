"""Ridge systems of 17 to 64 unknowns, one a warp: a lane keeps whole rows of the matrix in registers; written out for each rank.

A lane has HALVES rows, i = HALVES·lane + h; its number in column j of row h is a{h}_{j}. What is left of the matrix stays symmetric, so
the pivot's row is its column, whose numbers go from their lanes to all others (by shuffles, where there are machine instructions).
Columns move to the front as those before them are done with: the loop over pivots then names the same registers in every turn.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from robustmf.backends.cuda.kernels.written import load, made

_LANES = 32

#: Pivots a loop; after it the columns done with are dropped.
_PANEL = 16


def fits(rank: int, itemsize: int) -> bool:
    """Whether a lane's rows fit its registers, and are rows enough for the lanes."""
    return itemsize == 4 and _LANES // 2 < rank <= 2 * _LANES


@cache
def solve(rank: int, wide: bool) -> Any:
    """(matrix + reg·I) u = right-hand side for one row of a list, whose system lies in its slot less ``offset``.

    A pivot that is not above rounding makes its unknown 0; a result that is not finite is not written.
    """
    halves = 1 if rank <= _LANES else 2
    columns = -(-rank // halves) * halves
    each = range(halves)
    lines = [
        "def solve(rows, slots, offset, systems, reg, U, tolerance, REGS: tl.constexpr, R: tl.constexpr):",
        "row = tl.load(rows + tl.program_id(0))",
        f"at = systems + (tl.load(slots + tl.program_id(0)) - offset) * ({rank + 1} * R)",
        f"lane = tl.arange(0, {_LANES})",
        "ridge = tl.load(reg + row) if REGS else tl.load(reg)",
    ]
    for h in each:
        lines += [
            f"i{h} = lane * {halves} + {h}",
            f"b{h} = tl.where(i{h} < {rank}, {load(f'at + {rank} * R + i{h}', wide)}, 0.0)",
            f"floor{h}, inverse{h} = b{h} * 0.0, b{h} * 0.0",
        ]
        for j in range(columns):
            # by symmetry a column: neighbouring lanes then read neighbours
            found = f"tl.where(i{h} < {rank}, {load(f'at + {j} * R + i{h}', wide)}, 0.0)"
            lines.append(f"a{h}_{j} = {found if j < rank else f'b{h} * 0.0'}")
            if j % halves == h:
                lines += [
                    f"a{h}_{j} += tl.where(i{h} == {j}, ridge, 0.0)",
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
            f"tl.store(U + row * {rank} + i{h}, b{h} * inverse{h}, mask=i{h} < tl.where(bad == 0, {rank}, 0))"
        )
    return made("solve", lines)


def _panel(start: int, columns: int, halves: int, wide: bool) -> list[str]:
    """The pivots ``start`` … of one panel, HALVES a turn; column ``start + c`` is a_c."""
    width, each = columns - start, range(halves)
    body = [f"first = {start // halves} + t"]
    for s in each:
        body += [f"column{h} = a{h}_{s}" for h in each]
        if wide:
            # number c of these is that of row `start + HALVES·t + …` + c: lanes to copy from are then known when this is written
            body += [f"turned{h} = {_from('column' + str(h), '(first + lane) % 32')}" for h in each]
        body += [
            f"pivot, least = {_line(s, halves, wide)}, {_any(f'floor{s}', 'first', wide)}",
            "inverse = tl.where(pivot > least, 1.0 / tl.where(pivot > least, pivot, 1.0), 0.0)",
            f"right = {_any(f'b{s}', 'first', wide)}",
        ]
        for h in each:
            own = f"tl.where(lane == first, 0.0, column{h})" if h == s else f"column{h}"
            body += [f"share{h} = {own} * inverse", f"b{h} -= share{h} * right"]
        body.append(f"inverse{s} = tl.where(lane == first, inverse, inverse{s})")
        moved = halves if s == halves - 1 else 0
        for c in range(s + 1, width):
            body.append(f"line = {_line(c, halves, wide)}")
            body += [f"a{h}_{c - moved} = a{h}_{c} - share{h} * line" for h in each if c >= moved]
    return [
        f"for t in range(0, {min(_PANEL, width) // halves}):",
        *(f"    {line}" for line in body),
    ]


def _line(c: int, halves: int, wide: bool) -> str:
    """Number c of the pivot's row, counted from the turn's first, for all lanes."""
    lane, half = divmod(c, halves)
    return (
        _from(f"turned{half}", str(lane))
        if wide
        else _any(f"column{half}", f"first + {lane}", wide)
    )


def _any(name: str, lane: str, wide: bool) -> str:
    """What a lane whose number is known at run time only has, for all lanes."""
    return _from(name, lane) if wide else f"tl.sum(tl.where(lane == {lane}, {name}, 0.0), 0)"


def _from(name: str, lane: str) -> str:
    if lane.isdigit():
        code, arguments = f"'shfl.sync.idx.b32 $0, $1, {lane}, 31, -1;', '=f,f'", f"[{name}]"
    else:
        code, arguments = "'shfl.sync.idx.b32 $0, $1, $2, 31, -1;', '=f,f,r'", f"[{name}, {lane}]"
    return f"tl.inline_asm_elementwise({code}, {arguments}, dtype=tl.float32, is_pure=True, pack=1)"
