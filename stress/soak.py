"""``python -m stress.soak --minutes 60``: fits, predictions, files, over and over; memory, open files and threads must not grow.

Prints a line each minute and the growth at the end; exits with 1 where something grew.
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

#: The first share of the time, in which caches and the allocator's pools fill, does not count.
_WARM_UP = 0.25

#: Memory may be higher at the end than after the warm-up by so much: what one fit more or less leaves with the allocator.
_NOISE = 8 << 20

_WAYS: list[dict[str, Any]] = [
    {"solver": "irls"},
    {"solver": "irls", "bias": True, "loss": "huber"},
    {"solver": "mm", "loss": "lsp", "max_iter": 20},
    {"solver": "varpro", "max_iter": 10},
    {"solver": "irls", "loss": "l1", "certify": True, "max_iter": 5},
    {"validation_fraction": 0.1, "n_init": 2, "init": "random"},
]


def main() -> int:
    """Run for so many minutes; exit status."""
    parser = argparse.ArgumentParser(prog="python -m stress.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    warnings.simplefilter("ignore", RobustMFWarning)
    rng, seconds, rounds = np.random.default_rng(asked.seed), 60 * asked.minutes, 0
    began = told = time.monotonic()
    seen: list[tuple[float, dict[str, int]]] = []
    with tempfile.TemporaryDirectory() as folder:
        while (gone := time.monotonic() - began) < seconds or not seen:
            _one_round(rounds, rng, Path(folder))
            rounds += 1
            if time.monotonic() - told >= min(60, seconds / 20):
                told = time.monotonic()
                seen.append((gone, _held()))
                print(f"{gone / 60:6.1f} min, {rounds} rounds: {_said(seen[-1][1])}", flush=True)
    return _judged(seen, seconds, rounds)


def _one_round(number: int, rng: np.random.Generator, folder: Path) -> None:
    """All that a long-lived process would do with one set of data."""
    data = make_synthetic(
        int(rng.integers(40, 200)), 100, rank=3, observed=0.4, random_state=rng
    ).train
    way = _WAYS[number % len(_WAYS)]
    (folder / "checkpoint").unlink(missing_ok=True)
    model = RobustMF(rank=3, random_state=number, n_jobs=2, **way).fit(
        data, checkpoint=folder / "checkpoint", checkpoint_every=0.05
    )
    model.save(folder / "model")
    again = robustmf.load(folder / "model")
    new = data.to_sparse()[:20]
    again.predict(np.arange(20), np.arange(20))
    again.inverse_transform(again.transform(new))
    again.outlier_scores(data)
    again.recommend(0)
    again.partial_fit(new)
    for kind in (AltGrad, ScaledASD):
        kind(rank=3, max_iter=10, random_state=number, n_jobs=2).fit(data)


def _held() -> dict[str, int]:
    """What this process holds: bytes of memory, open files, threads, objects that the collector knows."""
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


def _said(held: dict[str, int]) -> str:
    return ", ".join(
        f"{name} {value / 1e6:.1f} MB" if name == "memory" else f"{name} {value}"
        for name, value in held.items()
    )


def _judged(seen: list[tuple[float, dict[str, int]]], seconds: float, rounds: int) -> int:
    """Compare the quarter after the warm-up with the last one, by medians."""
    first = [held for gone, held in seen if _WARM_UP * seconds <= gone < 2 * _WARM_UP * seconds]
    last = [held for gone, held in seen if gone >= (1 - _WARM_UP) * seconds]
    if not first or not last:
        print("too short to tell: --minutes 5 or more")
        return 1
    middle = {
        name: [float(np.median([held[name] for held in part])) for part in (first, last)]
        for name in first[0]
    }
    growth = {name: after - before for name, (before, after) in middle.items()}
    allowed = {
        "memory": _NOISE,
        "open files": 0,
        "threads": 0,
        "objects": 0.01 * middle["objects"][0],
    }
    told = ", ".join(
        f"{name} {growth[name] / 1e6:+.2f} MB"
        if name == "memory"
        else f"{name} {growth[name]:+.0f}"
        for name in growth
    )
    grown = [name for name in growth if growth[name] > allowed[name]]
    print(
        f"{rounds} rounds in {seconds / 60:g} min; growth from the second quarter to the last: {told}"
    )
    print(f"grown: {', '.join(grown)}" if grown else "nothing has grown")
    return int(bool(grown))


if __name__ == "__main__":
    sys.exit(main())
