"""The experiments by name, in the paper's order."""

from __future__ import annotations

from importlib import import_module

from benchmarks.reproduction.plan import Experiment

#: A new one is a module with an EXPERIMENT, and its name here.
NAMES = ("figure1", "figure2", "table1", "table2", "table3", "table4", "statistics", "larger")


def experiment(name: str) -> Experiment:
    """The experiment called ``name``."""
    if name not in NAMES:
        raise ValueError(f"no table or figure is called {name!r}; there are {', '.join(NAMES)}")
    return import_module(f"benchmarks.reproduction.{name}").EXPERIMENT
