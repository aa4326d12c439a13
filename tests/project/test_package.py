"""The package as a whole: what it imports, what its commands print."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

import robustmf
from robustmf.cli import app


def python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def modules_after(code, names):
    return python(f"import sys; {code}; print([m for m in {names!r} if m in sys.modules])").strip()


def test_import_is_light():
    assert (
        modules_after(
            "import robustmf",
            ["sklearn", "numba", "matplotlib", "pandas", "torch", "dask", "rich"],
        )
        == "[]"
    )
    fit = "import numpy as np; from robustmf import RobustMF; RobustMF(1).fit(np.eye(9))"
    assert modules_after(fit, ["matplotlib", "torch", "dask", "rich"]) == "[]"


def names_compared(tree):
    """Comparisons of something named solver or device with text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            names = {getattr(part, "attr", getattr(part, "id", "")) for part in parts}
            texts = [
                one for part in parts for one in ast.walk(part) if isinstance(one, ast.Constant)
            ]
            if names & {"solver", "device"} and any(isinstance(one.value, str) for one in texts):
                yield node.lineno


def test_names_of_solvers_and_devices_are_compared_in_the_registries_only():
    folder = Path(robustmf.__file__).parent
    found = [
        f"{path.relative_to(folder)}:{line}"
        for path in folder.rglob("*.py")
        if path.name != "registry.py"
        for line in names_compared(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []
    assert list(names_compared(ast.parse("settings.solver == 'auto' or device in ('cpu',)"))) == [
        1,
        1,
    ]


def test_public_names():
    for name in robustmf.__all__:
        assert getattr(robustmf, name).__module__.startswith("robustmf.")
    assert set(robustmf.__all__) < set(dir(robustmf))
    assert re.fullmatch(r"\d+\.\d+\.\d+", robustmf.__version__)


def test_demo_ends_in_a_table_and_a_page(tmp_path):
    page = tmp_path / "demo.html"
    result = CliRunner().invoke(
        app, ["demo", "--size", "150", "--page", str(page)], env={"COLUMNS": "120"}
    )
    assert result.exit_code == 0, result.output
    assert "oracle" in result.output
    assert re.search(r"\d+ of \d+", result.output)
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert re.findall(r'http-equiv="([^"]*)"', text) == ["Content-Security-Policy"]
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="http', text), (
        "nothing is loaded from elsewhere"
    )


def test_readme_example_gives_the_stated_result():
    code = re.search(
        r"```python\n(.*?)```", (Path(__file__).parents[2] / "README.md").read_text(), re.S
    ).group(1)
    code += "\nprint(table.notna().to_numpy().sum())"
    code += "\nprint((mask & table.notna()).iloc[::9, ::7].to_numpy().sum())"
    code += "\nassert mask.iloc[::9, ::7].equals(table.iloc[::9, ::7].notna())"
    code += "\nprint(np.abs(filled.to_numpy() - hours @ sensors).max())"
    printed = python(code).split()
    assert float(printed[-1]) < 0.5
    n_entries, n_bad = map(int, printed[-3:-1])
    flagged = int(printed[0])
    assert n_bad <= flagged <= n_bad + 3 * 0.001 * n_entries, "false alarms at 0.001"
