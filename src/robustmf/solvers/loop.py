"""The one loop around every solver: stopping, clock, history, callbacks, interruption."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robustmf.exceptions import InterruptedFitWarning, NotConvergedWarning, NumericalError

Array = NDArray[np.floating[Any]]


class Solver(Protocol):
    """A solver is a start and a step; everything else is the loop's."""

    @property
    def factors(self) -> tuple[Array, Array]:
        """Factors whose product is the prediction."""
        ...

    def begin(self, U: Array, V: Array) -> float:
        """Take the start; return the objective there."""
        ...

    def step(self) -> float:
        """One outer iteration; return the objective after it."""
        ...

    def settled(self, before: float, objective: float, tol: float) -> str | None:
        """Why the iteration has converged, given the last two objectives; None while it has not. See :func:`small_change`."""
        ...

    def report(self) -> dict[str, float]:
        """What else is worth keeping of this iteration; called outside the clock."""
        ...


def small_change(before: float, objective: float, tol: float) -> str | None:
    """The usual rule: the objective has fallen by no more than ``tol`` of its value."""
    return f"the objective changed by less than tol={tol:g}" if before - objective <= tol * abs(before) else None


@dataclass(frozen=True)
class Snapshot:
    """What a callback sees after each iteration."""

    iteration: int
    objective: float
    seconds: float
    factors: tuple[Array, Array]
    details: dict[str, float]


#: Called after each iteration with a snapshot; returning True ends the fit.
Callback = Callable[[Snapshot], bool | None]


@dataclass
class Outcome:
    """How the loop ended."""

    history: dict[str, list[float]] = field(default_factory=dict)
    iterations: int = 0
    converged: bool = False
    stopped: bool = False
    reason: str = ""
    objective: float = float("inf")

    def record(self, snapshot: Snapshot) -> None:
        """Append one line to the history."""
        self.objective = snapshot.objective
        line = {"iteration": snapshot.iteration, "objective": snapshot.objective, "seconds": snapshot.seconds, **snapshot.details}
        for name, value in line.items():
            self.history.setdefault(name, []).append(value)


def run(solver: Solver, U: Array, V: Array, max_iter: int, tol: float, callbacks: Sequence[Callback] = ()) -> Outcome:
    """Step until the solver has settled, ``max_iter`` is reached, or a callback stops it.

    The clock runs during steps only, not while a line of history is computed or a callback works.
    """
    outcome = Outcome()
    started = time.perf_counter()
    objective = solver.begin(U, V)
    seconds = time.perf_counter() - started
    try:
        stopped = _tell(solver, outcome, callbacks, 0, objective, seconds)
        while not stopped and outcome.iterations < max_iter:
            started = time.perf_counter()
            before, objective = objective, solver.step()
            seconds += time.perf_counter() - started
            outcome.iterations += 1
            stopped = _tell(solver, outcome, callbacks, outcome.iterations, objective, seconds)
            if not np.isfinite(objective):
                raise NumericalError(f"the objective became {objective}; the values may be too large for their precision ({U.dtype})")
            reason = solver.settled(before, objective, tol)
            if reason is not None:
                outcome.converged, outcome.reason = True, reason
                return outcome
    except KeyboardInterrupt:
        outcome.stopped, outcome.reason = True, "interrupted"
        warnings.warn(
            f"fit interrupted after {outcome.iterations} iterations; the result so far is kept", InterruptedFitWarning, stacklevel=4
        )
        return outcome
    if stopped:
        outcome.stopped, outcome.reason = True, "stopped by a callback"
        return outcome
    outcome.reason = f"max_iter={max_iter} reached"
    warnings.warn(
        f"fit stopped at max_iter={max_iter} before the objective settled to tol={tol:g}; raise max_iter or tol",
        NotConvergedWarning,
        stacklevel=4,
    )
    return outcome


def _tell(solver: Solver, outcome: Outcome, callbacks: Sequence[Callback], iteration: int, objective: float, seconds: float) -> bool:
    snapshot = Snapshot(iteration, objective, seconds, solver.factors, solver.report())
    outcome.record(snapshot)
    # a list: every callback is told, also after one of them asked to stop
    answers = [callback(snapshot) for callback in callbacks]
    return any(answers)
