"""Estimates of GPU memory, which need neither a GPU nor torch."""

from __future__ import annotations

from dataclasses import dataclass

from robustmf.backends.base import ProblemSize, SolverMemory


@dataclass(frozen=True)
class MemoryOptions:
    """Sizes that determine the memory of a fit on a GPU.

    Attributes
    ----------
    chunk_length : int
        The largest number of entries in a chunk. Rows are cut into chunks, so that a long row does
        not delay the others.
    repair_batch : int
        The largest number of entries in rows that are repaired together.
    dual_pass_bytes : int
        Bytes per entry of a pass over the dual: the order of the entries by columns, and four
        float64 arrays in which the loss is evaluated.
    sorting_bytes : int
        Bytes per entry of sorting the entries by columns.
    """

    chunk_length: int = 512
    repair_batch: int = 1 << 24
    dual_pass_bytes: int = 16 + 4 * 8
    sorting_bytes: int = 28


OPTIONS = MemoryOptions()


def entry_bytes(n_entries: int, itemsize: int) -> int:
    """Bytes while the entries are sorted: the source, the keys twice, their order, and buffers."""
    return n_entries * (8 + itemsize + 4 * 8)


def fit_bytes(size: ProblemSize, solver: SolverMemory) -> int:
    """Bytes at the peak of a fit.

    The entries are stored four times: by rows and by columns, each also in lane order. The solver's
    arrays and those of the repair of rows (indices, values, lanes and five rows of factors per
    entry) are not alive at the same time.
    """
    m, n = size.shape
    entries = 4 * size.n_entries * (4 + size.itemsize) + 24 * (m + n)
    factors = 6 * (m + n) * size.rank * size.itemsize
    if size.rank <= 16:
        # the normal equations of every chunk
        n_chunks = max(m, n) + size.n_entries // OPTIONS.chunk_length
        systems = size.rank * (size.rank + 3) // 2 * size.itemsize * n_chunks
    else:
        # of as many chunks as fit into one gigabyte
        systems = 1 << 30
    repair = min(size.n_entries, OPTIONS.repair_batch) * (40 + 5 * size.rank * size.itemsize)
    by_entry = OPTIONS.sorting_bytes
    if solver.dual_pass:
        by_entry = solver.entry_arrays * size.itemsize + OPTIONS.dual_pass_bytes
    return int(entries + factors + systems + max(size.n_entries * by_entry, repair))
