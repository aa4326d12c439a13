"""Least squares, for reference and as a start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from robustmf.losses.base import Array, Loss


@dataclass(frozen=True)
class L2(Loss):
    """φ(a) = a²/2. Not robust, not concave; θ plays no part."""

    name = "l2"
    stable_in_float32 = True
    degree = 2
    has_scale = False
    robust = False
    unit_weight = True

    def _value(self, a: Array) -> Array:
        return 0.5 * a * a

    def _derivative(self, a: Array) -> Array:
        return a

    @staticmethod
    def weight_formula(a: Any) -> Any:
        """1: every entry counts the same."""
        return a**0

    @property
    def weight_parameters(self) -> tuple[float, ...]:
        """None."""
        return ()
