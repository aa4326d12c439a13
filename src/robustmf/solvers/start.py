"""Where the iteration starts.

The paper's Gaussian start leads every nonconvex loss into a bad valley; a few sweeps of strongly regularised least squares find
the right one on the paper's problem. Measured in docs/design/start.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.losses import L2
from robustmf.observed import Observed
from robustmf.operations import Operations

Array = NDArray[np.floating[Any]]

#: Ridge of the start, in units of (typical value)·√(entries a row or column): about the size of the noise's spectral norm.
_RIDGE = 0.25
_SWEEPS = 15


def gaussian_start(shape: tuple[int, int], rank: int, rng: np.random.Generator, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Independent N(0, 1) factors, as the paper states."""
    m, n = shape
    return rng.standard_normal((m, rank)).astype(dtype), rng.standard_normal((n, rank)).astype(dtype)


def typical_value(observed: Observed) -> float:
    """Robust size of a value: the median absolute value as a standard deviation; never 0."""
    size = np.abs(observed.rows.values)
    return 1.4826 * float(np.median(size)) or float(size.mean()) or 1.0


def ridge_start(operations: Operations, rank: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Alternating least squares with a ridge so strong that single outliers cannot shape the factors."""
    observed = operations.observed
    ridge = _RIDGE * typical_value(observed) * np.sqrt(observed.n_entries / np.sqrt(observed.shape[0] * observed.shape[1]))
    return ridge_als(operations, rank, ridge, _SWEEPS, rng)


def ridge_als(operations: Operations, rank: int, ridge: float, sweeps: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Plain alternating least squares with a ridge, from a Gaussian start of the data's own scale."""
    observed = operations.observed
    U, V = gaussian_start(observed.shape, rank, rng, observed.dtype)
    V *= observed.dtype.type(np.sqrt(typical_value(observed)))
    transposed = operations.transposed
    for _ in range(sweeps):
        operations.half_step(L2(), ridge, U, V)
        transposed.half_step(L2(), ridge, V, U)
    return U, V
