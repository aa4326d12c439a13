"""Modified smoothly clipped absolute deviation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from robustmf.losses.base import Array
from robustmf.losses.mcp import MCP


@dataclass(frozen=True)
class SCAD(MCP):
    """SCAD with its slope raised by δ (Fan & Li 2001). Its unit is the first breakpoint, at a = 1; θ > 2 is the second.

    φ(a) = (1+δ)a for a ≤ 1, (2θa − a² − 1)/(2(θ−1)) + δa for a ≤ θ, (1+θ)/2 + δa beyond;
    φ'(a) = 1+δ, (θ−a)/(θ−1) + δ, δ.
    """

    theta: float = 3.7

    name = "scad"
    stable_in_float32 = True
    degree: ClassVar[int | None] = None
    theta_above = 2.0

    def _value(self, a: Array) -> Array:
        bent = np.clip(a, 1.0, self.theta)
        return (
            np.minimum(a, 1.0)
            + (bent - 1) * (2 * self.theta - bent - 1) / (2 * (self.theta - 1))
            + self.delta * a
        )

    def _derivative(self, a: Array) -> Array:
        return np.clip((self.theta - a) / (self.theta - 1), 0, 1) + self.delta

    @staticmethod
    def weight_formula(a: Any, theta: Any, delta: Any) -> Any:
        """φ'(a)/a."""
        return (np.minimum(np.maximum((theta - a) / (theta - 1), 0), 1) + delta) / a
