"""``python -m stress.small_disk FOLDER CASES SEED``, on a file system that is small and may be remounted; see :func:`run`.

Prints its tally as JSON on the last line.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from robustmf import RobustMF
from robustmf.datasets import make_synthetic
from robustmf.exceptions import CheckpointWriteError, RobustMFWarning
from stress.expected import refusal
from stress.tally import Tally

#: Room for a few checkpoints of the fits below.
_SIZE = "256k"

#: The last iteration at which a disk breaks.
_LAST = 11


def run(cases: int, seed: int, folder: Path) -> Tally | None:
    """The cases in a name space of their own, where a small disk is mounted on ``folder``; None where the system allows no such thing."""
    mounted = f'mount -t tmpfs -o size={_SIZE} none "$0" && exec "$@"'
    alone = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    try:
        allowed = (
            subprocess.run(
                [*alone, mounted, folder, "true"], capture_output=True, check=False
            ).returncode
            == 0
        )
    except FileNotFoundError:
        allowed = False
    if not allowed:
        return None
    command = [
        *alone,
        mounted,
        folder,
        sys.executable,
        "-m",
        "stress.small_disk",
        folder,
        str(cases),
        str(seed),
    ]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Tally(**json.loads(ended.stdout.splitlines()[-1]))


def _run_here(folder: Path, cases: int, seed: int) -> Tally:
    tally, rng = Tally(), np.random.default_rng(seed)
    faults: list[tuple[str, Callable[[], None], Callable[[], None]]] = [
        ("full disk", lambda: _fill(folder), (folder / "filler").unlink),
        ("read-only disk", lambda: _remount("ro", folder), lambda: _remount("rw", folder)),
    ]
    for case in range(cases):
        name, break_it, mend_it = faults[case % 2]
        at = int(rng.integers(-1, _LAST + 1))
        data = make_synthetic(int(rng.integers(40, 80)), rank=2, random_state=rng).train
        with tally.case(f"{name} from iteration {at}"):
            _broken(data, folder / "checkpoint", at, break_it, mend_it)
        for left in folder.iterdir():
            left.unlink()
    return tally


def _broken(
    data: Any, path: Path, at: int, break_it: Callable[[], None], mend_it: Callable[[], None]
) -> None:
    """A fit whose disk breaks at an iteration (before the fit where it is negative): the named error, the last good file; then mended."""
    good: list[bytes | None] = [None]

    def watch(snapshot: Any) -> None:
        if snapshot.iteration == at:
            good[0] = path.read_bytes()
            break_it()

    def model(**more: Any) -> RobustMF:
        # longer than any iteration at which a disk breaks
        return RobustMF(
            rank=2, loss="lsp", random_state=0, n_jobs=1, tol=1e-12, max_iter=_LAST + 3, **more
        )

    if at < 0:
        break_it()
    message = refusal(
        CheckpointWriteError,
        lambda: model(callbacks=[watch]).fit(data, checkpoint=path, checkpoint_every=0),
    )
    assert str(path) in message, f"the error does not name the file: {message}"
    assert (path.read_bytes() if path.exists() else None) == good[0], (
        "the last good file was not kept"
    )
    mend_it()
    assert {left.name for left in path.parent.iterdir()} <= {"checkpoint"}, (
        f"left behind: {list(path.parent.iterdir())}"
    )
    again, undisturbed = model().fit(data, checkpoint=path), model().fit(data)
    assert again.row_factors_.tobytes() == undisturbed.row_factors_.tobytes(), (
        "other bits after the disk was mended"
    )


def _fill(folder: Path) -> None:
    """Write until nothing more goes in."""
    try:
        with (folder / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1024))
    except OSError:
        pass


def _remount(how: str, folder: Path) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", folder], check=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore", RobustMFWarning)  # fits are cut short
    print(json.dumps(asdict(_run_here(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))))
