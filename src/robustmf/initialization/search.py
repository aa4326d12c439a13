"""The search for initial factors, and for the rank where it is not given.

Large data are searched in two blocks of the rows and columns with most entries: from nothing in a
small one, from what was found there in a larger one. The result is extended to all rows and columns
by robust regression. See docs/design/initial-points.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.backends.ridge import FactorRidge
from robustmf.data.observed import Observed
from robustmf.initialization.attempts import (
    noise_without_factors,
    refine_factors,
    search_factors,
    shown_factors,
)
from robustmf.initialization.blocks import OPTIONS as BLOCKS
from robustmf.initialization.blocks import Block, DensityOrder, counts_of, parts
from robustmf.initialization.graduated import Candidate
from robustmf.initialization.noise_mixture import NoiseModel
from robustmf.initialization.problem import sampled_entries
from robustmf.initialization.variational import FoundFactors
from robustmf.losses import Loss, Tukey
from robustmf.solvers.fold_in import fold_in

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ExtensionOptions:
    """Constants of the extension to rows and columns that were not searched.

    Attributes
    ----------
    sweeps : (int, int, int)
        Of the regressions: least squares, l1, and a bounded loss,
    cutoff : float
        which rejects residuals of more than this many standard deviations.
    prior_entries : float
        The noise level of a row that was not searched is shrunk to that of the others as if it had
        as many more entries.
    least_level : float
        The smallest noise level of such a row, relative to the median, so that logarithms exist.
    """

    sweeps: tuple[int, int, int] = (1, 4, 3)
    cutoff: float = 5.0
    prior_entries: float = 10.0
    least_level: float = 1e-3


OPTIONS = ExtensionOptions()


def searched_factors(
    operations: EntryOperations, rank: int | None, rng: np.random.Generator
) -> Candidate | None:
    """At most ``rank`` factors, as many as the data support, perhaps none.

    None where there are too few entries to find any.
    """

    def search(part: EntryOperations) -> FoundFactors | None:
        return search_entries(part, rank, rng)

    def refine(
        inside: EntryOperations, found: FoundFactors, coarse: Block, block: Block
    ) -> FoundFactors | None:
        return refined(inside, found, coarse, block, rank, rng)

    found, block = search_in_blocks(operations, rank, search, refine, lambda one: one)
    return None if found is None else extended(operations, found, block)


def search_in_blocks(
    operations: EntryOperations,
    rank: int | None,
    search: Callable[[EntryOperations], Any],
    refine: Callable[[EntryOperations, Any, Block, Block], Any],
    factors: Callable[[Any], FoundFactors],
) -> tuple[Any, Block]:
    """Search the small block, then the large one; return the result and its block.

    The entries of the blocks are searched on the host, wherever all entries are.

    Parameters
    ----------
    operations : EntryOperations
    rank : int or None
    search : callable
        A search from nothing on these entries; returns None if there are too few.
    refine : callable
        From the entries of the large block, a result, its block and the large one: the search
        continued, or None if that shows no more.
    factors : callable
        The factors of a result.
    """
    coarse, block = nested_blocks(operations, rank)
    inside = operations.on(block.of(operations.observed)).host()
    if coarse is not block:
        part = operations.on(coarse.of(operations.observed)).host()
        found = search(part)
        # otherwise a part of the entries does not show or determine the factors
        if found is not None and is_determined(factors(found), part.observed):
            better = refine(inside, found, coarse, block)
            return (found, coarse) if better is None else (better, block)
    return search(inside), block


def nested_blocks(operations: EntryOperations, rank: int | None) -> tuple[Block, Block]:
    """The block in which the search begins, and the one in which it ends.

    The first is the second, unless a part of that has enough entries for a search: if they
    determine the factors that their spectrum shows, ``rank`` at most.
    """
    observed = operations.observed
    whole = Block(observed, None, None)
    if BLOCKS.coarse_share * observed.n_entries < BLOCKS.coarse_entries:
        return whole, whole
    order = DensityOrder(observed)
    block = whole
    if observed.n_entries > BLOCKS.max_entries:
        block = order.block(BLOCKS.max_entries, BLOCKS.min_per_row, BLOCKS.max_block)
        block = block.with_others()
    n_entries = block.of(observed).n_entries
    per_row = BLOCKS.min_per_row
    while True:
        coarse = order.block(BLOCKS.coarse_entries, per_row, n_entries)
        entries = coarse.of(observed).to_host()
        if entries.n_entries > BLOCKS.coarse_share * n_entries:
            return block, block
        shown = shown_factors(entries, rank, operations.team)
        sides = 1 + min(entries.shape) / max(entries.shape)
        needed = BLOCKS.entries_per_parameter * sides * shown
        if entries.n_entries >= needed * max(entries.shape):
            return coarse, block
        per_row = needed


def is_determined(found: FoundFactors, observed: Observed) -> bool:
    """Whether there are factors, and enough entries to rely on them."""
    if found.rank == 0:
        return False
    return observed.n_entries >= BLOCKS.entries_per_parameter * found.rank * sum(observed.shape)


def search_entries(
    operations: EntryOperations, rank: int | None, rng: np.random.Generator
) -> FoundFactors | None:
    """At most ``rank`` factors; None where there are too few entries to find any."""
    host = operations.host()
    return search_factors(host.observed, rank, host.team, rng)


def noise_of_entries(operations: EntryOperations) -> FoundFactors:
    """The model without factors, whose noise is all there is."""
    host = operations.host()
    return noise_without_factors(host.observed, host.team)


def refined(
    operations: EntryOperations,
    found: FoundFactors,
    coarse: Block,
    block: Block,
    rank: int | None,
    rng: np.random.Generator,
) -> FoundFactors | None:
    """What was found in the coarse block, searched on in the larger one.

    ``operations`` are those on the entries of the latter. None if it shows no further factors,
    and is but another part of the entries.
    """
    host = operations.host()
    rows, columns = (
        np.asarray(own[of_block])
        for own, of_block in zip(coarse.indices, block.indices, strict=True)
    )
    U, V = _extended_factors(host, found, rows, columns)
    exponents = found.exponents
    return refine_factors(host.observed, U, V, exponents, rank, host.team, rng, block.is_whole)


def extended(operations: EntryOperations, found: FoundFactors, block: Block) -> Candidate:
    """What was found in a block, for all rows and columns."""
    if block.rows is not None and block.columns is not None:
        return _extended(operations, found, block.rows, block.columns)
    U, V = (operations.array(A.astype(operations.observed.dtype)) for A in (found.U, found.V))
    return Candidate(U, V, found.sigma, found.noise, found.ridge, found.ridges, found.reliability)


def _extended(
    operations: EntryOperations,
    found: FoundFactors,
    rows: NDArray[np.bool_],
    columns: NDArray[np.bool_],
) -> Candidate:
    """The factors of a block and its noise, extended to all rows and columns."""
    U, V = _extended_factors(operations, found, rows, columns)
    noise = _extended_noise(operations, found, rows, columns, U, V)
    ridges = _extended_ridges(operations, found, rows, columns)
    return Candidate(U, V, found.sigma, noise, found.ridge, ridges)


def _extended_factors(
    operations: EntryOperations,
    found: FoundFactors,
    rows: NDArray[np.bool_],
    columns: NDArray[np.bool_],
) -> tuple[Array, Array]:
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
    typical = float(np.median(np.abs(sampled_entries(observed)[2])))
    in_block = operations.array(columns.astype(dtype))[observed.rows.indices]
    other_rows = operations.array(~rows)
    other_columns = operations.array(~columns)
    if found.U.shape[1]:
        _regress(operations, loss, ridges[0], U, V, other_rows, typical, in_block)
        if not columns.all():
            _regress(operations.transposed, loss, ridges[1], V, U, other_columns, typical)
            _regress(operations, loss, ridges[0], U, V, other_rows, typical)
    return U, V


def _regress(
    operations: EntryOperations,
    loss: Loss,
    ridge: FactorRidge,
    U: Any,
    V: Any,
    rows: Any,
    typical: float,
    weights: Any = None,
) -> None:
    """Fit these rows of U, in place; ``typical`` is the size of a typical value."""
    by_row = ridge.on(operations.observed)
    fitted = fold_in(
        operations, loss, by_row, V, weights=weights, typical=typical, sweeps=OPTIONS.sweeps
    )
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
    observed = operations.observed
    of_rows, of_columns = (
        operations.array(own.astype(observed.dtype)) for own in (found.sigma * levels[0], levels[1])
    )
    size = operations.residuals(U, V)
    for part, own_rows, count in parts(observed):
        level = np.repeat(of_rows[own_rows], count) * of_columns[observed.rows.indices[part]]
        size[part] = np.minimum(np.abs(size[part]) / level, OPTIONS.cutoff)
    for own, kept, count, total in zip(
        levels, (rows, columns), counts_of(observed), operations.sums(size), strict=True
    ):
        mean = np.asarray(total) / np.maximum(count, 1)
        weight = count / (count + OPTIONS.prior_entries)
        relative = np.maximum(mean / np.median(mean[kept]), OPTIONS.least_level)
        own[~kept] = np.exp(weight * np.log(relative))[~kept]
    return NoiseModel(levels[0], levels[1], found.noise.mixture)
