"""Mean absolute error in pixels on the Dinosaur tracks, l1 loss, from random initial points.

Needs ``dinosaur/viff.xy`` in the data folder (environment variable ROBUSTMF_DATA).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import announce, column, grouped, markdown, timed
from robustmf.datasets import load_dinosaur
from robustmf.estimator import RobustMF

SMALL = {"seeds": 1}

#: Least number of frames in which a point is visible, and the error to be reached.
BOUNDS = {5: 0.302, 6: 0.336, 7: 0.319}


def run(seeds: int = 10, first_seed: int = 0, data: Path | None = None) -> list[dict[str, Any]]:
    """One record per data set and seed."""
    records = []
    for min_views, bound in BOUNDS.items():
        tracks = load_dinosaur(min_views, data)
        for seed in range(first_seed, first_seed + seeds):
            announce(f"D{min_views - 4}, seed {seed}")
            model = RobustMF(4, loss="l1", reg=1e-9, tol=1e-6, random_state=seed)
            seconds, _ = timed(partial(model.fit, tracks))
            error = -model.score(tracks, rows="fitted")
            records.append(
                {
                    "data": f"D{min_views - 4}",
                    "seed": seed,
                    "error": error,
                    "bound": bound,
                    "seconds": seconds,
                }
            )
    return records


def table(results: list[dict[str, Any]]) -> str:
    """One row per data set."""
    rows = []
    for (name, bound), runs in grouped(results, "data", "bound").items():
        errors = column(runs, "error")
        seconds = column(runs, "seconds")
        rows.append(
            [
                name,
                f"{(errors <= bound).sum()} of {len(errors)} below {bound}",
                f"{np.median(errors):.4f}",
                f"{errors.max():.4f}",
                f"{np.median(seconds):.2f}",
                f"{seconds.max():.2f}",
            ]
        )
    header = ["data", "runs", "median error", "largest", "median seconds", "longest"]
    return markdown("Training error, rank 4", header, rows)
