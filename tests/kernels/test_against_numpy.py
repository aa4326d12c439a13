"""Kernels compared with NumPy on random shapes; stress/kernel_work.py has the checks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from stress.kernel_work import kernels_that_never_ran, work


def test_kernels_agree_with_numpy():
    assert work(10, seed=1, fits=False).failures == []


def test_kernels_that_were_not_called_are_named():
    code = "from stress.kernel_work import kernels_that_never_ran as idle; print(len(idle()))"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100
    ).stdout
    assert int(output) > 20
    assert len(kernels_that_never_ran()) < int(output)


def test_vector_instructions_out_of_bounds_end_a_checked_process():
    code = """
import numpy as np
from numba import njit
from robustmf.kernels.vector import load, store
copy = njit(lambda x, y, i: store(y, 0, load(x, i)))
x, y = np.arange(8.0), np.zeros(8)
copy(x, y, 4)
print(y[:4].tolist(), flush=True)
copy(x, y, 5)
"""
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1"},
        timeout=100,
        check=False,
    )
    assert result.stdout == "[4.0, 5.0, 6.0, 7.0]\n", result.stderr
    assert -result.returncode in (signal.SIGILL, signal.SIGTRAP)
