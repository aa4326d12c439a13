"""Folding in the rows and columns that are not in the sample of the initialization.

They are regressed on the known factors of the other side. Rows with a poor fit are refitted from
random subsets of their entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.biases import BiasModel
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.backends.dask.blocks import Block
from robustmf.backends.dask.sweeps import operations_on
from robustmf.data.observed import Observed
from robustmf.initialization.resampling import OPTIONS as RESAMPLING
from robustmf.initialization.resampling import suspects
from robustmf.initialization.scales import TUNING
from robustmf.kernels import repair
from robustmf.kernels.team import Team
from robustmf.solvers.fold_in import Columns

if TYPE_CHECKING:
    from robustmf.distributed.initialization import Estimates

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class RefitOptions:
    """Rows that were folded in with a poor fit are refitted from random subsets of their entries.

    Attributes
    ----------
    deviations : float
        A row is refitted if it explains fewer of its entries than the median row by this many
        standard deviations.
    budget : float
        All subsets together may evaluate this many times the entries of the block.
    entries_at_once : int
        Entries of rows that are refitted at once; bounds the memory.
    """

    deviations: float = 1.0
    budget: float = 60.0
    entries_at_once: int = 1 << 16


REFITTING = RefitOptions()


def fold_in_missing(
    block: Block, own: Array, sections: Sequence[Array], estimates: Estimates, reg_by_count: bool
) -> Array:
    """Fold in the rows of a block whose factors are NaN; NaN in the sections is ignored."""
    missing = np.isnan(own[:, 0])
    if not missing.any():
        return own
    other = np.concatenate(sections)
    known = ~np.isnan(other[:, 0])
    other = np.where(known[:, None], other, other.dtype.type(0))
    rows = block.observed.rows
    used = known[rows.indices] & np.repeat(missing, rows.counts)
    weights = used.astype(own.dtype) * (
        own.dtype.type(1) if block.weights is None else block.weights
    )
    V = other
    offsets = None
    if estimates.center is not None:
        number = other.dtype.type
        V = np.ascontiguousarray(other[:, :-1])
        offsets = other[:, -1] * number(estimates.bias_unit) + number(estimates.center)
    columns = Columns(
        V,
        estimates.loss,
        estimates.reg,
        reg_by_count,
        offsets,
        estimates.typical,
        estimates.bias_unit,
    )
    found = columns.fold_in(operations_on(block), weights)
    if estimates.center is not None:
        found[:, -1] /= found.dtype.type(estimates.bias_unit)
    found = np.where(missing[:, None], found, own)
    if estimates.loss.robust:
        _refit(block, found, missing, weights > 0, other, estimates, reg_by_count)
    return found


def _refit(
    block: Block,
    own: Array,
    missing: NDArray[np.bool_],
    used: NDArray[np.bool_],
    other: Array,
    estimates: Estimates,
    reg_by_count: bool,
) -> None:
    """Refit folded-in rows with a poor fit from random subsets of their entries, in place.

    Simpler than :func:`robustmf.initialization.resampling.repair`: the factors of the other side
    have not been fitted to the outliers of these rows.
    """
    design, offsets = BiasModel(estimates.center, estimates.bias_unit).design(other)
    observed = block.observed
    if offsets is not None:
        observed = observed.with_values(observed.rows.values - offsets[observed.rows.indices])
    theta = TUNING * estimates.sigma
    operations = CPUOperations(observed, Team(1))
    rows, n_subsets = suspects(operations, own, design, theta, REFITTING.deviations)
    kept = missing[rows]
    rows = rows[kept]
    n_subsets = n_subsets[kept]
    counts = observed.rows.counts[rows]
    work = np.cumsum(n_subsets * counts)
    n_rows = int(np.searchsorted(work, REFITTING.budget * observed.n_entries, side="right"))
    mean_count = max(float(observed.rows.counts.mean()), 1.0)
    ridge = estimates.reg * (mean_count if reg_by_count else 1.0)
    group = np.cumsum(counts[:n_rows]) // REFITTING.entries_at_once
    for k in np.unique(group):
        chosen = rows[:n_rows][group == k]
        subsets = n_subsets[:n_rows][group == k]
        seed = block.offset + int(chosen[0])
        own[chosen] = _refit_rows(
            observed,
            used,
            chosen,
            subsets,
            own[chosen],
            design,
            ridge,
            RESAMPLING.theta_factor * theta,
            seed,
        )


def _refit_rows(
    observed: Observed,
    used: NDArray[np.bool_],
    chosen: NDArray[np.intp],
    n_subsets: NDArray[np.int64],
    own: Array,
    design: Array,
    ridge: float,
    theta: float,
    seed: int,
) -> Array:
    """Factors of some rows: the current ones, or better ones from subsets of their entries."""
    rows = observed.rows
    entries = np.concatenate([np.arange(rows.pointers[i], rows.pointers[i + 1]) for i in chosen])
    row = np.repeat(np.arange(len(chosen)), rows.counts[chosen])[used[entries]]
    entries = entries[used[entries]]
    columns, index = np.unique(rows.indices[entries], return_inverse=True)
    found = np.array(own)
    rank = own.shape[1]
    repair.repair_rows(
        0,
        len(chosen),
        np.searchsorted(row, np.arange(len(chosen) + 1)),
        index.astype(np.int32),
        rows.values[entries],
        found,
        np.ascontiguousarray(design[columns]),
        np.zeros((len(columns), rank, rank)),
        ridge,
        0.5 / (theta * theta),
        np.arange(len(chosen)),
        n_subsets,
        np.uint64(seed),
        np.zeros(len(chosen), bool),
    )
    return found
