"""How much of the card's memory a fit will take: known without a card, and without torch."""

from __future__ import annotations

#: Entries of a chunk at most: rows are cut into chunks, so that no long one holds the others up.
LONGEST = 512

#: Entries of the rows whose repair is tried together, at most.
TRIED_TOGETHER = 1 << 24


def entry_bytes(n_entries: int, itemsize: int) -> int:
    """Bytes on the card while the entries are sorted: what is given, the keys twice, their order, the sort's own room."""
    return n_entries * (8 + itemsize + 4 * 8)


def fit_bytes(shape: tuple[int, int], n_entries: int, rank: int, itemsize: int, solver: str) -> int:
    """Bytes on the card at the peak of a fit: the entries four times (by rows and columns, each once more in lane order), and more.

    ``mm`` keeps eight arrays over the entries, their order by columns, and evaluates the loss in float64; others sort them once, or
    have some of them tried again: with places, values, lanes, and five rows of factors an entry.
    """
    m, n = shape
    entries = 4 * n_entries * (4 + itemsize) + 24 * (m + n)
    factors = 6 * (m + n) * rank * itemsize
    # the sums of every chunk up to rank 16, beyond it of as many as fit a gigabyte
    sums = (
        rank * (rank + 3) // 2 * itemsize * (max(m, n) + n_entries // LONGEST)
        if rank <= 16
        else 1 << 30
    )
    tried = min(n_entries, TRIED_TOGETHER) * (40 + 5 * rank * itemsize)
    working = n_entries * (8 * itemsize + 16 + 4 * 8) if solver == "mm" else n_entries * 28
    return int(entries + factors + sums + max(working, tried))
