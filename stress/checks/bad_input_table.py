"""Bad input, cell by cell: every public function with every kind of bad input does what the documentation's table says."""

from __future__ import annotations

from stress.bad_input import cells
from stress.tally import Tally

TITLE = "the table of bad input: every public function, every kind"
CASES = FEW = 1000


def run(tally: Tally, cases: int, seed: int) -> None:
    """All cells, however many cases are asked for: none of them is left to chance."""
    for cell in cells():
        with tally.case(f"{cell.function}, {cell.kind}"):
            cell.executed()
