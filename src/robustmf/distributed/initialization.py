"""The initial point of a fit on a cluster.

One worker initializes a sample of the rows as one machine does
(:func:`robustmf.fitting.initialize`); the other rows and columns are folded in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.biases import BiasModel
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.backends.dask.blocks import Block
from robustmf.backends.dask.factors import RemoteFactorization
from robustmf.backends.dask.matrix import Matrix
from robustmf.data.factorization import Factorization
from robustmf.data.observed import Observed
from robustmf.data.sampling import evenly_spaced
from robustmf.fitting import Initialization
from robustmf.fitting import initialize as initialize_locally
from robustmf.initialization.initial_point import given_factors
from robustmf.initialization.resampling import OPTIONS as RESAMPLING
from robustmf.initialization.resampling import suspects
from robustmf.initialization.scales import TUNING
from robustmf.kernels import repair
from robustmf.kernels.team import Team
from robustmf.losses import Loss
from robustmf.solvers.fold_in import fold_in
from robustmf.solvers.registry import SolverChoice
from robustmf.solvers.settings import Settings

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class SampleOptions:
    """The sample of entries on which the initialization runs, and the fold-in of the others.

    Attributes
    ----------
    max_entries : int
        The largest sample; its initialization must fit into the memory of one worker.
    max_share : float
        The largest share of the entries in one task, or on the client, with several blocks.
    max_given : int
        From given factors, the sample has all entries up to this number: the estimates are then
        those of one machine.
    small_share : float
        In a sample of less than this share, columns with few entries are left out: they are folded
        in later, with all their entries.
    min_entries_per_factor : int
        Such columns have fewer entries than this number times the rank.
    refit_deviations : float
        A folded-in row is refitted from random subsets of its entries if it explains fewer of them
        than the median row by this many standard deviations.
    """

    max_entries: int = 1 << 22
    max_share: float = 0.9
    max_given: int = 1 << 18
    small_share: float = 0.5
    min_entries_per_factor: int = 3
    refit_deviations: float = 1.0


SAMPLING = SampleOptions()


@dataclass(frozen=True)
class Sample:
    """Entries with the global indices of their rows and columns."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: Array
    weights: Array | None

    def select(self, mask: NDArray[np.bool_]) -> Sample:
        """The entries where ``mask`` is true."""
        weights = None if self.weights is None else self.weights[mask]
        return Sample(self.rows[mask], self.columns[mask], self.values[mask], weights)


@dataclass(frozen=True)
class SampleFit:
    """The initialization of a sample.

    Attributes
    ----------
    initial : Initialization
        With empty factors: what the client receives.
    factors : (array, array)
        Augmented factors of the rows and columns of the sample.
    indices : (array, array)
        Their global indices.
    """

    initial: Initialization
    factors: tuple[Array, Array]
    indices: tuple[NDArray[np.int64], NDArray[np.int64]]


def initialize(
    settings: Settings, matrix: Matrix, rng: np.random.Generator, choice: SolverChoice
) -> Initialization:
    """Initialize a sample of the rows on one worker, and fold in the others on all workers."""
    connection = matrix.connection
    submit = connection.submit
    settings = replace(settings, callbacks=())
    is_given = not isinstance(settings.init, str)
    if is_given:
        init: Any = settings.init
        given = given_factors(init, matrix.shape, settings.rank, matrix.dtype)
        U, V = (factors[matrix.order(side)] for side, factors in enumerate(given))
        settings = replace(settings, init=(U, V))
    sent = connection.constant(settings)
    share = _sample_share(matrix, is_given)
    samples = [submit(sample_rows, block, share) for block in matrix.sides[0].blocks]
    found = submit(initialize_sample, samples, matrix.n_entries, sent, rng, choice)
    initial: Initialization = connection.gather(submit(getattr, found, "initial"))
    blocks = [
        [
            submit(factors_of, found, sent, side, *one)
            for one in zip(of.offsets, of.sizes, strict=True)
        ]
        for side, of in enumerate(matrix.sides)
    ]
    loss = initial.loss(settings)
    for side, of in enumerate(matrix.sides):
        sections = matrix.sections(side, blocks[1 - side])
        blocks[side] = [
            submit(fold_in_missing, *one, initial, loss, settings.reg_by_count)
            for one in zip(of.blocks, blocks[side], sections, strict=True)
        ]
    connection.wait(blocks)
    model = initial.factorization
    A, B = (
        matrix.factors(side, of_side, model.rank + model.has_bias)
        for side, of_side in enumerate(blocks)
    )
    remote = RemoteFactorization(A, B, model.center, initial.bias_unit)
    return replace(initial, factorization=cast("Factorization", remote), reason=choice.reason)


