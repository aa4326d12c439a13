"""Runs of pytest on a copy of the repository, in forked processes that have imported its needs."""

from __future__ import annotations

import math
import multiprocessing
import os
import resource
import shlex
import sys
from pathlib import Path

#: Elapsed time after which tests count as hung, relative to their limit of CPU time: other
#: processes may use the same cores.
_ELAPSED = 5

#: Bytes of memory that tests may take.
_MEMORY = 6 << 30

#: Packages that the tests use. They are imported once, by a process from which those that run the
#: tests are forked; robustmf itself is imported by each of them from its copy of the repository.
_PRELOADED = [
    "numba",
    "pandas",
    "polars",
    "pyarrow.compute",
    "pyarrow.csv",
    "pyarrow.parquet",
    "pytest",
    "safetensors.numpy",
    "scipy.io",
    "scipy.optimize",
    "scipy.sparse",
    "scipy.stats",
    "sklearn",
    "threadpoolctl",
]


def status_of_tests(tree: Path, tests: str, limit: float) -> int | None:
    """The exit status of pytest; None if it did not end in time, or was killed by a signal.

    ``limit`` is in seconds of CPU time.
    """
    selected = [
        f"tests/{part}" if part.partition("::")[0].endswith(".py") else part
        for part in shlex.split(tests)
    ]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    child = context.Process(target=_run_tests, args=(tree, selected, limit))
    child.start()
    child.join(_ELAPSED * limit)
    status = child.exitcode
    if status is None:
        child.kill()
        child.join()
    return None if status is None or status < 0 else status


def _run_tests(tree: Path, selected: list[str], limit: float) -> None:
    """Run pytest in this process; it exits with its status.

    Without a check of sizes, a test of a small file that claims to be large takes all memory.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, resource.RLIM_INFINITY))
    paths = [str(tree / "src"), str(tree)]
    inherited = os.environ.get("PYTHONPATH", "")
    os.environ |= {
        "PYTHONPATH": os.pathsep.join([*paths, inherited]).rstrip(os.pathsep),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    sys.dont_write_bytecode = True
    sys.path[:0] = paths
    os.chdir(tree)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    import pytest  # noqa: PLC0415 - imported by the process from which this one was forked

    options = ["-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=no"]
    sys.exit(int(pytest.main([*options, *selected])))
