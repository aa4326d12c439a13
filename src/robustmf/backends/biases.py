"""The algebra of biases and entry weights that every backend's sweeps share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.observed import Observed

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class BiasModel:
    """The model center + b_i + c_j + u_i·v_j, solved for in augmented factors.

    The bias of a row or column is the last column of its augmented factors, in units of ``unit``
    (see :meth:`robustmf.data.factorization.Factorization.augmented`).

    Attributes
    ----------
    center : float or None
        None for the model u_i·v_j without biases; the factors are then not augmented.
    unit : float
        The unit of the biases. The ridge on a bias is λ/unit².
    """

    center: float | None
    unit: float

    def design(self, other: Array) -> tuple[Array, Array | None]:
        """The regressors of one side, from the other side's augmented factors, and their offsets.

        The offsets (center plus the other side's bias) are None without biases.
        """
        if self.center is None:
            return other, None
        design = other.copy()
        unit = other.dtype.type(self.unit)
        design[:, -1] = unit
        return design, other[:, -1] * unit + other.dtype.type(self.center)

    def predictors(self, U: Array, V: Array) -> tuple[Array, Array]:
        """Factors whose product is the prediction, from augmented factors."""
        if self.center is None:
            return U, V
        unit = V.dtype.type(self.unit)
        ones = [np.ones_like(A[:, :1]) for A in (U, V)]
        return np.hstack([U, ones[0]]), np.hstack(
            [V[:, :-1], ones[1] * unit, V[:, -1:] * unit + V.dtype.type(self.center)]
        )


def entries_weight(observed: Observed, sample_weights: Array | None) -> tuple[float, int]:
    """The sum of the entries' weights, and the number of entries with a positive weight."""
    if sample_weights is None:
        return observed.n_entries, observed.n_entries
    return float(sample_weights.sum(dtype=np.float64)), int((sample_weights > 0).sum())
