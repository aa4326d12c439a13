"""``python -m mutants``: run the selected tests on every mutant, print a table, write a record.

Exits with 1 if fewer than 95 % of the mutants that are not equivalent were noticed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mutants import catalog
from mutants.mutant import Mutant

_ROOT = Path(__file__).parents[1]
_RECORD = Path(__file__).parent / "record.json"

#: What the tests need of the repository.
_COPIED = ("src", "tests", "stress", "pyproject.toml")

#: Share of the mutants that are not equivalent which must be noticed.
_REQUIRED = 0.95

#: Exit status of pytest if a test failed, or an import did; others mean that it was used wrongly.
_FAILED = (1, 2)

#: Folders whose functions are compiled into others, so that compiled code must not be reused.
_COMPILED = ("kernels/", "losses/", "backends/cpu/compiled_loss.py")


@dataclass(frozen=True)
class Result:
    """What became of a mutant: "killed", "survived", "equivalent" or "invalid: …"."""

    area: str
    mutant: Mutant
    outcome: str
    seconds: float


def main() -> int:
    """Run the areas named, or all; exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m mutants", description="Check that the tests notice deliberate faults."
    )
    parser.add_argument(
        "areas", nargs="*", help=f"areas (default: all): {', '.join(catalog.areas())}"
    )
    parser.add_argument("--jobs", type=int, default=1, help="mutants that are tested at once")
    parser.add_argument("--limit", type=float, default=180, help="seconds per mutant")
    parser.add_argument("--only", default="", help="test only mutants of files with this text")
    parser.add_argument(
        "--record", type=Path, default=_RECORD, help="file for the record of the areas that run"
    )
    arguments = parser.parse_args()
    chosen = [
        (area, mutant)
        for area in arguments.areas or catalog.areas()
        for mutant in catalog.mutants_of(area)
        if arguments.only in mutant.file
    ]
    started = time.perf_counter()
    selections = {mutant.tests for _, mutant in chosen if not mutant.equivalent}
    with ThreadPoolExecutor(arguments.jobs) as pool:
        wrong = _selections_that_fail(selections, arguments.limit, pool)
        if wrong:
            print("these tests fail or do not exist without a fault:", *wrong, sep="\n  ")
            return 1
        results = list(pool.map(lambda pair: _tested(*pair, arguments.limit), chosen))
    seconds = time.perf_counter() - started
    _show(results, seconds)
    if not arguments.only:
        _update(arguments.record, results, seconds)
    counted = [one for one in results if one.outcome != "equivalent"]
    killed = sum(one.outcome == "killed" for one in counted)
    return int(killed < _REQUIRED * len(counted))


def _update(path: Path, results: list[Result], seconds: float) -> None:
    """Replace the areas that were run in the record."""
    record: dict[str, Any] = {"areas": {}, "mutants": []}
    if path.exists():
        record = json.loads(path.read_text(encoding="utf-8"))
    summary = _summary(results)
    share = round(seconds / max(len(results), 1), 2)
    for counts in summary.values():
        counts["seconds_per_mutant"] = share
    areas = record["areas"] | summary
    kept = [one for one in record["mutants"] if one["area"] not in summary]
    new = [
        {
            "area": one.area,
            "mutant": str(one.mutant),
            "outcome": one.outcome,
            "aimed": one.mutant.aimed,
        }
        for one in results
    ]
    record = {
        "areas": {area: areas[area] for area in sorted(areas)},
        "mutants": sorted(kept + new, key=lambda one: one["area"]),
    }
    text = json.dumps(record, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _selections_that_fail(selections: Iterable[str], limit: float, pool: Any) -> list[str]:
    """The selections of tests that do not pass on the code as it is."""
    with tempfile.TemporaryDirectory(prefix="robustmf-mutants-") as folder:
        tree = Path(folder)
        _copy(tree, with_compiled=True)
        ordered = sorted(selections)
        statuses = pool.map(lambda tests: _status(tree, tests, 4 * limit), ordered)
        return [tests for tests, status in zip(ordered, statuses, strict=True) if status != 0]


def _tested(area: str, mutant: Mutant, limit: float) -> Result:
    """Make the change in a copy of the repository and run the tests."""
    if mutant.equivalent:
        return Result(area, mutant, "equivalent", 0.0)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="robustmf-mutants-") as folder:
        tree = Path(folder)
        _copy(tree, with_compiled=not mutant.file.startswith(_COMPILED))
        path = tree / "src" / "robustmf" / mutant.file
        text = path.read_text(encoding="utf-8")
        if text.count(mutant.old) != 1:
            outcome = f"invalid: the text occurs {text.count(mutant.old)} times"
        else:
            path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
            outcome = _outcome(_status(tree, mutant.tests, limit))
    print(f"{outcome}: {area}: {mutant}", file=sys.stderr, flush=True)
    return Result(area, mutant, outcome, time.perf_counter() - started)


def _copy(tree: Path, with_compiled: bool) -> None:
    """Copy what tests need, with the compiled kernels or without them."""
    ignored = None if with_compiled else shutil.ignore_patterns("*.nbi", "*.nbc")
    for name in _COPIED:
        source = _ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=ignored)
        else:
            shutil.copy2(source, tree / name)


def _status(tree: Path, tests: str, limit: float) -> int | None:
    """The exit status of pytest; None if it did not end in time, or was killed by a signal."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=no"]
    selected = [
        f"tests/{part}" if part.partition("::")[0].endswith(".py") else part
        for part in shlex.split(tests)
    ]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree)]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        status = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *selected],
            cwd=tree,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=limit,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        return None
    return None if status < 0 else status


def _outcome(status: int | None) -> str:
    if status is None or status in _FAILED:
        return "killed"
    return "survived" if status == 0 else f"invalid: pytest ended with status {status}"


def _summary(results: list[Result]) -> dict[str, dict[str, Any]]:
    """Numbers of mutants by area and outcome."""
    summary: dict[str, dict[str, Any]] = {}
    for one in results:
        counts = summary.setdefault(
            one.area, {"mutants": 0, "killed": 0, "survived": 0, "equivalent": 0, "invalid": 0}
        )
        counts["mutants"] += 1
        counts[one.outcome.partition(":")[0]] += 1
    return summary


def _show(results: list[Result], seconds: float) -> None:
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table("area", "mutants", "killed", "survived", "equivalent", "invalid")
    summary = _summary(results)
    for area, counts in summary.items():
        table.add_row(area, *map(str, counts.values()))
    table.add_section()
    totals = [sum(column) for column in zip(*(c.values() for c in summary.values()), strict=True)]
    table.add_row("all", *map(str, totals))
    console.print(table)
    others = [one for one in results if not one.mutant.aimed]
    console.print(f"{len(others)} chosen after the tests were written; {seconds:.0f} s")
    for one in results:
        if one.outcome not in ("killed", "equivalent"):
            console.print(f"{one.outcome}: {one.area}: {one.mutant}", markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
