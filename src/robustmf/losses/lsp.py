"""The log-sum penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from robustmf.losses.base import Array, Loss


@dataclass(frozen=True)
class LSP(Loss):
    """φ(a) = log(1 + a/θ), with derivative 1/(θ + a).

    Concave, not smooth at 0, unbounded.

    Parameters
    ----------
    theta : float, default=1.0
        The scale θ > 0.

    References
    ----------
    E. J. Candès, M. B. Wakin and S. P. Boyd, "Enhancing sparsity by reweighted l1 minimization",
    Journal of Fourier Analysis and Applications 14(5), 2008.
    """

    name = "lsp"
    stable_in_float32 = True
    concave = True

    def _value(self, a: Array) -> Array:
        return np.log1p(a / self.theta)

    def _derivative(self, a: Array) -> Array:
        return 1.0 / (self.theta + a)

    @staticmethod
    def weight_formula(a: Any, theta: Any) -> Any:
        """1/((θ + a)a)."""
        return 1 / ((theta + a) * a)
