"""Kernels: compiled with bounds checking, on problems of random shapes, against plain NumPy; none of them left out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from stress.tally import Tally

TITLE = "every kernel with bounds checking, against NumPy"
CASES, FEW = 400, 2

#: Fewer cases than this: only the operations that solvers are made of, as compiling the rest takes longer than CI has.
_ALL = 50


def run(tally: Tally, cases: int, seed: int) -> None:
    """All in a process of its own, with a cache of its own: Numba does not tell code with checks from code without."""
    with tempfile.TemporaryDirectory(prefix="robustmf-checked-") as cache:
        command = [
            sys.executable,
            "-m",
            "stress.kernel_work",
            str(cases // 2),
            str(seed),
            *(["operations"] if cases < _ALL else []),
        ]
        checked = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": cache}
        ended = subprocess.run(
            command, capture_output=True, text=True, env=checked, timeout=500, check=False
        )
    if ended.returncode:
        tally.cases += 1
        tally.fail(f"the process ended with {ended.returncode}: {ended.stderr[-300:]}")
        return
    found = json.loads(ended.stdout.splitlines()[-1])
    tally.cases, tally.failed = tally.cases + found["cases"], tally.failed + found["failed"]
    tally.failures.extend(found["failures"])
