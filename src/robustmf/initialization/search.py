"""The search for initial factors, and for the rank where it is not given.

Small data are searched whole. Of large data the rows and columns with most entries are searched,
and the result is extended to the others by robust regression. See docs/design/initialization.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations, ProblemSize
from robustmf.backends.ridge import FactorRidge
from robustmf.data.observed import Compressed, Observed
from robustmf.initialization.attempts import (
    is_searchable,
    noise_without_factors,
    search_factors,
)
from robustmf.initialization.graduated import Candidate
from robustmf.initialization.noise_mixture import NoiseModel
from robustmf.initialization.variational import FoundFactors
from robustmf.losses import Loss, Tukey
from robustmf.solvers.fold_in import fold_in

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class SearchOptions:
    """Constants of the search.

    Attributes
    ----------
    max_entries : int
        Entries that are searched by variational inference, which takes some seconds for as many.
    min_per_row : float
        The block has more entries if it would have fewer in its average row or column, so that
        factors can be determined,
    max_block : int
        but no more than this.
    sweeps : (int, int, int)
        Of the regressions that extend the result: least squares, l1, and a bounded loss,
    cutoff : float
        which rejects residuals of more than this many standard deviations.
    prior_entries : float
        The noise level of a row that was not searched is shrunk to that of the others as if it had
        as many more entries.
    least_level : float
        The smallest noise level of such a row, relative to the median, so that logarithms exist.
    levels : int
        The resolution of the share of rows and columns in a block.
    batch : int
        Entries that are processed together, which bounds the memory.
    """

    max_entries: int = 250_000
    min_per_row: float = 30.0
    max_block: int = 1_000_000
    sweeps: tuple[int, int, int] = (1, 4, 3)
    cutoff: float = 5.0
    prior_entries: float = 10.0
    least_level: float = 1e-3
    levels: int = 1 << 12
    batch: int = 1 << 22


OPTIONS = SearchOptions()


def searched_size(size: ProblemSize) -> ProblemSize:
    """The size of the largest block that is searched, for entries at random positions."""
    if size.n_entries <= OPTIONS.max_entries:
        return size
    n_entries = min(size.n_entries, OPTIONS.max_block)
    share = (n_entries / size.n_entries) ** 0.5
    m, n = (max(1, round(share * length)) for length in size.shape)
    return replace(size, shape=(m, n), n_entries=n_entries)


@dataclass(frozen=True)
class Block:
    """The rows and columns that are searched: all of them, or those with most entries.

    Attributes
    ----------
    observed : Observed
        All entries, in the memory of the host.
    rows, columns : array of bool, or None
        The rows and columns of the block; None for all.
    """

    observed: Observed
    rows: NDArray[np.bool_] | None
    columns: NDArray[np.bool_] | None

    @classmethod
    def to_search(cls, operations: EntryOperations) -> Block:
        """The block for these entries."""
        observed = operations.host().observed
        if observed.n_entries <= OPTIONS.max_entries:
            return cls(observed, None, None)
        return cls(observed, *dense_block(observed))

    def of(self, observed: Observed) -> Observed:
        """The entries of the block in a matrix of the same pattern, as a matrix of their own."""
        if self.rows is None or self.columns is None:
            return observed
        return block_of(observed, self.rows, self.columns)

    @property
    def indices(self) -> tuple[Any, Any]:
        """Index expressions of the block's rows and columns."""
        everything = slice(None)
        return (
            everything if self.rows is None else self.rows,
            everything if self.columns is None else self.columns,
        )


def searched_factors(
    operations: EntryOperations, rank: int | None, rng: np.random.Generator
) -> Candidate | None:
    """At most ``rank`` factors, as many as the data support, perhaps none.

    None where there are too few entries to find any.
    """
    block = Block.to_search(operations)
    found = search_block(operations, rank, rng, block)
    return None if found is None else extended(operations, found, block)


def search_block(
    operations: EntryOperations, rank: int | None, rng: np.random.Generator, block: Block
) -> FoundFactors | None:
    """At most ``rank`` factors of a block; None where there are too few entries to find any."""
    host = operations.host()
    return search_factors(block.of(host.observed), rank, host.team, rng)


def noise_of_block(operations: EntryOperations, block: Block) -> FoundFactors | None:
    """The model without factors, whose noise is all there is; None for too few entries."""
    host = operations.host()
    entries = block.of(host.observed)
    return noise_without_factors(entries, host.team) if is_searchable(entries) else None


def extended(operations: EntryOperations, found: FoundFactors, block: Block) -> Candidate:
    """What was found in a block, for all rows and columns."""
    if block.rows is not None and block.columns is not None:
        return _extended(operations, found, block.rows, block.columns)
    U, V = (operations.array(A.astype(operations.observed.dtype)) for A in (found.U, found.V))
    return Candidate(U, V, found.sigma, found.noise, found.ridge, found.ridges, found.reliability)


