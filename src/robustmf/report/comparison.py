"""A table of methods × data sets, ours beside the printed numbers, with a verdict for each pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robustmf.report.cells import Runs, best_of, mean_and_deviation
from robustmf.report.sections import Cell, TableBlock

#: Printed value, its deviation, seconds, their deviation.
Printed = Mapping[str, Sequence[tuple[float, float, float, float] | None]]

#: Within this share of the printed number, or within two joint deviations, it counts as reproduced.
_CLOSE = 0.05


@dataclass(frozen=True)
class Comparison:
    """What is compared.

    Attributes
    ----------
    methods, data : names of rows and of column groups
    printed : the paper's numbers, by method, in the order of ``data``
    error : takes the error out of a result
    error_name : what it is called in the header
    floor : method that no other can beat, an oracle; or ""
    reasons : what is known about a method that does not reproduce
    """

    methods: Sequence[str]
    data: Sequence[str]
    printed: Printed
    error: Callable[[dict[str, Any]], float | None]
    error_name: str
    floor: str = ""
    reasons: Mapping[str, str] | None = None

    def table(self, runs: Runs) -> TableBlock:
        """Errors and seconds, ours and the paper's."""
        header = ["method"]
        for data in self.data:
            header += [f"{data}: {self.error_name}", "paper", "seconds", "paper"]
        best = {
            data: best_of({method: runs.values(method, data, self.error) for method in self.methods if method != self.floor})
            for data in self.data
        }
        rows = []
        for method in self.methods:
            row = [Cell(method)]
            for k, data in enumerate(self.data):
                errors = list(runs.values(method, data, self.error).values())
                seconds = list(runs.values(method, data, lambda result: result.get("seconds")).values())
                printed = _printed(self.printed, method, k)
                row += [
                    Cell(mean_and_deviation(errors, 3), method in best[data]),
                    Cell("" if printed is None else f"{printed[0]:.3f}±{printed[1]:.3f}"),
                    Cell(mean_and_deviation(seconds, 2)),
                    Cell("" if printed is None else f"{printed[2]:.1f}"),
                ]
            rows.append(row)
        return TableBlock(header, rows, self._note(runs))

    def _note(self, runs: Runs) -> str:
        counts = {len(runs.find(method, data)) for method in self.methods for data in self.data} - {0}
        seeds = f"{min(counts)} to {max(counts)} seeds a cell" if len(counts) > 1 else f"{next(iter(counts), 0)} seeds a cell"
        return f"Mean ± standard deviation, {seeds}; bold: the best, and those a paired t-test at 95 % cannot tell from it."

    def verdicts(self, runs: Runs) -> TableBlock:
        """For every method: what came of the printed numbers, data set by data set, and why."""
        rows = []
        for method in self.printed:
            row, every = [Cell(method)], []
            for k, data in enumerate(self.data):
                verdict = self._verdict(runs, method, data, _printed(self.printed, method, k))
                every.append(verdict)
                row.append(Cell(verdict))
            known = (self.reasons or {}).get(method, "")
            explained = any(verdict.startswith(("not reproduced", "lower", "impossible")) for verdict in every)
            rows.append([*row, Cell(known if explained else "")])
        return TableBlock(["method", *self.data, "what is known"], rows)

    def _verdict(self, runs: Runs, method: str, data: str, printed: tuple[float, float, float, float] | None) -> str:
        if printed is None:
            return "no number printed"
        errors = list(runs.values(method, data, self.error).values())
        if not errors:
            return f"not run: {_short(runs.why_not(method, data))}"
        floor = list(runs.values(self.floor, data, self.error).values()) if self.floor else []
        if floor and printed[0] < float(np.mean(floor)):
            return f"impossible: printed {printed[0]:.3f}, oracle {np.mean(floor):.3f}"
        ours = float(np.mean(errors))
        spread = float(np.hypot(printed[1], np.std(errors, ddof=1) if len(errors) > 1 else 0.0))
        if abs(ours - printed[0]) <= max(2 * spread, _CLOSE * printed[0]):
            return "reproduced"
        return f"lower here: {ours:.3f}" if ours < printed[0] else f"not reproduced: {ours:.3f}"


def _printed(printed: Printed, method: str, k: int) -> tuple[float, float, float, float] | None:
    cells = printed.get(method, ())
    return cells[k] if k < len(cells) else None


def _short(why: str) -> str:
    """The first clause, for a cell."""
    return why if len(why) <= 60 else "data not found" if "not found" in why or "put" in why else why[:57] + "…"
