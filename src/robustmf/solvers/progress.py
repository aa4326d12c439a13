"""A live progress bar for a fit, as a callback."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from robustmf.solvers.base import Snapshot


class ProgressBar:
    """A progress bar on standard error: a context manager and a callback.

    During the initialization the bar pulses. Then it shows the iteration, the objective, the
    validation error, the elapsed time and the remaining time if all ``max_iter`` iterations are
    needed.

    Parameters
    ----------
    title : str
    max_iter : int
    """

    def __init__(self, title: str, max_iter: int) -> None:
        self._title = title
        self._max_iter = max_iter
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TextColumn("left, at most"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task(f"{title}: initializing", total=None, state="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._bar.tasks:
            done = max(task.completed, 1)
            self._bar.update(task.id, total=done, completed=done)
        self._bar.stop()

    def __call__(self, snapshot: Snapshot) -> None:
        """Show one more iteration; number 0 begins a fit, of which there are ``n_init``."""
        if snapshot.iteration == 0:
            self._bar.reset(self._task, total=max(self._max_iter, 1), description=self._title)
        state = f"{snapshot.iteration}/{self._max_iter}  objective {snapshot.objective:.6g}"
        if "validation" in snapshot.details:
            state += f"  validation error {snapshot.details['validation']:.4g}"
        self._bar.update(self._task, completed=snapshot.iteration, state=state)
