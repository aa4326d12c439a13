"""Tukey's biweight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from robustmf.losses.base import Array, Loss


@dataclass(frozen=True)
class Tukey(Loss):
    """φ(a) = θ²/6 · (1 − (1 − a²/θ²)₊³), with weight (1 − a²/θ²)₊².

    Smooth, not convex, constant for a ≥ θ.

    Parameters
    ----------
    theta : float, default=1.0
        The scale θ > 0.

    References
    ----------
    A. E. Beaton and J. W. Tukey, "The fitting of power series, meaning polynomials, illustrated on
    band-spectroscopic data", Technometrics 16(2), 1974.
    """

    name = "tukey"
    stable_in_float32 = True
    degree = 2
    efficient_theta = 4.6851

    def _value(self, a: Array) -> Array:
        z = np.minimum(a / self.theta, 1)
        s = z * z
        return self.theta * self.theta / 6 * s * (3 - 3 * s + s * s)

    def _derivative(self, a: Array) -> Array:
        return a * self.weight(a)

    @staticmethod
    def weight_formula(a: Any, theta: Any) -> Any:
        """(1 − a²/θ²)₊²."""
        return np.maximum(1 - (a / theta) * (a / theta), 0) ** 2
