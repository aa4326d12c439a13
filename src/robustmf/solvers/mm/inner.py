"""The interface of inner solvers, which minimize the surrogate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robustmf.solvers.mm.options import MM
from robustmf.solvers.mm.surrogate import Surrogate

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class InnerOptions:
    """Constants of all inner solvers.

    Attributes
    ----------
    patience : int
        An inner solve whose increments do not decrease the surrogate continues for at most this
        many times ``max_iter`` steps.
    """

    patience: int = 20


OPTIONS = InnerOptions()


@dataclass(frozen=True)
class Increment:
    """An approximate minimizer of the surrogate.

    Attributes
    ----------
    dU, dV : array
        The increments.
    dual_point : array over the entries
        The dual point x, a subgradient of the loss at every entry (|x| ≤ w).
    value : float
        F(dU, dV).
    gap : float
        F(dU, dV) exceeds min F by at most this.
    iterations : int
        The number of steps.
    """

    dU: Array
    dV: Array
    dual_point: Array
    value: float
    gap: float
    iterations: int


class InnerSolver(Protocol):
    """Minimizes a sequence of surrogates, each from the solution of the previous one."""

    def solve(self, surrogate: Surrogate, options: MM) -> Increment:
        """Increments that satisfy the stopping rule and decrease the surrogate."""
        ...

    def state(self) -> dict[str, Any]:
        """What the next solve starts from, besides the dual point of the last one."""
        ...

    def restore(self, state: dict[str, Any], dual_point: Array) -> None:
        """Continue from a :meth:`state` and the dual point of the last solve."""
        ...
