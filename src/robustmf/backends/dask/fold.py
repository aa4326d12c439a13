"""Rows and columns that the start does not know: robust regression on what is known of the other side, and again where it fits badly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.biases import BiasModel
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.backends.dask.blocks import Block
from robustmf.backends.dask.start import Basis
from robustmf.backends.dask.tasks import on_block
from robustmf.data.observed import Observed
from robustmf.initialization.resampling import WIDER, suspects
from robustmf.initialization.scales import TUNING
from robustmf.kernels import repair
from robustmf.kernels.team import Team
from robustmf.solvers.fold_in import Columns

Array = NDArray[np.floating[Any]]

#: A row is solved again if it explains fewer of its entries than the median row by so many standard deviations.
_BAD = 1.0

#: Entries that all trials together may look at, in units of the block's entries.
_BUDGET = 60.0

#: Entries of rows that are solved again in one go.
_SLICE = 1 << 16


def folded(
    block: Block, own: Array, sections: Sequence[Array], basis: Basis, reg_by_count: bool
) -> Array:
    """The block's factors with what is not known (NaN) folded in; NaN among the sections takes no part."""
    missing = np.isnan(own[:, 0])
    if not missing.any():
        return own
    other = np.concatenate(sections)
    known = ~np.isnan(other[:, 0])
    other = np.where(known[:, None], other, other.dtype.type(0))
    rows = block.observed.rows
    weights = known[rows.indices] & np.repeat(missing, rows.counts)
    weights = weights.astype(own.dtype) * (
        own.dtype.type(1) if block.weights is None else block.weights
    )
    V, shifts = other, None
    if basis.center is not None:
        V, shifts = (
            np.ascontiguousarray(other[:, :-1]),
            other[:, -1] * other.dtype.type(basis.bias_unit) + other.dtype.type(basis.center),
        )
    columns = Columns(
        V, basis.loss, basis.reg, reg_by_count, shifts, basis.typical, basis.bias_unit
    )
    found = columns.fold_in(on_block(block), weights)
    if basis.center is not None:
        found[:, -1] /= found.dtype.type(basis.bias_unit)
    found = np.where(missing[:, None], found, own)
    if basis.loss.robust:
        _solve_again(block, found, missing, weights > 0, other, basis, reg_by_count)
    return found


def _solve_again(
    block: Block, own: Array, missing: NDArray[np.bool_], used: NDArray[np.bool_], other: Array, basis: Basis, reg_by_count: bool
) -> None:  # fmt: skip
    """Rows that were folded in and fit badly, from random subsets of their entries, in place.

    As the start does it on one machine; simpler here, for the other side has not seen these rows, and so has not bent to their outliers.
    """
    design, shifts = BiasModel(basis.center, basis.bias_unit).design(other)
    observed = block.observed
    if shifts is not None:
        observed = observed.with_values(observed.rows.values - shifts[observed.rows.indices])
    theta = TUNING * basis.sigma
    rows, trials = suspects(CPUOperations(observed, Team(1)), own, design, theta, _BAD)
    kept = missing[rows]
    rows, trials = rows[kept], trials[kept]
    counts = observed.rows.counts[rows]
    within = int(
        np.searchsorted(np.cumsum(trials * counts), _BUDGET * observed.n_entries, side="right")
    )
    ridge = basis.reg * (max(float(observed.rows.counts.mean()), 1.0) if reg_by_count else 1.0)
    parts = np.cumsum(counts[:within]) // _SLICE
    for part in np.unique(parts):
        chosen, tried = rows[:within][parts == part], trials[:within][parts == part]
        own[chosen] = _best_of(
            observed,
            used,
            chosen,
            tried,
            own[chosen],
            design,
            ridge,
            WIDER * theta,
            block.first + int(chosen[0]),
        )


def _best_of(
    observed: Observed, used: NDArray[np.bool_], chosen: NDArray[np.intp], trials: NDArray[np.int64], own: Array, design: Array,
    ridge: float, theta: float, seed: int,
) -> Array:  # fmt: skip
    """The factors of some rows: the present ones, or what predicts their entries better."""
    rows = observed.rows
    places = np.concatenate([np.arange(rows.pointers[i], rows.pointers[i + 1]) for i in chosen])
    group = np.repeat(np.arange(len(chosen)), rows.counts[chosen])
    group, places = group[used[places]], places[used[places]]
    columns, index = np.unique(rows.indices[places], return_inverse=True)
    pointers = np.searchsorted(group, np.arange(len(chosen) + 1))
    found, rank = np.array(own), own.shape[1]
    unbent = np.zeros((len(columns), rank, rank))
    repair.repair_rows(
        0, len(chosen), pointers, index.astype(np.int32), rows.values[places], found, np.ascontiguousarray(design[columns]), unbent,
        ridge, 0.5 / (theta * theta), np.arange(len(chosen)), trials, np.uint64(seed), np.zeros(len(chosen), bool),
    )  # fmt: skip
    return found
