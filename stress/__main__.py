"""``python -m stress``: every check, a table, and a record.

Exits with 1 if a case failed, or a check crashed or exceeded its time limit: each check runs in a
separate process.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import robustmf
from benchmarks.records import environment
from stress import checks

_RECORD = Path("benchmarks/records/stress.json")


def main() -> int:
    """Run the checks named, or all; exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m stress", description="Try to break robustmf and report the cases tried."
    )
    parser.add_argument(
        "names", nargs="*", help=f"checks to run (default: all): {', '.join(checks.names())}"
    )
    parser.add_argument(
        "--times", type=float, default=1.0, help="multiple of the usual number of cases"
    )
    parser.add_argument(
        "--cases", type=int, default=None, help="number of cases of each check, instead of --times"
    )
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    parser.add_argument("--jobs", type=int, default=1, help="processes that run at once")
    parser.add_argument(
        "--shares",
        type=int,
        default=1,
        help="processes over which the cases of a check are divided, with seeds of their own",
    )
    parser.add_argument("--limit", type=float, default=600, help="time limit of a check in seconds")
    parser.add_argument(
        "--record",
        type=Path,
        default=_RECORD,
        help="file for the record, written only if all checks run, or with --update",
    )
    parser.add_argument(
        "--update", action="store_true", help="replace the checks named in the record"
    )
    arguments = parser.parse_args()
    root = Path(__file__).parents[1]
    if Path.cwd() != root:
        parser.error(
            f"the checks read and write files of the repository: run this in its root, {root}"
        )
    seed = arguments.seed
    if seed is None:
        seed = int(np.random.SeedSequence().entropy % 2**31)  # type: ignore[operator]
    print(f"seed {seed}: repeat with --seed {seed}")
    started = time.perf_counter()

    with ThreadPoolExecutor(arguments.jobs) as pool:
        running = []
        for name in arguments.names or checks.names():
            cases = arguments.cases or _cases(name, arguments.times)
            shares = _shares(cases, seed, arguments.shares)
            running.append([pool.submit(_line, name, *share, arguments.limit) for share in shares])
        lines = [_joined([one.result() for one in shares]) for shares in running]
    seconds = time.perf_counter() - started
    _show(lines, seconds)
    if not arguments.names:
        versions = {
            "robustmf": robustmf.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
        }
        record = {"seed": seed, "versions": versions}
        write_record(arguments.record, record, lines)
    elif arguments.update:
        record = json.loads(arguments.record.read_text())
        kept = [line for line in record["checks"] if line["check"] not in arguments.names]
        write_record(arguments.record, record, kept + lines)
    return int(any(line["failed"] for line in lines))


def write_record(path: Path, record: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    """Write the record with these lines, in the order of the checks."""
    lines = sorted(lines, key=lambda line: line["check"])
    seconds = round(sum(line["seconds"] for line in lines), 1)
    path.write_text(json.dumps(record | {"seconds": seconds, "checks": lines}, indent=1))


def _cases(name: str, times: float) -> int:
    """A multiple of the usual number of cases of a check."""
    check = importlib.import_module(f"stress.checks.{name}")
    return max(1, round(check.CASES * times))


def _shares(cases: int, seed: int, number: int) -> list[tuple[int, int]]:
    """Cases and seed of each process over which a check is divided."""
    number = min(number, cases)
    return [(cases // number + (k < cases % number), seed + k) for k in range(number)]


def _joined(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """One line of the shares of a check: the sums, and the seed of the first."""
    sums = {
        key: sum((line[key] for line in lines), type(lines[0][key])())
        for key in ("cases", "failed", "failures")
    }
    seconds = max(line["seconds"] for line in lines)
    shares = {"shares": len(lines)} if len(lines) > 1 else {}
    return lines[0] | shares | sums | {"seconds": seconds}


def _line(name: str, cases: int, seed: int, limit: float) -> dict[str, Any]:
    check = importlib.import_module(f"stress.checks.{name}")
    started = time.perf_counter()
    here = environment()
    origin = {"seed": seed, "commit": here["commit"], "machine": here["machine"]}
    line = {"check": name, "what": check.TITLE, **origin}
    print(f"{name}: {check.TITLE} ...", file=sys.stderr, flush=True)
    try:
        command = [sys.executable, "-m", "stress.one", name, str(cases), str(seed)]
        result = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return line | {
            "cases": 0,
            "failed": 1,
            "failures": [f"still running after {limit:g} s"],
            "seconds": limit,
        }
    found = {"cases": 0, "failed": 1, "failures": [f"the process exited with {result.returncode}"]}
    if result.returncode == 0:
        found = json.loads(result.stdout.splitlines()[-1])
    return line | found | {"seconds": round(time.perf_counter() - started, 1)}


def _show(lines: list[dict[str, Any]], seconds: float) -> None:
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table("what was tried", "cases", "failures", "seconds")
    for line in lines:
        table.add_row(
            line["what"], f"{line['cases']:,}", str(line["failed"]), f"{line['seconds']:.0f}"
        )
    cases, failed = (sum(line[key] for line in lines) for key in ("cases", "failed"))
    table.add_section()
    table.add_row("all", f"{cases:,}", str(failed), f"{seconds:.0f}")
    console.print(table)
    for line in lines:
        for failure in line["failures"]:
            console.print(f"{line['check']}: {failure}", markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
