"""Progress bars: the phases of a fit, and a number of fits."""

from __future__ import annotations

import math
import time
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from robustmf import phases
from robustmf.solvers.base import Snapshot


@dataclass(frozen=True)
class ProgressOptions:
    """Constants of the display of progress.

    Attributes
    ----------
    window : int
        Iterations from which the rate of convergence and the time per iteration are estimated.
    interval : float
        Seconds between two updates in a notebook.
    """

    window: int = 8
    interval: float = 0.25


OPTIONS = ProgressOptions()


class IterationEstimate:
    """How many iterations are left, from the decrease of the objective.

    The loop ends when the relative decrease is below ``tol``. Decreases fall about geometrically;
    their rate is that of a line through the logarithms of the last eight. Where they do not fall,
    all iterations up to ``max_iter`` are expected.

    Parameters
    ----------
    max_iter : int
    tol : float
    """

    def __init__(self, max_iter: int, tol: float) -> None:
        self._max_iter = max_iter
        self._tol = max(tol, 1e-300)
        self._decreases: deque[float] = deque(maxlen=OPTIONS.window)
        self._objective = math.nan

    def left(self, iteration: int, objective: float) -> float | None:
        """Iterations that are left after this one; None as long as that is unknown."""
        decrease = (self._objective - objective) / max(abs(objective), 1e-300)
        self._objective = objective
        most = self._max_iter - iteration
        if not decrease > 0:  # the first iteration, or one that was repeated
            return most if len(self._decreases) >= 3 else None
        self._decreases.append(math.log(decrease))
        if len(self._decreases) < 3:
            return None
        slope = _slope(list(self._decreases))
        if slope > -1e-3:
            return most
        return min(max((math.log(self._tol) - self._decreases[-1]) / slope, 0.0), most)


def _slope(values: list[float]) -> float:
    """The slope of the least squares line through values at equidistant points."""
    middle = (len(values) - 1) / 2
    mean = sum(values) / len(values)
    moments = [(k - middle, value - mean) for k, value in enumerate(values)]
    return sum(x * y for x, y in moments) / sum(x * x for x, _ in moments)


def duration(seconds: float) -> str:
    """A duration with a precision that an estimate can have: "4 s", "1 min 20 s", "2 h 5 min"."""
    seconds = max(1, round(seconds)) if seconds < 10 else 5 * round(seconds / 5)
    if seconds < 60:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 60:
        return f"{minutes} min {seconds % 60} s" if minutes < 10 else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


