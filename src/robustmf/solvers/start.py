"""Where the iteration starts.

The paper's Gaussian start leads every nonconvex loss into a bad valley; a few sweeps of strongly regularised least squares find
the right one on the paper's problem. Measured in docs/design/start.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.operations import Operations

Array = NDArray[np.floating[Any]]

#: Ridge of the start, in units of (typical value)·√(entries a row or column): about the size of the noise's spectral norm.
_RIDGE = 0.25
_SWEEPS = 15


def gaussian_start(shape: tuple[int, int], rank: int, rng: np.random.Generator, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Independent N(0, 1) factors, as the paper states."""
    m, n = shape
    return rng.standard_normal((m, rank)).astype(dtype), rng.standard_normal((n, rank)).astype(dtype)


def ridge_start(operations: Operations, rank: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Alternating least squares with a ridge so strong that single outliers cannot shape the factors."""
    observed = operations.observed
    typical = 1.4826 * float(np.median(np.abs(observed.rows.values))) or float(np.abs(observed.rows.values).mean()) or 1.0
    ridge = _RIDGE * typical * np.sqrt(observed.n_entries / np.sqrt(observed.shape[0] * observed.shape[1]))
    U, V = gaussian_start(observed.shape, rank, rng, observed.dtype)
    V *= observed.dtype.type(np.sqrt(typical))
    ones = np.ones(observed.n_entries, observed.dtype)
    transposed = operations.transposed
    for _ in range(_SWEEPS):
        operations.half_step(ones, ridge, U, V)
        transposed.half_step(ones, ridge, V, U)
    return U, V
