"""Seconds of this code relative to those of an earlier commit, measured in turns.

One process of each version makes the same data and waits; the measurements alternate between the
two, so that a slow phase of the machine hits both. CPU seconds with one thread; on a GPU those
that pass. The median of the repetitions counts, and the ratio is the median of the ratios of
repetitions that follow each other. Half-steps are direct calls; sweeps are iterations of fits with
given settings. A default fit has the rank given, and its results differ between versions: the
error, relative to the noise, is beside it. Start-up is a new process that imports the estimator.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import announce, markdown, shown

SMALL = {"earlier": "src", "scale": 0.001, "repeats": 1, "only": "rank 5"}

#: The commit before the package was restructured.
BEFORE = "90051e4"

_ROOT = Path(__file__).parents[1]
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("NUMBA", "OMP", "OPENBLAS")}

#: New processes that import the estimator. At commit 90051e4 most of scikit-learn was replaced in
#: ``sys.modules`` to make this faster.
_STARTS = {
    "start-up": "from robustmf import RobustMF",
    "start-up, scikit-learn imported first": "import sklearn.base; from robustmf import RobustMF",
}

Measure = Callable[[str], dict[str, Any]]


def run(
    earlier: str = BEFORE,
    scale: float = 1.0,
    repeats: int = 9,
    device: str = "cpu",
    only: str = "",
) -> list[dict[str, Any]]:
    """Both versions; ``earlier`` is a commit, or a folder with the package.

    ``only`` is a part of the names of the works to measure.
    """
    with ExitStack() as stack:
        folder = Path(earlier)
        if not (folder / "robustmf").is_dir():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "src"
            _extract(earlier, folder.parent)
        versions = {"earlier": folder.resolve(), "now": _ROOT / "src"}
        workers = {
            name: stack.enter_context(_worker(source, scale, device))
            for name, source in versions.items()
        }
        names = [name for name in next(iter(workers.values()))("names")["names"] if only in name]
        records = [_in_turns(name, workers, repeats) for name in names]
        for name, code in _STARTS.items():
            if only in name:
                starts = {version: _start_of(source, code) for version, source in versions.items()}
                records.append(_in_turns(name, starts, repeats))
    return records


def _extract(commit: str, folder: Path) -> None:
    """Write the package of a commit into a folder."""
    command = ["git", "archive", commit, "src/robustmf"]
    files = subprocess.run(command, cwd=_ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(files)) as archive:
        archive.extractall(folder, filter="data")


def _environment(source: Path) -> dict[str, str]:
    return os.environ | _ONE_THREAD | {"PYTHONPATH": os.pathsep.join((str(source), str(_ROOT)))}


@contextmanager
def _worker(source: Path, scale: float, device: str) -> Iterator[Measure]:
    """A process of one version; the function requests one measurement."""
    command = [sys.executable, "-m", "benchmarks.earlier_work", str(scale), device]
    with subprocess.Popen(
        command,
        env=_environment(source),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def measure(name: str) -> dict[str, Any]:
            print(name, file=process.stdin, flush=True)
            found: dict[str, Any] = json.loads(process.stdout.readline())  # type: ignore[union-attr]
            return found

        try:
            yield measure
        finally:
            process.stdin.close()


def _start_of(source: Path, code: str) -> Measure:
    """A function that measures a new process that runs the code."""

    def measure(name: str) -> dict[str, Any]:
        process = subprocess.Popen([sys.executable, "-c", code], env=_environment(source))
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"the import ended with exit code {process.returncode}")
        return {"seconds": used.ru_utime + used.ru_stime}

    return measure


def _in_turns(name: str, versions: dict[str, Measure], repeats: int) -> dict[str, Any]:
    for measure in versions.values():
        measure(name)  # compiles, and reads files for the first time
    found: dict[str, list[dict[str, Any]]] = {version: [] for version in versions}
    for repeat in range(repeats):
        # each version is first in every other repetition
        for version in list(versions)[:: 1 if repeat % 2 else -1]:
            found[version].append(versions[version](name))
    seconds = {
        version: np.array([one["seconds"] for one in of_version])
        for version, of_version in found.items()
    }
    record = {
        "work": name,
        "seconds": {version: float(np.median(times)) for version, times in seconds.items()},
        "ratio": float(np.median(seconds["now"] / seconds["earlier"])),
        "quartiles": np.quantile(seconds["now"] / seconds["earlier"], [0.25, 0.75]).tolist(),
        "error": {version: runs[0].get("error") for version, runs in found.items()},
    }
    announce(str(record))
    return record


def table(results: list[dict[str, Any]]) -> str:
    """One row per work."""
    rows = []
    for line in results:
        low, high = line["quartiles"]
        errors = [shown(e) for e in line["error"].values() if e is not None]
        rows.append(
            [
                line["work"],
                *map(shown, line["seconds"].values()),
                f"{line['ratio']:.3f} ({low:.3f}–{high:.3f})",
                ", ".join(errors) or "-",
            ]
        )
    header = ["work", "seconds, earlier", "now", "ratio (quartiles)", "error, earlier and now"]
    return markdown("", header, rows)
