"""The Geman–McClure loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from robustmf.losses.base import Array, Loss


@dataclass(frozen=True)
class GemanMcClure(Loss):
    """φ(a) = θ²/2 · a²/(θ² + a²), with weight 1/(1 + a²/θ²)².

    Smooth, not convex, bounded by θ²/2.

    Parameters
    ----------
    theta : float, default=1.0
        The scale θ > 0.

    References
    ----------
    S. Geman and D. E. McClure, "Bayesian image analysis: an application to single photon emission
    tomography", Proceedings of the Statistical Computing Section, ASA, 1985.
    """

    name = "geman-mcclure"
    stable_in_float32 = True
    degree = 2
    efficient_theta = 3.7867

    def _value(self, a: Array) -> Array:
        z = a / self.theta
        return 0.5 * self.theta * self.theta * (z * z / (1 + z * z))

    def _derivative(self, a: Array) -> Array:
        return a * self.weight(a)

    @staticmethod
    def weight_formula(a: Any, theta: Any) -> Any:
        """1/(1 + a²/θ²)²."""
        return (1 / (1 + (a / theta) * (a / theta))) ** 2
