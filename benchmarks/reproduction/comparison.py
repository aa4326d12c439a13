"""A table of methods × data sets, ours beside the printed numbers, with a verdict for each pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
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
    reach : float, default=3600
        CPU seconds per seed from which on a run is out of reach.
    """

    close: float = 0.05
    far: float = 0.15
    dispersed: float = 0.5
    fewest: int = 3
    reach: float = 3600.0


RULES = Rules()

#: Mark of times that are not of the machine of the others.
ELSEWHERE = "†"

#: Verdicts in the order of the summary.
KINDS = (
    "reproduced",
    "lower here",
    "not reproduced",
    "impossible",
    "out of reach",
    "data not found",
    "not run",
)

#: The rule of the verdicts, as the page states it; :meth:`Comparison.verdict` implements it.
RULE = f"""
A printed number is compared with the mean of our seeds; the first case that applies is the verdict.

1. *impossible*: the printed number is below the mean error of the oracle, least squares that knows
   which entries are outliers and begins at the true factors. Where a printed number is an evident
   slip, the number that it stands for counts, and the table shows both.
2. *data not found*, *out of reach* or *not run*: there is no finished run. A run is out of reach if
   its extrapolated time is {RULES.reach / 60:.0f} CPU minutes per seed or more; the time is given
   where it can be extrapolated from smaller problems.
3. *reproduced*: the difference is at most {RULES.close:.0%} of the printed number, or at most two
   joint standard deviations (the root of the sum of both variances over seeds) but no more than
   {RULES.far:.0%} of the printed number. Where the paper does not state a choice, such as the unit,
   and it was made here because it is closest to the printed numbers, the verdict states it:
   *reproduced in the closest interpretation*, *coordinates and initialization*.
4. *lower here*: our mean is lower than the printed number.
5. *not reproduced*: our mean is higher. The cause is given. Where the median over the seeds would
   be reproduced, so that single seeds are the cause, the verdict gives it.

A verdict that rests on fewer seeds than planned names their number. Bold marks the lowest mean of a
column and those that a paired t-test at 95 % does not distinguish from it; only cells with the same
seeds compete, those of the largest set of seeds in the column.
""".strip()


