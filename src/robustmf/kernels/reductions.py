"""Sums of products in float64, without BLAS.

A reduction by several BLAS threads loses terms when another thread forks the process, and idle BLAS
threads compete for the cores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]


def squared_norm(A: Array) -> float:
    """‖A‖² of a matrix, summed in float64."""
    return float(np.einsum("ij,ij->", A, A, dtype=np.float64))


def inner_product(a: Array, b: Array) -> float:
    """⟨a, b⟩ of two vectors, summed in float64."""
    return float(np.einsum("t,t->", a, b, dtype=np.float64))
