"""How much memory a fit will take, before it is made."""

from __future__ import annotations

from robustmf.kernels.half_step import padded_width

#: Entries looked at in one go by sums over the loss, and entries that stand for all in estimates of scale.
_SLICE, _SAMPLE = 4_000_000, 1 << 20


def fit_bytes(shape: tuple[int, int], n_entries: int, rank: int, itemsize: int, solver: str, graduated: bool) -> int:
    """Bytes of the entries (by rows and by columns), the factors and the working arrays of one fit.

    Not counted: the interpreter with its libraries (about 0.2 GB), and what the entries were made from.
    """
    m, n = shape
    entries = 2 * n_entries * (4 + itemsize) + 8 * (m + n + 2)
    factors = (m + n) * itemsize * (2 * rank + padded_width(rank))
    sample = min(n_entries, _SAMPLE)
    scale = sample * (8 + itemsize + 2 * rank * itemsize + 3 * itemsize)
    slices = 3 * itemsize * min(n_entries, _SLICE)
    repair = 8 * rank**2 * max(m, n) if graduated else 0
    working = max(scale + repair, slices)
    if solver == "mm":
        parts = min(max(n_entries // (2 * n * rank), 4), 64)
        # residual, weights, four dual arrays, and a few more while loss and criticality are evaluated
        working = max(working, itemsize * (10 * n_entries + (12 * (m + n) + parts * n) * rank))
    return int(entries + factors + working)