class Runs:
    """The finished runs of one experiment, by method and data set.

    Times are compared on one machine, the one with the most runs; those of a cell without a run
    there are of another machine and marked.

    Parameters
    ----------
    records : dict
        Records by key.
    outdated : collection of str, default=()
        Methods whose records an earlier version of the code made.
    """

    def __init__(self, records: dict[str, Record], outdated: Collection[str] = ()) -> None:
        self.outdated = outdated
        self._all = list(records.values())
        used = Counter(record["machine"] for record in self._all if record["status"] == "done")
        self._machine = next((machine for machine, _ in used.most_common(1)), "")

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

    def timed(self, method: str, data: str) -> list[Record]:
        """The finished runs of a cell whose times are compared, by seed."""
        found = self.find(method, data)
        here = [record for record in found if record["machine"] == self._machine]
        return here or found

    def seconds(self, method: str, data: str) -> dict[int, float]:
        """CPU seconds of a cell, by seed, where they were recorded."""
        found = ((one["seed"], one["result"].get("seconds")) for one in self.timed(method, data))
        return {seed: seconds for seed, seconds in found if seconds is not None}

    def marked(self, text: str, method: str, data: str) -> str:
        """The text, marked where the times of a cell are of another machine."""
        elsewhere = {one["machine"] for one in self.timed(method, data)} - {self._machine}
        return f"{text} {ELSEWHERE}" if elsewhere else text

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
    """The method with the lowest mean, and those not significantly worse by a paired t-test.

    Only cells with the same seeds compete: those of the largest set of seeds.
    """
    seeds = max((tuple(sorted(values)) for values in cells.values()), key=len, default=())
    equal = {name: values for name, values in cells.items() if tuple(sorted(values)) == seeds}
    if not seeds:
        return set()
    first = min(equal, key=lambda name: float(np.mean(list(equal[name].values()))))
    best = {first}
    for name, values in equal.items():
        enough = len(seeds) >= RULES.fewest and not _dispersed(list(values.values()))
        if name != first and enough:
            ours, theirs = ([equal[one][seed] for seed in seeds] for one in (name, first))
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
    corrections : mapping, optional
        By data set, the factor by which printed errors are multiplied because they are slips.
    time_at : callable, optional
        ``time_at(method, data)`` gives the seconds that a missing run would take, or None.
    absent : collection of str, default=()
        Data sets that were not found.
    planned : int, default=5
        Number of seeds per cell.
    closest : str, default=""
        What was chosen because it is closest to the printed numbers: "interpretation".
    """

    methods: Sequence[str]
    data: Sequence[str]
    printed: Printed
    error: Callable[[Record], float | None]
    error_name: str
    oracle: str = ""
    floors: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    corrections: Mapping[str, float] = field(default_factory=dict)
    time_at: Callable[[str, str], float | None] | None = None
    absent: Collection[str] = ()
    planned: int = 5
    closest: str = ""

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
                printed = self._printed(method, k)
                row += [
                    Cell(mean_and_deviation([*errors.values()], 3), method in best[data]),
                    Cell(self._printed_text(printed, data)),
                    Cell(self._time_text(runs, method, data)),
                    Cell("" if printed is None else f"{printed[2]:.1f}"),
                ]
            rows.append(row)
        return TableBlock(header, rows, self._note(runs))

    @staticmethod
    def _time_text(runs: Runs, method: str, data: str) -> str:
        seconds = mean_and_deviation([*runs.seconds(method, data).values()], 2)
        return runs.marked(seconds, method, data)

    def _printed_text(self, printed: Number | None, data: str) -> str:
        if printed is None:
            return ""
        text = f"{printed[0]:.3f}±{printed[1]:.3f}"
        factor = self.corrections.get(data)
        return f"{text} (stands for {printed[0] * factor:.3f})" if factor else text

    def _note(self, runs: Runs) -> str:
        counts = {len(runs.find(method, data)) for method in self.methods for data in self.data}
        counts = counts - {0} or {0}
        least = min(counts)
        most = max(counts)
        range_ = f"{least} to {most}" if least < most else f"{most}"
        seeds = "seed" if most == 1 else "seeds"
        cells = [(method, data) for method in self.methods for data in self.data]
        elsewhere = any(runs.marked("", *cell) for cell in cells)
        mark = f", {ELSEWHERE} those of another machine" if elsewhere else ""
        note = f"Mean ± standard deviation, {range_} {seeds} per cell, — for none"
        return f"{note}; CPU seconds{mark}.{self._outdated(runs)}"

    def _outdated(self, runs: Runs) -> str:
        """Which rows an earlier version of the code made."""
        names = [f"'{method}'" for method in self.methods if method in runs.outdated]
        return f" An earlier version of the code made {' and '.join(names)}." if names else ""

    def verdicts(self, runs: Runs) -> TableBlock:
        """For every method the verdict on each data set; below, what is known of the others."""
        rows = []
        known: dict[str, list[str]] = {}
        for method in self.printed:
            verdicts = [self.verdict(runs, method, data) for data in self.data]
            rows.append([Cell(text) for text in (method, *verdicts)])
            explained = ("not reproduced", "lower", "impossible")
            if method in self.reasons and any(one.startswith(explained) for one in verdicts):
                known.setdefault(self.reasons[method], []).append(method)
        notes = (f"*{'; '.join(methods)}:* {reason}" for reason, methods in known.items())
        return TableBlock(["method", *self.data], rows, "\n\n".join(notes))

    def verdict(self, runs: Runs, method: str, data: str) -> str:
        """The verdict on a printed number by :data:`RULE`; "" where nothing is printed."""
        printed = self._printed(method, list(self.data).index(data))
        if printed is None:
            return ""
        errors = list(runs.values(method, data, self.error).values())
        factor = self.corrections.get(data, 1.0)
        value = printed[0] * factor
        deviation = printed[1] * factor
        floor = self.floors.get(data)
        if floor is not None and value < floor:
            empty = "" if errors else f"; {self._empty(runs, method, data)}"
            return f"impossible: printed {value:.3f}, oracle {floor:.3f}{empty}"
        if not errors:
            return self._empty(runs, method, data)
        ours = float(np.mean(errors))
        own = float(np.std(errors, ddof=1)) if len(errors) > 1 else 0.0
        allowed = max(min(2 * np.hypot(deviation, own), RULES.far * value), RULES.close * value)
        if abs(ours - value) <= allowed:
            found = f"reproduced in the closest {self.closest}" if self.closest else "reproduced"
        elif ours < value:
            found = f"lower here: {ours:.3f}"
        else:
            found = f"not reproduced: {ours:.3f}"
            median = float(np.median(errors))
            if abs(median - value) <= allowed:
                found += f", median {median:.3f}"
        count = len(errors)
        few = f" ({count} {'seed' if count == 1 else 'seeds'})" if count < self.planned else ""
        return found + few

    def _empty(self, runs: Runs, method: str, data: str) -> str:
        reason = runs.why_empty(method, data)
        if reason.endswith("not found") or data in self.absent:
            return "data not found"
        needed = self.time_at(method, data) if self.time_at else None
        if needed is None:
            return "not run"
        kind = "out of reach" if needed >= RULES.reach else "not run"
        return f"{kind}: about {duration(needed)} per seed"

    def counts(self, runs: Runs) -> dict[str, int]:
        """How often each verdict was given."""
        found = [self.verdict(runs, one, data) for one in self.printed for data in self.data]
        return {kind: sum(text.startswith(kind) for text in found) for kind in KINDS}

    def _printed(self, method: str, k: int) -> Number | None:
        cells = self.printed.get(method, ())
        return cells[k] if k < len(cells) else None


def times_faster(runs: Runs, slow: str, fast: str, data: str) -> float | None:
    """Mean CPU seconds of ``slow`` over those of ``fast``, for the seeds that both have.

    Only runs on the same machine are compared.
    """
    theirs, ours = (
        {(one["machine"], one["seed"]): one["result"]["seconds"] for one in runs.find(method, data)}
        for method in (slow, fast)
    )
    both = theirs.keys() & ours.keys()
    return float(sum(theirs[k] for k in both) / sum(ours[k] for k in both)) if both else None


def extrapolated(runs: Runs, method: str, size: int, sizes: Sequence[int]) -> float | None:
    """Seconds per seed at a size, by the power of the size that joins the two largest recorded.

    With one recorded size the power is 3.
    """
    found = {m: runs.seconds(method, f"m = {m}") for m in sizes if m < size}
    known = [(m, float(np.mean([*times.values()]))) for m, times in found.items() if times]
    if not known:
        return None
    m, seconds = known[-1]
    power = 3.0
    if len(known) > 1:
        before, earlier = known[-2]
        power = float(np.log(seconds / earlier) / np.log(m / before))
    return float(seconds * (size / m) ** power)


def duration(seconds: float) -> str:
    """35 s, 12 min or 3.4 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
