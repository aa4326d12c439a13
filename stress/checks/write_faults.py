"""Writing: every system call fails in turn, or the process is killed there."""

from __future__ import annotations

import tempfile
from itertools import count, islice, product
from pathlib import Path

from robustmf.io.atomic import discard_leftovers
from stress.system_calls import (
    ERRORS,
    TARGETS,
    Target,
    attempt,
    attempt_and_kill,
    require_complete,
)
from stress.tally import Tally

TITLE = "files written while each system call fails or the process is killed: old or new, complete"
CASES = 1000
FEW = 1000

_KILL = "SIGKILL"


def run(tally: Tally, cases: int, seed: int) -> None:
    """All calls of all files; there are fewer than ``cases`` of them."""
    del seed  # nothing is random
    with tempfile.TemporaryDirectory() as folder:
        for target in TARGETS.values():  # imports modules, which open files, too
            target.write(Path(folder) / "file", 1)
    ways = product(TARGETS, (*ERRORS, _KILL), (False, True), (False, True))
    for name, fault, after, existed in ways:
        for number in count():
            if tally.cases >= cases:
                return
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "file"
                label = f"{name}, {fault} at call {number}, after={after}, existed={existed}"
                failed = False
                with tally.case(label):
                    failed = _one(TARGETS[name], path, number, fault, after, existed)
            if not failed:
                break


def _one(target: Target, path: Path, number: int, fault: str, after: bool, existed: bool) -> bool:
    """One fault; whether there was a call of this number."""
    if existed:
        target.write(path, 0)
    if fault == _KILL:
        failed = attempt_and_kill(target, path, number, after)
        discard_leftovers(path)
    else:
        failed = bool(attempt(target, path, number, ERRORS[fault], after))
    require_complete(target, path, existed)
    left = {one.name for one in islice(path.parent.iterdir(), 3)} - {path.name}
    assert not left, f"temporary files are left: {left}"
    return failed
