"""Records of runs: one line of JSON each, appended and never changed, one file per experiment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.records import FOLDER

#: Where records of the reproduction are kept by default.
DEFAULT = FOLDER / "reproduction"


class Records:
    """The records in a folder.

    A line that an interrupted process left incomplete is dropped when the next one is appended.
    """

    def __init__(self, folder: Path = DEFAULT) -> None:
        self.folder = Path(folder)

    def _path(self, experiment: str) -> Path:
        return self.folder / f"{experiment}.jsonl"

    def lines(self, experiment: str) -> Iterator[dict[str, Any]]:
        """Every complete record, oldest first."""
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
        """Write one record and flush it to the disk."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = (json.dumps(record, allow_nan=False) + "\n").encode()
        with self._path(experiment).open("ab+") as file:
            complete = _complete_length(file)
            file.truncate(complete)
            file.seek(complete)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


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
