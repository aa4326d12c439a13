"""The Welsch (correntropy) loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from robustmf.losses.base import Array, Loss


@dataclass(frozen=True)
class Welsch(Loss):
    """φ(a) = θ²(1 − exp(−a²/(2θ²))), with weight exp(−a²/(2θ²)).

    Smooth, not convex, bounded by θ².

    Parameters
    ----------
    theta : float, default=1.0
        The scale θ > 0.

    References
    ----------
    J. E. Dennis and R. E. Welsch, "Techniques for nonlinear least squares and robust regression",
    Communications in Statistics - Simulation and Computation 7(4), 1978.
    """

    name = "welsch"
    stable_in_float32 = True
    degree = 2
    efficient_theta = 2.1105

    def _value(self, a: Array) -> Array:
        z = a / self.theta
        return -self.theta * self.theta * np.expm1(-0.5 * z * z)

    def _derivative(self, a: Array) -> Array:
        return a * self.weight(a)

    @staticmethod
    def weight_formula(a: Any, rate: Any) -> Any:
        """exp(−a²/(2θ²))."""
        return np.exp(-rate * a * a)

    @property
    def weight_parameters(self) -> tuple[float, ...]:
        """1/(2θ²)."""
        return (0.5 / (self.theta * self.theta),)
