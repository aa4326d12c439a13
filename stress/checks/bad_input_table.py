"""Bad input: every cell of the table in the documentation is executed."""

from __future__ import annotations

from stress.bad_input import cells
from stress.tally import Tally

TITLE = "the table of bad input: every public function, every kind"
CASES = FEW = 1000


def run(tally: Tally, cases: int, seed: int) -> None:
    """Run all cells, whatever the number of cases."""
    for cell in cells():
        with tally.case(f"{cell.function}, {cell.kind}"):
            cell.executed()
