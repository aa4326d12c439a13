"""A table of methods × data sets, ours beside the printed numbers, with a verdict for each pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.reproduction.cells import Runs, best_of, mean_and_deviation
from benchmarks.reproduction.sections import Cell, TableBlock

#: Printed value, its deviation, seconds, their deviation.
Printed = Mapping[str, Sequence[tuple[float, float, float, float] | None]]

#: Within this share of the printed number it counts as reproduced; with two joint deviations also further, but never beyond the second.
_CLOSE, _FAR = 0.05, 0.15


@dataclass(frozen=True)
class Comparison:
    """What is compared.

    Attributes
    ----------
    methods, data : names of rows and of column groups
    printed : the paper's numbers, by method, in the order of ``data``
    error : takes the error out of a result
    error_name : what it is called in the header
    oracle : method that is told what no other knows, and does not compete; or ""
    floors : its mean error, data set by data set, which no method can go below
    reasons : what is known about a method that does not reproduce
    """

    methods: Sequence[str]
    data: Sequence[str]
    printed: Printed
    error: Callable[[dict[str, Any]], float | None]
    error_name: str
    oracle: str = ""
    floors: Mapping[str, float] | None = None
    reasons: Mapping[str, str] | None = None

    def table(self, runs: Runs) -> TableBlock:
        """Errors and seconds, ours and the paper's."""
        header = ["method"]
        for data in self.data:
            header += [f"{data}: {self.error_name}", "paper", "seconds", "paper"]
        best = {
            data: best_of(
                {
                    method: runs.values(method, data, self.error)
                    for method in self.methods
                    if method != self.oracle
                }
            )
            for data in self.data
        }
        rows = []
        for method in self.methods:
            row = [Cell(method)]
            for k, data in enumerate(self.data):
                errors = list(runs.values(method, data, self.error).values())
                seconds = list(
                    runs.values(method, data, lambda result: result.get("seconds")).values()
                )
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
        counts = {len(runs.find(method, data)) for method in self.methods for data in self.data} - {
            0
        }
        most = max(counts, default=0)
        seeds = (
            f"{min(counts)} to {most} seeds a cell"
            if len(counts) > 1
            else f"{most} seed{'s' if most != 1 else ''} a cell"
        )
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
            explained = any(
                verdict.startswith(("not reproduced", "lower", "impossible")) for verdict in every
            )
            rows.append([*row, Cell(known if explained else "")])
        return TableBlock(["method", *self.data, "what is known"], rows)

    def _verdict(
        self, runs: Runs, method: str, data: str, printed: tuple[float, float, float, float] | None
    ) -> str:
        if printed is None:
            return "no number printed"
        errors = list(runs.values(method, data, self.error).values())
        if not errors:
            return _short(runs.why_not(method, data))
        floor = (self.floors or {}).get(data)
        if floor is not None and printed[0] < floor:
            return f"impossible: printed {printed[0]:.3f}, oracle {floor:.3f}"
        ours = float(np.mean(errors))
        spread = float(np.hypot(printed[1], np.std(errors, ddof=1) if len(errors) > 1 else 0.0))
        if abs(ours - printed[0]) <= max(min(2 * spread, _FAR * printed[0]), _CLOSE * printed[0]):
            return "reproduced"
        return f"lower here: {ours:.3f}" if ours < printed[0] else f"not reproduced: {ours:.3f}"


def _printed(printed: Printed, method: str, k: int) -> tuple[float, float, float, float] | None:
    cells = printed.get(method, ())
    return cells[k] if k < len(cells) else None


def _short(why: str) -> str:
    """What fits in a cell."""
    return "data not found" if "not found" in why else why if len(why) <= 60 else why[:57] + "…"
