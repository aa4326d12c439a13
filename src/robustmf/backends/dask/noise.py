"""The noise of a fit whose factors stay on the cluster: sums over blocks, and a sample of entries with the factors that belong to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.dask.blocks import Block
from robustmf.backends.dask.factors import Factors, gather_mended
from robustmf.backends.dask.load import Matrix
from robustmf.backends.dask.medians import Histogram, added
from robustmf.backends.dask.start import SHARE, spread_places
from robustmf.backends.dask.tasks import Terms
from robustmf.outliers.noise import (
    PRIOR,
    SAMPLE,
    NoiseDistribution,
    NoiseModel,
    Regressors,
    moment_sum,
)

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Sampled:
    """Entries with the factors of their rows and columns: residuals, entries of their rows, and the numbers of their columns."""

    U: Array
    V: Array
    residual: Array
    row_counts: NDArray[np.int64]
    columns: NDArray[np.int64]


@dataclass(frozen=True)
class SampledNoise(NoiseModel):
    """A noise whose factors and counts are those of a sample, one row an entry; of all rows and columns it has histograms."""

    histograms: tuple[Histogram, Histogram] = ((np.empty(0, np.int64),) * 2,) * 2

    def degrees_of_freedom(self, clean: float) -> float:
        """As for a whole fit."""
        sides = zip((self.of_columns, self.of_rows), self.histograms, strict=True)
        return sum(
            int(n) * side.degrees_of_freedom(np.array([clean * count]))
            for side, found in sides
            for count, n in zip(*found, strict=True)
        )

    @property
    def n_entries(self) -> int:
        """Entries that were fitted to."""
        counts, times = self.histograms[0]
        return int(counts @ times)


def noise_facts(matrix: Matrix, pair: tuple[Factors, Factors], terms: Terms) -> dict[str, Any]:
    """What :func:`noise_of` needs, as plain values."""
    submit = matrix.connection.submit
    quota = max(SAMPLE // len(matrix.sides[0].blocks), 1)

    def submitted() -> tuple[None, Any]:
        sums = [
            [
                submit(_sums, block, own, terms)
                for block, own in zip(side.blocks, of.blocks, strict=True)
            ]
            for side, of in zip(matrix.sides, pair, strict=True)
        ]
        samples = [
            submit(_sampled, block, own, section, terms, quota)
            for block, own, section in zip(
                matrix.sides[0].blocks,
                pair[0].blocks,
                matrix.sections(0, pair[1].blocks),
                strict=True,
            )
        ]
        columns = matrix.sides[1].blocks
        return None, [
            *sums,
            samples,
            [[submit(_counts_at, block, sample) for block in columns] for sample in samples],
        ]

    *sums, samples, counts = gather_mended(matrix.connection, submitted, [*pair, matrix])[1]
    constant = terms.biases.unit if terms.biases.center is not None else 0.0
    histograms = [added([of_block[1] for of_block in side]) for side in sums]
    moments = [sum(of_block[0] for of_block in side) for side in sums]
    sides = [
        Regressors.from_moment(moment, matrix.n_entries, constant, terms.reg, terms.reg_by_count)
        for moment in moments
    ]
    U, V, residual, in_row = (
        np.concatenate([getattr(one, name) for one in samples])
        for name in ("U", "V", "residual", "row_counts")
    )
    in_column = np.concatenate([np.sum(of_sample, axis=0) for of_sample in counts])
    every = np.arange(len(residual))
    noise = SampledNoise(
        PRIOR,
        U,
        V,
        sides[0],
        sides[1],
        in_row,
        in_column,
        histograms=(histograms[0], histograms[1]),
    )
    found = noise.calibrated(residual, every, every)
    return {
        "law": [found.distribution.scale, found.distribution.freedom, found.distribution.share], "inflation": found.inflation,
        "moments": [side.moments.tolist() for side in sides], "axes": [side.axes.tolist() for side in sides],
    }  # fmt: skip


def noise_of(
    facts: dict[str, Any],
    U: Array,
    V: Array,
    row_counts: NDArray[np.int64],
    column_counts: NDArray[np.int64],
) -> NoiseModel:
    """The noise for entries that each bring the factors of their row and column, and how many entries these have."""
    constant = facts["bias_unit"] if facts["center"] is not None else 0.0
    sides = [
        Regressors(np.array(moments), np.array(axes), constant, facts["reg"], facts["reg_by_count"])
        for moments, axes in zip(facts["moments"], facts["axes"], strict=True)
    ]
    return NoiseModel(
        NoiseDistribution(*facts["law"]),
        U,
        V,
        sides[0],
        sides[1],
        row_counts,
        column_counts,
        facts["inflation"],
    )


def _plain(own: Array, terms: Terms) -> Array:
    return own if terms.biases.center is None else own[:, :-1]


def _sums(block: Block, own: Array, terms: Terms) -> tuple[NDArray[np.float64], Histogram]:
    counts = block.observed.rows.counts
    constant = 0.0 if terms.biases.center is None else terms.biases.unit
    return moment_sum(_plain(own, terms), counts, constant), np.unique(counts, return_counts=True)


def _sampled(
    block: Block, own: Array, sections: list[Array], terms: Terms, at_most: int
) -> Sampled:
    rows, other = block.observed.rows, np.concatenate(sections)
    places = spread_places(len(rows.values), at_most, SHARE)
    i, j = np.searchsorted(rows.pointers, places, side="right") - 1, rows.indices[places]
    left, right = terms.biases.predictors(own[i], other[j])
    residual = rows.values[places] - np.clip(np.einsum("tq,tq->t", left, right), *terms.bounds)
    return Sampled(
        _plain(own[i], terms), _plain(other[j], terms), residual, rows.counts[i], block.numbers[j]
    )


def _counts_at(block: Block, sample: Sampled) -> NDArray[np.int64]:
    """Entries of the sample's columns that belong to this block; 0 for the others."""
    place = sample.columns - block.first
    mine = (place >= 0) & (place < len(block.observed.rows))
    out = np.zeros(len(place), np.int64)
    out[mine] = block.observed.rows.counts[place[mine]]
    return out
