"""The accelerated loop on the dual, whatever carries out its steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from robustmf.solvers.mm.inner import PATIENCE, Increment, InnerRule
from robustmf.solvers.mm.surrogate import Surrogate

Array = NDArray[np.floating[Any]]

#: The step starts at this share of the proven curvature bound and is raised by the line search up to all of it.
FIRST_SCALE = 0.5

#: Steps between two evaluations of the duality gap, where the gap decides.
_GAP_EVERY = 10


class Step(NamedTuple):
    """What one projected-gradient step found.

    dual: D(x_new). curved: the true quadratic growth Δᵀ(Hessian)Δ of the step. allowed: the growth the step length assumed.
    turning: positive where the step points against the momentum.
    """

    dual: float
    curved: float
    allowed: float
    turning: float


class DualSteps(Protocol):
    """Carries out steps on the dual: sparse or dense."""

    def step(self, scale: float) -> Step:
        """Try a projected-gradient step from the extrapolated point, with curvature ``scale`` times its bound."""
        ...

    def accept(self, momentum: float) -> None:
        """Take the tried point as x, and extrapolate from it."""
        ...


class SurrogateSteps(DualSteps, Protocol):
    """Steps on the dual of a surrogate, from a point with the dual value ``start_dual``."""

    start_dual: float

    def increment(self, iterations: int) -> Increment:
        """The increments that belong to x, with value and gap."""
        ...


def accelerated(steps: DualSteps) -> Iterator[float]:
    """D(x) after each step of accelerated projected gradient with line search and adaptive restart, without end."""
    scale, t = FIRST_SCALE, 1.0
    while True:
        step = steps.step(scale)
        while scale < 1 and step.curved > step.allowed:
            scale = min(1.0, 1.5 * scale)
            step = steps.step(scale)
        if step.turning > 0:
            t = 1.0
        t_next = (1 + math.sqrt(1 + 4 * t * t)) / 2
        steps.accept((t - 1) / t_next)
        t = t_next
        yield step.dual


def minimise_surrogate(steps: SurrogateSteps, surrogate: Surrogate, rule: InnerRule) -> Increment:
    """Accelerated steps until the rule holds and the surrogate has decreased, or until no decrease is left to find."""
    before, tolerance, check_at = steps.start_dual, rule.change, rule.max_iter
    rounding = 4 * np.finfo(surrogate.residual.dtype).eps * abs(surrogate.at_zero)
    limit = PATIENCE * rule.max_iter
    for k, dual in enumerate(accelerated(steps), start=1):
        small_change = rule.gap is None and abs(before - dual) <= tolerance * abs(
            surrogate.dual_offset - dual
        )
        before = dual
        settled = small_change or k >= check_at
        if not settled and (rule.gap is None or k % _GAP_EVERY):
            continue
        found = steps.increment(k)
        decrease = surrogate.at_zero - found.value
        if (
            rule.enough_gap(found.gap, decrease)
            or found.gap <= rounding
            or (settled and decrease > 0)
            or k >= limit
        ):
            return found
        if settled:
            # not yet below F(0, 0): the surrogate's minimum is close to it, and asks for more care
            tolerance, check_at = tolerance / 10, max(2 * k, check_at)
    raise AssertionError("accelerated steps have no end")


class WarmStartedAPG:
    """An inner solver: accelerated steps from the dual point of the outer iteration before."""

    make_steps: Callable[[Surrogate, Array], SurrogateSteps]

    def __init__(self) -> None:
        self._witness: Array | None = None

    def solve(self, surrogate: Surrogate, rule: InnerRule) -> Increment:
        """Minimise the surrogate from the last dual point, moved into the new box."""
        w = surrogate.weights
        x = np.zeros_like(w) if self._witness is None else np.clip(self._witness, -w, w)
        found = minimise_surrogate(type(self).make_steps(surrogate, x), surrogate, rule)
        self._witness = found.witness
        return found

    def state(self) -> dict[str, Any]:
        """Nothing: the witness is all."""
        return {}

    def restore(self, state: dict[str, Any], witness: Array) -> None:
        """Start the next solve from the witness."""
        self._witness = witness
