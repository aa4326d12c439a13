"""The fuzzer: coverage guides it, and it reports crashes, damage to files and waste of memory."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import robustmf
from robustmf.exceptions import MalformedFileError
from robustmf.io.reading import Source
from stress.fuzzing import search as search_module
from stress.fuzzing.coverage import Coverage
from stress.fuzzing.damage import damaged_bytes
from stress.fuzzing.search import explore, targets


@dataclass
class Toy:
    """A file of bytes, read by a function."""

    read: object
    file: str = "toy"

    def seeds(self):
        return [b"0123456789" * 3]

    def damaged(self, rng, one, other):
        return damaged_bytes(rng, one, other)

    def content(self, one):
        return one


def explored(read, tmp_path, executions=30):
    found = explore(Toy(read), executions, 0, tmp_path, "toy")
    return found, list(found.failures.values())


def test_coverage_records_lines_of_the_followed_files():
    coverage = Coverage([Path(robustmf.__file__).parent / "io"])
    with coverage.recording() as arcs:
        str(Source(Path("a"), "b"))
        os.path.join("a", "b")
    assert {Path(name).name for name, _, _ in arcs} == {"source.py"}
    with coverage.recording() as none:
        pass
    assert none == set()


def test_files_that_execute_new_lines_are_damaged_further(tmp_path, monkeypatch):
    monkeypatch.setattr(search_module, "_FOLLOWED", [])
    monkeypatch.setattr(search_module, "Coverage", lambda _: Coverage([Path(__file__).parent]))

    def steps(path):
        content = path.read_bytes()
        if len(content) != 30:
            content = content[:1]
        if len(content) % 3 == 1:
            content += b"x"
        if b"user" in content:
            raise LookupError("found")

    found, failures = explored(steps, tmp_path, 400)
    assert found.executions == 400
    assert 1 < found.corpus < 20
    assert len(failures) <= 1


@pytest.mark.parametrize("message", ["no name of the file", "{path}: two\nlines"])
def test_errors_must_name_the_file_in_one_line(message, tmp_path):
    def refuse(path):
        if path.read_bytes() != Toy(None).seeds()[0]:
            raise MalformedFileError(message.format(path=path))

    _, failures = explored(refuse, tmp_path)
    assert len(failures) == 1
    assert "MalformedFileError" in failures[0]


def test_documented_errors_are_allowed(tmp_path):
    def refuse(path):
        if path.read_bytes() != Toy(None).seeds()[0]:
            raise MalformedFileError(f"{path}: malformed")

    found, failures = explored(refuse, tmp_path)
    assert failures == []
    assert found.accepted < found.executions == 30


def test_other_errors_and_changed_files_are_failures(tmp_path):
    def crash(path):
        raise IndexError("crash")

    def modify(path):
        path.write_bytes(b"")
        raise MalformedFileError(f"{path}: malformed")

    assert "IndexError" in explored(crash, tmp_path)[1][0]
    assert "the file was modified" in explored(modify, tmp_path)[1][0]


def test_memory_beyond_the_limit_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(search_module, "_RESIDENT", 2**26)
    _, failures = explored(lambda path: np.ones(2**25), tmp_path, 2)
    assert "MemoryError" in failures[0]


@pytest.mark.slow
def test_a_crash_of_the_process_is_a_failure_that_names_the_file():
    found = search_module.search("text", 1, 0, answer=_kill)
    (failure,) = found.failures.values()
    assert f"the process ended with {-signal.SIGKILL}" in failure
    assert failure.endswith("a.csv")


def _kill(connection, name, executions, seed, folder):
    (Path(folder) / targets()[name].file).write_bytes(b"fatal")
    os.kill(os.getpid(), signal.SIGKILL)
