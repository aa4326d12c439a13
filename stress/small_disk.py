"""``python -m stress.small_disk FOLDER CASES SEED``: checkpoints on full and read-only disks.

FOLDER is on a small file system that may be remounted; see :func:`run`. Prints its tally as JSON
on the last line.
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

#: Size of the disk: a few checkpoints of the fits below.
_SIZE = "256k"

#: The last iteration at which a disk fails.
_LAST = 11


def run(cases: int, seed: int, folder: Path) -> Tally | None:
    """Run the cases in a mount namespace with a small disk; None where the system forbids it."""
    mounted = f'mount -t tmpfs -o size={_SIZE} none "$0" && exec "$@"'
    namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    try:
        attempt = subprocess.run(
            [*namespace, mounted, folder, "true"], capture_output=True, check=False
        )
    except FileNotFoundError:
        return None
    if attempt.returncode:
        return None
    command = [
        *namespace,
        mounted,
        folder,
        sys.executable,
        "-m",
        "stress.small_disk",
        folder,
        str(cases),
        str(seed),
    ]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Tally(**json.loads(result.stdout.splitlines()[-1]))


def _run_here(folder: Path, cases: int, seed: int) -> Tally:
    tally = Tally()
    rng = np.random.default_rng(seed)
    faults: list[tuple[str, Callable[[], None], Callable[[], None]]] = [
        ("full disk", lambda: _fill(folder), (folder / "filler").unlink),
        ("read-only disk", lambda: _remount("ro", folder), lambda: _remount("rw", folder)),
    ]
    for case in range(cases):
        name, fail, repair = faults[case % 2]
        at = int(rng.integers(-1, _LAST + 1))
        data = make_synthetic(int(rng.integers(40, 80)), rank=2, random_state=rng).train
        with tally.case(f"{name} from iteration {at}"):
            _broken(data, folder / "checkpoint", at, fail, repair)
        for left in folder.iterdir():
            left.unlink()
    return tally


def _broken(
    data: Any, path: Path, at: int, fail: Callable[[], None], repair: Callable[[], None]
) -> None:
    """A fit whose disk fails at an iteration (negative: before the fit) and is then repaired."""
    good: list[bytes | None] = [None]

    def watch(snapshot: Any) -> None:
        if snapshot.iteration == at:
            good[0] = path.read_bytes()
            fail()

    def model(**more: Any) -> RobustMF:
        # More iterations than the last one at which a disk fails.
        return RobustMF(
            rank=2, loss="lsp", random_state=0, n_jobs=1, tol=1e-12, max_iter=_LAST + 3, **more
        )

    if at < 0:
        fail()
    message = refusal(
        CheckpointWriteError,
        lambda: model(callbacks=[watch]).fit(data, checkpoint=path, checkpoint_every=0),
    )
    assert str(path) in message, f"the error does not name the file: {message}"
    assert (path.read_bytes() if path.exists() else None) == good[0], (
        "the last good file was not kept"
    )
    repair()
    assert {left.name for left in path.parent.iterdir()} <= {"checkpoint"}, (
        f"left behind: {list(path.parent.iterdir())}"
    )
    resumed = model().fit(data, checkpoint=path)
    undisturbed = model().fit(data)
    assert resumed.row_factors_.tobytes() == undisturbed.row_factors_.tobytes(), (
        "different bits after the disk was repaired"
    )


def _fill(folder: Path) -> None:
    """Write until the disk is full."""
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
