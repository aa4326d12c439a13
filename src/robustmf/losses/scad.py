"""The smoothly clipped absolute deviation, with its slope raised by δ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from robustmf.losses.base import Array
from robustmf.losses.mcp import MCP


@dataclass(frozen=True)
class SCAD(MCP):
    """φ'(a) = 1 + δ for a ≤ 1, (θ − a)/(θ − 1) + δ for a ≤ θ, δ beyond.

    φ(a) = (1+δ)a for a ≤ 1, (2θa − a² − 1)/(2(θ−1)) + δa for a ≤ θ, (1+θ)/2 + δa beyond. Concave,
    not smooth at 0. The first breakpoint is at a = 1 in the unit of the data.

    Parameters
    ----------
    theta : float, default=3.7
        The second breakpoint θ > 2.
    delta : float, default=0.05
        The slope δ > 0 for large residuals.

    References
    ----------
    J. Fan and R. Li, "Variable selection via nonconcave penalized likelihood and its oracle
    properties", Journal of the American Statistical Association 96(456), 2001.
    """

    theta: float = 3.7

    name = "scad"
    stable_in_float32 = True
    degree: ClassVar[int | None] = None
    theta_above = 2.0

    def _value(self, a: Array) -> Array:
        clipped = np.clip(a, 1.0, self.theta)
        return (
            np.minimum(a, 1.0)
            + (clipped - 1) * (2 * self.theta - clipped - 1) / (2 * (self.theta - 1))
            + self.delta * a
        )

    def _derivative(self, a: Array) -> Array:
        return np.clip((self.theta - a) / (self.theta - 1), 0, 1) + self.delta

    @staticmethod
    def weight_formula(a: Any, theta: Any, delta: Any) -> Any:
        """φ'(a)/a."""
        return (np.minimum(np.maximum((theta - a) / (theta - 1), 0), 1) + delta) / a
