"""Selecting 10 % of 10 million entries for validation, by hash and by permutation."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measure import markdown, part, quickest
from robustmf.data.hashing import hash_ids
from robustmf.data.holdout import select_by_hash, select_by_permutation
from robustmf.data.observed import Compressed, Observed

SMALL = {"scale": 0.001}
ROWS = 100_000
COLUMNS = 20_000
PER_ROW = 100


def run(scale: float = 1.0) -> dict[str, Any]:
    """Seconds (the quickest of three) and peak bytes per entry; seconds of hashing ids."""
    rng = np.random.default_rng(0)
    m = part(ROWS, scale)
    step = COLUMNS // PER_ROW
    offsets = np.arange(0, COLUMNS, step, dtype=np.int32)
    columns = (rng.integers(0, step, (m, PER_ROW), dtype=np.int32) + offsets).ravel()
    values = rng.standard_normal(m * PER_ROW, dtype=np.float32)
    pointers = np.arange(0, m * PER_ROW + 1, PER_ROW)
    observed = Observed(Compressed(pointers, columns, values), (m, COLUMNS))
    selectors: dict[str, Callable[..., Any]] = {
        "hash": partial(select_by_hash, seed=0),
        "permutation": partial(select_by_permutation, rng=rng),
    }
    found: dict[str, Any] = {"entries": observed.n_entries, "ids": m}
    for name, select in selectors.items():
        work = partial(select, observed, None, 0.1)
        seconds = quickest(work, 3)
        tracemalloc.start()
        work()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        found[name] = {"seconds": seconds, "bytes_per_entry": peak / observed.n_entries}
    ids = [f"user {k}" for k in range(m)]
    found["hash_ids_seconds"] = quickest(partial(hash_ids, ids), 3)
    return found


def table(results: dict[str, Any]) -> str:
    """One row per selector."""
    rows = [
        [name, f"{results[name]['seconds']:.2f}", f"{results[name]['bytes_per_entry']:.1f}"]
        for name in ("hash", "permutation")
    ]
    rows.append([f"hashing {results['ids']:,} text ids", f"{results['hash_ids_seconds']:.2f}", ""])
    title = f"{results['entries']:,} entries"
    return markdown(title, ["selection", "seconds", "peak bytes per entry"], rows)
