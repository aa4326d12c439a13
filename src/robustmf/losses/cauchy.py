"""The Cauchy (Lorentzian) loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from robustmf.losses.base import Array, Loss


@dataclass(frozen=True)
class Cauchy(Loss):
    """φ(a) = θ²/2 · log(1 + a²/θ²), with weight 1/(1 + a²/θ²).

    Smooth, not convex, unbounded.

    Parameters
    ----------
    theta : float, default=1.0
        The scale θ > 0.

    References
    ----------
    M. J. Black and P. Anandan, "The robust estimation of multiple motions: parametric and
    piecewise-smooth flow fields", Computer Vision and Image Understanding 63(1), 1996.
    """

    name = "cauchy"
    stable_in_float32 = True
    degree = 2
    efficient_theta = 2.3849

    def _value(self, a: Array) -> Array:
        z = a / self.theta
        return 0.5 * self.theta * self.theta * np.log1p(z * z)

    def _derivative(self, a: Array) -> Array:
        return a * self.weight(a)

    @staticmethod
    def weight_formula(a: Any, theta: Any) -> Any:
        """1/(1 + a²/θ²)."""
        return 1 / (1 + (a / theta) * (a / theta))
