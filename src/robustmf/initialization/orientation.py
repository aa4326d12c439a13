"""Which side of the matrix an initialization takes as rows.

A matrix and its transpose have the same initial point, bit for bit, because the choice depends on
the entries alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.data.factorization import Factorization
from robustmf.initialization.initial_point import given_factors
from robustmf.solvers.settings import Settings

Array = NDArray[np.floating[Any]]


def rows_are_reference(operations: EntryOperations, sample_weights: Array | None) -> bool:
    """Whether the initialization takes the rows of the matrix as its rows, not its columns.

    Sums over rows and over columns round differently, so that a matrix and its transpose have the
    same bits only if both are initialized in the same orientation: that with the longer side as
    rows. Of a square matrix the rows are taken if the sum of squared row sums is larger than that
    of column sums; if they are equal, the first difference between the matrix and its transpose
    decides.
    """
    observed = operations.observed
    m, n = observed.shape
    if m != n:
        return m > n
    rows = observed.rows
    columns = observed.columns
    values = weighted = (rows.values, columns.values)
    pairs: list[tuple[Any, Any]] = [
        (rows.counts, columns.counts),
        (rows.indices, columns.indices),
        values,
    ]
    if sample_weights is not None:
        by_column_weights = sample_weights[observed.column_order]
        weighted = (rows.values * sample_weights, columns.values * by_column_weights)
        pairs.append((sample_weights, by_column_weights))
    # both as sums over rows: column sums are added up in another order
    by_row, by_column = (
        float(np.square(side.sums(x)[0]).sum())
        for side, x in zip((operations, operations.transposed), weighted, strict=True)
    )
    if by_row != by_column:
        return by_row > by_column
    for pair in pairs:
        one, other = map(np.asarray, pair)
        differ = np.flatnonzero(one != other)
        if len(differ):
            return bool(one[differ[0]] > other[differ[0]])
    return True


def transposed_settings(settings: Settings, operations: EntryOperations) -> Settings:
    """The settings for the transposed matrix: the same with ``init`` transposed."""
    init = settings.init
    if isinstance(init, str):
        return settings
    if isinstance(init, Factorization):
        return replace(settings, init=init.transposed)
    observed = operations.observed
    # checked before it is transposed: errors refer to the matrix as it was given
    U, V = given_factors(init, observed.shape, settings.rank, observed.dtype)
    return replace(settings, init=(V, U))
