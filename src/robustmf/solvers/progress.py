"""A live progress bar for a fit, as a callback."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from robustmf.solvers.loop import Snapshot


class ProgressBar:
    """Shows iteration, objective and time on standard error; a context and a callback."""

    def __init__(self, title: str, max_iter: int) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}  objective {task.fields[objective]}"),
            TimeElapsedColumn(), console=Console(stderr=True),
        )  # fmt: skip
        self._task = self._bar.add_task(title, total=max_iter, objective="…")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for task in self._bar.tasks:
            self._bar.update(task.id, total=max(task.completed, 1), completed=max(task.completed, 1))
        self._bar.stop()

    def __call__(self, snapshot: Snapshot) -> None:
        """One more iteration is done."""
        self._bar.update(self._task, completed=snapshot.iteration, objective=f"{snapshot.objective:.6g}")
