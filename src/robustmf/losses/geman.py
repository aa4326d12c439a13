"""The Geman penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from robustmf.losses.base import Array, Loss


@dataclass(frozen=True)
class Geman(Loss):
    """φ(a) = a/(θ + a), with derivative θ/(θ + a)².

    Concave, not smooth at 0, bounded by 1.

    Parameters
    ----------
    theta : float, default=1.0
        The scale θ > 0.

    References
    ----------
    D. Geman and C. Yang, "Nonlinear image recovery with half-quadratic regularization", IEEE
    Transactions on Image Processing 4(7), 1995.
    """

    name = "geman"
    stable_in_float32 = True
    concave = True

    def _value(self, a: Array) -> Array:
        return a / (self.theta + a)

    def _derivative(self, a: Array) -> Array:
        return (self.theta / (self.theta + a)) / (self.theta + a)

    @staticmethod
    def weight_formula(a: Any, theta: Any) -> Any:
        """θ/((θ + a)²a)."""
        return theta / (theta + a) / (theta + a) / a
