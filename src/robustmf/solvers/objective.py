"""The objective H(U, V) = Σ φ(|M − UVᵀ|) + λ/2 (‖U‖² + ‖V‖²) over the observed entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.kernels.reductions import squared_norm
from robustmf.losses import Loss

Array = NDArray[np.floating[Any]]


def paper_reg(shape: tuple[int, int]) -> float:
    """The paper's λ, 20/(m + n)."""
    return 20 / sum(shape)


@dataclass(frozen=True)
class Objective:
    """H for one loss φ and one λ (``reg``)."""

    loss: Loss
    reg: float

    def data_term(self, residual: Array) -> float:
        """Σ φ(|e|)."""
        return float(self.loss.value(residual.astype(np.float64, copy=False)).sum())

    def penalty(self, U: Array, V: Array) -> float:
        """λ/2 (‖U‖² + ‖V‖²)."""
        return 0.5 * self.reg * (squared_norm(U) + squared_norm(V))

    def value(self, residual: Array, U: Array, V: Array) -> float:
        """H(U, V), given the residual e = M − UVᵀ at the entries."""
        return self.data_term(residual) + self.penalty(U, V)
