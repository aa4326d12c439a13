"""A plan: which runs make up a table or figure, and how one of them is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Run:
    """One method on one data set with one seed. The same run always has the same key, in a quick plan and in the full one."""

    experiment: str
    method: str
    data: str
    seed: int

    @property
    def key(self) -> str:
        """What the run is called in the records."""
        return f"{self.experiment}/{self.method}/{self.data}/{self.seed}"


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Attributes
    ----------
    name, title : str
        "table2", and what it shows.
    runs : callable
        ``runs(quick)`` lists the runs; the quick ones are among the full ones.
    execute : callable
        ``execute(run)`` gives the result as plain data.
    """

    name: str
    title: str
    runs: Callable[[bool], Sequence[Run]]
    execute: Callable[[Run], dict[str, Any]]


class DataMissingError(LookupError):
    """The data set of a run is not on this machine."""
