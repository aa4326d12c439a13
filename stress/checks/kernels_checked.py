"""Kernels: compiled with bounds checking and compared with NumPy on random shapes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from stress.tally import Tally

TITLE = "every kernel with bounds checking, against NumPy"
CASES = 400
FEW = 2

#: With fewer cases, only the operations of solvers: compiling all kernels takes too long for CI.
_ALL = 50


def run(tally: Tally, cases: int, seed: int) -> None:
    """Run in a separate process with a separate cache: Numba's cache ignores bounds checking."""
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
        result = subprocess.run(
            command, capture_output=True, text=True, env=checked, timeout=500, check=False
        )
    if result.returncode:
        tally.cases += 1
        tally.fail(f"the process exited with {result.returncode}: {result.stderr[-300:]}")
        return
    found = json.loads(result.stdout.splitlines()[-1])
    tally.add(Tally(**found))
