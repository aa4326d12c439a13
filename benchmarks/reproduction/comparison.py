"""A table of methods × data sets, ours beside the printed numbers, with a verdict for each pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.reproduction.sections import Cell, TableBlock
from robustmf.metrics import paired_t_test

Record = dict[str, Any]

#: Printed value, its deviation, seconds, their deviation.
Number = tuple[float, float, float, float]
Printed = Mapping[str, Sequence[Number | None]]


@dataclass(frozen=True)
class Rules:
    """When numbers count as reproduced, and how seeds are summarized.

    Attributes
    ----------
    close : float, default=0.05
        Within this share of the printed number a mean is reproduced.
    far : float, default=0.15
        Two joint standard deviations also count, up to this share of the printed number.
    dispersed : float, default=0.5
        Seeds are listed where their deviation exceeds this share of the mean.
    fewest : int, default=3
        With fewer common seeds a t-test would find everything comparable.
    """

    close: float = 0.05
    far: float = 0.15
    dispersed: float = 0.5
    fewest: int = 3


RULES = Rules()


class Runs:
    """The finished runs of one experiment, by method and data set."""

    def __init__(self, records: dict[str, Record]) -> None:
        self._all = list(records.values())

    def find(self, method: str, data: str) -> list[Record]:
        """The finished runs of a cell, by seed."""
        chosen = [r for r in self._cell(method, data) if r["status"] == "done"]
        return sorted(chosen, key=lambda record: record["seed"])

    def why_empty(self, method: str, data: str) -> str:
        """Why a cell has no finished run."""
        unfinished = [r for r in self._cell(method, data) if r["status"] != "done"]
        return str(unfinished[0]["reason"]) if unfinished else "not run"

    def values(
        self, method: str, data: str, of: Callable[[Record], float | None]
    ) -> dict[int, float]:
        """A number of every finished run of a cell, by seed; None is left out."""
        found = {record["seed"]: of(record["result"]) for record in self.find(method, data)}
        return {seed: value for seed, value in found.items() if value is not None}

    def _cell(self, method: str, data: str) -> list[Record]:
        return [r for r in self._all if r["method"] == method and r["data"] == data]


def mean_and_deviation(values: Sequence[float], digits: int) -> str:
    """0.097±0.002; the single values where there is one, or where a mean would hide them."""
    if not values:
        return "—"
    if len(values) == 1 or _dispersed(values):
        return ", ".join(f"{value:.{digits}f}" for value in values)
    return f"{np.mean(values):.{digits}f}±{np.std(values, ddof=1):.{digits}f}"


def _dispersed(values: Sequence[float]) -> bool:
    return bool(np.std(values, ddof=1) > RULES.dispersed * abs(np.mean(values)))


def best_of(cells: dict[str, dict[int, float]]) -> set[str]:
    """The method with the lowest mean, and those not significantly worse by a paired t-test."""
    filled = {name: values for name, values in cells.items() if values}
    if not filled:
        return set()
    first = min(filled, key=lambda name: float(np.mean(list(filled[name].values()))))
    best = {first}
    for name, values in filled.items():
        common = sorted(set(values) & set(filled[first]))
        enough = len(common) >= RULES.fewest and not _dispersed(list(values.values()))
        if name != first and enough:
            ours, theirs = ([filled[one][seed] for seed in common] for one in (name, first))
            if not paired_t_test(ours, theirs).significant:
                best.add(name)
    return best


@dataclass(frozen=True)
class Comparison:
    """What is compared.

    Attributes
    ----------
    methods, data : sequence of str
        Names of rows and of groups of columns.
    printed : mapping
        The paper's numbers by method, in the order of ``data``.
    error : callable
        Takes the error from a result.
    error_name : str
        Name of the error in the header.
    oracle : str, default=""
        Method that knows the outliers and does not compete.
    floors : mapping, optional
        Mean error of the oracle by data set; a printed number below it is impossible.
    reasons : mapping, optional
        What is known about a method that does not reproduce.
    """

    methods: Sequence[str]
    data: Sequence[str]
    printed: Printed
    error: Callable[[Record], float | None]
    error_name: str
    oracle: str = ""
    floors: Mapping[str, float] | None = None
    reasons: Mapping[str, str] | None = None

    def table(self, runs: Runs) -> TableBlock:
        """Errors and seconds, ours and the paper's."""
        header = ["method"]
        for data in self.data:
            header += [f"{data}: {self.error_name}", "paper", "seconds", "paper"]
        competing = [method for method in self.methods if method != self.oracle]
        best = {
            data: best_of({one: runs.values(one, data, self.error) for one in competing})
            for data in self.data
        }
        rows = []
        for method in self.methods:
            row = [Cell(method)]
            for k, data in enumerate(self.data):
                errors = runs.values(method, data, self.error)
                seconds = runs.values(method, data, lambda result: result.get("seconds"))
                printed = self._printed(method, k)
                row += [
                    Cell(mean_and_deviation([*errors.values()], 3), method in best[data]),
                    Cell("" if printed is None else f"{printed[0]:.3f}±{printed[1]:.3f}"),
                    Cell(mean_and_deviation([*seconds.values()], 2)),
                    Cell("" if printed is None else f"{printed[2]:.1f}"),
                ]
            rows.append(row)
        return TableBlock(header, rows, self._note(runs))

    def _note(self, runs: Runs) -> str:
        counts = {len(runs.find(method, data)) for method in self.methods for data in self.data}
        counts = counts - {0} or {0}
        least, most = min(counts), max(counts)
        range_ = f"{least} to {most}" if least < most else f"{most}"
        seeds = "seed" if most == 1 else "seeds"
        return (
            f"Mean ± standard deviation, {range_} {seeds} per cell; bold: the best, and those that "
            "a paired t-test at 95 % does not distinguish from it."
        )

    def verdicts(self, runs: Runs) -> TableBlock:
        """For every method the verdict on each data set, and the reason."""
        rows = []
        for method in self.printed:
            verdicts = [self._verdict(runs, method, k) for k in range(len(self.data))]
            explained = ("not reproduced", "lower", "impossible")
            known = (self.reasons or {}).get(method, "")
            reason = known if any(one.startswith(explained) for one in verdicts) else ""
            rows.append([Cell(text) for text in (method, *verdicts, reason)])
        return TableBlock(["method", *self.data, "what is known"], rows)

    def _verdict(self, runs: Runs, method: str, k: int) -> str:
        printed = self._printed(method, k)
        data = self.data[k]
        if printed is None:
            return "no number printed"
        errors = list(runs.values(method, data, self.error).values())
        if not errors:
            return _short(runs.why_empty(method, data))
        value, deviation = printed[:2]
        floor = (self.floors or {}).get(data)
        if floor is not None and value < floor:
            return f"impossible: printed {value:.3f}, oracle {floor:.3f}"
        ours = float(np.mean(errors))
        joint = float(np.hypot(deviation, np.std(errors, ddof=1) if len(errors) > 1 else 0.0))
        allowed = max(min(2 * joint, RULES.far * value), RULES.close * value)
        if abs(ours - value) <= allowed:
            return "reproduced"
        return f"lower here: {ours:.3f}" if ours < value else f"not reproduced: {ours:.3f}"

    def _printed(self, method: str, k: int) -> Number | None:
        cells = self.printed.get(method, ())
        return cells[k] if k < len(cells) else None


def _short(reason: str) -> str:
    """What fits in a cell."""
    if "not found" in reason:
        return "data not found"
    return reason if len(reason) <= 60 else reason[:57] + "…"
