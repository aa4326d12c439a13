"""Records of the results of all cases."""

from __future__ import annotations

import importlib
import json
import platform
import re
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks.same_results.cases import CASES
from benchmarks.same_results.content import flatten


def computed(name: str) -> dict[str, Any]:
    """Compute a case and return its fields; of an exception, its type."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = dict(flatten(CASES[name]()))
        except Exception as error:  # the type is the result
            print(f"{name} raises {type(error).__name__}: {str(error)[:150]}", file=sys.stderr)
            return {"raises": type(error).__name__}
    kinds = {one.category for one in caught if one.category.__module__.startswith("robustmf")}
    found["text.warnings"] = ", ".join(sorted(kind.__name__ for kind in kinds))
    return found


def environment() -> dict[str, str]:
    """Return what the last bits may depend on beside the code."""
    versions = {
        name: importlib.import_module(name).__version__ for name in ("numpy", "scipy", "numba")
    }
    numba = importlib.import_module("llvmlite.binding")
    return versions | {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": numba.get_host_cpu_name(),
    }


def record(path: Path, only: str | None) -> int:
    """Compute all cases, or those whose names match a regular expression, and write the record."""
    names = [name for name in CASES if only is None or re.search(only, name)]
    started = time.perf_counter()
    seconds: dict[str, float] = {}
    cases: dict[str, Any] = {}
    for name in names:
        before = time.perf_counter()
        cases[name] = computed(name)
        seconds[name] = time.perf_counter() - before
    lines = [
        f"{json.dumps(name)}: {json.dumps(case, sort_keys=True)}" for name, case in cases.items()
    ]
    body = ",\n".join(lines)
    path.write_text(f'{{"environment": {json.dumps(environment())},\n"cases": {{\n{body}\n}}}}\n')
    raised = sum("raises" in case for case in cases.values())
    total = time.perf_counter() - started
    print(f"{len(cases)} cases, {raised} of them exceptions, in {total:.0f} s: {path}")
    slowest = sorted(seconds, key=lambda name: -seconds[name])[:5]
    print("slowest:", ", ".join(f"{name} {seconds[name]:.1f} s" for name in slowest))
    return 0
