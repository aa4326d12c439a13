"""A start that was given: noise, λ, θ and biases there as one machine finds them, by sums and counts over the blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.dask.blocks import Block
from robustmf.backends.dask.load import Matrix
from robustmf.backends.dask.medians import Scattered
from robustmf.backends.dask.start import Basis
from robustmf.backends.dask.tasks import on_block
from robustmf.data.sampling import evenly_spaced
from robustmf.initialization import problem
from robustmf.initialization.initial_point import (
    bias_half_step,
    bias_sweeps,
    given_factors,
    without_biases,
)
from robustmf.initialization.prepare import average_reg, in_units
from robustmf.initialization.scales import Scales, least_sigma
from robustmf.losses import Loss
from robustmf.solvers.settings import Settings

Array = NDArray[np.floating[Any]]
Places = NDArray[np.int64]

#: Futures of arrays, one a block, of rows (or columns).
Blocks = list[Any]


def given_start(settings: Settings, matrix: Matrix) -> tuple[Basis, list[Blocks]]:
    """What the iterations begin with from the pair ``settings.init``; with biases, in their unit, as the last factor."""
    connection, submit = matrix.connection, matrix.connection.submit
    given: Any = settings.init
    pair = [
        [
            connection.constant(A[low : low + size])
            for low, size in zip(side.firsts, side.sizes, strict=True)
        ]
        for side, A in zip(matrix.sides, _by_number(given, matrix, settings.rank), strict=True)
    ]
    standing = _Standing(matrix, _longer_side(matrix))
    places, n_entries = standing.places(weighted=False)
    values = standing.values(places)
    if settings.auto_reg:
        settings, _ = in_units(
            settings, Scales(values, matrix.shape, n_entries, settings.rank, settings.reg)
        )
    center, biases = None, None
    if settings.bias is True:
        center, biases = _biases(
            matrix, standing.side, settings.reg / (settings.bias_unit * settings.bias_unit)
        )
    places, n_entries = standing.places(weighted=True)
    left = standing.values(places, center, biases)
    reg = average_reg(settings, n_entries, matrix.shape)
    scales = Scales(left, matrix.shape, n_entries, settings.rank, reg, settings.loss.degree)
    typical = values.distances(0.0).median()
    sigma = max(
        scales.noise(standing.residuals(places, left, pair)), least_sigma(typical, matrix.dtype)
    )
    if biases is not None:
        pair = [
            [
                submit(_with_bias, own, bias, settings.bias_unit)
                for own, bias in zip(*side, strict=True)
            ]
            for side in zip(pair, biases, strict=True)
        ]
    return Basis(
        sigma, center, settings.reg, settings.bias_unit, typical, settings.loss_at(sigma)
    ), pair


def _by_number(init: Any, matrix: Matrix, rank: int) -> tuple[Array, Array]:
    """Factors that were given in the order of the ids, by the numbers over all blocks."""
    U, V = given_factors(init, matrix.shape, rank, matrix.dtype)
    return U[matrix.order(0)], V[matrix.order(1)]


def _longer_side(matrix: Matrix) -> int:
    """The side that one machine takes for the rows: the longer one, or else the one whose sums are the larger."""
    m, n = matrix.shape
    if m != n:
        return int(m < n)
    submit = matrix.connection.submit
    by_row, by_column = (sum(of_side) for of_side in matrix.connection.gather(
        [[submit(_squared_sums, block) for block in side.blocks] for side in matrix.sides]
    ))  # fmt: skip
    return int(by_row < by_column)


def _biases(matrix: Matrix, first: int, reg: float) -> tuple[float, list[Blocks]]:
    """Center and biases of both sides by themselves; the side ``first`` is solved for first."""
    connection, submit = matrix.connection, matrix.connection.submit
    every = Scattered(
        connection, [submit(_values, block) for block in matrix.sides[first].blocks], matrix.dtype
    )
    center, losses = bias_sweeps(every)
    biases = [
        [submit(np.zeros, (size, 1), matrix.dtype) for size in side.sizes] for side in matrix.sides
    ]
    for loss in losses:
        for side in (first, 1 - first):
            biases[side] = [
                submit(_bias_half_step, block, loss, reg, own, section, center)
                for block, own, section in zip(
                    matrix.sides[side].blocks, biases[side], matrix.sections(side, biases[1 - side]), strict=True
                )
            ]  # fmt: skip
    connection.wait(biases)
    return center, biases


@dataclass(frozen=True)
class _Standing:
    """Entries that stand for all, as those that one machine would take: all of them, up to ``SAMPLE``."""

    matrix: Matrix
    side: int

    def places(self, weighted: bool) -> tuple[Blocks, int]:
        """Their places in each block, and how many they stand for: all entries, or those with a weight that is not 0."""
        submit, blocks = self.matrix.connection.submit, self.matrix.sides[self.side].blocks
        counts = self.matrix.connection.gather(
            [submit(_counts, block, weighted) for block in blocks]
        )
        n_entries, at_most = sum(int(of_block.sum()) for of_block in counts), problem.SAMPLE
        if n_entries <= at_most:
            return [submit(_counting, block, weighted) for block in blocks], n_entries
        order, of_row = self.matrix.order(self.side), np.concatenate(counts)
        in_order = np.empty_like(of_row)
        in_order[order] = of_row
        starts = np.split(
            (np.cumsum(in_order) - in_order)[order],
            np.cumsum([len(of_block) for of_block in counts])[:-1],
        )
        columns = self.matrix.connection.constant(self.matrix.order(1 - self.side))
        return [
            submit(_sampled, block, weighted, n_entries, at_most, before, columns)
            for block, before in zip(
                blocks, map(self.matrix.connection.constant, starts), strict=True
            )
        ], n_entries

    def values(
        self, places: Blocks, center: float | None = None, biases: Sequence[Blocks] | None = None
    ) -> Scattered:
        """Their values, or what biases leave over of them."""
        submit, blocks = self.matrix.connection.submit, self.matrix.sides[self.side].blocks
        if biases is None:
            return self._scattered(
                [submit(_values, *each) for each in zip(blocks, places, strict=True)]
            )
        sections = self.matrix.sections(self.side, biases[1 - self.side])
        return self._scattered(
            [
                submit(_left_over, *each, center)
                for each in zip(blocks, places, biases[self.side], sections, strict=True)
            ]
        )

    def residuals(self, places: Blocks, left: Scattered, pair: Sequence[Blocks]) -> Scattered:
        """What factors leave over of these values."""
        sections = self.matrix.sections(self.side, pair[1 - self.side])
        each = zip(
            self.matrix.sides[self.side].blocks,
            places,
            left.parts,
            pair[self.side],
            sections,
            strict=True,
        )
        return self._scattered([self.matrix.connection.submit(_residuals, *one) for one in each])

    def _scattered(self, parts: Blocks) -> Scattered:
        return Scattered(self.matrix.connection, parts, self.matrix.dtype)


def _counting(block: Block, weighted: bool) -> Places:
    """The entries that count: all, or those with a weight that is not 0."""
    return (
        np.flatnonzero(block.weights > 0)
        if weighted and block.weights is not None
        else np.arange(block.observed.n_entries)
    )


def _counts(block: Block, weighted: bool) -> NDArray[np.int64]:
    """Of each row, how many entries count."""
    return np.bincount(
        _row_of(block, _counting(block, weighted)), minlength=len(block.observed.rows)
    )


def _sampled(
    block: Block, weighted: bool, n_entries: int, at_most: int, starts: Places, order: NDArray[Any]
) -> Places:
    """Those of the block's entries that are in the sample of all; ``starts`` says how many count before each of the rows.

    One machine has rows and columns in the order of the ids: ``order`` has the columns' places there.
    """
    places = _counting(block, weighted)
    row, column = _row_of(block, places), order[block.numbers[block.observed.rows.indices[places]]]
    sorted_ = np.lexsort((column, row))
    places, row = places[sorted_], row[sorted_]
    within = np.arange(len(row)) - np.searchsorted(row, row)
    return places[
        np.isin(starts[row] + within, evenly_spaced(n_entries, at_most), assume_unique=True)
    ]


def _row_of(block: Block, places: Places) -> NDArray[np.intp]:
    return np.searchsorted(block.observed.rows.pointers, places, side="right") - 1


def _values(block: Block, places: Places | None = None) -> Array:
    return block.observed.rows.values if places is None else block.observed.rows.values[places]


def _left_over(
    block: Block, places: Places, own: Array, sections: Sequence[Array], center: float
) -> Array:
    return without_biases(
        on_block(block), center, own, np.concatenate(sections)
    ).observed.rows.values[places]


def _residuals(
    block: Block, places: Places, left: Array, own: Array, sections: Sequence[Array]
) -> Array:
    i, j = _row_of(block, places), block.observed.rows.indices[places]
    return np.asarray(left - np.einsum("tq,tq->t", own[i], np.concatenate(sections)[j]))


def _squared_sums(block: Block) -> float:
    values = block.observed.rows.values
    weighted = values if block.weights is None else values * block.weights
    return float(np.square(np.bincount(block.observed.rows.group_of_entry(), weighted)).sum())


def _bias_half_step(
    block: Block, loss: Loss, reg: float, own: Array, sections: Sequence[Array], center: float
) -> Array:
    found = own.copy()
    bias_half_step(on_block(block), loss, reg, found, np.concatenate(sections), center)
    return found


def _with_bias(own: Array, bias: Array, unit: float) -> Array:
    return np.hstack([own, bias / own.dtype.type(unit)])