def dense_block(observed: Observed) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The rows and columns with most entries, the same share of both."""
    n_levels = OPTIONS.levels
    levels = []
    for groups in (observed.rows, observed.columns):
        order = np.argsort(-groups.counts, kind="stable")
        level = np.empty(len(order), np.int32)
        level[order] = np.arange(len(order)) * n_levels // len(order)
        levels.append(level)
    number = np.zeros(n_levels, np.int64)
    for _, rows, columns in _parts(observed):
        level = np.maximum(levels[0][rows], levels[1][columns])
        number += np.bincount(level, minlength=n_levels)
    number = np.cumsum(number)
    per_row = number / (np.arange(1, n_levels + 1) / n_levels * max(observed.shape))
    enough = (number >= OPTIONS.max_entries) & (per_row >= OPTIONS.min_per_row)
    last = int(np.argmax(enough)) if enough.any() else n_levels - 1
    largest = int(np.searchsorted(number, OPTIONS.max_block, side="right")) - 1
    last = max(0, min(last, largest))
    return levels[0] <= last, levels[1] <= last


def _parts(
    observed: Observed,
) -> Iterator[tuple[slice, NDArray[np.intp], NDArray[np.integer[Any]]]]:
    """Entries in parts, with their rows and columns: large arrays of them do not fit in memory."""
    pointers = observed.rows.pointers
    for low in range(0, observed.n_entries, OPTIONS.batch):
        part = slice(low, min(low + OPTIONS.batch, observed.n_entries))
        rows = np.searchsorted(pointers, np.arange(part.start, part.stop), side="right") - 1
        yield part, rows, observed.rows.indices[part]


def block_of(observed: Observed, rows: NDArray[np.bool_], columns: NDArray[np.bool_]) -> Observed:
    """The entries of these rows and columns, as a matrix of their own."""
    entries = observed.rows
    mask = np.repeat(rows, entries.counts) & columns[entries.indices]
    pointers = np.concatenate(([0], np.cumsum(mask)))[entries.pointers]
    counts = np.diff(pointers)[rows]
    new_column = np.cumsum(columns) - 1
    return Observed(
        Compressed(
            np.concatenate(([0], np.cumsum(counts))).astype(entries.pointers.dtype),
            new_column[entries.indices[mask]].astype(entries.indices.dtype),
            entries.values[mask],
        ),
        (int(rows.sum()), int(columns.sum())),
    )


def _extended(
    operations: EntryOperations,
    found: FoundFactors,
    rows: NDArray[np.bool_],
    columns: NDArray[np.bool_],
) -> Candidate:
    """The factors of a block, extended to all rows and columns.

    Rows outside are fitted to the block's columns, then columns outside to all rows, then rows
    outside to all columns.
    """
    observed = operations.observed
    dtype = observed.dtype
    U, V = (np.zeros((size, found.U.shape[1]), dtype) for size in observed.shape)
    U[rows] = found.U
    V[columns] = found.V
    U = operations.array(U)
    V = operations.array(V)
    ridges = _extended_ridges(operations, found, rows, columns)
    loss = Tukey(OPTIONS.cutoff * found.sigma)
    in_block = operations.array(columns.astype(dtype))[observed.rows.indices]
    other_rows = operations.array(~rows)
    other_columns = operations.array(~columns)
    if found.U.shape[1]:
        _regress(operations, loss, ridges[0], U, V, other_rows, in_block)
        _regress(operations.transposed, loss, ridges[1], V, U, other_columns)
        _regress(operations, loss, ridges[0], U, V, other_rows)
    del in_block
    noise = _extended_noise(operations, found, rows, columns, np.asarray(U), np.asarray(V))
    return Candidate(U, V, found.sigma, noise, found.ridge, ridges)


def _regress(
    operations: EntryOperations,
    loss: Loss,
    ridge: FactorRidge,
    U: Any,
    V: Any,
    rows: Any,
    weights: Any = None,
) -> None:
    """Fit these rows of U, in place."""
    by_row = ridge.on(operations.observed)
    fitted = fold_in(operations, loss, by_row, V, weights=weights, sweeps=OPTIONS.sweeps)
    U[rows] = fitted[rows]


def _extended_ridges(
    operations: EntryOperations,
    found: FoundFactors,
    rows: NDArray[np.bool_],
    columns: NDArray[np.bool_],
) -> tuple[FactorRidge, FactorRidge]:
    """The ridges for all rows and columns.

    The uncertainty of the other side's factors falls with the number of their entries, of which
    outliers do not count.
    """
    per_entry = len(found.reliability) / operations.observed.n_entries
    clean = float(found.reliability.mean())
    ridges = [
        FactorRidge(
            ridge.constant,
            ridge.by_count * (min(1.0, per_entry * len(kept) / kept.sum()) * clean),
        )
        for ridge, kept in zip(found.ridges, (columns, rows), strict=True)
    ]
    return ridges[0], ridges[1]


def _extended_noise(
    operations: EntryOperations,
    found: FoundFactors,
    rows: NDArray[np.bool_],
    columns: NDArray[np.bool_],
    U: Array,
    V: Array,
) -> NoiseModel:
    """Noise levels of all rows and columns: those of the others from their clipped residuals."""
    levels = [np.ones(size) for size in operations.observed.shape]
    levels[0][rows] = found.noise.row_scales
    levels[1][columns] = found.noise.column_scales
    if found.noise.scales is None:
        return NoiseModel(levels[0], levels[1], found.noise.mixture)
    observed = operations.host().observed
    counts = (observed.rows.counts, observed.columns.counts)
    sums = [np.zeros(size) for size in observed.shape]
    for part, i, j in _parts(observed):
        residual = observed.rows.values[part] - np.einsum("tq,tq->t", U[i], V[j])
        level = found.sigma * levels[0][i] * levels[1][j]
        size = np.minimum(np.abs(residual) / level, OPTIONS.cutoff)
        for side, of_entry in enumerate((i, j)):
            sums[side] += np.bincount(of_entry, size, minlength=len(sums[side]))
    for own, kept, count, total in zip(levels, (rows, columns), counts, sums, strict=True):
        mean = total / np.maximum(count, 1)
        weight = count / (count + OPTIONS.prior_entries)
        relative = np.maximum(mean / np.median(mean[kept]), OPTIONS.least_level)
        own[~kept] = np.exp(weight * np.log(relative))[~kept]
    return NoiseModel(levels[0], levels[1], found.noise.mixture)
