"""Absolute value: convex and concave at once on a ≥ 0; an outlier pulls with the same force however far it lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from robustmf.losses.base import Array, Loss


@dataclass(frozen=True)
class L1(Loss):
    """φ(a) = a (Eriksson & van den Hengel 2010; Lin et al. 2017). θ plays no part."""

    name = "l1"
    stable_in_float32 = True
    concave = True
    degree = 1
    has_scale = False

    def _value(self, a: Array) -> Array:
        return a

    def _derivative(self, a: Array) -> Array:
        return np.ones_like(a)

    @staticmethod
    def weight_formula(a: Any) -> Any:
        """1/a."""
        return 1 / a

    @property
    def weight_parameters(self) -> tuple[float, ...]:
        """None."""
        return ()
