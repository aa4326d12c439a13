"""Where a fit on a cluster begins: the start of one machine on some of the rows, on one worker; the rest is folded in (``fold``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.backends.dask.blocks import Block
from robustmf.data.ids import Ids, merge_ids, take_ids
from robustmf.data.observed import Observed
from robustmf.initialization.prepare import Prepared, prepare
from robustmf.kernels.team import Team
from robustmf.losses import Loss
from robustmf.solvers.settings import Settings

Array = NDArray[np.floating[Any]]

#: Some rows (or columns) by their numbers over all blocks, and their ids.
Names = tuple[NDArray[np.int64], Ids]

#: Entries that the start is looked for on, at most.
SAMPLE = 1 << 22

#: With several blocks, the task that looks for the start is given no more than this share of the entries, and the client gets no more.
SHARE = 0.9

#: Of a sample of less than this share, columns with fewer entries than so many times the rank are left out: they are folded in, when all
#: their entries are there.
_MUCH, _LEAST = 0.5, 3


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


def sampled_share(n_entries: int, blocks: int) -> float:
    """The share of the entries that the start is looked for on; who holds the only block holds all of them anyway."""
    return 1.0 if blocks == 1 else min(SHARE, SAMPLE / n_entries)


def sample_rows(block: Block, share: float) -> Sample:
    """The entries of random rows of the block, at most this share of them."""
    rows = block.observed.rows
    order = np.random.default_rng([0, block.first]).permutation(len(rows))
    counts = rows.counts[order]
    chosen = np.ones(len(rows), bool)
    # what stands before a row is left out too; so at least 1 − share is, and hardly more, however long a single row is
    chosen[order[np.cumsum(counts) - counts < (1 - share) * len(rows.values)]] = False
    kept = np.repeat(chosen, rows.counts)
    group = rows.group_of_entry()[kept].astype(np.int64)
    weights = None if block.weights is None else block.weights[kept]
    return Sample(
        block.first + group, block.numbers[rows.indices[kept]], rows.values[kept], weights
    )


def numbers_in(sample: Sample, side: int) -> NDArray[np.int64]:
    """The rows (side 0) or columns of a sample, each once."""
    return np.unique(sample.columns if side else sample.rows)


def names_of(ids: Ids, first: int, asked: Sequence[NDArray[np.int64]]) -> Names:
    """Those of the numbers asked for that belong to a block, and their ids."""
    numbers = np.unique(np.concatenate(asked))
    numbers = numbers[(numbers >= first) & (numbers < first + len(ids))]
    return numbers, take_ids(ids, numbers - first)


def spread_places(n_entries: int, at_most: int, share: float) -> NDArray[np.int64]:
    """Places evenly spread over so many: at most so many, and at most this share."""
    return np.unique(
        np.linspace(0, max(n_entries - 1, 0), min(at_most, int(share * n_entries))).astype(np.int64)
    )


def spread_entries(block: Block, at_most: int, share: float) -> Sample:
    """Entries evenly spread over the block: at most so many, and at most this share."""
    rows = block.observed.rows
    places = spread_places(len(rows.values), at_most, share)
    group = np.searchsorted(rows.pointers, places, side="right") - 1
    return Sample(
        block.first + group, block.numbers[rows.indices[places]], rows.values[places], None
    )


def start_on(
    samples: Sequence[Sample], names: Sequence[Sequence[Names]], n_entries: int, settings: Settings, rng: np.random.Generator
) -> Started:  # fmt: skip
    """Look for a start on samples of so many entries, with their rows and columns in the order of the ids.

    ``names`` has the ids of both sides' rows in the samples.
    """
    i, j = (np.concatenate([getattr(one, name) for one in samples]) for name in ("rows", "columns"))
    values = np.concatenate([one.values for one in samples])
    weights = (
        None
        if samples[0].weights is None
        else np.concatenate([one.weights for one in samples if one.weights is not None])
    )
    share = len(values) / n_entries
    if share < _MUCH:
        kept = np.bincount(j)[j] >= _LEAST * settings.rank
        if kept.any():
            i, j, values, weights = (
                i[kept],
                j[kept],
                values[kept],
                None if weights is None else weights[kept],
            )
    numbers, places = [], []
    for index, parts, role in zip((i, j), names, ("row", "col"), strict=True):
        _, first, place = np.unique(
            _in_order_of_ids(index, parts, role), return_index=True, return_inverse=True
        )
        numbers.append(index[first])
        places.append(place)
    shape = (len(numbers[0]), len(numbers[1]))
    if settings.rank > min(shape):
        raise ValueError(
            f"rank={settings.rank} is more than the rows or columns of the sample that the start is looked for on, {shape}; "
            "use fewer blocks, Triplets(…, blocks=), which leaves fewer rows out, or a smaller rank"
        )
    observed = Observed.from_indices(places[0], places[1], values, shape)
    if weights is not None:
        weights = Observed.from_indices(places[0], places[1], weights, shape).rows.values
    with Team(1) as team:
        found = prepare(settings, CPUOperations(observed, team), weights, rng, "irls", "")
    typical = float(np.median(np.abs(values)))
    basis = Basis(
        found.sigma,
        found.center,
        found.reg,
        found.bias_unit,
        typical,
        settings.loss_at(found.sigma),
    )
    return Started(basis, (numbers[0], numbers[1]), _own_factors(found, share))


def _in_order_of_ids(index: NDArray[np.int64], parts: Sequence[Names], role: str) -> NDArray[Any]:
    """Numbers over all blocks as places in the order of the ids."""
    numbers = np.concatenate([part[0] for part in parts])
    places = merge_ids([part[1] for part in parts], role)[0]
    order = np.argsort(numbers)
    return np.asarray(places[order[np.searchsorted(numbers[order], index)]])


def _own_factors(found: Prepared, share: float) -> tuple[Array, Array]:
    """The factors as they are solved for, and as they will be balanced when all rows are there.

    λ makes UᵀU = VᵀV. With more rows both would come to that by themselves, but in hundreds of sweeps.
    """
    scale = found.U.dtype.type(share**0.25)
    U, V = found.U * scale, found.V / scale
    if found.center is None:
        return U, V
    unit = found.U.dtype.type(found.bias_unit)
    return np.hstack([U, found.row_bias / unit]), np.hstack([V, found.column_bias / unit])


def basis_of(started: Started) -> Basis:
    """What the client needs of a start: all but the factors."""
    return started.basis


def seeded(started: Started, side: int, first: int, size: int) -> Array:
    """The start's factors for a block of rows (side 0) or columns; NaN where the start does not know them."""
    numbers, factors = started.numbers[side], started.factors[side]
    mine = (numbers >= first) & (numbers < first + size)
    out = np.full((size, factors.shape[1]), np.nan, factors.dtype)
    out[numbers[mine] - first] = factors[mine]
    return out
