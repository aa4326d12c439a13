"""The initial point of a fit on a cluster.

Without given factors, one worker runs the initialization of one machine on a sample of the rows;
the other rows and columns are folded in. With given factors (U, V), noise, λ and biases are
estimated as on one machine, from the same sample of entries.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.backends.dask.blocks import Block
from robustmf.backends.dask.connection import Factors
from robustmf.backends.dask.matrix import Matrix
from robustmf.backends.dask.sweeps import operations_on
from robustmf.data.factorization import Factorization
from robustmf.data.ids import SIDE_NAMES, Ids, Side, merge_ids, take_ids
from robustmf.data.observed import Observed
from robustmf.data.sampling import evenly_spaced
from robustmf.distributed.fold_in import fold_in_missing
from robustmf.fitting import initialize as initialize_locally
from robustmf.initialization import problem
from robustmf.initialization.initial_point import bias_half_step, bias_sweeps, given_factors
from robustmf.initialization.regularization import average_reg, in_units
from robustmf.initialization.scales import Scales, least_sigma
from robustmf.kernels.team import Team
from robustmf.losses import Loss
from robustmf.solvers.registry import SolverChoice, get_solver
from robustmf.solvers.settings import Settings

Array = NDArray[np.floating[Any]]

#: Global indices of some rows or columns, and their ids.
NamedIndices = tuple[NDArray[np.int64], Ids]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SampleOptions:
    """The sample of entries on which the initialization runs.

    Attributes
    ----------
    max_entries : int
        The largest sample; its initialization must fit into the memory of one worker.
    max_share : float
        The largest share of the entries in one task, or on the client, with several blocks.
    small_share : float
        In a sample of less than this share, columns with few entries are left out: they are folded
        in later, with all their entries.
    min_entries_per_factor : int
        Such columns have fewer entries than this number times the rank.
    max_center_entries : int
        The center of the biases is the median of at most this many values; all of them on one
        machine.
    """

    max_entries: int = 1 << 22
    max_share: float = 0.9
    small_share: float = 0.5
    min_entries_per_factor: int = 3
    max_center_entries: int = 1 << 18


SAMPLING = SampleOptions()


@dataclass(frozen=True)
class Sample:
    """Entries with the global indices of their rows and columns."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: Array
    weights: Array | None


@dataclass(frozen=True)
class Estimates:
    """What the initialization determines besides the factors.

    ``center`` is None without biases; ``typical`` is the median of |value|.
    """

    sigma: float
    center: float | None
    reg: float
    bias_unit: float
    typical: float
    loss: Loss


@dataclass(frozen=True)
class SampleFactors:
    """Augmented factors of the sampled rows and columns, with their global indices."""

    estimates: Estimates
    indices: tuple[NDArray[np.int64], NDArray[np.int64]]
    factors: tuple[Array, Array]


def initialize(
    settings: Settings, matrix: Matrix, rng: np.random.Generator
) -> tuple[Estimates, tuple[Factors, Factors]]:
    """Augmented factors for all blocks, and the estimates that the iterations start with."""
    found = _from_sample if isinstance(settings.init, str) else _from_given_factors
    estimates, point = found(settings, matrix, rng)
    _log.info("initialized: noise %.4g", estimates.sigma)
    return estimates, point


def _from_sample(
    settings: Settings, matrix: Matrix, rng: np.random.Generator
) -> tuple[Estimates, tuple[Factors, Factors]]:
    """Initialize on a sample of the rows, and fold in the others."""
    connection = matrix.connection
    submit = connection.submit
    share = 1.0  # the worker with the only block has all entries
    if matrix.n_blocks > 1:
        share = min(SAMPLING.max_share, SAMPLING.max_entries / matrix.n_entries)
    samples = [submit(sample_rows, block, share) for block in matrix.sides[0].blocks]
    names = []
    for side, of in enumerate(matrix.sides):
        indices = [submit(_indices_in, sample, side) for sample in samples]
        names.append(
            [submit(_names_of, *one, indices) for one in zip(of.ids, of.offsets, strict=True)]
        )
    settings = replace(settings, callbacks=(), solver="irls")
    found = submit(initialize_sample, samples, names, matrix.n_entries, settings, rng)
    estimates = connection.gather(submit(getattr, found, "estimates"))
    blocks = [
        [submit(factors_of, found, side, *one) for one in zip(of.offsets, of.sizes, strict=True)]
        for side, of in enumerate(matrix.sides)
    ]
    for side, of in enumerate(matrix.sides):
        sections = matrix.sections(side, blocks[1 - side])
        blocks[side] = [
            submit(fold_in_missing, *one, estimates, settings.reg_by_count)
            for one in zip(of.blocks, blocks[side], sections, strict=True)
        ]
    connection.wait(blocks)
    width = settings.rank + (estimates.center is not None)
    U, V = (matrix.factors(side, of_side, width) for side, of_side in enumerate(blocks))
    U.replicate()
    V.replicate()
    return estimates, (U, V)


