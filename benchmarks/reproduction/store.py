"""Records of runs: one line of JSON each, appended and never changed, one file per experiment.

A line has the key of the run, its result, settings, numerical version and date. Commit, machine
and package versions are the same for many runs: they are in ``environments.jsonl``, and a record
names its line there. Numbers have six significant digits, those of curves four; those of settings
have all, since settings are compared with those of the code.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.records import FOLDER
from benchmarks.reproduction.plan import Run

#: Where records of the reproduction are kept by default.
DEFAULT = FOLDER / "reproduction"

#: Name of the file of environments, without its ending.
_ENVIRONMENTS = "environments"

#: File of the methods whose records an earlier version of the code made.
_OUTDATED = "outdated.json"

#: Significant digits of results, and of the points of curves.
_DIGITS = 6
_CURVE_DIGITS = 4


class Records:
    """The records in a folder.

    A line that an interrupted process left incomplete is dropped when the next one is appended.
    """

    def __init__(self, folder: Path = DEFAULT) -> None:
        self.folder = Path(folder)
        self._read: dict[str, tuple[int, dict[str, dict[str, Any]]]] = {}

    def _path(self, experiment: str) -> Path:
        return self.folder / f"{experiment}.jsonl"

    def lines(self, experiment: str) -> Iterator[dict[str, Any]]:
        """Every complete record, oldest first, with method, data, seed and machine of its run."""
        environments = self.environments()
        for record in self._lines(experiment):
            run = Run.from_key(record["key"])
            machine = machine_of(environments[record["environment"]])
            found = {"method": run.method, "data": run.data, "seed": run.seed, "machine": machine}
            yield record | found

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        path = self._path(name)
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
        path = self._path(experiment)
        size = path.stat().st_size if path.exists() else 0
        known = self._read.get(experiment)
        if known is None or known[0] != size:
            known = (size, {record["key"]: record for record in self.lines(experiment)})
            self._read[experiment] = known
        return known[1]

    def environments(self) -> dict[str, dict[str, Any]]:
        """Commit, machine and package versions by the name that records use."""
        return {line["name"]: line for line in self._lines(_ENVIRONMENTS)}

    def outdated(self, experiment: str) -> list[str]:
        """Methods with records of an earlier version of the code, as last compared with it."""
        path = self.folder / _OUTDATED
        return json.loads(path.read_text(encoding="utf-8"))[experiment] if path.exists() else []

    def write_outdated(self, methods: dict[str, list[str]]) -> None:
        """Write the methods with outdated records of each experiment."""
        text = json.dumps(methods, ensure_ascii=False, indent=1)
        (self.folder / _OUTDATED).write_text(text + "\n", encoding="utf-8")

    def append(self, experiment: str, record: dict[str, Any]) -> None:
        """Write one record, and its environment if it is new, and flush them to the disk."""
        environment = dict(record["environment"])
        date = environment.pop("date")
        text = json.dumps(environment, sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:8]
        if name not in self.environments():
            self._write(_ENVIRONMENTS, {"name": name, **environment})
        stored = {**record, "date": date, "environment": name}
        for derived in ("method", "data", "seed", "machine"):
            stored.pop(derived, None)
        result = {name: part for name, part in stored.items() if name != "settings"}
        self._write(experiment, stored | rounded(result, _DIGITS))

    def _write(self, name: str, line: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        encoded = json.dumps(line, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        with self._path(name).open("ab+") as file:
            complete = _complete_length(file)
            file.truncate(complete)
            file.seek(complete)
            file.write(encoded.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def machine_of(environment: dict[str, Any]) -> str:
    """Processor and number of cores, to which CPU seconds belong."""
    machine = environment["machine"]
    return f"{machine['processor']}, {machine['cores']} cores"


def rounded(value: Any, digits: int) -> Any:
    """The value with its floating-point numbers rounded to significant digits."""
    if isinstance(value, dict):
        return {
            name: rounded(part, _CURVE_DIGITS if name == "curve" else digits)
            for name, part in value.items()
        }
    if isinstance(value, list):
        return [rounded(part, digits) for part in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def _complete_length(file: Any) -> int:
    """Bytes up to and including the last line end."""
    size = file.seek(0, os.SEEK_END)
    step = 1 << 16
    while size > 0:
        begin = max(0, size - step)
        file.seek(begin)
        end = file.read(size - begin).rfind(b"\n")
        if end >= 0:
            return int(begin + end + 1)
        size = begin
    return 0
