"""How a sweep of irls grows with the entries, the rank and the threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.irls_speed import long_tailed
from benchmarks.sizes import part
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.data.observed import Observed
from robustmf.kernels.team import Team
from robustmf.losses import Welsch

ENTRIES = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
RANKS = (1, 2, 4, 8, 16, 32, 64, 128)
THREADS = (1, 2)

_BASE_ENTRIES, _BASE_RANK, _REPEATS = 3_000_000, 10, 5


def _problem(entries: int) -> Observed:
    return long_tailed(max(60, entries // 100), max(60, entries // 300), entries)


def sweep_seconds(observed: Observed, rank: int, threads: int) -> float:
    """The quickest of a few sweeps with the Welsch loss, float32."""
    rng = np.random.default_rng(0)
    U, V = (rng.standard_normal((k, rank)).astype(np.float32) for k in observed.shape)
    best = np.inf
    with Team(threads) as team:
        operations = CPUOperations(observed, team)
        for _ in range(_REPEATS + 1):
            started = time.perf_counter()
            operations.half_step(Welsch(1.0), 0.1, U, V)
            operations.transposed.half_step(Welsch(1.0), 0.1, V, U)
            best = min(best, time.perf_counter() - started)
    return best


def run(scale: float, announce: Callable[[str], None]) -> dict[str, list[dict[str, Any]]]:
    """Seconds a sweep along each of the three axes, the others held; 100 entries a row."""
    record: dict[str, list[dict[str, Any]]] = {"entries": [], "rank": [], "threads": []}
    for entries in (part(full, scale) for full in ENTRIES):
        announce(f"{entries:,} entries")
        observed = _problem(entries)
        record["entries"].append(
            {"x": observed.n_entries, "seconds": sweep_seconds(observed, _BASE_RANK, 1)}
        )
    observed = _problem(part(_BASE_ENTRIES, scale))
    for rank in RANKS:
        announce(f"rank {rank}")
        record["rank"].append({"x": rank, "seconds": sweep_seconds(observed, rank, 1)})
    for threads in THREADS:
        for rank in (5, 10, 32):
            record["threads"].append(
                {
                    "x": threads,
                    "rank": rank,
                    "entries": observed.n_entries,
                    "seconds": sweep_seconds(observed, rank, threads),
                }
            )
    return record


def tables(record: dict[str, list[dict[str, Any]]]) -> list[tuple[str, list[list[str]]]]:
    """The record as tables of text."""
    shown = []
    for axis in ("entries", "rank"):
        shown.append(
            (
                f"a sweep against {axis}",
                [
                    [axis, "seconds"],
                    *([f"{line['x']:,}", f"{line['seconds']:.4f}"] for line in record[axis]),
                ],
            )
        )
    one = {line["rank"]: line["seconds"] for line in record["threads"] if line["x"] == 1}
    lines = [
        [str(p["x"]), str(p["rank"]), f"{p['seconds']:.4f}", f"{one[p['rank']] / p['seconds']:.2f}"]
        for p in record["threads"]
    ]
    return [
        *shown,
        (
            f"a sweep of {record['threads'][0]['entries']:,} entries against threads",
            [["threads", "rank", "seconds", "speed-up"], *lines],
        ),
    ]
