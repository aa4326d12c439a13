"""The absolute value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from robustmf.losses.base import Array, Loss


@dataclass(frozen=True)
class L1(Loss):
    """φ(a) = a, with derivative 1.

    Convex, and concave on a ≥ 0; not smooth at 0. All outliers have the same influence.

    Parameters
    ----------
    theta : float, default=1.0
        Without effect.

    References
    ----------
    A. Eriksson and A. van den Hengel, "Efficient computation of robust low-rank matrix
    approximations in the presence of missing data using the L1 norm", CVPR 2010.

    Z. Lin, C. Xu and H. Zha, "Robust matrix factorization by majorization minimization", IEEE
    Transactions on Pattern Analysis and Machine Intelligence 40(1), 2018.
    """

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
        """Empty: the weight has no parameters."""
        return ()