def _sample_share(matrix: Matrix, is_given: bool) -> float:
    """The share of the entries in the sample; the worker with the only block has all entries."""
    if matrix.n_blocks == 1 or (is_given and matrix.n_entries <= SAMPLING.max_given):
        return 1.0
    return min(SAMPLING.max_share, SAMPLING.max_entries / matrix.n_entries)


def sample_rows(block: Block, share: float) -> Sample:
    """The entries of random rows of the block, at most this share of them."""
    rows = block.observed.rows
    order = np.random.default_rng([0, block.offset]).permutation(len(rows))
    counts = rows.counts[order]
    chosen = np.ones(len(rows), bool)
    # the rows up to the one that reaches 1 − share are left out, however long that one is
    chosen[order[np.cumsum(counts) - counts < (1 - share) * len(rows.values)]] = False
    return _entries_at(block, np.flatnonzero(np.repeat(chosen, rows.counts)))


def sample_evenly(block: Block, max_entries: int, max_share: float) -> Sample:
    """Evenly spaced entries of the block."""
    return _entries_at(block, even_positions(block.observed.n_entries, max_entries, max_share))


def even_positions(n_entries: int, max_entries: int, max_share: float) -> NDArray[np.int64]:
    """Evenly spaced positions among entries, at most this number and this share of them."""
    return evenly_spaced(n_entries, min(max_entries, int(max_share * n_entries)))


def _entries_at(block: Block, positions: NDArray[np.int64]) -> Sample:
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
    n_entries: int,
    settings: Settings,
    rng: np.random.Generator,
    choice: SolverChoice,
) -> SampleFit:
    """Initialize on samples of a matrix with ``n_entries``; given factors are by global index."""
    sample = _concatenate(samples)
    share = len(sample.values) / n_entries
    if share < SAMPLING.small_share:
        counts = np.bincount(sample.columns)[sample.columns]
        kept = counts >= SAMPLING.min_entries_per_factor * settings.rank
        if kept.any():
            sample = sample.select(kept)
    rows, i = np.unique(sample.rows, return_inverse=True)
    columns, j = np.unique(sample.columns, return_inverse=True)
    shape = (len(rows), len(columns))
    if settings.rank > min(shape):
        raise ValueError(
            f"rank={settings.rank} exceeds the rows or columns of the sample for the "
            f"initialization, {shape}; use fewer blocks, Triplets(…, blocks=), which leaves fewer "
            "rows out, or a smaller rank"
        )
    observed = Observed.from_indices(i, j, sample.values, shape)
    weights = None
    if sample.weights is not None:
        weights = Observed.from_indices(i, j, sample.weights, shape).rows.values
    is_given = not isinstance(settings.init, str)
    if is_given:
        U, V = cast("tuple[Array, Array]", settings.init)
        settings = replace(settings, init=(U[rows], V[columns]))
    with Team(1) as team:
        operations = CPUOperations(observed, team)
        initial = initialize_locally(settings, operations, weights, rng, choice)
    A, B = initial.factorization.augmented(initial.bias_unit)
    if not is_given:
        # λ makes UᵀU = VᵀV for all rows; sweeps would need hundreds to balance those of a sample
        balance = A.dtype.type(share**0.25)
        rank = initial.factorization.rank
        A[:, :rank] *= balance
        B[:, :rank] /= balance
    empty = Factorization.from_augmented(
        A[:0], B[:0], initial.factorization.center, initial.bias_unit
    )
    # blocks are not divided by the scales of rows and columns
    return SampleFit(replace(initial, factorization=empty, scales=None), (A, B), (rows, columns))


def _concatenate(samples: Sequence[Sample]) -> Sample:
    """One sample of all entries."""
    rows, columns, values = (
        np.concatenate([getattr(one, name) for one in samples])
        for name in ("rows", "columns", "values")
    )
    weights = [one.weights for one in samples if one.weights is not None]
    return Sample(rows, columns, values, np.concatenate(weights) if weights else None)


