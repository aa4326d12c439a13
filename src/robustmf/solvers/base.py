"""The interface of solvers, and the one loop around all of them.

The loop owns stopping, timing, the history, validation, callbacks, interruption and checkpoints.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robustmf.exceptions import (
    CheckpointError,
    InterruptedFitWarning,
    NotConvergedWarning,
    NumericalError,
    warn_user,
)

if TYPE_CHECKING:
    from robustmf.io.checkpoint import LoopProgress

Array = NDArray[np.floating[Any]]

_log = logging.getLogger(__name__)


@dataclass
class Outcome:
    """The history of an iteration and how it ended.

    Attributes
    ----------
    history : dict of lists, default={}
        One value per iteration, the initial point included, for each recorded quantity.
    iterations : int, default=0
        The number of iterations.
    converged : bool, default=False
        Whether the stopping rule of the solver was met.
    stopped : bool, default=False
        Whether a callback or Ctrl-C ended the iteration, so that nothing shall follow.
    reason : str, default=""
        Why it ended; empty while it runs.
    objective : float, default=inf
        The last objective.
    best : (array, array) or None, default=None
        The iterate with the lowest validation error, where there was validation.
    best_iteration : int, default=0
        Its iteration; 0 without validation.
    best_error : float, default=inf
        Its validation error.
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
        """The fields by name, not copied; :meth:`from_parts` is the inverse."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    @classmethod
    def from_parts(cls, parts: dict[str, Any]) -> Outcome:
        """An outcome that was saved; raises if a field is invalid."""
        found = cls(**parts)
        columns = list(found.history.values())
        for name in ("iterations", "best_iteration", "objective", "best_error"):
            require_number(getattr(found, name), finite=False)
        if (
            not all(isinstance(column, list) for column in columns)
            or not all(isinstance(value, (int, float)) for column in columns for value in column)
            or len({len(column) for column in columns}) > 1
            or not all(isinstance(k, int) for k in (found.iterations, found.best_iteration))
            or not all(
                isinstance(is_so, (bool, np.bool_)) for is_so in (found.converged, found.stopped)
            )
            or not isinstance(found.reason, str)
        ):
            raise CheckpointError("its history is invalid")
        return found

    def record(self, **row: float) -> None:
        """Append one value to each quantity of the history."""
        self.objective = row["objective"]
        for name, value in row.items():
            self.history.setdefault(name, []).append(value)

    def drop_incomplete_row(self) -> None:
        """Remove the last row of the history if an interruption left it incomplete."""
        complete = min(map(len, self.history.values()), default=0)
        self.history = {name: values[:complete] for name, values in self.history.items()}


class Solver(Protocol):
    """A solver is an initial point and a step; everything else belongs to the loop."""

    @property
    def factors(self) -> tuple[Array, Array]:
        """Factors whose product is the prediction."""
        ...

    def begin(self, U: Array, V: Array) -> float:
        """Start at (U, V); return the objective there."""
        ...

    def step(self) -> float:
        """Make one outer iteration; return the objective after it."""
        ...

    def convergence_reason(self, before: float, objective: float, tol: float) -> str | None:
        """Why the iteration has converged, given the last two objectives; None while it has not.

        See :func:`small_change`.
        """
        ...

    def report(self) -> dict[str, float]:
        """Further quantities of this iteration for the history; not timed."""
        ...


class Resumable(Solver, Protocol):
    """A solver whose state can be saved, and restored by another process."""

    def state(self) -> dict[str, Any]:
        """What the next step depends on and ``begin`` does not set: arrays and plain values."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from ``state``, after ``begin`` with the initial point of the same fit."""
        ...


def require_same_layout(saved: Sequence[Array], own: Sequence[Array]) -> Any:
    """Require that saved arrays have the shapes and types of ``own``, and return them."""
    if len(saved) != len(own) or any(
        A.shape != B.shape or A.dtype != B.dtype for A, B in zip(saved, own, strict=True)
    ):
        raise CheckpointError("its arrays are not those of this fit")
    return tuple(saved)


