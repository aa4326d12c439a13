"""What a command would execute, and how long it would take."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from benchmarks.measure import markdown
from benchmarks.reproduction.comparison import Runs, duration
from benchmarks.reproduction.content import comparisons
from benchmarks.reproduction.content_ratings import of_all_fits
from benchmarks.reproduction.plan import Run
from benchmarks.reproduction.running import missing
from benchmarks.reproduction.store import Records


def listed(runs: Sequence[Run], records: Records, replaced: Collection[str]) -> str:
    """A table of the cells with runs to execute: their seeds and the CPU time per seed.

    The time is the mean of the recorded seeds, for all values of λ or α; otherwise it is
    extrapolated, where that is possible.
    """
    cells: dict[tuple[str, str, str], list[Run]] = {}
    for run in missing(runs, records, replaced):
        cells.setdefault((run.experiment, run.data, run.method), []).append(run)
    time_at = _times(records)
    rows = []
    for (name, data, method), own in cells.items():
        seeds = ", ".join(str(run.seed) for run in own)
        old = sum(run.key in replaced for run in own)
        seconds = time_at(name, method, data)
        time = "unknown" if seconds is None else duration(seconds)
        rows.append([name, data, method, seeds, str(old or ""), time])
    header = ["experiment", "data", "method", "seeds", "outdated", "CPU time per seed"]
    return markdown("", header, rows)


def _times(records: Records) -> Callable[[str, str, str], float | None]:
    """CPU seconds per seed of a cell."""
    extrapolate = {name: compared.time_at for name, _, compared in comparisons(records)}

    def time_at(name: str, method: str, data: str) -> float | None:
        found = Runs(records.latest(name)).values(method, data, of_all_fits)
        if found:
            return float(np.mean([*found.values()]))
        own = extrapolate.get(name)
        return own(method, data) if own else None

    return time_at
