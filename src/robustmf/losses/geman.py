"""Geman penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from robustmf.losses.base import Array, Loss


@dataclass(frozen=True)
class Geman(Loss):
    """φ(a) = a/(θ + a), φ'(a) = θ/(θ + a)² (Geman & Yang 1995). Bounded by 1."""

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