def require_number(
    value: Any, least: float = -np.inf, above: float = -np.inf, finite: bool = True
) -> None:
    """Require that a saved number is one within bounds."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float, np.floating))
        or not (np.isfinite(value) or (not finite and not np.isnan(value)))
        or not value >= least
        or not (value > above or above == -np.inf)
    ):
        raise CheckpointError(f"one of its numbers is invalid: {value!r:.60}")


def require_similar(saved: Any, own: Any) -> None:
    """Require that numbers of a saved state are where ``own`` has them; arrays are not compared."""
    if isinstance(own, dict):
        for name in own.keys() & saved.keys():
            require_similar(saved[name], own[name])
    elif isinstance(own, tuple):
        if not isinstance(saved, tuple) or len(saved) != len(own):
            raise CheckpointError("its state is not that of this solver")
        for one, other in zip(saved, own, strict=True):
            require_similar(one, other)
    elif isinstance(own, (bool, np.bool_)):
        if not isinstance(saved, (bool, np.bool_)):
            raise CheckpointError("its state is not that of this solver")
    elif isinstance(own, (int, float, np.floating)):
        require_number(saved, finite=False)


def small_change(before: float, objective: float, tol: float) -> str | None:
    """The usual criterion: the objective has decreased by no more than ``tol`` of its value."""
    if before - objective <= tol * abs(before):
        return f"the objective did not decrease by more than tol={tol:g}"
    return None


@dataclass(frozen=True)
class Snapshot:
    """What a callback receives after each iteration.

    Attributes
    ----------
    iteration : int
        0 is the initial point.
    objective : float
    seconds : float
        Time of all iterations so far.
    factors : (array, array)
        Factors whose product is the prediction; copies, which may be kept and changed.
    details : dict
        Further quantities that the solver reports.
    """

    iteration: int
    objective: float
    seconds: float
    factors: tuple[Array, Array]
    details: dict[str, float]


#: Called after each iteration with a snapshot; returning True ends the fit.
Callback = Callable[[Snapshot], bool | None]

#: The error of factors on entries that were held out; lower is better.
Validation = Callable[[Array, Array], float]


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
    progress: LoopProgress | None = None,
) -> Outcome:
    """Step until the solver has converged or ``max_iter`` is reached, unless the loop ends earlier.

    It ends earlier by a callback, Ctrl-C, or ``patience`` iterations in a row without a lower
    validation error. Only the steps are timed, not the history, the validation error, callbacks and
    checkpoints.

    Parameters
    ----------
    solver : Solver
    U, V : array
        The initial point.
    max_iter : int
        The largest number of iterations.
    tol : float
        The tolerance, see :meth:`Solver.convergence_reason`.
    callbacks : sequence of callables, default=()
        Called with a :class:`Snapshot` after each iteration.
    validation : callable, optional
        The error of the solver's ``factors`` on entries held out; the iterate where it is lowest
        becomes ``Outcome.best``.
    patience : int, default=5
        Iterations without a lower validation error after which the loop ends.
    keep : callable, optional
        What to copy of the best iterate; by default the solver's ``factors``.
    progress : LoopProgress, optional
        Where to resume from and to save progress; the solver is then a :class:`Resumable`.
    """
    outcome = Outcome()
    started = time.perf_counter()
    objective = solver.begin(U, V)
    seconds = time.perf_counter() - started
    kept = keep or (lambda: solver.factors)
    known = None if progress is None else _resume(progress, solver, kept)
    if known is not None:
        outcome, objective, seconds = known
    observe = _Observer(solver, outcome, callbacks, validation, kept)
    stopped = False
    try:
        stopped = known is None and observe(objective, seconds)
        while not stopped and not outcome.reason and outcome.iterations < max_iter:
            started = time.perf_counter()
            before = objective
            objective = solver.step()
            seconds += time.perf_counter() - started
            outcome.iterations += 1
            if not np.isfinite(objective):
                raise NumericalError(
                    f"the objective became {objective}; "
                    f"the values may be too large for their precision ({U.dtype})"
                )
            stopped = observe(objective, seconds)
            reason = solver.convergence_reason(before, objective, tol)
            if reason is not None:
                outcome.converged = True
                outcome.reason = reason
            elif (
                validation is not None
                and not stopped
                and outcome.iterations - outcome.best_iteration >= patience
            ):
                outcome.reason = f"no lower validation error in patience={patience} iterations"
            if progress is not None and (stopped or progress.is_due()):
                _save(progress, solver, outcome, objective, seconds)
        if not outcome.reason and not stopped:
            outcome.reason = _limit(max_iter)
    except KeyboardInterrupt:
        _interrupt(outcome)
    if not outcome.reason:
        outcome.stopped = True
        outcome.reason = "stopped by a callback"
    _log.info(
        "%s after %d iterations, %.3g s: objective %.9g",
        outcome.reason,
        outcome.iterations,
        seconds,
        outcome.objective,
    )
    return outcome


def _resume(
    progress: LoopProgress, solver: Any, keep: Callable[[], tuple[Array, Array]]
) -> tuple[Outcome, float, float] | None:
    """Restore a :class:`Resumable` to what was saved last, if anything was.

    Returns the outcome so far, the objective and the seconds.
    """
    with progress.reading():
        state = progress.load()
        if state is None:
            return None
        require_similar(state["solver"], solver.state())
        solver.restore(state["solver"])
        outcome = Outcome.from_parts(state["outcome"])
        if outcome.best is not None:
            require_same_layout(outcome.best, keep())
        for name in ("objective", "seconds"):
            require_number(state[name])
        return outcome, state["objective"], state["seconds"]


def _save(
    progress: LoopProgress, solver: Any, outcome: Outcome, objective: float, seconds: float
) -> None:
    """Save the state of a :class:`Resumable` and of the loop."""
    progress.save(
        {
            "solver": solver.state(),
            "outcome": outcome.parts(),
            "objective": objective,
            "seconds": seconds,
        }
    )


def _interrupt(outcome: Outcome) -> None:
    """End an outcome by Ctrl-C, with a warning."""
    outcome.drop_incomplete_row()
    outcome.converged = False
    outcome.stopped = True
    outcome.reason = "interrupted"
    kept = "the result so far"
    if outcome.best is not None:
        kept = f"iteration {outcome.best_iteration}, the best so far,"
    warn_user(
        f"fit interrupted after {outcome.iterations} iterations; {kept} is kept",
        InterruptedFitWarning,
    )


def _limit(max_iter: int) -> str:
    return f"max_iter={max_iter} reached"


def warn_of_limit(outcome: Outcome, max_iter: int, tol: float) -> None:
    """Warn if a fit ended at its limit; called once per fit, which may consist of several loops."""
    if outcome.reason.startswith(_limit(max_iter)):
        warn_user(
            f"fit stopped at max_iter={max_iter} before the objective converged to tol={tol:g}; "
            "raise max_iter or tol",
            NotConvergedWarning,
        )


@dataclass
class _Observer:
    """After an iteration: record it, keep it if it is the best, and call the callbacks."""

    solver: Solver
    outcome: Outcome
    callbacks: Sequence[Callback]
    validation: Validation | None
    keep: Callable[[], tuple[Array, Array]]

    def __call__(self, objective: float, seconds: float) -> bool:
        """Whether a callback requests to stop."""
        outcome = self.outcome
        details = self.solver.report()
        if self.validation is not None:
            error = details["validation"] = self.validation(*self.solver.factors)
            if error < outcome.best_error or outcome.best is None:
                outcome.best = _copies(self.keep())
                outcome.best_error = error
                outcome.best_iteration = outcome.iterations
        outcome.record(
            iteration=outcome.iterations, objective=objective, seconds=seconds, **details
        )
        _log.debug("iteration %d: objective %.9g, %.3g s", outcome.iterations, objective, seconds)
        if not self.callbacks:
            return False
        snapshot = Snapshot(
            outcome.iterations, objective, seconds, _copies(self.solver.factors), details
        )
        # a list: every callback is called, also after one of them requested to stop
        answers = [callback(snapshot) for callback in self.callbacks]
        return any(answers)


def _copies(factors: tuple[Array, Array]) -> tuple[Array, Array]:
    return factors[0].copy(), factors[1].copy()
