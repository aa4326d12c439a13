"""The Laplace penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from robustmf.losses.base import Array, Loss


@dataclass(frozen=True)
class Laplace(Loss):
    """φ(a) = 1 − exp(−a/θ), with derivative exp(−a/θ)/θ.

    Concave, not smooth at 0, bounded by 1.

    Parameters
    ----------
    theta : float, default=1.0
        The scale θ > 0.

    References
    ----------
    J. Trzasko and A. Manduca, "Highly undersampled magnetic resonance image reconstruction via
    homotopic l0-minimization", IEEE Transactions on Medical Imaging 28(1), 2009.
    """

    name = "laplace"
    stable_in_float32 = True
    concave = True

    def _value(self, a: Array) -> Array:
        return -np.expm1(-a / self.theta)

    def _derivative(self, a: Array) -> Array:
        return np.exp(-a / self.theta) / self.theta

    @staticmethod
    def weight_formula(a: Any, rate: Any) -> Any:
        """exp(−a/θ)/(θa)."""
        return np.exp(-a * rate) * rate / a

    @property
    def weight_parameters(self) -> tuple[float, ...]:
        """1/θ."""
        return (1 / self.theta,)
