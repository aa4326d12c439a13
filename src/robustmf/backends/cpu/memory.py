"""How much memory a fit will take, before it is made."""

from __future__ import annotations

from robustmf.backends.cpu.operations import SLICE, column_parts
from robustmf.initialization.problem import SAMPLE
from robustmf.kernels.half_step import padded_width

#: Points of variable projection alive at once, and further arrays over the entries, in float64.
_POINTS, _FURTHER = 4, 8

#: Bytes an entry while some are set aside, beside the entries and their copy.
_SETTING_ASIDE = 16


def entries_bytes(shape: tuple[int, int], n_entries: int, itemsize: int) -> int:
    """Bytes of the entries by rows and by columns, which is also what making them by rows takes."""
    return 2 * n_entries * (4 + itemsize) + 8 * (sum(shape) + 2)


def fit_bytes(
    shape: tuple[int, int],
    n_entries: int,
    rank: int,
    itemsize: int,
    solver: str,
    graduated: bool,
    held_out: bool = False,
    bias: bool = False,
) -> int:
    """Bytes of the entries (by rows and by columns), the factors and the working arrays of one fit.

    Not counted: the interpreter with its libraries (about 0.2 GB), and what the entries were made from.
    """
    m, n = shape
    if bias:
        rank += 1
    factors = (m + n) * itemsize * (4 * rank + padded_width(rank, itemsize))
    sample = min(n_entries, SAMPLE)
    scale = sample * (8 + itemsize + 2 * rank * itemsize + 3 * itemsize)
    slices = (itemsize + 4 * 8) * min(n_entries, SLICE)
    repair = 8 * rank**2 * max(m, n) if graduated else 0
    working = max(scale + repair, slices)
    if solver == "mm":
        parts = column_parts(n_entries, n, rank)
        # residual, weights, four dual arrays, two more for the criticality; and the loss is evaluated in float64
        working = max(
            working,
            n_entries * (8 * itemsize + 3 * 8) + itemsize * (12 * (m + n) + parts * n) * rank,
        )
    if solver == "varpro":
        a_point = n_entries * (rank + 2) + max(m, n) * rank
        working = max(
            working, 8 * (_POINTS * a_point + _FURTHER * n_entries + 3 * (min(m, n) * rank) ** 2)
        )
    entries = entries_bytes(shape, n_entries, itemsize)
    if bias:
        # what the biases leave over, by rows and by columns
        entries += n_entries * (4 + 2 * itemsize)
    if held_out:
        # those that stay are a copy, whose columns are made after that
        entries += n_entries * (4 + itemsize)
        working = max(working, n_entries * (_SETTING_ASIDE - 4 - itemsize))
    return int(entries + factors + working)
