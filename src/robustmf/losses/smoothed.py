"""Smoothing of losses that are not smooth at 0."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from robustmf.losses.base import Array, Loss
from robustmf.losses.lsp import LSP


@dataclass(frozen=True)
class Smoothed(Loss):
    """φ_ε(a) = φ(√(a² + ε²)) − φ(ε) for a concave φ: quadratic near 0, close to φ for a ≫ ε.

    Parameters
    ----------
    theta : float, default=1.0
        The scale θ.
    base : Loss, default=LSP()
        The loss φ; its θ is replaced by ``theta``.
    smoothing : float, default=0.1
        ε/θ, the smoothing width in units of θ.
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
        """The smoothing width ε, in the unit of the residuals."""
        return self.smoothing * self.theta

    @property
    def weight_parameters(self) -> tuple[float, ...]:
        """Those of the base loss, whose weight is evaluated at √(a² + ε²)."""
        return self.base.weight_parameters

    def weight(self, residual: Array) -> Array:
        """The weight of the base loss at √(a² + ε²)."""
        return self.base.weight(np.hypot(residual, residual.dtype.type(self.epsilon)))

    def _value(self, a: Array) -> Array:
        epsilon = a.dtype.type(self.epsilon)
        # numpy.hypot would take most of the time; in float64, in which values are summed, the
        # squares do not overflow
        s = a * a
        s += epsilon * epsilon
        return self.base._value(np.sqrt(s, out=s)) - self.base._value(np.asarray(epsilon))

    def _derivative(self, a: Array) -> Array:
        s = np.hypot(a, a.dtype.type(self.epsilon))
        return a / s * self.base.derivative(s)


def smoothed(loss: Loss, epsilon: float) -> Loss:
    """Smooth a loss so that its weights are finite.

    Parameters
    ----------
    loss : Loss
        The loss.
    epsilon : float
        The smoothing width ε, in the unit of the residuals.

    Returns
    -------
    Loss
        A :class:`Smoothed` loss if ``loss`` is concave, otherwise ``loss`` itself.
    """
    if not loss.concave:
        return loss
    return Smoothed(theta=loss.theta, base=loss, smoothing=epsilon / loss.theta)
