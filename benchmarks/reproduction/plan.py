"""Which runs make up a table or figure, and how one of them is executed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

#: Tables and figures in the paper's order; each is a module with an ``EXPERIMENT``.
NAMES = (
    "figure1",
    "figure2",
    "table1",
    "table2",
    "noise",
    "minima",
    "table3",
    "table4",
    "statistics",
    "larger",
)


@dataclass(frozen=True)
class Run:
    """One method on one data set with one seed; quick and full plans use the same keys."""

    experiment: str
    method: str
    data: str
    seed: int

    @property
    def key(self) -> str:
        """Name of the run in the records."""
        return f"{self.experiment}/{self.method}/{self.data}/{self.seed}"

    @classmethod
    def from_key(cls, key: str) -> Run:
        """The run with this key."""
        experiment, method, data, seed = key.split("/")
        return cls(experiment, method, data, int(seed))


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
    settings : callable
        ``settings(run)`` gives the settings of data and method as plain data.
    probe : callable
        ``probe(method)`` gives the error of the method on a small fixed problem, which identifies
        the numerical version of the code.
    """

    name: str
    title: str
    runs: Callable[[bool], Sequence[Run]]
    execute: Callable[[Run], dict[str, Any]]
    settings: Callable[[Run], dict[str, Any]]
    probe: Callable[[str], float]


class DataMissingError(LookupError):
    """The data set of a run is not on this machine."""


def experiment(name: str) -> Experiment:
    """The experiment called ``name``."""
    if name not in NAMES:
        raise ValueError(f"experiment must be one of {', '.join(NAMES)}, got {name!r}")
    return import_module(f"benchmarks.reproduction.{name}").EXPERIMENT


def seeded(
    name: str, methods: Iterable[str], data: Iterable[str], seeds: Callable[[str, str], int]
) -> list[Run]:
    """Runs of every method on every data set with ``seeds(method, data)`` seeds."""
    pairs = [(method, one) for one in data for method in methods]
    return [Run(name, m, d, seed) for m, d in pairs for seed in range(seeds(m, d))]


def described(make: Callable[..., Any]) -> dict[str, Any]:
    """Name and keyword arguments of the estimator that ``make`` constructs."""
    keywords: dict[str, Any] = {}
    while isinstance(make, partial):
        keywords = {**make.keywords, **keywords}
        make = make.func
    plain = (str, int, float, bool, type(None))
    found = {
        name: value if isinstance(value, plain) else repr(value) for name, value in keywords.items()
    }
    return {"estimator": make.__name__, **found}