def sample_rows(block: Block, share: float) -> Sample:
    """The entries of random rows of the block, at most this share of them."""
    rows = block.observed.rows
    order = np.random.default_rng([0, block.offset]).permutation(len(rows))
    counts = rows.counts[order]
    chosen = np.ones(len(rows), bool)
    # the rows up to the one that reaches 1 − share are left out, however long that one is
    chosen[order[np.cumsum(counts) - counts < (1 - share) * len(rows.values)]] = False
    return entries_at(block, np.flatnonzero(np.repeat(chosen, rows.counts)))


def sample_evenly(block: Block, max_entries: int, max_share: float) -> Sample:
    """Evenly spaced entries of the block."""
    return entries_at(block, even_positions(block.observed.n_entries, max_entries, max_share))


def even_positions(n_entries: int, max_entries: int, max_share: float) -> NDArray[np.int64]:
    """Evenly spaced positions among entries, at most this number and this share of them."""
    return evenly_spaced(n_entries, min(max_entries, int(max_share * n_entries)))


def entries_at(block: Block, positions: NDArray[np.int64]) -> Sample:
    """Entries of a block by their positions in row order."""
    rows = block.observed.rows
    return Sample(
        block.offset + block.rows_of(positions),
        block.columns[rows.indices[positions]],
        rows.values[positions],
        None if block.weights is None else block.weights[positions],
    )


def initialize_sample(
    samples: Sequence[Sample],
    names: Sequence[Sequence[NamedIndices]],
    n_entries: int,
    settings: Settings,
    rng: np.random.Generator,
) -> SampleFactors:
    """Initialize on samples of a matrix with ``n_entries``; rows are in the order of the ids.

    ``names`` holds, for each side, the ids of the sampled rows or columns.
    """
    sample = _concatenate(samples)
    share = len(sample.values) / n_entries
    if share < SAMPLING.small_share:
        counts = np.bincount(sample.columns)[sample.columns]
        kept = counts >= SAMPLING.min_entries_per_factor * settings.rank
        if kept.any():
            sample = _select(sample, kept)
    indices = []
    positions = []
    for index, of_side, role in zip((sample.rows, sample.columns), names, SIDE_NAMES, strict=True):
        _, first, position = np.unique(
            _in_order_of_ids(index, of_side, role), return_index=True, return_inverse=True
        )
        indices.append(index[first])
        positions.append(position)
    shape = (len(indices[0]), len(indices[1]))
    if settings.rank > min(shape):
        raise ValueError(
            f"rank={settings.rank} exceeds the rows or columns of the sample for the "
            f"initialization, {shape}; use fewer blocks, Triplets(…, blocks=), which leaves fewer "
            "rows out, or a smaller rank"
        )
    observed = Observed.from_indices(positions[0], positions[1], sample.values, shape)
    weights = sample.weights
    if weights is not None:
        weights = Observed.from_indices(positions[0], positions[1], weights, shape).rows.values
    with Team(1) as team:
        choice = SolverChoice(get_solver("irls"), "")
        found = initialize_locally(settings, CPUOperations(observed, team), weights, rng, choice)
    factors = found.factorization
    estimates = Estimates(
        found.sigma,
        factors.center,
        found.reg,
        found.bias_unit,
        float(np.median(np.abs(sample.values))),
        settings.loss_at(found.sigma),
    )
    # λ makes UᵀU = VᵀV for all rows; sweeps alone would need hundreds to balance those of a sample
    balance = factors.row_factors.dtype.type(share**0.25)
    balanced = replace(
        factors,
        row_factors=factors.row_factors * balance,
        column_factors=factors.column_factors / balance,
    )
    return SampleFactors(estimates, (indices[0], indices[1]), balanced.augmented(found.bias_unit))


