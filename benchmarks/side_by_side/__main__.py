"""Run the tasks of one library, and keep what came back in the record."""

from __future__ import annotations

import argparse
import ast
import json
import platform
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.side_by_side.tables import Tables, make_tables

LIBRARIES = ("robustmf", "surprise", "implicit", "cmfrec", "sklearn", "qolmat")
TASKS = (
    "fit",
    "find",
    "clean",
    "recommend",
    "rank",
    "compare",
    "page",
    "save",
    "cluster",
    "explain",
)
RECORD = Path(__file__).parent / "record.json"


def lines_of_code(path: Path) -> dict[str, int]:
    """Lines of each task's function, with the helpers and constants of the module that it uses.

    Blank lines, comments, docstrings, signatures and imports are not counted.
    """
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    tree = ast.parse(text)

    def count(nodes: list[ast.stmt]) -> int:
        numbers = {k for node in nodes for k in range(node.lineno, (node.end_lineno or 0) + 1)}
        return sum(bool(lines[k - 1].strip().split("#")[0]) for k in numbers)

    shared: dict[str, int] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            shared[node.targets[0].id] = count([node])
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("_"):
            shared[node.name] = count(node.body)
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in TASKS:
            body = node.body[1:] if ast.get_docstring(node) else node.body
            used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
            found[node.name] = count(body) + sum(shared.get(name, 0) for name in used)
    return found


def described(answer: Any) -> str:
    """Type and content of an answer, in a few words."""
    kind = type(answer).__name__
    if isinstance(answer, pd.DataFrame):
        return f"{kind} {len(answer)} × {answer.shape[1]}, index {type(answer.index).__name__}"
    if isinstance(answer, pd.Series):
        return f"{kind} {_rounded(answer.to_dict())}"
    if isinstance(answer, Path):
        return f"{answer.suffix[1:]} file, {answer.stat().st_size / 1024:.0f} KiB"
    if isinstance(answer, dict):
        return ", ".join(f"{name} {_rounded(value)}" for name, value in answer.items())
    if isinstance(answer, tuple | list):
        return f"{kind} {_rounded(answer)}"
    is_number = isinstance(answer, str | int | float | np.number | np.ndarray)
    return f"{_rounded(answer)}" if is_number else kind


def _rounded(value: Any) -> Any:
    """Numbers with three digits, at any depth; NumPy's types as those of Python."""
    if isinstance(value, np.ndarray):
        return _rounded(value.tolist())
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [_rounded(one) for one in value]
    if isinstance(value, float | np.floating):
        return round(float(value), 3)
    return int(value) if isinstance(value, np.integer) else value


def measured(task: str, answer: Any, tables: Tables) -> str:
    """How good an answer is, where the truth is known."""
    if task == "find":
        flags = np.asarray(answer, bool)
        right, wrong = int((flags & tables.bad).sum()), int((flags & ~tables.bad).sum())
        return f"{right} of {int(tables.bad.sum())} bad cells found, {wrong} others flagged"
    if task == "clean":
        cleaned = pd.read_csv(answer, index_col="time").to_numpy()
        changed = tables.bad | tables.sensors.isna().to_numpy()
        error = np.sqrt(np.mean((cleaned - tables.truth)[changed] ** 2))
        return f"error {error:.2f} in bad and missing cells (noise 0.5)"
    return ""


def run_library(name: str) -> dict[str, Any]:
    """Run every task of a library."""
    module = import_module(f"benchmarks.side_by_side.with_{name}")
    lines = lines_of_code(Path(module.__file__ or ""))
    results: dict[str, Any] = {
        "package": module.PACKAGE,
        "version": version(module.PACKAGE),
        "versions": {
            "python": platform.python_version(),
            **{one: version(one) for one in ("numpy", "pandas", "scipy")},
        },
    }
    for task in TASKS:
        function: Callable[[Tables], Any] | None = getattr(module, task, None)
        if function is None:
            results[task] = {"not offered": module.NOT_OFFERED[task]}
            continue
        with tempfile.TemporaryDirectory() as folder:
            tables = make_tables(Path(folder))
            begin = time.perf_counter()
            try:
                answer = function(tables)
            except Exception as error:  # what does not run is recorded, not hidden
                text = str(error).strip() or "no message"
                failed = f"{type(error).__name__}: {text.splitlines()[0][:160]}"
                results[task] = {"lines": lines[task], "failed": failed}
            else:
                results[task] = {
                    "lines": lines[task],
                    "back": described(answer),
                    "measured": measured(task, answer, tables),
                    "seconds": round(time.perf_counter() - begin, 1),
                }
        print(f"{name} {task}: {results[task]}", flush=True)
    return results


def main() -> None:
    """Run the libraries named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", nargs="+", choices=LIBRARIES)
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    for name in parser.parse_args().library:
        record[name] = run_library(name)
        ordered = {one: record[one] for one in LIBRARIES if one in record}
        RECORD.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
