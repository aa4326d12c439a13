"""The Huber loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from robustmf.losses.base import Array, Loss


@dataclass(frozen=True)
class Huber(Loss):
    """φ(a) = a²/2 for a ≤ θ, θa − θ²/2 beyond, with weight min(1, θ/a).

    Smooth and convex, linear for large residuals.

    Parameters
    ----------
    theta : float, default=1.0
        The scale θ > 0.

    References
    ----------
    P. J. Huber, "Robust estimation of a location parameter", Annals of Mathematical Statistics
    35(1), 1964.
    """

    name = "huber"
    stable_in_float32 = True
    degree = 2
    efficient_theta = 1.345

    def _value(self, a: Array) -> Array:
        near = np.minimum(a, self.theta)
        return near * (a - 0.5 * near)

    def _derivative(self, a: Array) -> Array:
        return np.minimum(a, self.theta)

    @staticmethod
    def weight_formula(a: Any, theta: Any) -> Any:
        """min(1, θ/a)."""
        return theta / np.maximum(a, theta)
