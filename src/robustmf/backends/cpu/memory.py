"""Estimates of the memory of a fit on the CPU, before it is made."""

from __future__ import annotations

from dataclasses import dataclass

from robustmf.backends.base import FitPlan, ProblemSize
from robustmf.backends.cpu.loss_sums import OPTIONS as LOSS_SUMS
from robustmf.backends.cpu.operations import column_parts
from robustmf.kernels.half_step import padded_width


@dataclass(frozen=True)
class MemoryOptions:
    """Sizes of working arrays.

    Attributes
    ----------
    holdout_bytes : int
        Bytes per entry while entries are held out, beside the entries and their copy.
    noise_levels : int
        Levels of the noise for which the search computes a likelihood, for each row.
    search_arrays : int
        Numbers for each entry during the search.
    """

    holdout_bytes: int = 16
    noise_levels: int = 65
    search_arrays: int = 16


OPTIONS = MemoryOptions()


def entries_bytes(size: ProblemSize) -> int:
    """Bytes of the entries by rows and by columns, which is also the peak of compressing them."""
    return 2 * size.n_entries * (4 + size.itemsize) + 8 * (sum(size.shape) + 2)


def fit_bytes(size: ProblemSize, plan: FitPlan) -> int:
    """Bytes at the larger of two peaks: compressing the entries, and the fit.

    A fit has the entries (by rows and by columns), the factors and working arrays. Not counted are
    the interpreter with its libraries (about 0.2 GB), and a source of the entries that is still
    referenced during the fit.
    """
    m, n = size.shape
    n_entries = size.n_entries
    rank = size.rank
    itemsize = size.itemsize
    factors = (m + n) * itemsize * (4 * rank + padded_width(rank, itemsize))
    sample = min(n_entries, plan.scale_sample)
    scales = sample * (8 + itemsize + 2 * rank * itemsize + 3 * itemsize)
    slices = (itemsize + 4 * 8) * min(n_entries, LOSS_SUMS.slice_length)
    repair = 8 * rank**2 * max(m, n) if plan.graduated else 0
    search = 0 if plan.searched is None else _search_bytes(plan.searched)
    # a weight per entry while the result of a part is extended
    extension = n_entries * itemsize if plan.searched not in (None, size) else 0
    working = max(scales + repair, slices, search, extension, _solver_bytes(size, plan))
    entries = entries_bytes(size)
    conversion = plan.source_bytes * n_entries + entries
    if plan.bias:
        # the values without the biases, by rows and by columns
        entries += n_entries * (4 + 2 * itemsize)
    if plan.held_out:
        # the entries to fit are a copy, whose columns are compressed afterwards
        entries += n_entries * (4 + itemsize)
        working = max(working, n_entries * (OPTIONS.holdout_bytes - 4 - itemsize))
    return int(max(conversion, entries + factors + working))


def _search_bytes(size: ProblemSize) -> int:
    """Bytes of the search for initial factors.

    Covariances and second moments of both sides and three copies of them, six such arrays of the
    longer side while they are transformed, or four of noise levels; and numbers for the entries.
    """
    packed = size.rank * (size.rank + 1) // 2
    longer = max(size.shape) * max(6 * packed, 4 * OPTIONS.noise_levels)
    return 8 * (8 * packed * sum(size.shape) + longer + OPTIONS.search_arrays * size.n_entries)


def _solver_bytes(size: ProblemSize, plan: FitPlan) -> int:
    """Bytes of the arrays that the solver declares."""
    m, n = size.shape
    solver = plan.solver
    by_entry = solver.entry_arrays * size.itemsize + solver.float64_entry_arrays * 8
    by_rank = solver.factor_arrays * (m + n)
    if solver.dual_pass:
        by_rank += column_parts(size.n_entries, n, size.rank) * n
    other = 0 if solver.other_bytes is None else solver.other_bytes(size)
    return size.n_entries * by_entry + size.itemsize * by_rank * size.rank + other
