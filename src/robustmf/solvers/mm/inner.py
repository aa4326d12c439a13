"""What an inner solver takes and gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robustmf.solvers.mm.surrogate import Surrogate

Array = NDArray[np.floating[Any]]

#: An inner solve that has not descended after its own limit goes on for at most this many times as long.
PATIENCE = 20


@dataclass(frozen=True)
class InnerRule:
    """When an inner solve may stop.

    Attributes
    ----------
    change : float
        Stop when the objective changes by less than this, relative to its value, between two steps (the paper: 1e-6).
    gap : float or None
        If given, this rule instead: stop when the duality gap is at most this share of the decrease reached so far. The decrease
        is then at least 1/(1 + gap) of the best possible, whatever the scale of the data.
    max_iter : int
        At most so many steps (the paper: 300), unless the increments do not yet decrease the surrogate.
    """

    change: float = 1e-6
    gap: float | None = None
    max_iter: int = 300

    def enough_gap(self, gap: float, decrease: float) -> bool:
        """The gap rule holds."""
        return self.gap is not None and gap <= self.gap * decrease


@dataclass(frozen=True)
class Increment:
    """An approximate minimiser of the surrogate.

    Attributes
    ----------
    dU, dV : the increments
    witness : the dual point x, a subgradient of the loss at every entry (|x| ≤ w)
    value : F(dU, dV)
    gap : F(dU, dV) exceeds min F by at most this
    iterations : steps made
    """

    dU: Array
    dV: Array
    witness: Array
    value: float
    gap: float
    iterations: int


class InnerSolver(Protocol):
    """Minimises one surrogate after another, each from where the last one ended."""

    def solve(self, surrogate: Surrogate, rule: InnerRule) -> Increment:
        """Increments that satisfy the rule and, where the arithmetic allows, decrease the surrogate."""
        ...

    def state(self) -> dict[str, Any]:
        """What the next solve starts from, beside the witness of the last one."""
        ...

    def restore(self, state: dict[str, Any], witness: Array) -> None:
        """Go on from there."""
        ...
