"""Means, deviations and marks of the best from the records of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from robustmf.metrics import paired_t_test

Record = dict[str, Any]

#: Seeds are listed where their deviation is above this share of the mean.
_WILD = 0.5

#: With fewer common seeds a t-test can tell nothing, and would call everything comparable.
_FEWEST = 3


class Runs:
    """The finished runs of one experiment, by method and data set."""

    def __init__(self, records: dict[str, Record]) -> None:
        self._all = list(records.values())

    def find(self, method: str, data: str) -> list[Record]:
        """The finished runs of a cell, by seed."""
        chosen = [
            r
            for r in self._all
            if r["method"] == method and r["data"] == data and r["status"] == "done"
        ]
        return sorted(chosen, key=lambda record: record["seed"])

    def why_not(self, method: str, data: str) -> str:
        """Why a cell is empty."""
        for record in self._all:
            if record["method"] == method and record["data"] == data and record["status"] != "done":
                return str(record["why"])
        return "not run"

    def values(
        self, method: str, data: str, of: Callable[[Record], float | None]
    ) -> dict[int, float]:
        """A number of every finished run of a cell, by seed; None is left out."""
        found = {record["seed"]: of(record["result"]) for record in self.find(method, data)}
        return {seed: value for seed, value in found.items() if value is not None}


def mean_and_deviation(values: Sequence[float], digits: int) -> str:
    """0.097±0.002; each number by itself where there is one, or where they differ so much that a mean would hide it."""
    if not values:
        return "—"
    if len(values) == 1 or _wild(values):
        return ", ".join(f"{value:.{digits}f}" for value in values)
    return f"{np.mean(values):.{digits}f}±{np.std(values, ddof=1):.{digits}f}"


def _wild(values: Sequence[float]) -> bool:
    """Seeds differ so much that no test can tell their mean from anything."""
    return bool(np.std(values, ddof=1) > _WILD * abs(np.mean(values)))


def best_of(cells: dict[str, dict[int, float]]) -> set[str]:
    """The method with the lowest mean, and those that a paired t-test at 95 % cannot tell from it."""
    filled = {name: values for name, values in cells.items() if values}
    if not filled:
        return set()
    first = min(filled, key=lambda name: float(np.mean(list(filled[name].values()))))
    best = {first}
    for name, values in filled.items():
        common = sorted(set(values) & set(filled[first]))
        if name != first and len(common) >= _FEWEST and not _wild(list(values.values())):
            test = paired_t_test(
                [values[seed] for seed in common], [filled[first][seed] for seed in common]
            )
            if not test.significant:
                best.add(name)
    return best
