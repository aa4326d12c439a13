"""A kinked loss with its tip smoothed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from robustmf.losses.base import Array, Loss
from robustmf.losses.lsp import LSP


@dataclass(frozen=True)
class Smoothed(Loss):
    """φ_ε(a) = φ(√(a² + ε²)) − φ(ε), for a kinked φ: quadratic near 0, φ far out.

    Parameters
    ----------
    theta : float
        The scale of the loss that is rounded.
    base : Loss
        The loss to round; its own θ is replaced by ``theta``.
    smoothing : float
        ε/θ, the half-width of the quadratic core in units of θ.
    """

    theta: float = 1.0
    base: Loss = field(default_factory=LSP)
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", self.base.at_scale(self.theta))
        object.__setattr__(self, "name", f"smoothed-{self.base.name}")
        object.__setattr__(self, "degree", self.base.degree)
        object.__setattr__(self, "weight_formula", self.base.weight_formula)
        if not (np.isfinite(self.smoothing) and self.smoothing > 0):
            raise ValueError(
                f"smoothing must be a finite number > 0, got smoothing={self.smoothing!r}"
            )

    @property
    def epsilon(self) -> float:
        """ε, in the unit of the residual."""
        return self.smoothing * self.theta

    @property
    def weight_parameters(self) -> tuple[float, ...]:
        """The base loss's; its weight is taken at √(a² + ε²)."""
        return self.base.weight_parameters

    def weight(self, residual: Array) -> Array:
        """The base loss's weight at √(a² + ε²)."""
        return self.base.weight(np.hypot(residual, residual.dtype.type(self.epsilon)))

    def _value(self, a: Array) -> Array:
        tip = a.dtype.type(self.epsilon)
        # not hypot, which takes longer than all the rest: values are summed in float64, where squares have room
        s = a * a
        s += tip * tip
        return self.base._value(np.sqrt(s, out=s)) - self.base._value(np.asarray(tip))

    def _derivative(self, a: Array) -> Array:
        s = np.hypot(a, a.dtype.type(self.epsilon))
        return a / s * self.base.derivative(s)


def smoothed(loss: Loss, epsilon: float) -> Loss:
    """A loss with finite weights: a kinked one gets its tip rounded to the half-width ``tip``; others stay as they are."""
    return (
        Smoothed(theta=loss.theta, base=loss, smoothing=epsilon / loss.theta)
        if loss.concave
        else loss
    )
