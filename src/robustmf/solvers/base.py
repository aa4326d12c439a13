"""The one loop around every solver: stopping, clock, history, validation, callbacks, interruption, checkpoints."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robustmf.exceptions import (
    CheckpointError,
    InterruptedFitWarning,
    NotConvergedWarning,
    NumericalError,
    warn_user,
)

Array = NDArray[np.floating[Any]]

_log = logging.getLogger(__name__)


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


class Resumable(Solver, Protocol):
    """A solver that can be put down and taken up again, by another process."""

    def state(self) -> dict[str, Any]:
        """All that the next step depends on and ``begin`` does not set: arrays and plain values."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from ``state``; ``begin`` has been called with the start of the same fit."""
        ...


class Record(Protocol):
    """Where a loop writes down how far it is."""

    def resume(self, solver: Any) -> tuple[Outcome, float, float] | None:
        """Put the solver (a :class:`Resumable`) where it stood last, in whatever process: outcome so far, objective, seconds."""
        ...

    def offer(
        self, solver: Any, outcome: Outcome, objective: float, seconds: float, must: bool
    ) -> None:
        """Write all that down, if it is time to or ``must`` be."""
        ...


def require_same_layout(saved: Sequence[Array], own: Sequence[Array]) -> Any:
    """``saved``, whose arrays must be of the shapes and types that ``own`` has: kernels look up without asking."""
    if len(saved) != len(own) or any(
        A.shape != B.shape or A.dtype != B.dtype for A, B in zip(saved, own, strict=True)
    ):
        raise CheckpointError("its arrays are not those of this fit")
    return tuple(saved)


def small_change(before: float, objective: float, tol: float) -> str | None:
    """The usual rule: the objective has fallen by no more than ``tol`` of its value."""
    return (
        f"the objective changed by less than tol={tol:g}"
        if before - objective <= tol * abs(before)
        else None
    )


@dataclass(frozen=True)
class Snapshot:
    """What a callback sees after each iteration. The factors are copies: they may be kept, and changing them changes nothing."""

    iteration: int
    objective: float
    seconds: float
    factors: tuple[Array, Array]
    details: dict[str, float]


#: Called after each iteration with a snapshot; returning True ends the fit.
Callback = Callable[[Snapshot], bool | None]

#: The error of factors on entries that were held out; lower is better.
Validation = Callable[[Array, Array], float]