class _Field(ProgressColumn):
    """A field of the task, never wrapped: a terminal that is too narrow cuts it."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def render(self, task: Task) -> Text:
        return Text(str(task.fields[self._name]), no_wrap=True)


class _Bar:
    """One line on standard error, or in the output of a notebook cell."""

    def __init__(self, title: str, phase: str, transient: bool = False) -> None:
        self._notebook = _notebook_handle()
        self._drawn = -math.inf
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            _Field("state"),
            TimeElapsedColumn(),
            _Field("left"),
            console=Console(stderr=True),
            disable=self._notebook is not None,
            transient=transient,
        )
        self._title = title
        self._task = self._bar.add_task(f"{title}: {phase}", total=None, state="", left="")

    def __enter__(self) -> Self:
        self._bar.start()
        self._update(force=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task = self._bar.tasks[0]
        done = max(task.completed, 1)
        self._update(force=True, total=done, completed=done, left="")
        self._bar.stop()

    def _update(self, force: bool = False, phase: str | None = None, **changes: Any) -> None:
        if phase is not None:
            changes["description"] = f"{self._title}: {phase}"
        self._bar.update(self._task, **changes)
        if self._notebook is None:
            return
        now = time.perf_counter()
        if force or now - self._drawn > OPTIONS.interval:
            self._drawn = now
            self._notebook.update({"text/plain": self._text()}, raw=True)

    def _text(self) -> str:
        """The line as text. Rich animates notebooks only with ipywidgets."""
        console = Console(width=120, force_jupyter=False, force_terminal=False)
        with console.capture() as captured:
            console.print(self._bar.get_renderable())
        return captured.get().rstrip()


def _notebook_handle() -> Any:
    """A place in the output of a notebook cell that can be written again; None elsewhere."""
    if not Console(stderr=True).is_jupyter:
        return None
    from IPython.display import display  # noqa: PLC0415 - exists in a notebook

    return display({"text/plain": ""}, raw=True, display_id=True)


class PhaseBar(_Bar):
    """The phases of one computation: a context manager and a display of phases.

    It shows the phase and how far it is, the elapsed time, and in a phase of known length an
    estimate of the time left in it; in one of limited length, of what is left at most. The line
    vanishes at the end unless ``transient`` is false.

    Parameters
    ----------
    title, phase : str
        What runs, and what it does first.
    transient : bool, default=True
    """

    def __init__(self, title: str, phase: str, transient: bool = True) -> None:
        super().__init__(title, phase, transient)
        self._steps: int | None = None
        self._at_most = False
        self._begun = time.perf_counter()
        self._shown: AbstractContextManager[None] = phases.shown_by(self)

    def __enter__(self) -> Self:
        self._shown.__enter__()
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._shown.__exit__(kind, error, trace)
        super().__exit__(kind, error, trace)

    def begin(self, name: str, steps: int | None, at_most: bool = False) -> None:
        """Show that a phase begins."""
        self._steps = steps
        self._at_most = at_most
        self._begun = time.perf_counter()
        self._update(phase=name, total=steps, completed=0, state="", left="")

    def step(self, done: int, detail: str) -> None:
        """Show that ``done`` steps of the phase are made."""
        if self._steps is None:
            self._update(state=", ".join(filter(None, [detail, f"step {done}"])))
            return
        if done == 0:
            return
        rest = (time.perf_counter() - self._begun) / done * max(self._steps - done, 0)
        left = f"{'at most' if self._at_most else 'about'} {duration(rest)} left in this phase"
        state = f"{done}/{self._steps}  {detail}".rstrip()
        self._update(completed=done, state=state, left=left)


class ProgressBar(PhaseBar):
    """The progress of one fit: phases, and as a callback the iterations.

    The time that the iterations take is estimated from the rate at which the objective converges,
    and is at most that of ``max_iter`` iterations.

    Parameters
    ----------
    title : str
    max_iter : int
    tol : float
    """

    def __init__(self, title: str, max_iter: int, tol: float) -> None:
        super().__init__(title, "reading", transient=False)
        self._max_iter = max_iter
        self._tol = tol
        self._times: deque[float] = deque(maxlen=OPTIONS.window + 1)
        self._estimate = IterationEstimate(max_iter, tol)

    def __call__(self, snapshot: Snapshot) -> None:
        """Show one more iteration; number 0 begins a fit, of which there are ``n_init``."""
        now = time.perf_counter()
        if snapshot.iteration == 0:
            self._times.clear()
            self._estimate = IterationEstimate(self._max_iter, self._tol)
            self.begin("iterations", max(self._max_iter, 1))
        self._times.append(now)
        state = f"{snapshot.iteration}  objective {snapshot.objective:.6g}"
        if "validation" in snapshot.details:
            state += f"  validation error {snapshot.details['validation']:.4g}"
        left = self._estimate.left(snapshot.iteration, snapshot.objective)
        if left is None:
            self._update(total=None, state=state)
            return
        each = (self._times[-1] - self._times[0]) / max(len(self._times) - 1, 1)
        at_limit = left >= self._max_iter - snapshot.iteration
        self._update(
            total=max(snapshot.iteration + left, 1),
            completed=snapshot.iteration,
            state=state,
            left=f"{'at most' if at_limit else 'about'} {duration(left * each)} left",
        )


class WorkBar(_Bar):
    """The progress of a known number of similar computations, such as fits.

    The time left is the mean time of those that ended, times those that are left.

    Parameters
    ----------
    title, unit : str
        What is done, and what is counted.
    total : int
    """

    def __init__(self, title: str, unit: str, total: int) -> None:
        super().__init__(title, f"{total} {unit}")
        self._total = total
        self._done = 0
        self._begun = time.perf_counter()
        self._update(total=total)

    def advance(self, number: int = 1, detail: str = "") -> None:
        """``number`` computations have ended."""
        self._done += number
        rest = (time.perf_counter() - self._begun) / self._done * (self._total - self._done)
        left = f"about {duration(rest)} left" if self._done < self._total else ""
        state = f"{self._done}/{self._total}  {detail}".rstrip()
        self._update(completed=self._done, state=state, left=left)
