"""Dinosaur tracks from random starts: mean absolute error in pixels, seconds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from robustmf.datasets import load_dinosaur
from robustmf.estimator import RobustMF

#: Frames a point must be seen in, and the error to be reached.
BOUNDS = {5: 0.302, 6: 0.336, 7: 0.319}


def run(seeds: int, first_seed: int, folder: Path | None) -> list[dict[str, Any]]:
    """One record a data set and seed."""
    records = []
    for min_views, bound in BOUNDS.items():
        tracks = load_dinosaur(min_views, folder)
        for seed in range(first_seed, first_seed + seeds):
            started = time.perf_counter()
            model = RobustMF(4, loss="l1", reg=1e-9, tol=1e-6, random_state=seed).fit(tracks)
            seconds = time.perf_counter() - started
            records.append(
                {
                    "data": f"D{min_views - 4}",
                    "seed": seed,
                    "error": -model.score(tracks, rows="fitted"),
                    "bound": bound,
                    "seconds": seconds,
                }
            )
    return records


def summary(records: list[dict[str, Any]]) -> list[list[str]]:
    """One line a data set."""
    lines = [["data", "within", "bound", "median error", "largest", "median seconds", "longest"]]
    for name in dict.fromkeys(r["data"] for r in records):
        chosen = [r for r in records if r["data"] == name]
        errors, seconds = sorted(r["error"] for r in chosen), sorted(r["seconds"] for r in chosen)
        good = sum(r["error"] <= r["bound"] for r in chosen)
        middle = len(chosen) // 2
        shown = [
            f"{errors[middle]:.4f}",
            f"{errors[-1]:.4f}",
            f"{seconds[middle]:.2f}",
            f"{seconds[-1]:.2f}",
        ]
        lines.append([name, f"{good} of {len(chosen)}", f"{chosen[0]['bound']}", *shown])
    return lines
