"""Tukey's biweight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from robustmf.losses.base import Array, Loss


@dataclass(frozen=True)
class Tukey(Loss):
    """φ(a) = θ²/6 (1 − (1 − a²/θ²)₊³), weight (1 − a²/θ²)₊² (Beaton & Tukey 1974). Exactly flat beyond θ."""

    name = "tukey"
    stable_in_float32 = True
    degree = 2
    efficient_theta = 4.6851

    def _value(self, a: Array) -> Array:
        z = np.minimum(a / self.theta, 1)
        s = z * z
        return self.theta * self.theta / 6 * s * (3 - 3 * s + s * s)

    def _derivative(self, a: Array) -> Array:
        return a * self.weight(a)

    @staticmethod
    def weight_formula(a: Any, theta: Any) -> Any:
        """(1 − a²/θ²)₊²."""
        return np.maximum(1 - (a / theta) * (a / theta), 0) ** 2
