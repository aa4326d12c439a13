"""The record of the tasks in other libraries belongs to the code that is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.side_by_side import __main__ as side_by_side

FOLDER = Path(side_by_side.__file__).parent


@pytest.mark.parametrize("library", side_by_side.LIBRARIES)
def test_the_record_has_every_task_with_the_lines_of_the_code(library):
    record = json.loads(side_by_side.RECORD.read_text(encoding="utf-8"))[library]
    lines = side_by_side.lines_of_code(FOLDER / f"with_{library}.py")
    assert lines == {
        task: record[task]["lines"]
        for task in side_by_side.TASKS
        if "not offered" not in record[task]
    }
    assert not [task for task in side_by_side.TASKS if "failed" in record[task]]


def test_lines_are_counted_with_helpers_and_without_docstrings(tmp_path):
    path = tmp_path / "with_x.py"
    path.write_text(
        'A = 1\n\n\ndef _helper():\n    b = A\n    return b\n\n\ndef fit(t):\n    """Text."""\n\n'
        "    # comment\n    return _helper() + A\n"
    )
    assert side_by_side.lines_of_code(path) == {"fit": 4}