@dataclass
class Outcome:
    """How the loop ended.

    ``stopped``: by a callback or by Ctrl-C, so that nothing shall follow. ``best``: the iterate with the lowest validation error,
    where there was validation.
    """

    history: dict[str, list[float]] = field(default_factory=dict)
    iterations: int = 0
    converged: bool = False
    stopped: bool = False
    reason: str = ""
    objective: float = float("inf")
    best: tuple[Array, Array] | None = None
    best_iteration: int = 0
    best_error: float = float("inf")

    def parts(self) -> dict[str, Any]:
        """The fields by name, not copied."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def record(self, **line: float) -> None:
        """Append one line to the history."""
        self.objective = line["objective"]
        for name, value in line.items():
            self.history.setdefault(name, []).append(value)

    def drop_half_line(self) -> None:
        """Where an interruption fell into a line of the history: without that line."""
        whole = min(map(len, self.history.values()), default=0)
        self.history = {name: values[:whole] for name, values in self.history.items()}


def run(
    solver: Solver,
    U: Array,
    V: Array,
    max_iter: int,
    tol: float,
    callbacks: Sequence[Callback] = (),
    *,
    validation: Validation | None = None,
    patience: int = 5,
    keep: Callable[[], tuple[Array, Array]] | None = None,
    record: Record | None = None,
) -> Outcome:
    """Step until the solver has settled, ``max_iter`` is reached, or something else ends it.

    That is a callback, Ctrl-C, or ``patience`` iterations in a row without a lower validation error. The clock runs during steps only,
    not while a line of history is computed, the validation error measured, a callback works or a checkpoint is written.

    Parameters
    ----------
    validation : callable, optional
        The error of the solver's ``factors`` on entries held out; the iterate where it is lowest ends up in ``Outcome.best``.
    keep : callable, optional
        What to copy of such an iterate; by default the solver's ``factors``.
    record : Record, optional
        Where to go on from, and to write down each iteration that is worth it; the solver is then a :class:`Resumable`.
    """
    outcome = Outcome()
    started = time.perf_counter()
    objective = solver.begin(U, V)
    seconds = time.perf_counter() - started
    known = None if record is None else record.resume(solver)
    if known is not None:
        outcome, objective, seconds = known
    tell = _Teller(solver, outcome, callbacks, validation, keep or (lambda: solver.factors))
    stopped = False
    try:
        stopped = known is None and tell(objective, seconds)
        while not stopped and not outcome.reason and outcome.iterations < max_iter:
            started = time.perf_counter()
            before, objective = objective, solver.step()
            seconds += time.perf_counter() - started
            outcome.iterations += 1
            if not np.isfinite(objective):
                raise NumericalError(
                    f"the objective became {objective}; the values may be too large for their precision ({U.dtype})"
                )
            stopped = tell(objective, seconds)
            reason = solver.settled(before, objective, tol)
            if reason is not None:
                outcome.converged, outcome.reason = True, reason
            elif (
                validation is not None
                and not stopped
                and outcome.iterations - outcome.best_iteration >= patience
            ):
                outcome.reason = f"no lower validation error in patience={patience} iterations"
            if record is not None:
                record.offer(solver, outcome, objective, seconds, must=stopped)
        if not outcome.reason and not stopped:
            outcome.reason = _limit(max_iter)
    except KeyboardInterrupt:
        outcome.drop_half_line()
        outcome.converged, outcome.stopped, outcome.reason = False, True, "interrupted"
        kept = (
            "the result so far"
            if outcome.best is None
            else f"iteration {outcome.best_iteration}, the best so far,"
        )
        warn_user(
            f"fit interrupted after {outcome.iterations} iterations; {kept} is kept",
            InterruptedFitWarning,
        )
    if not outcome.reason:
        outcome.stopped, outcome.reason = True, "stopped by a callback"
    _log.info(
        "%s after %d iterations, %.3g s: objective %.9g",
        outcome.reason,
        outcome.iterations,
        seconds,
        outcome.objective,
    )
    return outcome


def _limit(max_iter: int) -> str:
    return f"max_iter={max_iter} reached"


def warn_of_limit(outcome: Outcome, max_iter: int, tol: float) -> None:
    """Warn of a fit that ended at its limit; once a fit, which may be several loops."""
    if outcome.reason.startswith(_limit(max_iter)):
        warn_user(
            f"fit stopped at max_iter={max_iter} before the objective settled to tol={tol:g}; raise max_iter or tol",
            NotConvergedWarning,
        )


@dataclass
class _Teller:
    """After an iteration: measures it, writes it down, keeps it if it is the best, and asks the callbacks whether to stop."""

    solver: Solver
    outcome: Outcome
    callbacks: Sequence[Callback]
    validation: Validation | None
    keep: Callable[[], tuple[Array, Array]]

    def __call__(self, objective: float, seconds: float) -> bool:
        outcome, details = self.outcome, self.solver.report()
        if self.validation is not None:
            error = details["validation"] = self.validation(*self.solver.factors)
            if error < outcome.best_error or outcome.best is None:
                outcome.best, outcome.best_error, outcome.best_iteration = (
                    _copies(self.keep()),
                    error,
                    outcome.iterations,
                )
        outcome.record(
            iteration=outcome.iterations, objective=objective, seconds=seconds, **details
        )
        _log.debug("iteration %d: objective %.9g, %.3g s", outcome.iterations, objective, seconds)
        if not self.callbacks:
            return False
        snapshot = Snapshot(
            outcome.iterations, objective, seconds, _copies(self.solver.factors), details
        )
        # a list: every callback is told, also after one of them asked to stop
        answers = [callback(snapshot) for callback in self.callbacks]
        return any(answers)


def _copies(factors: tuple[Array, Array]) -> tuple[Array, Array]:
    return factors[0].copy(), factors[1].copy()
