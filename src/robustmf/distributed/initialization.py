"""The initial point of a fit on a cluster.

One worker initializes a sample of the rows as one machine does
(:func:`robustmf.initialization.pipeline.initialize`); the other rows and columns are folded in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.biases import BiasModel
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.backends.dask.loading import weighted_entries
from robustmf.backends.dask.matrix import Block, Factors, Matrix
from robustmf.backends.ridge import FactorRidge, Ridges
from robustmf.data.compressed import Coordinates
from robustmf.data.factorization import Factorization
from robustmf.initialization.initial_point import given_factors
from robustmf.initialization.pipeline import initialize as initialize_locally
from robustmf.initialization.resampling import OPTIONS as RESAMPLING
from robustmf.initialization.resampling import suspects
from robustmf.initialization.scales import TUNING
from robustmf.initialization.state import Initialization
from robustmf.kernels.team import Team
from robustmf.losses import Loss
from robustmf.solvers.fold_in import Columns
from robustmf.solvers.registry import SolverChoice
from robustmf.solvers.settings import Settings

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class SampleOptions:
    """Samples of the entries: for the initialization, and for the statistics of a fitted model.

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
    kept_entries : int
        Evenly spaced entries that are gathered on the client for the statistics of a model.
    max_client_bytes : int
        Bytes of factors that are gathered on the client.
    """

    max_entries: int = 1 << 22
    max_share: float = 0.9
    max_given: int = 1 << 18
    small_share: float = 0.5
    min_entries_per_factor: int = 3
    refit_deviations: float = 1.0
    kept_entries: int = 200_000
    max_client_bytes: int = 1 << 32


SAMPLING = SampleOptions()


@dataclass(frozen=True)
class RemoteFactorization:
    """A :class:`~robustmf.data.factorization.Factorization` on the workers, in augmented factors.

    Attributes
    ----------
    row_factors, column_factors : Factors
        With biases, each with its own bias in units of ``bias_unit`` as last column.
    center : float or None
        None for a model without biases.
    bias_unit : float
    """

    row_factors: Factors
    column_factors: Factors
    center: float | None
    bias_unit: float

    @property
    def has_bias(self) -> bool:
        """Whether the model has biases."""
        return self.center is not None

    @property
    def rank(self) -> int:
        """The number of factors."""
        return self.row_factors.shape[1] - self.has_bias

    def augmented(self, bias_unit: float) -> tuple[Factors, Factors]:
        """The augmented factors."""
        return self.row_factors, self.column_factors

    def with_augmented(self, A: Factors, B: Factors, bias_unit: float) -> RemoteFactorization:
        """The same model with other augmented factors."""
        return replace(self, row_factors=A, column_factors=B)

    def to_host(self) -> Factorization:
        """The factorization in the memory of the client."""
        A, B = map(np.asarray, self.augmented(self.bias_unit))
        return Factorization.from_augmented(A, B, self.center, self.bias_unit)

    def without_rows(self) -> Factorization:
        """The same model without factors, which stay on the workers."""
        A = np.empty((0, self.row_factors.shape[1]), self.row_factors.dtype)
        return Factorization.from_augmented(A, A, self.center, self.bias_unit)


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
    settings = replace(settings, callbacks=())
    given = _given(settings)
    if given is not None:
        checked = given_factors(given, matrix.shape, settings.rank, matrix.dtype)
        U, V = (factors[matrix.order(side)] for side, factors in enumerate(checked))
        settings = replace(settings, init=(U, V))
    sent = connection.constant(settings)
    share = min(SAMPLING.max_share, SAMPLING.max_entries / matrix.n_entries)
    # the worker with the only block has all entries
    if matrix.n_blocks == 1 or (given is not None and matrix.n_entries <= SAMPLING.max_given):
        share = 1.0
    samples = connection.map(sample_rows, matrix.sides[0].blocks, constants=(share,))
    found = connection.submit(initialize_sample, samples, matrix.n_entries, sent, rng, choice)
    initial: Initialization = connection.gather(connection.submit(getattr, found, "initial"))
    blocks = [
        connection.map(factors_of, of.offsets, of.sizes, constants=(side, found, sent))
        for side, of in enumerate(matrix.sides)
    ]
    constants = (initial, initial.loss(settings), settings.reg_by_count)
    for side, of in enumerate(matrix.sides):
        of_blocks = (of.blocks, blocks[side], matrix.sections(side, blocks[1 - side]))
        blocks[side] = connection.map(fold_in_missing, *of_blocks, constants=constants)
    model = initial.factorization
    A, B = (
        Factors(matrix, side, of_side, model.rank + model.has_bias).replicated()
        for side, of_side in enumerate(blocks)
    )
    remote: Any = RemoteFactorization(A, B, model.center, initial.bias_unit)
    return replace(initial, factorization=remote, reason=choice.reason)


def _given(settings: Settings) -> tuple[Array, Array] | None:
    """The factors that the user gave, if any."""
    if isinstance(settings.init, str):
        return None
    return cast("tuple[Array, Array]", settings.init)


def sample_rows(block: Block, share: float) -> Coordinates:
    """The entries of random rows of the block, at most this share of them."""
    rows = block.observed.rows
    order = np.random.default_rng([0, block.offset]).permutation(len(rows))
    counts = rows.counts[order]
    chosen = np.ones(len(rows), bool)
    # the rows up to the one that reaches 1 − share are left out, however long that one is
    chosen[order[np.cumsum(counts) - counts < (1 - share) * len(rows.values)]] = False
    return block.entries_at(np.flatnonzero(np.repeat(chosen, rows.counts)))


def initialize_sample(
    samples: Sequence[Coordinates],
    n_entries: int,
    settings: Settings,
    rng: np.random.Generator,
    choice: SolverChoice,
) -> SampleFit:
    """Initialize on samples of a matrix with ``n_entries``; given factors are by global index."""
    sample = Coordinates.concatenate(samples)
    share = len(sample.values) / n_entries
    if share < SAMPLING.small_share:
        counts = np.bincount(sample.columns)[sample.columns]
        kept = counts >= SAMPLING.min_entries_per_factor * settings.rank
        sample = sample.at(kept) if kept.any() else sample
    rows, i = np.unique(sample.rows, return_inverse=True)
    columns, j = np.unique(sample.columns, return_inverse=True)
    shape = (len(rows), len(columns))
    if settings.rank > min(shape):
        raise ValueError(
            f"rank={settings.rank} exceeds the rows or columns of the sample for the "
            f"initialization, {shape}; use fewer blocks, Triplets(…, blocks=), which leaves fewer "
            "rows out, or a smaller rank"
        )
    observed, weights = weighted_entries(replace(sample, rows=i, columns=j), shape)
    given = _given(settings)
    if given is not None:
        settings = replace(settings, init=(given[0][rows], given[1][columns]))
    with Team(1) as team:
        operations = CPUOperations(observed, team)
        initial = initialize_locally(settings, operations, weights, rng, choice)
        if initial.scales is not None and initial.factorization.has_bias:
            # blocks are not divided by scales: centers in units of their columns are factors here
            plain = replace(settings, bias=False)
            initial = initialize_locally(plain, operations, weights, rng, choice)
    A, B = initial.factorization.augmented(initial.bias_unit)
    if given is None:
        # λ makes UᵀU = VᵀV for all rows; sweeps would need hundreds to balance those of a sample
        balance = A.dtype.type(share**0.25)
        rank = initial.factorization.rank
        A[:, :rank] *= balance
        B[:, :rank] /= balance
    center = initial.factorization.center
    empty = Factorization.from_augmented(A[:0], B[:0], center, initial.bias_unit)
    # blocks are not divided by the scales of rows and columns
    ridges = _of_all(initial, share)
    common = replace(initial, factorization=empty, scales=None, ridges=ridges, reliability=None)
    return SampleFit(common, (A, B), (rows, columns))


def _of_all(initial: Initialization, share: float) -> Ridges | None:
    """The ridges of all rows and columns, from those of a sample of the rows.

    The factors of columns are known better from all rows, and in the units of balanced factors.
    """
    if initial.ridges is None:
        return None
    rows, columns = initial.ridges
    unit = share**0.5
    return (
        FactorRidge(rows.constant, rows.by_count * share / unit),
        FactorRidge(columns.constant, columns.by_count * unit),
    )


def factors_of(offset: int, size: int, side: int, found: SampleFit, settings: Settings) -> Array:
    """The augmented factors of a block; NaN what is neither given nor found on the sample."""
    indices = found.indices[side]
    factors = found.factors[side]
    out = np.full((size, factors.shape[1]), np.nan, factors.dtype)
    given = _given(settings)
    if given is not None:
        out[:, : given[side].shape[1]] = given[side][offset : offset + size]
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
    rows = block.observed.rows
    values = rows.values if offsets is None else rows.values - offsets[rows.indices]
    # rows with given factors lack their bias alone, which is the last factor
    only_bias = not np.isnan(own[missing, 0]).any()
    lacking = slice(-1 if only_bias else 0, None)
    if only_bias:
        left = own[:, :-1][rows.group_of_entry()]
        values = values - np.einsum("tq,tq->t", left, design[:, :-1][rows.indices])
    used = known[rows.indices]
    if block.weights is not None:
        used &= block.weights > 0
    observed = block.observed.with_values(values).select(used)
    of_missing = np.repeat(missing, observed.rows.counts)
    weights = None if block.weights is None else block.weights[used][of_missing]
    operations = CPUOperations(observed, Team(1))
    typical = float(np.median(np.abs(rows.values)))
    others = Columns(design[:, lacking], loss, initial.reg, reg_by_count, None, typical, 1.0)
    folded_in = others.fold_in(operations.on(observed.select(of_missing)), weights)
    found = own.copy()
    found[missing, lacking] = folded_in[missing]
    if loss.robust and not only_bias:
        _refit(operations, found, missing, design, initial, reg_by_count, block.offset)
    return found


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
    theta = TUNING * initial.sigma
    rows, n_subsets = suspects(operations, U, design, theta, SAMPLING.refit_deviations)
    poor = missing[rows]
    mean_count = max(float(operations.observed.rows.counts.mean()), 1.0)
    ridge = initial.reg * (mean_count if reg_by_count else 1.0)
    rank = U.shape[1]
    # the other side has not been fitted to these rows: they have no influence on it
    inverses = np.zeros((len(design), rank, rank))
    theta *= RESAMPLING.theta_factor
    operations.refit_rows(U, design, inverses, ridge, theta, rows[poor], n_subsets[poor], seed)
