"""Accelerated projected gradient on the dual, for any implementation of its steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from robustmf.solvers.mm.inner import OPTIONS as INNER
from robustmf.solvers.mm.inner import Increment
from robustmf.solvers.mm.options import MM
from robustmf.solvers.mm.surrogate import Surrogate

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class APGOptions:
    """Constants of the accelerated projected gradient method.

    Attributes
    ----------
    initial_scale : float
        The curvature of the first step, as a share of its proven upper bound. The line search
        raises it up to the bound.
    scale_growth : float
        The factor by which the line search raises it.
    gap_interval : int
        Steps between two evaluations of the duality gap, where the gap decides.
    """

    initial_scale: float = 0.5
    scale_growth: float = 1.5
    gap_interval: int = 10


OPTIONS = APGOptions()


class Step(NamedTuple):
    """The result of one projected-gradient step.

    Attributes
    ----------
    dual : float
        D(x_new).
    curved : float
        The quadratic growth Δᵀ(Hessian)Δ along the step Δ.
    allowed : float
        The quadratic growth that the step length assumes.
    turning : float
        Positive where the step points against the momentum.
    """

    dual: float
    curved: float
    allowed: float
    turning: float


class DualSteps(Protocol):
    """Steps on the dual, sparse or dense."""

    def step(self, scale: float) -> Step:
        """Try a projected-gradient step from the extrapolated point.

        The curvature is ``scale`` times its upper bound.
        """
        ...

    def accept(self, momentum: float) -> None:
        """Make the tried point the iterate x, and extrapolate from it."""
        ...


class SurrogateSteps(DualSteps, Protocol):
    """Steps on the dual of a surrogate, from a point with the dual value ``initial_dual``."""

    initial_dual: float

    def increment(self, iterations: int) -> Increment:
        """The primal increments for x, with value and gap."""
        ...


def accelerated(steps: DualSteps) -> Iterator[float]:
    """Yield D(x) after each step of accelerated projected gradient, indefinitely.

    The step length is found by a line search; the momentum restarts when it points uphill.
    """
    scale = OPTIONS.initial_scale
    t = 1.0
    while True:
        step = steps.step(scale)
        while scale < 1 and step.curved > step.allowed:
            scale = min(1.0, OPTIONS.scale_growth * scale)
            step = steps.step(scale)
        if step.turning > 0:
            t = 1.0
        t_next = (1 + math.sqrt(1 + 4 * t * t)) / 2
        steps.accept((t - 1) / t_next)
        t = t_next
        yield step.dual


def minimize_surrogate(steps: SurrogateSteps, surrogate: Surrogate, options: MM) -> Increment:
    """Step until the stopping rule holds and the surrogate has decreased, or cannot decrease."""
    before = steps.initial_dual
    tolerance = options.tol
    check_at = options.max_iter
    rounding = 4 * np.finfo(surrogate.residual.dtype).eps * abs(surrogate.at_zero)
    limit = INNER.patience * options.max_iter
    for k, dual in enumerate(accelerated(steps), start=1):
        small_change = options.gap is None and abs(before - dual) <= tolerance * abs(
            surrogate.dual_offset - dual
        )
        before = dual
        settled = small_change or k >= check_at
        if not settled and (options.gap is None or k % OPTIONS.gap_interval):
            continue
        found = steps.increment(k)
        decrease = surrogate.at_zero - found.value
        if (
            options.is_accurate(found.gap, decrease)
            or found.gap <= rounding
            or (settled and decrease > 0)
            or k >= limit
        ):
            return found
        if settled:
            # not yet below F(0, 0): the minimum is close to it, and a smaller tolerance is needed
            tolerance = tolerance / 10
            check_at = max(2 * k, check_at)
    raise AssertionError("the sequence of steps is infinite")


class WarmStartedAPG:
    """An inner solver: accelerated steps from the dual point of the previous outer iteration."""

    make_steps: Callable[[Surrogate, Array], SurrogateSteps]

    def __init__(self) -> None:
        self._dual_point: Array | None = None

    def solve(self, surrogate: Surrogate, options: MM) -> Increment:
        """Minimize the surrogate from the last dual point, projected onto the new box."""
        w = surrogate.weights
        x = np.zeros_like(w) if self._dual_point is None else np.clip(self._dual_point, -w, w)
        found = minimize_surrogate(type(self).make_steps(surrogate, x), surrogate, options)
        self._dual_point = found.dual_point
        return found

    def state(self) -> dict[str, Any]:
        """Nothing besides the dual point."""
        return {}

    def restore(self, state: dict[str, Any], dual_point: Array) -> None:
        """Start the next solve from the dual point."""
        self._dual_point = dual_point
