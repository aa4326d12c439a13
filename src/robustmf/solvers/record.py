"""The record of a loop in a checkpoint file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from robustmf.io.checkpoint import LoopProgress
from robustmf.solvers.base import Outcome


@dataclass(frozen=True)
class FileRecord:
    """A :class:`~robustmf.solvers.base.Record` in a checkpoint file."""

    progress: LoopProgress

    def resume(self, solver: Any) -> tuple[Outcome, float, float] | None:
        """Restore the solver; the outcome so far, the objective and the seconds."""
        with self.progress.reading():
            state = self.progress.load()
            if state is None:
                return None
            solver.restore(state["solver"])
            return Outcome(**state["outcome"]), state["objective"], state["seconds"]

    def save_if_due(
        self, solver: Any, outcome: Outcome, objective: float, seconds: float, force: bool
    ) -> None:
        """Save the state if the interval has passed, or if ``force`` is true."""
        if force or self.progress.is_due():
            self.progress.save(
                {
                    "solver": solver.state(),
                    "outcome": outcome.parts(),
                    "objective": objective,
                    "seconds": seconds,
                }
            )


def file_record(progress: LoopProgress | None) -> FileRecord | None:
    """The record of a loop, or None if its progress is not saved."""
    return None if progress is None else FileRecord(progress)
