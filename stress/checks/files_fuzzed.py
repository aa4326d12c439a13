"""Coverage-guided fuzzing of all readers, model files and checkpoints."""

from __future__ import annotations

import sys

from stress.fuzzing.search import search, targets
from stress.tally import Tally

TITLE = "fuzzing of readers, model files and checkpoints, guided by coverage, with limits"
CASES = 15_000
FEW = 750


def run(tally: Tally, cases: int, seed: int) -> None:
    """The same number of files of each kind."""
    names = list(targets())
    for k, name in enumerate(names):
        found = search(name, cases // len(names), seed + k)
        tally.cases += found.executions
        for failure in found.failures.values():
            tally.fail(f"{name}: {failure}")
        print(
            f"{name}: {found.executions} files, {found.accepted} of them valid, "
            f"{found.corpus} that execute new lines, {found.arcs} pairs of lines",
            file=sys.stderr,
        )