def _concatenate(samples: Sequence[Sample]) -> Sample:
    """One sample of all entries."""
    rows, columns, values = (
        np.concatenate([getattr(one, name) for one in samples])
        for name in ("rows", "columns", "values")
    )
    weights = [one.weights for one in samples if one.weights is not None]
    return Sample(rows, columns, values, np.concatenate(weights) if weights else None)


def _select(sample: Sample, mask: NDArray[np.bool_]) -> Sample:
    weights = None if sample.weights is None else sample.weights[mask]
    return Sample(sample.rows[mask], sample.columns[mask], sample.values[mask], weights)


def _indices_in(sample: Sample, side: int) -> NDArray[np.int64]:
    return np.unique(sample.columns if side else sample.rows)


def _names_of(ids: Ids, offset: int, indices: Sequence[NDArray[np.int64]]) -> NamedIndices:
    """Those of the global indices that belong to a block, with their ids."""
    union = np.unique(np.concatenate(indices))
    own = union[(union >= offset) & (union < offset + len(ids))]
    return own, take_ids(ids, own - offset)


def _in_order_of_ids(
    index: NDArray[np.int64], names: Sequence[NamedIndices], role: Side
) -> NDArray[Any]:
    """Global indices as positions in the order of the ids."""
    known = np.concatenate([part[0] for part in names])
    positions = merge_ids([part[1] for part in names], role)[0]
    order = np.argsort(known)
    return np.asarray(positions[order[np.searchsorted(known[order], index)]])


def factors_of(found: SampleFactors, side: int, offset: int, size: int) -> Array:
    """The factors of a block; NaN for rows or columns outside the sample."""
    indices = found.indices[side]
    factors = found.factors[side]
    own = (indices >= offset) & (indices < offset + size)
    out = np.full((size, factors.shape[1]), np.nan, factors.dtype)
    out[indices[own] - offset] = factors[own]
    return out


def _from_given_factors(
    settings: Settings, matrix: Matrix, _: np.random.Generator
) -> tuple[Estimates, tuple[Factors, Factors]]:
    """Start at ``settings.init``; noise, λ and biases are estimated there."""
    given: Any = settings.init
    U, V = given_factors(given, matrix.shape, settings.rank, matrix.dtype)
    side = _row_side(matrix)
    values, n_entries = _entry_sample(matrix, side, False, problem.SAMPLE)
    if settings.auto_reg:
        scales = Scales(values.values, matrix.shape, n_entries, settings.rank, settings.reg)
        settings = in_units(settings, scales)[0]
    biases = [np.zeros(size, matrix.dtype) for size in matrix.shape]
    center = None
    if settings.bias is True:
        center, biases = _fit_biases(settings, matrix, side)
    sample, n_entries = _entry_sample(matrix, side, True, problem.SAMPLE)
    pairs = ((sample.rows, U, biases[0]), (sample.columns, V, biases[1]))
    (i, left, row_bias), (j, right, column_bias) = pairs if side == 0 else pairs[::-1]
    centered = sample.values
    if center is not None:
        centered = centered - row_bias[i] - column_bias[j] - matrix.dtype.type(center)
    reg = average_reg(settings, n_entries, matrix.shape)
    scales = Scales(centered, matrix.shape, n_entries, settings.rank, reg, settings.loss.degree)
    typical = float(np.median(np.abs(values.values)))
    residual = centered - np.einsum("tq,tq->t", left[i], right[j])
    sigma = max(scales.noise(residual), least_sigma(typical, matrix.dtype))
    estimates = Estimates(
        sigma, center, settings.reg, settings.bias_unit, typical, settings.loss_at(sigma)
    )
    augmented = Factorization(U, V, center, *biases).augmented(settings.bias_unit)
    A, B = (matrix.distribute(side, one) for side, one in enumerate(augmented))
    return estimates, (A, B)


def _row_side(matrix: Matrix) -> int:
    """The side that one machine treats as rows: the longer one, or that with the larger sums."""
    m, n = matrix.shape
    if m != n:
        return int(m < n)
    connection = matrix.connection
    sums = connection.gather([connection.map(_squared_sums, of.blocks) for of in matrix.sides])
    by_row, by_column = map(sum, sums)
    return int(by_row < by_column)


