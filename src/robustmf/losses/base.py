"""What a loss is, for every solver.

A loss is an increasing function φ of a = |residual| ≥ 0. A solver sees its value, derivative and weight, and the claims that it
declares below; it never asks for a name. A user's own loss is a subclass (two formulas), passed as an object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Loss:
    """A loss φ with scale θ.

    Subclasses write the formulas ``_value`` (φ) and ``_derivative`` (φ') of a ≥ 0, as NumPy expressions.

    Parameters
    ----------
    theta : float
        The scale θ > 0: residuals well below it count as noise, well above it as outliers.
    """

    theta: float = 1.0

    name: ClassVar[str]
    #: φ is concave on a ≥ 0 (so it has a kink at residual 0), as the MM surrogate needs.
    concave: ClassVar[bool] = False
    #: φ(ca) with scale cθ is c^degree φ(a): how the loss grows with the unit of the data; None where it has a unit of its own.
    degree: ClassVar[int | None] = 0
    #: θ acts on the loss at all (it does not for l1 and l2).
    has_scale: ClassVar[bool] = True
    #: the weight φ'(a)/a is 1 everywhere (l2 alone)
    unit_weight: ClassVar[bool] = False
    #: an outlier's pull is bounded (it is not for l2)
    robust: ClassVar[bool] = True
    #: θ / σ at which the estimate of a Gaussian location is 95 % efficient; None where no θ gives that.
    efficient_theta: ClassVar[float | None] = None
    #: the smallest θ allowed (exclusive)
    theta_above: ClassVar[float] = 0.0
    #: ``_value`` has no cancellation, so that it may be evaluated in float32; declared anew by each
    #: subclass that defines ``_value``.
    stable_in_float32: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if "_value" in cls.__dict__ and "stable_in_float32" not in cls.__dict__:
            cls.stable_in_float32 = False

    def __post_init__(self) -> None:
        if not (np.isfinite(self.theta) and self.theta > self.theta_above):
            raise ValueError(
                f"theta must be a finite number > {self.theta_above:g} for loss {self.name!r}, got theta={self.theta!r}"
            )

    def _value(self, a: Array) -> Array:
        raise NotImplementedError(
            f"{type(self).__name__} must define _value(a), the loss φ at a >= 0"
        )

    def _derivative(self, a: Array) -> Array:
        raise NotImplementedError(
            f"{type(self).__name__} must define _derivative(a), the slope φ' at a >= 0"
        )

    def value(self, residual: Array) -> Array:
        """φ(|residual|), entry by entry."""
        with np.errstate(
            over="ignore"
        ):  # far out, where squares overflow, a loss is flat or linear
            return self._value(np.abs(residual))

    def derivative(self, residual: Array) -> Array:
        """φ'(|residual|), entry by entry; at 0 the slope from the right."""
        with np.errstate(over="ignore"):
            return self._derivative(np.abs(residual))

    #: φ'(a)/a as a plain function of a and ``weight_parameters``, in terms that both NumPy and Numba understand, so that kernels
    #: can compile it. Without one, weights are computed by NumPy between passes.
    weight_formula: ClassVar[Callable[..., Any] | None] = None

    @property
    def weight_parameters(self) -> tuple[float, ...]:
        """The numbers that ``weight_formula`` takes after a."""
        return (self.theta,)

    @property
    def epsilon(self) -> float:
        """Kernels take ``weight_formula`` at √(a² + ε²); 0 unless the loss is rounded."""
        return 0.0

    def weight(self, residual: Array) -> Array:
        """φ'(a)/a, the weight of the quadratic majorizer; huge but finite at a kink."""
        a = np.abs(residual)
        if self.concave or self.weight_formula is None:
            a = np.maximum(a, np.finfo(residual.dtype).tiny ** 0.25)
        with np.errstate(over="ignore"):
            return (
                self._derivative(a) / a
                if self.weight_formula is None
                else self.weight_formula(a, *self.weight_parameters)
            )

    def at_scale(self, theta: float) -> Self:
        """The same loss with another θ."""
        return replace(self, theta=float(theta))
