"""Base class of the losses.

A loss is an increasing function φ of a = |residual| ≥ 0. Solvers use its value, its derivative, its
weight and the properties that it declares, never its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]

#: Smallest and largest θ: its square and the inverse of that are normal numbers.
_THETAS = (1e-153, 1e153)


@dataclass(frozen=True)
class Loss:
    """A loss φ(a) of a = |residual| ≥ 0 with scale θ.

    Parameters
    ----------
    theta : float, default=1.0
        The scale θ > 0. Residuals well below it are treated as noise, those well above it as
        outliers.

    Attributes
    ----------
    name : str
        The name in the registry and in messages.
    concave : bool, default=False
        Whether φ is concave on a ≥ 0, so that it is not smooth at 0. ``solver="mm"`` requires it.
    degree : int or None, default=0
        The d for which φ(c·a) with scale c·θ equals c^d φ(a); None if there is none.
    has_scale : bool, default=True
        Whether φ depends on θ.
    unit_weight : bool, default=False
        Whether the weight φ'(a)/a is 1 for all a, as for l2.
    robust : bool, default=True
        Whether φ' is bounded, so that the influence of an outlier is.
    efficient_theta : float or None, default=None
        θ/σ at which the M-estimator of a Gaussian location has 95 % efficiency, from which
        ``theta="auto"`` is computed; None if there is none.
    theta_above : float, default=0.0
        θ must be larger than this.
    stable_in_float32 : bool, default=False
        Whether ``_value`` can be evaluated in float32 because it has no cancellation. A subclass
        that defines ``_value`` does not inherit it.
    weight_formula : callable or None, default=None
        φ'(a)/a as a static method of a and ``weight_parameters``, in terms that both NumPy and
        Numba support, so that kernels can compile it. If None, weights are computed with NumPy
        between the passes over the entries.

    Notes
    -----
    A user-defined loss is a frozen dataclass that inherits from this class and is passed as an
    object. It must provide

    - ``name``,
    - ``_value(a)``, the loss φ, with φ(0) = 0 and increasing, and
    - ``_derivative(a)``, its derivative φ' (at 0, from the right), such that φ'(a)/a does not
      increase,

    as NumPy expressions for arrays a ≥ 0, and the attributes above whose defaults do not hold. Its
    parameters are float fields. It should provide ``weight_formula`` if speed matters, and
    ``weight_parameters`` if these are not (θ,).

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from robustmf.losses import Loss
    >>> @dataclass(frozen=True)
    ... class PseudoHuber(Loss):
    ...     name = "pseudo-huber"
    ...     degree = 2
    ...
    ...     def _value(self, a):
    ...         return self.theta**2 * (np.sqrt(1 + (a / self.theta) ** 2) - 1)
    ...
    ...     def _derivative(self, a):
    ...         return a / np.sqrt(1 + (a / self.theta) ** 2)
    >>> PseudoHuber(theta=2.0).weight(np.array([0.0, 1e9])).round(3)
    array([1., 0.])
    """

    theta: float = 1.0

    name: ClassVar[str]
    concave: ClassVar[bool] = False
    degree: ClassVar[int | None] = 0
    has_scale: ClassVar[bool] = True
    unit_weight: ClassVar[bool] = False
    robust: ClassVar[bool] = True
    efficient_theta: ClassVar[float | None] = None
    theta_above: ClassVar[float] = 0.0
    weight_formula: ClassVar[Callable[..., Any] | None] = None
    stable_in_float32: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if "_value" in cls.__dict__ and "stable_in_float32" not in cls.__dict__:
            cls.stable_in_float32 = False

    def __post_init__(self) -> None:
        least, largest = _THETAS
        if not (least <= self.theta <= largest and self.theta > self.theta_above):
            raise ValueError(
                f"theta must be a finite number > {self.theta_above:g} for loss {self.name!r}, "
                f"from {least:g} to {largest:g}, got theta={self.theta!r}"
            )

    def _value(self, a: Array) -> Array:
        raise NotImplementedError(
            f"{type(self).__name__} must define _value(a), the loss φ at a >= 0"
        )

    def _derivative(self, a: Array) -> Array:
        raise NotImplementedError(
            f"{type(self).__name__} must define _derivative(a), the derivative φ' at a >= 0"
        )

    def value(self, residual: Array) -> Array:
        """φ(|residual|), elementwise."""
        # squares of large residuals may overflow; the losses are constant or linear there
        with np.errstate(over="ignore", under="ignore"):
            return self._value(np.abs(residual))

    def derivative(self, residual: Array) -> Array:
        """φ'(|residual|), elementwise; at 0 the derivative from the right."""
        with np.errstate(over="ignore", under="ignore"):
            return self._derivative(np.abs(residual))

    @property
    def weight_parameters(self) -> tuple[float, ...]:
        """The arguments of ``weight_formula`` after a."""
        return (self.theta,)

    @property
    def epsilon(self) -> float:
        """Kernels evaluate ``weight_formula`` at √(a² + ε²); 0 unless the loss is smoothed."""
        return 0.0

    def weight(self, residual: Array) -> Array:
        """φ'(a)/a, the weight of the quadratic majorizer, elementwise.

        It is large but finite at 0 for losses that are not smooth there.
        """
        a = np.abs(residual)
        if self.concave or self.weight_formula is None:
            a = np.maximum(a, np.finfo(residual.dtype).tiny ** 0.25)
        with np.errstate(over="ignore", under="ignore"):
            return (
                self._derivative(a) / a
                if self.weight_formula is None
                else self.weight_formula(a, *self.weight_parameters)
            )

    def at_scale(self, theta: float) -> Self:
        """The same loss with scale ``theta``."""
        return replace(self, theta=float(theta))
