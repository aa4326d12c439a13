"""Selecting 10 % of 10 million entries for validation."""

from __future__ import annotations

import tracemalloc
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measure import markdown, part, quickest
from robustmf.data.hashing import hash_ids
from robustmf.data.holdout import select_by_hash
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
    select = partial(select_by_hash, observed, None, 0.1, 0)
    seconds = quickest(select, 3)
    tracemalloc.start()
    select()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    ids = [f"user {k}" for k in range(m)]
    return {
        "entries": observed.n_entries,
        "ids": m,
        "hash": {"seconds": seconds, "bytes_per_entry": peak / observed.n_entries},
        "hash_ids_seconds": quickest(partial(hash_ids, ids), 3),
    }


def table(results: dict[str, Any]) -> str:
    """The selection, and the hashes of ids."""
    found = results["hash"]
    rows = [["selection", f"{found['seconds']:.2f}", f"{found['bytes_per_entry']:.1f}"]]
    rows.append([f"hashing {results['ids']:,} text ids", f"{results['hash_ids_seconds']:.2f}", ""])
    title = f"{results['entries']:,} entries"
    return markdown(title, ["step", "seconds", "peak bytes per entry"], rows)
