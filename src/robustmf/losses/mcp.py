"""The minimax concave penalty, with its slope raised by δ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from robustmf.losses.base import Array, Loss


@dataclass(frozen=True)
class MCP(Loss):
    """φ(a) = (1+δ)a − a²/(2θ) for a ≤ θ, θ/2 + δa beyond, with derivative (1 − a/θ)₊ + δ.

    Concave, not smooth at 0.

    Parameters
    ----------
    theta : float, default=1.0
        The scale θ > 0.
    delta : float, default=0.05
        The slope δ > 0 for large residuals, which makes φ strictly increasing, as the convergence
        theory of RMFNL requires.

    References
    ----------
    C.-H. Zhang, "Nearly unbiased variable selection under minimax concave penalty", Annals of
    Statistics 38(2), 2010.
    """

    delta: float = 0.05

    name = "mcp"
    stable_in_float32 = True
    concave = True
    degree: ClassVar[int | None] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (np.isfinite(self.delta) and self.delta > 0):
            raise ValueError(
                f"delta must be a finite number > 0 for loss {self.name!r}, "
                f"got delta={self.delta!r}"
            )

    def _value(self, a: Array) -> Array:
        near = np.minimum(a, self.theta)
        return near - near * near / (2 * self.theta) + self.delta * a

    def _derivative(self, a: Array) -> Array:
        return np.maximum(1 - a / self.theta, 0) + self.delta

    @staticmethod
    def weight_formula(a: Any, theta: Any, delta: Any) -> Any:
        """((1 − a/θ)₊ + δ)/a."""
        return (np.maximum(1 - a / theta, 0) + delta) / a

    @property
    def weight_parameters(self) -> tuple[float, ...]:
        """θ and δ."""
        return (self.theta, self.delta)
