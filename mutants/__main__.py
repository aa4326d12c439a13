"""``python -m mutants``: run the selected tests on every mutant, print a table, write a record.

Exits with 1 if fewer than 95 % of the mutants that are not equivalent were noticed.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import math
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.records import commit
from mutants import catalog
from mutants.mutant import Mutant
from mutants.selected_tests import status_of_tests

_ROOT = Path(__file__).parents[1]
_RECORD = Path(__file__).parent / "record.json"

#: What the tests need of the repository.
_COPIED = ("src", "tests", "stress", "pyproject.toml")

#: Share of the mutants that are not equivalent which must be noticed.
_REQUIRED = 0.95

#: The outcomes, up to a colon, in the order of the table.
_NOT_RUN = "not_run"
_OUTCOMES = ("killed", "survived", "equivalent", "invalid", _NOT_RUN)

#: Exit status of pytest if a test failed, or an import did; others mean that it was used wrongly.
_FAILED = (1, 2)


@dataclass(frozen=True)
class Result:
    """What became of a mutant: "killed", "survived", "equivalent", "invalid: …" or "not_run".

    ``digest`` identifies the file, without the fault, in which it was tested, and ``commit`` the
    rest of the code. ``first`` is the outcome of its first run, with the tests that existed
    when the mutant was chosen; None where it is not known.
    """

    area: str
    mutant: Mutant
    outcome: str
    seconds: float
    digest: str = ""
    commit: str | None = None
    first: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """By which the record names the mutant."""
        return self.area, str(self.mutant)


def main() -> int:
    """Run the areas named, or all; exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m mutants", description="Check that the tests notice deliberate faults."
    )
    parser.add_argument(
        "areas", nargs="*", help=f"areas (default: all): {', '.join(catalog.areas())}"
    )
    parser.add_argument("--jobs", type=int, default=1, help="mutants that are tested at once")
    parser.add_argument("--limit", type=float, default=180, help="seconds of CPU time per mutant")
    parser.add_argument("--only", default="", help="test only mutants of files with this text")
    parser.add_argument(
        "--pending",
        action="store_true",
        help="skip mutants that the record has as killed, in files that have not changed since",
    )
    parser.add_argument(
        "--new", action="store_true", help="only mutants without an outcome in the record"
    )
    parser.add_argument(
        "--record", type=Path, default=_RECORD, help="file for the record of all outcomes"
    )
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="no mutant is begun after this time"
    )
    parser.add_argument(
        "--merge",
        type=Path,
        help="run nothing: add the outcomes of this record, made from the same files elsewhere",
    )
    arguments = parser.parse_args()
    if arguments.merge:
        return _merge(arguments.record, arguments.merge)
    recorded = _recorded(arguments.record)
    chosen = [
        (area, one)
        for area in arguments.areas or catalog.areas()
        for one in catalog.mutants_of(area)
        if arguments.only in one.file
        and not (arguments.new and _has_outcome(recorded, area, one))
        and not (arguments.pending and _is_done(recorded, area, one))
    ]
    started = time.perf_counter()
    results: list[Result] = []
    with (
        tempfile.TemporaryDirectory(prefix="robustmf-mutants-") as folder,
        ThreadPoolExecutor(arguments.jobs) as pool,
    ):
        # the tests run there first, so that later copies contain all compiled kernels
        unchanged = Path(folder)
        _copy(_ROOT, unchanged)
        tested = commit()
        selections = sorted({one.tests for _, one in chosen if not one.equivalent})
        durations = _durations(unchanged, selections, arguments.limit, pool)
        wrong = [tests for tests in selections if tests not in durations]
        # the shortest tests first: if time is short, most mutants have an outcome
        possible = sorted(
            (durations.get(one.tests, 0.0), k)
            for k, (_, one) in enumerate(chosen)
            if one.tests not in wrong
        )

        def outcome(duration: float, k: int) -> Result | None:
            if time.perf_counter() - started > arguments.seconds:
                return None
            return _tested(unchanged, *chosen[k], _limit(duration, arguments.limit))

        for done in as_completed([pool.submit(outcome, *one) for one in possible]):
            result = done.result()
            if result is not None:
                results.append(replace(result, commit=tested))
                _update(arguments.record, results[-1:])
    _show(results, time.perf_counter() - started)
    if wrong:
        print("these tests fail or do not exist without a fault:", *wrong, sep="\n  ")
    if len(results) < len(chosen):
        print(f"{len(chosen) - len(results)} of {len(chosen)} mutants were not tested")
    counted = [one for one in results if one.outcome != "equivalent"]
    killed = sum(one.outcome == "killed" for one in counted)
    return int(bool(wrong) or killed < _REQUIRED * len(counted))