def _fit_biases(settings: Settings, matrix: Matrix, first: int) -> tuple[float, list[Array]]:
    """Fit center and biases without factors; the side ``first`` is solved for first."""
    connection = matrix.connection
    reg = settings.reg / (settings.bias_unit * settings.bias_unit)
    sample, _ = _entry_sample(matrix, first, False, SAMPLING.max_center_entries)
    center, losses = bias_sweeps(sample.values)
    biases = [
        [connection.submit(np.zeros, (size, 1), matrix.dtype) for size in of.sizes]
        for of in matrix.sides
    ]
    for loss in losses:
        for side in (first, 1 - first):
            sections = matrix.sections(side, biases[1 - side])
            biases[side] = [
                connection.submit(_bias_half_step, *one, loss, reg, center)
                for one in zip(matrix.sides[side].blocks, biases[side], sections, strict=True)
            ]
    found = connection.gather(biases)
    return center, [matrix.in_order(side, parts)[:, 0] for side, parts in enumerate(found)]


def _entry_sample(
    matrix: Matrix, side: int, weighted: bool, max_entries: int
) -> tuple[Sample, int]:
    """The sample of entries from which one machine estimates scales, on the client.

    With ``weighted``, entries of weight 0 are left out. Also returns the number of entries that it
    represents. The indices of rows and columns are positions in the order of the ids, whichever
    ``side`` the blocks are of.
    """
    connection = matrix.connection
    blocks = matrix.sides[side].blocks
    counts = connection.gather([connection.submit(_row_counts, one, weighted) for one in blocks])
    n_entries = sum(int(of_block.sum()) for of_block in counts)
    starts: list[Any] = [None] * len(blocks)
    columns = None
    if n_entries > max_entries:
        in_order = matrix.in_order(side, counts)
        first = (np.cumsum(in_order) - in_order)[matrix.order(side)]
        bounds = np.cumsum([len(of_block) for of_block in counts])[:-1]
        starts = [connection.constant(part) for part in np.split(first, bounds)]
        columns = connection.constant(matrix.order(1 - side))
    parts = [
        connection.submit(_sample_entries, *one, weighted, n_entries, max_entries, columns)
        for one in zip(blocks, starts, strict=True)
    ]
    sample = _concatenate(connection.gather(parts))
    rows, columns = (sample.rows, sample.columns) if side == 0 else (sample.columns, sample.rows)
    return replace(sample, rows=matrix.order(0)[rows], columns=matrix.order(1)[columns]), n_entries


def _positive(block: Block, weighted: bool) -> NDArray[np.int64]:
    """Positions of all entries or, with ``weighted``, of those with a positive weight."""
    if weighted and block.weights is not None:
        return np.flatnonzero(block.weights > 0)
    return np.arange(block.observed.n_entries)


def _row_counts(block: Block, weighted: bool) -> NDArray[np.int64]:
    rows = block.rows_of(_positive(block, weighted))
    return np.bincount(rows, minlength=len(block.observed.rows))


def _sample_entries(
    block: Block,
    starts: NDArray[np.int64] | None,
    weighted: bool,
    n_entries: int,
    max_entries: int,
    column_order: NDArray[Any] | None,
) -> Sample:
    """The entries of the block that belong to the sample.

    One machine has rows and columns in the order of the ids. ``starts`` is the position of each
    row's first entry in that order, ``column_order`` that of each column; None takes all entries.
    """
    positions = _positive(block, weighted)
    if starts is None or column_order is None:
        return entries_at(block, positions)
    row = block.rows_of(positions)
    column = column_order[block.columns[block.observed.rows.indices[positions]]]
    order = np.lexsort((column, row))
    row = row[order]
    within = np.arange(len(row)) - np.searchsorted(row, row)
    chosen = evenly_spaced(n_entries, max_entries)
    mask = np.isin(starts[row] + within, chosen, assume_unique=True)
    return entries_at(block, positions[order][mask])


def _squared_sums(block: Block) -> float:
    """Σ (row sum)² of the weighted values."""
    values = block.observed.rows.values
    weighted = values if block.weights is None else values * block.weights
    return float(np.square(np.bincount(block.observed.rows.group_of_entry(), weighted)).sum())


def _bias_half_step(
    block: Block, own: Array, sections: Sequence[Array], loss: Loss, reg: float, center: float
) -> Array:
    found = own.copy()
    bias_half_step(operations_on(block), loss, reg, found, np.concatenate(sections), center)
    return found
