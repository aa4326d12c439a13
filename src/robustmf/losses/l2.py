"""Least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from robustmf.losses.base import Array, Loss


@dataclass(frozen=True)
class L2(Loss):
    """φ(a) = a²/2, with weight 1.

    Smooth and convex; not robust. For comparison and for initialization.

    Parameters
    ----------
    theta : float, default=1.0
        Without effect.
    """

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
        """1."""
        return a**0

    @property
    def weight_parameters(self) -> tuple[float, ...]:
        """Empty: the weight has no parameters."""
        return ()
