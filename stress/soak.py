"""``python -m stress.soak --minutes 60``: repeated fits, predictions and files.

Memory, open files and threads must not grow. Prints a line per minute and the growth at the end;
exits with 1 if anything grew.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import robustmf
from robustmf import RobustMF
from robustmf.baselines import AltGrad, ScaledASD
from robustmf.datasets import make_synthetic
from robustmf.exceptions import RobustMFWarning

#: Fraction of the time at the beginning, in which caches fill, that is not measured.
_WARM_UP = 0.25

#: Reports that a comparison of quarters needs, however long they take.
_LEAST_REPORTS = 12

#: Allowed growth of memory in bytes: what the allocator may keep of one fit.
_NOISE = 8 << 20

_SETTINGS: list[dict[str, Any]] = [
    {"solver": "irls"},
    {"solver": "irls", "bias": True, "loss": "huber"},
    {"solver": "mm", "loss": "lsp", "max_iter": 20},
    {"solver": "varpro", "max_iter": 10},
    {"solver": "irls", "loss": "l1", "certify": True, "max_iter": 5},
    {"validation_fraction": 0.1, "n_init": 2, "init": "random"},
]


def main() -> int:
    """Run for the given number of minutes and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m stress.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", RobustMFWarning)
    rng = np.random.default_rng(arguments.seed)
    seconds = 60 * arguments.minutes
    rounds = 0
    began = time.monotonic()
    reported = began
    seen: list[tuple[float, dict[str, int]]] = []
    with tempfile.TemporaryDirectory() as folder:
        while (elapsed := time.monotonic() - began) < seconds or len(seen) < _LEAST_REPORTS:
            _one_round(rounds, rng, Path(folder))
            rounds += 1
            if time.monotonic() - reported >= min(60, seconds / 20):
                reported = time.monotonic()
                seen.append((elapsed, _usage()))
                usage = _formatted(seen[-1][1])
                print(f"{elapsed / 60:6.1f} min, {rounds} rounds: {usage}", flush=True)
    return report_growth(seen, rounds)


def _one_round(number: int, rng: np.random.Generator, folder: Path) -> None:
    """The operations of a long-lived process on one data set."""
    data = make_synthetic(
        int(rng.integers(40, 200)), 100, rank=3, observed=0.4, random_state=rng
    ).train
    settings = _SETTINGS[number % len(_SETTINGS)]
    (folder / "checkpoint").unlink(missing_ok=True)
    model = RobustMF(rank=3, random_state=number, n_jobs=2, **settings).fit(
        data, checkpoint=folder / "checkpoint", checkpoint_every=0.05
    )
    model.save(folder / "model")
    loaded = robustmf.load(folder / "model")
    new = data.to_sparse()[:20]
    loaded.predict(np.arange(20), np.arange(20))
    loaded.inverse_transform(loaded.transform(new))
    loaded.outlier_scores(data)
    loaded.recommend(0)
    loaded.partial_fit(new)
    for kind in (AltGrad, ScaledASD):
        kind(rank=3, max_iter=10, random_state=number, n_jobs=2).fit(data)


def _usage() -> dict[str, int]:
    """Bytes of memory, open files, threads and garbage-collected objects of this process."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    memory = re.search(r"^RssAnon:\s+(\d+) kB", status, re.M)
    assert memory is not None
    return {
        "memory": 1024 * int(memory[1]),
        "open files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "objects": len(gc.get_objects()),
    }


def _formatted(usage: dict[str, int]) -> str:
    return ", ".join(
        f"{name} {value / 1e6:.1f} MB" if name == "memory" else f"{name} {value}"
        for name, value in usage.items()
    )


def report_growth(seen: list[tuple[float, dict[str, int]]], rounds: int) -> int:
    """Compare the quarter after the warm-up with the last one, by medians."""
    seconds = seen[-1][0]
    first = [
        usage for elapsed, usage in seen if _WARM_UP * seconds <= elapsed < 2 * _WARM_UP * seconds
    ]
    last = [usage for elapsed, usage in seen if elapsed >= (1 - _WARM_UP) * seconds]
    medians = {
        name: [float(np.median([usage[name] for usage in part])) for part in (first, last)]
        for name in first[0]
    }
    growth = {name: after - before for name, (before, after) in medians.items()}
    allowed = {
        "memory": _NOISE,
        "open files": 0,
        "threads": 0,
        "objects": 0.01 * medians["objects"][0],
    }
    changes = ", ".join(
        f"{name} {growth[name] / 1e6:+.2f} MB"
        if name == "memory"
        else f"{name} {growth[name]:+.0f}"
        for name in growth
    )
    grown = [name for name in growth if growth[name] > allowed[name]]
    print(
        f"{rounds} rounds in {seconds / 60:.2g} min; "
        f"growth from the second quarter to the last: {changes}"
    )
    print(f"grown: {', '.join(grown)}" if grown else "nothing has grown")
    return int(bool(grown))


if __name__ == "__main__":
    sys.exit(main())
