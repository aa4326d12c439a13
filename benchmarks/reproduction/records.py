"""Records of runs: one line of JSON each, appended and never changed, one file an experiment."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import robustmf


class Records:
    """The records under ``folder``. A line that a kill cut short is dropped when the next one is appended."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def _path(self, experiment: str) -> Path:
        return self.folder / f"{experiment}.jsonl"

    def lines(self, experiment: str) -> Iterator[dict[str, Any]]:
        """Every whole record, oldest first."""
        path = self._path(experiment)
        if not path.exists():
            return
        for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
            if not line.endswith(b"\n"):
                return
            try:
                record = json.loads(line)
            except ValueError as error:
                raise ValueError(
                    f"{path}, line {number} is not a record ({error}); remove it and run again"
                ) from None
            yield record

    def latest(self, experiment: str) -> dict[str, dict[str, Any]]:
        """The last record of each run, by its key."""
        return {record["key"]: record for record in self.lines(experiment)}

    def append(self, experiment: str, record: dict[str, Any]) -> None:
        """Write one record through to the disk."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = (json.dumps(record, allow_nan=False) + "\n").encode()
        with self._path(experiment).open("ab+") as file:
            whole = _whole_length(file)
            file.truncate(whole)
            file.seek(whole)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def _whole_length(file: Any) -> int:
    """Bytes up to and with the last line end."""
    size = file.seek(0, os.SEEK_END)
    step = 1 << 16
    while size > 0:
        start = max(0, size - step)
        file.seek(start)
        end = file.read(size - start).rfind(b"\n")
        if end >= 0:
            return int(start + end + 1)
        size = start
    return 0


def machine() -> dict[str, Any]:
    """Where and with what a run was made."""
    return {
        "robustmf": robustmf.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _processor() -> str:
    try:
        names = [
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
