"""Where a fit on a cluster begins: the start of one machine on whole rows, up to a number of entries; the rest is folded in.

Data of up to :data:`SAMPLE` entries have the start that one machine would give them, in the order of their ids: the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.cluster.blocks import Block
from robustmf.cluster.identity import Ids
from robustmf.cluster.tasks import on_block
from robustmf.kernels.team import Team
from robustmf.losses import Loss
from robustmf.observed import Observed
from robustmf.operations import Operations
from robustmf.solvers.fold_in import Columns
from robustmf.solvers.prepare import Prepared, prepare
from robustmf.solvers.settings import Settings

Array = NDArray[np.floating[Any]]

#: Entries that the start is looked for on, at most about.
SAMPLE = 1 << 22

#: Of a sample, columns with fewer entries than this many times the rank are left out: they are folded in, when all their entries are there.
_LEAST = 3


@dataclass(frozen=True)
class Sample:
    """Entries by the numbers of their rows and columns over all blocks."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: Array
    weights: Array | None


@dataclass(frozen=True)
class Basis:
    """What the iterations take from the start beside the factors. ``center`` is None without biases; ``typical`` is the median |value|."""

    sigma: float
    center: float | None
    reg: float
    bias_unit: float
    typical: float
    loss: Loss


@dataclass(frozen=True)
class Started:
    """A start for some rows and columns, by their numbers over all blocks; with biases, in their unit, as the last factor."""

    basis: Basis
    numbers: tuple[NDArray[np.int64], NDArray[np.int64]]
    factors: tuple[Array, Array]


def sample_rows(block: Block, at_most: int | None, seed: int) -> Sample:
    """All entries of the block, or those of random rows, about so many."""
    rows = block.observed.rows
    chosen = np.ones(len(rows), bool)
    if at_most is not None:
        order = np.random.default_rng([seed, block.first]).permutation(len(rows))
        chosen[order[np.cumsum(rows.counts[order]) > at_most]] = False
    kept = np.repeat(chosen, rows.counts)
    group = rows.group_of_entry()[kept].astype(np.int64)
    weights = None if block.weights is None else block.weights[kept]
    return Sample(block.first + group, block.numbers[rows.indices[kept]], rows.values[kept], weights)


def spread_entries(block: Block, at_most: int) -> Sample:
    """Entries evenly spread over the block, at most so many."""
    rows = block.observed.rows
    places = np.unique(np.linspace(0, max(len(rows.values) - 1, 0), min(at_most, len(rows.values))).astype(np.int64))
    group = np.searchsorted(rows.pointers, places, side="right") - 1
    return Sample(block.first + group, block.numbers[rows.indices[places]], rows.values[places], None)


def start_on(
    samples: Sequence[Sample], numbered: Sequence[tuple[NDArray[Any], Ids]], whole: bool, settings: Settings, init: Any,
    rng: np.random.Generator,
) -> Started:  # fmt: skip
    """Look for a start on the samples, with rows and columns in the order of their ids.

    ``numbered`` has the places of both sides in that order. ``init`` is a pair of factors in it, for all rows and columns, or None.
    """
    i, j = (np.concatenate([getattr(one, name) for one in samples]) for name in ("rows", "columns"))
    values = np.concatenate([one.values for one in samples])
    weights = None if samples[0].weights is None else np.concatenate([one.weights for one in samples if one.weights is not None])
    if not whole:
        kept = np.bincount(j)[j] >= _LEAST * settings.rank
        if kept.any():
            i, j, values, weights = i[kept], j[kept], values[kept], None if weights is None else weights[kept]
    numbers, places, ranks = [], [], []
    for side, index in enumerate((i, j)):
        unique, first, place = np.unique(numbered[side][0][index], return_index=True, return_inverse=True)
        numbers.append(index[first])
        places.append(place)
        ranks.append(unique)
    shape = (len(numbers[0]), len(numbers[1]))
    observed = Observed.from_indices(places[0], places[1], values, shape)
    if weights is not None:
        weights = Observed.from_indices(places[0], places[1], weights, shape).rows.values
    if init is not None:
        settings = replace(settings, init=tuple(np.asarray(A)[rank] for A, rank in zip(init, ranks, strict=True)))
    if settings.rank > min(shape):
        raise ValueError(f"rank={settings.rank} is more than the rows or columns of the sample that the start is looked for on, {shape}")
    with Team(1) as team:
        found = prepare(settings, Operations(observed, team), weights, rng, "irls", "")
    typical = float(np.median(np.abs(values)))
    basis = Basis(found.sigma, found.center, found.reg, found.bias_unit, typical, settings.loss_at(found.sigma))
    return Started(basis, (numbers[0], numbers[1]), _own_factors(found))


def _own_factors(found: Prepared) -> tuple[Array, Array]:
    if found.center is None:
        return found.U, found.V
    unit = found.U.dtype.type(found.bias_unit)
    return np.hstack([found.U, found.row_bias / unit]), np.hstack([found.V, found.column_bias / unit])


def basis_of(started: Started) -> tuple[Basis, int]:
    """What the client needs of a start: all but the factors, and how many these are a row."""
    return started.basis, started.factors[0].shape[1]


def seeded(started: Started, side: int, first: int, size: int) -> Array:
    """The start's factors for a block of rows (side 0) or columns; NaN where the start does not know them."""
    numbers, factors = started.numbers[side], started.factors[side]
    mine = (numbers >= first) & (numbers < first + size)
    out = np.full((size, factors.shape[1]), np.nan, factors.dtype)
    out[numbers[mine] - first] = factors[mine]
    return out


def folded(block: Block, own: Array, sections: Sequence[Array], basis: Basis, reg_by_count: bool) -> Array:
    """The same with what is not known folded in: robust regression on what is known of the other side."""
    missing = np.isnan(own[:, 0])
    if not missing.any():
        return own
    other = np.concatenate(sections)
    known = ~np.isnan(other[:, 0])
    other = np.where(known[:, None], other, other.dtype.type(0))
    rows = block.observed.rows
    weights = known[rows.indices] & np.repeat(missing, rows.counts)
    weights = weights.astype(own.dtype) * (own.dtype.type(1) if block.weights is None else block.weights)
    V, shifts = other, None
    if basis.center is not None:
        V, shifts = np.ascontiguousarray(other[:, :-1]), other[:, -1] * other.dtype.type(basis.bias_unit) + other.dtype.type(basis.center)
    columns = Columns(V, basis.loss, basis.reg, reg_by_count, shifts, basis.typical, basis.bias_unit)
    found = columns.fold_in(on_block(block), weights)
    if basis.center is not None:
        found[:, -1] /= found.dtype.type(basis.bias_unit)
    return np.where(missing[:, None], found, own)
