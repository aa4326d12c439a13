"""Bad input: every cell of the table in the documentation is executed."""

from __future__ import annotations

from stress.bad_input import cells
from stress.tally import Tally

TITLE = "the table of bad input: every public function, every kind"
CASES = 1000

#: The page of the documentation executes all cells too, whenever it is built.
FEW = 100


def run(tally: Tally, cases: int, seed: int) -> None:
    """Run all cells, or as many of them at equal distances."""
    every = cells()
    step = -(-len(every) // cases)
    for cell in every[seed % step :: step]:
        with tally.case(f"{cell.function}, {cell.kind}"):
            cell.executed()
