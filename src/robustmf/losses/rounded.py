"""A kinked loss with its tip rounded off."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from robustmf.losses.base import Array, Loss
from robustmf.losses.lsp import LSP


@dataclass(frozen=True)
class Rounded(Loss):
    """φ_ε(a) = φ(√(a² + ε²)) − φ(ε), for a kinked φ: quadratic near 0, φ far out.

    Parameters
    ----------
    theta : float
        The scale of the loss that is rounded.
    base : Loss
        The loss to round; its own θ is replaced by ``theta``.
    rounding : float
        ε/θ, the half-width of the quadratic core in units of θ (of 1 for a loss without scale).
    """

    theta: float = 1.0
    base: Loss = field(default_factory=LSP)
    rounding: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", self.base.at_scale(self.theta))
        object.__setattr__(self, "name", f"rounded-{self.base.name}")
        object.__setattr__(self, "degree", self.base.degree)
        if not (np.isfinite(self.rounding) and self.rounding > 0):
            raise ValueError(f"rounding must be a finite number > 0, got rounding={self.rounding!r}")

    @property
    def epsilon(self) -> float:
        """ε, in the unit of the residual."""
        return self.rounding * self.theta

    def _rounded(self, a: Array) -> Array:
        return np.hypot(a, np.asarray(self.epsilon, dtype=a.dtype))

    def _value(self, a: Array) -> Array:
        return self.base.value(self._rounded(a)) - self.base.value(np.asarray(self.epsilon, dtype=a.dtype))

    def _derivative(self, a: Array) -> Array:
        return a * self.weight(a)

    def weight(self, residual: Array) -> Array:
        """φ'(s)/s at s = √(a² + ε²)."""
        s = self._rounded(residual)
        return self.base.derivative(s) / s
