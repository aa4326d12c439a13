"""The table of bad input: every public function with every kind of bad input.

``docs/design/bad-input.md`` prints the table, and ``stress/checks/bad_input_table.py`` executes its
cells: each call must raise the stated error with a matching message, or return the stated result.
"""

from __future__ import annotations

import re
from pathlib import Path

from stress.bad_input.cell import Answers, Cell, Raises
from stress.bad_input.data_sets import data_set_cells, synthetic_data_cells
from stress.bad_input.entries import entry_cells
from stress.bad_input.files import file_cells
from stress.bad_input.ids import id_cells
from stress.bad_input.matrices import matrix_cells
from stress.bad_input.metrics import metric_cells
from stress.bad_input.parameters import parameter_cells
from stress.bad_input.unfitted import unfitted_cells

__all__ = ["Answers", "Cell", "Raises", "cells", "markdown"]

_PARTS = (
    matrix_cells,
    id_cells,
    unfitted_cells,
    entry_cells,
    file_cells,
    synthetic_data_cells,
    parameter_cells,
    metric_cells,
    data_set_cells,
)


def cells() -> list[Cell]:
    """All cells, sorted by function."""
    return sorted((cell for part in _PARTS for cell in part()), key=lambda cell: cell.function)


def markdown() -> str:
    """The table for the documentation; every cell is executed."""
    lines = ["| function | bad input | result |", "|---|---|---|"]
    before = ""
    for cell in cells():
        what = cell.executed().replace("|", "\\|").replace("<", "&lt;")
        what = re.sub(r"/\S*/robustmf-\w+/", "", what).replace(str(Path.home()), "~")
        what = what if len(what) <= 160 else what[:157] + "…"
        lines.append(
            f"| {f'`{cell.function}`' if cell.function != before else ''} | {cell.kind} | {what} |"
        )
        before = cell.function
    return "\n".join(lines)
