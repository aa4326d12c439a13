"""The noise model of a fit whose factors stay on the cluster.

It is that of one machine (:mod:`robustmf.outliers.noise`), from sums over blocks and a sample of
entries with the factors of their rows and columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.dask.blocks import Block
from robustmf.backends.dask.factors import Factors
from robustmf.backends.dask.matrix import Matrix
from robustmf.backends.dask.sweeps import Terms
from robustmf.distributed.initialization import SAMPLING, even_positions
from robustmf.outliers.noise import (
    PRIOR,
    SAMPLE,
    NoiseDistribution,
    NoiseModel,
    Regressors,
    moment_sum,
)

Array = NDArray[np.floating[Any]]

#: Distinct numbers, and how often each occurs.
Histogram = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class SampledEntries:
    """Entries with their residuals, and factors and counts of their rows and columns."""

    U: Array
    V: Array
    residual: Array
    row_counts: NDArray[np.int64]
    column_counts: NDArray[np.int64]


@dataclass(frozen=True)
class SampledNoise(NoiseModel):
    """A noise model with one row of factors per sampled entry, and histograms of all counts."""

    histograms: tuple[Histogram, Histogram] = ((np.empty(0, np.int64),) * 2,) * 2

    def degrees_of_freedom(self, clean: float) -> float:
        """The effective degrees of freedom of the complete fit."""
        sides = zip((self.of_columns, self.of_rows), self.histograms, strict=True)
        return sum(
            int(n) * side.degrees_of_freedom(np.array([clean * count]))
            for side, histogram in sides
            for count, n in zip(*histogram, strict=True)
        )

    @property
    def n_entries(self) -> int:
        """The number of fitted entries."""
        counts, times = self.histograms[0]
        return int(counts @ times)


def noise_facts(matrix: Matrix, point: tuple[Factors, Factors], terms: Terms) -> dict[str, Any]:
    """The noise model as plain values, for :func:`noise_of`."""
    submit = matrix.connection.submit
    max_entries = max(SAMPLE // matrix.n_blocks, 1)

    def submitted() -> tuple[None, Any]:
        sums = [
            [submit(_sums, *one, terms) for one in zip(side.blocks, factors.blocks, strict=True)]
            for side, factors in zip(matrix.sides, point, strict=True)
        ]
        rows, columns = (side.blocks for side in matrix.sides)
        counts = matrix.connection.attributes(columns, "counts")
        sections = (matrix.sections(0, others) for others in (point[1].blocks, counts))
        samples = [
            submit(_sample, *one, terms, max_entries)
            for one in zip(rows, point[0].blocks, *sections, strict=True)
        ]
        return None, [sums, samples]

    needed: list[Any] = [*point, matrix]
    sums, samples = matrix.connection.gather_with_recovery(submitted, needed)[1]
    constant = _constant(terms)
    rows, columns = (
        Regressors.from_moment(
            sum(moment for moment, _ in of_side),
            matrix.n_entries,
            constant,
            terms.reg,
            terms.reg_by_count,
        )
        for of_side in sums
    )
    U, V, residual, row_counts, column_counts = (
        np.concatenate([getattr(one, field.name) for one in samples])
        for field in fields(SampledEntries)
    )
    by_row, by_column = (_merge([histogram for _, histogram in of_side]) for of_side in sums)
    every = np.arange(len(residual))
    noise = SampledNoise(
        PRIOR, U, V, rows, columns, row_counts, column_counts, histograms=(by_row, by_column)
    ).calibrated(residual, every, every)
    return {
        "noise": [noise.distribution.scale, noise.distribution.freedom, noise.distribution.share],
        "inflation": noise.inflation,
        "moments": [side.moments.tolist() for side in (rows, columns)],
        "axes": [side.axes.tolist() for side in (rows, columns)],
    }


def noise_of(
    facts: Mapping[str, Any],
    U: Array,
    V: Array,
    row_counts: NDArray[np.int64],
    column_counts: NDArray[np.int64],
) -> NoiseModel:
    """The noise model for entries, each with the factors and counts of its row and column."""
    constant = facts["bias_unit"] if facts["center"] is not None else 0.0
    rows, columns = (
        Regressors(np.array(moments), np.array(axes), constant, facts["reg"], facts["reg_by_count"])
        for moments, axes in zip(facts["moments"], facts["axes"], strict=True)
    )
    distribution = NoiseDistribution(*facts["noise"])
    return NoiseModel(
        distribution, U, V, rows, columns, row_counts, column_counts, facts["inflation"]
    )


def _constant(terms: Terms) -> float:
    return 0.0 if terms.biases.center is None else terms.biases.unit


def _without_bias(own: Array, terms: Terms) -> Array:
    return own if terms.biases.center is None else own[:, :-1]


def _merge(parts: Sequence[Histogram]) -> Histogram:
    numbers, index = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    times = np.zeros(len(numbers), np.int64)
    np.add.at(times, index, np.concatenate([part[1] for part in parts]))
    return numbers, times


def _sums(block: Block, own: Array, terms: Terms) -> tuple[NDArray[np.float64], Histogram]:
    moment = moment_sum(_without_bias(own, terms), block.counts, _constant(terms))
    return moment, np.unique(block.counts, return_counts=True)


def _sample(
    block: Block,
    own: Array,
    sections: Sequence[Array],
    counts: Sequence[NDArray[np.int64]],
    terms: Terms,
    max_entries: int,
) -> SampledEntries:
    rows = block.observed.rows
    positions = even_positions(len(rows.values), max_entries, SAMPLING.max_share)
    i = block.rows_of(positions)
    j = rows.indices[positions]
    U = own[i]
    V = np.concatenate(sections)[j]
    left, right = terms.biases.predictors(U, V)
    predicted = np.clip(np.einsum("tq,tq->t", left, right), *terms.bounds)
    return SampledEntries(
        _without_bias(U, terms),
        _without_bias(V, terms),
        rows.values[positions] - predicted,
        block.counts[i],
        np.concatenate(counts)[j],
    )