def _merge(path: Path, other: Path) -> int:
    """Add the outcomes of another record whose files are those of this checkout; exit status."""
    known = _recorded(path)
    added = []
    for key, found in _recorded(other).items():
        area, name = key
        mutants = {str(one): one for one in catalog.mutants_of(area)}
        if name not in mutants or found["digest"] != _digest(_ROOT, mutants[name]):
            continue
        if found["outcome"] not in ("killed", "survived") or _is_done(known, area, mutants[name]):
            continue
        first = found.get("first")
        added.append(
            Result(
                area, mutants[name], found["outcome"], 0.0, found["digest"], found["commit"], first
            )
        )
    _update(path, added)
    print(f"{len(added)} outcomes added")
    return 0


def _recorded(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The record by area and mutant."""
    if not path.exists():
        return {}
    record = json.loads(path.read_text(encoding="utf-8"))
    return {(one["area"], one["mutant"]): one for one in record["mutants"]}


def _has_outcome(recorded: dict[tuple[str, str], dict[str, Any]], area: str, one: Mutant) -> bool:
    """Whether the record has an outcome of a mutant, of whichever version of its file."""
    outcome = recorded.get((area, str(one)), {}).get("outcome", _NOT_RUN)
    return outcome != _NOT_RUN and (outcome == "equivalent") == bool(one.equivalent)


def _is_done(recorded: dict[tuple[str, str], dict[str, Any]], area: str, mutant: Mutant) -> bool:
    """Whether a mutant was noticed in the file as it is now."""
    found = recorded.get((area, str(mutant)), {})
    return bool(mutant.equivalent) or (
        found.get("outcome") == "killed" and found["digest"] == _digest(_ROOT, mutant)
    )


def _digest(tree: Path, mutant: Mutant) -> str:
    """The beginning of the SHA-256 of the file that a mutant changes."""
    content = (tree / "src" / "robustmf" / mutant.file).read_bytes()
    return hashlib.sha256(content).hexdigest()[:16]


def _update(path: Path, results: list[Result]) -> None:
    """Replace the outcomes of these mutants in the record, which lists the whole catalog."""
    known = _recorded(path)
    new = {one.key: one for one in results}
    listed = []
    for area in catalog.areas():
        for mutant in catalog.mutants_of(area):
            found = known.get((area, str(mutant)), {"outcome": _NOT_RUN, "digest": ""})
            one = Result(area, mutant, found["outcome"], 0.0, found["digest"], found.get("commit"))
            first = found.get("first")
            if (outcome := new.get(one.key)) is not None:
                if found["outcome"] == _NOT_RUN:
                    first = outcome.first or outcome.outcome
                one = outcome
            one = replace(one, first=first)
            if mutant.equivalent:
                one = replace(one, outcome="equivalent", digest="", commit=None, first=None)
            listed.append(one)
    record = {
        "areas": _summary(listed),
        "mutants": [
            {
                "area": one.area,
                "mutant": str(one.mutant),
                "outcome": one.outcome,
                "digest": one.digest,
                "commit": one.commit,
                "aimed": one.mutant.aimed,
                "first": one.first,
            }
            for one in listed
        ],
    }
    text = json.dumps(record, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _durations(
    tree: Path, selections: list[str], limit: float, pool: ThreadPoolExecutor
) -> dict[str, float]:
    """Seconds of the selections of tests that pass on the code as it is."""

    def duration(tests: str) -> float | None:
        started = time.perf_counter()
        passed = status_of_tests(tree, tests, 4 * limit) == 0
        return time.perf_counter() - started if passed else None

    durations = dict(zip(selections, pool.map(duration, selections), strict=True))
    return {tests: seconds for tests, seconds in durations.items() if seconds is not None}


def _limit(duration: float, limit: float) -> float:
    """Seconds after which a mutant counts as hung: tests that are slow anyway have more time."""
    return max(limit, 3 * duration)


def _tested(unchanged: Path, area: str, mutant: Mutant, limit: float) -> Result:
    """Make the change in a copy of the repository and run the tests."""
    if mutant.equivalent:
        return Result(area, mutant, "equivalent", 0.0)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="robustmf-mutants-") as folder:
        tree = Path(folder)
        _copy(unchanged, tree)
        path = tree / "src" / "robustmf" / mutant.file
        text = path.read_text(encoding="utf-8")
        if text.count(mutant.old) != 1:
            outcome = f"invalid: the text occurs {text.count(mutant.old)} times"
        else:
            path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
            outcome = _outcome_on(tree, path, mutant.tests, limit)
    seconds = time.perf_counter() - started
    digest = _digest(unchanged, mutant)
    print(f"{outcome} in {seconds:.0f} s: {area}: {mutant}", file=sys.stderr, flush=True)
    return Result(area, mutant, outcome, seconds, digest)


def _outcome_on(tree: Path, changed: Path, tests: str, limit: float) -> str:
    """The outcome on a copy of the repository in which a file was changed."""
    try:
        compile(changed.read_text(encoding="utf-8"), changed.name, "exec")
    except SyntaxError as error:
        return f"invalid: {error.msg}"
    _discard_compiled(changed)
    return _outcome(status_of_tests(tree, tests, limit))


def _copy(root: Path, tree: Path) -> None:
    """Copy what tests need of a repository, with the compiled kernels."""
    for name in _COPIED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, tree / name)
        else:
            shutil.copy2(source, tree / name)


def _discard_compiled(changed: Path) -> None:
    """Discard compiled kernels that contain functions of the changed file.

    Numba compiles a kernel again if its own file was changed, but not if one was from which it
    imports functions.
    """
    kernels = {path.stem: path for path in changed.parent.glob("*.py")}
    imports = {name: _imported(path) for name, path in kernels.items()}
    stale = {changed.stem}
    while more := {name for name in kernels if imports[name] & stale} - stale:
        stale |= more
    for name in stale:
        for compiled in (changed.parent / "__pycache__").glob(f"{name}.*.nb[ic]"):
            compiled.unlink()


def _imported(path: Path) -> set[str]:
    """The last parts of the names of the modules that a file imports."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    modules = {(node.module or "").rpartition(".")[2] for node in imports}
    return modules | {alias.name for node in imports for alias in node.names}


def _outcome(status: int | None) -> str:
    if status is None or status in _FAILED:
        return "killed"
    return "survived" if status == 0 else f"invalid: pytest ended with status {status}"


def _summary(results: list[Result]) -> dict[str, dict[str, Any]]:
    """Numbers of mutants by area and outcome."""
    summary: dict[str, dict[str, Any]] = {}
    for one in results:
        counts = summary.setdefault(one.area, dict.fromkeys(("mutants", *_OUTCOMES), 0))
        counts["mutants"] += 1
        counts[one.outcome.partition(":")[0]] += 1
    return summary


def _show(results: list[Result], seconds: float) -> None:
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table("area", "mutants", *(name.replace("_", " ") for name in _OUTCOMES))
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