def factors_of(found: SampleFit, settings: Settings, side: int, offset: int, size: int) -> Array:
    """The augmented factors of a block; NaN what is neither given nor found on the sample."""
    indices = found.indices[side]
    factors = found.factors[side]
    out = np.full((size, factors.shape[1]), np.nan, factors.dtype)
    if not isinstance(settings.init, str):
        given = cast("tuple[Array, Array]", settings.init)[side]
        out[:, : given.shape[1]] = given[offset : offset + size]
    own = (indices >= offset) & (indices < offset + size)
    out[indices[own] - offset] = factors[own]
    return out


def fold_in_missing(
    block: Block,
    own: Array,
    sections: Sequence[Array],
    initial: Initialization,
    loss: Loss,
    reg_by_count: bool,
) -> Array:
    """Fold in the rows of a block whose factors, or biases alone, are NaN.

    NaN in the sections is ignored.
    """
    missing = np.isnan(own[:, -1])
    if not missing.any():
        return own
    other = np.concatenate(sections)
    known = ~np.isnan(other[:, -1])
    other = np.where(known[:, None], other, other.dtype.type(0))
    design, offsets = BiasModel(initial.factorization.center, initial.bias_unit).design(other)
    observed = block.observed
    if offsets is not None:
        observed = observed.with_values(observed.rows.values - offsets[observed.rows.indices])
    used = known[observed.rows.indices]
    weights = None
    if block.weights is not None:
        used &= block.weights > 0
        weights = block.weights[used]
    operations = CPUOperations(observed.select(used), Team(1))
    # rows with given factors lack their bias alone, which is the last factor
    only_bias = not np.isnan(own[missing, 0]).any()
    if only_bias:
        operations = _without_product(operations, own[:, :-1], design[:, :-1])
    of_missing = np.repeat(missing, operations.observed.rows.counts)
    part = operations.on(operations.observed.select(of_missing))
    reg: float | Array = initial.reg
    if reg_by_count:
        reg = reg * np.maximum(part.observed.rows.counts, 1).astype(np.float64)
    lacking = slice(-1 if only_bias else 0, None)
    regressors = np.ascontiguousarray(design[:, lacking])
    part_weights = None if weights is None else weights[of_missing]
    typical = float(np.median(np.abs(block.observed.rows.values)))
    folded_in = fold_in(part, loss, reg, regressors, None, part_weights, typical)
    found = own.copy()
    found[missing, lacking] = folded_in[missing]
    if loss.robust and not only_bias:
        _refit(operations, found, missing, design, initial, reg_by_count, block.offset)
    return found


def _without_product(operations: CPUOperations, U: Array, V: Array) -> CPUOperations:
    """Operations on what is left of the entries without UVᵀ."""
    rows = operations.observed.rows
    product = np.einsum("tq,tq->t", U[rows.group_of_entry()], V[rows.indices])
    return operations.on(operations.observed.with_values(rows.values - product))


def _refit(
    operations: CPUOperations,
    U: Array,
    missing: NDArray[np.bool_],
    design: Array,
    initial: Initialization,
    reg_by_count: bool,
    seed: int,
) -> None:
    """Refit folded-in rows with a poor fit from random subsets of their entries, in place."""
    observed = operations.observed.rows
    theta = TUNING * initial.sigma
    rows, n_subsets = suspects(operations, U, design, theta, SAMPLING.refit_deviations)
    poor = missing[rows]
    mean_count = max(float(observed.counts.mean()), 1.0)
    rank = U.shape[1]
    # not EntryOperations.repair_rows, which removes the influence of these rows from the other
    # side: it has not been fitted to them, so that its normal inverses are zero
    repair.repair_rows(
        0,
        int(poor.sum()),
        observed.pointers,
        observed.indices,
        observed.values,
        U,
        design,
        np.zeros((len(design), rank, rank)),
        initial.reg * (mean_count if reg_by_count else 1.0),
        0.5 / (RESAMPLING.theta_factor * theta) ** 2,
        rows[poor],
        n_subsets[poor],
        np.uint64(seed),
        np.zeros(len(rows), bool),
    )
