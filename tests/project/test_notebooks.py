"""Notebooks: the committed outputs are what their cells print."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "docs" / "tools" / "notebooks.py"
NOTEBOOKS = sorted((TOOL.parents[1] / "notebooks").glob("*.ipynb"))

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")

#: Scores below this are tails of a distribution, in which rounding is magnified.
_TAIL = 1e-6


@pytest.fixture(scope="module")
def tool():
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed (extra 'plot')")
    spec = importlib.util.spec_from_file_location("notebooks", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def same_number(found, kept):
    if max(abs(found), abs(kept)) < _TAIL:
        return True
    return math.isclose(found, kept, rel_tol=0.05, abs_tol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_those_of_the_cells(tool, path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    kept = tool.texts(notebook)
    found = tool.texts(tool.execute(notebook, path.name))
    assert [_NUMBER.sub("#", text) for text in found] == [_NUMBER.sub("#", text) for text in kept]
    for new, old in zip(found, kept, strict=True):
        for a, b in zip(_NUMBER.findall(new), _NUMBER.findall(old), strict=True):
            assert same_number(float(a), float(b)), (new, old)


def test_notebooks_are_executed_and_small():
    assert len(NOTEBOOKS) >= 2
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
        assert path.stat().st_size < 300_000


def test_outputs_are_printed_text_values_and_figures(tool):
    tool.plt.figure()  # left open by other code: it is no output of the first cell
    source = [
        "import matplotlib.pyplot as plt\n",
        "plt.plot([1, 2])\n",
        "print('a')\n",
        "6 * 7",
    ]
    cell = {"cell_type": "code", "source": source, "metadata": {}}
    done = tool.execute({"cells": [cell, cell | {"source": ["x = 1;"]}]}, "test")
    assert tool.texts(done) == ["a\n", "42", "image/png"]
    assert done["cells"][1]["outputs"] == []
    with pytest.raises(ZeroDivisionError) as caught:
        tool.execute({"cells": [cell | {"source": ["1 / 0"]}]}, "test.ipynb")
    assert str(caught.traceback[-1].path).endswith("test.ipynb, cell 1")
