"""What it costs on one machine to set entries aside, chosen by the hash of their place or by permutation.

Run as ``python benchmarks/set_aside.py``.
"""

from __future__ import annotations

import time
import tracemalloc
from functools import partial

import numpy as np

from robustmf.data.hashing import hash_ids
from robustmf.data.holdout import select_by_hash, select_by_permutation
from robustmf.data.observed import Compressed, Observed

ROWS, COLUMNS, A_ROW = 100_000, 20_000, 100


def main() -> None:
    """Seconds (the quickest of three) and peak bytes an entry of both, for 10 million entries."""
    rng = np.random.default_rng(0)
    step = COLUMNS // A_ROW
    columns = (
        rng.integers(0, step, (ROWS, A_ROW), dtype=np.int32)
        + np.arange(0, COLUMNS, step, dtype=np.int32)
    ).ravel()
    values = rng.standard_normal(ROWS * A_ROW, dtype=np.float32)
    observed = Observed(
        Compressed(np.arange(0, ROWS * A_ROW + 1, A_ROW), columns, values), (ROWS, COLUMNS)
    )
    for name, choose in {
        "hash": partial(select_by_hash, seed=0),
        "permutation": partial(select_by_permutation, rng=rng),
    }.items():
        seconds = min(_seconds(partial(choose, observed, None, 0.1)) for _ in range(3))
        tracemalloc.start()
        choose(observed, None, 0.1)
        print(
            f"{name}: {seconds:.2f} s, {tracemalloc.get_traced_memory()[1] / observed.n_entries:.1f} bytes an entry"
        )
        tracemalloc.stop()
    ids = [f"user {k}" for k in range(ROWS)]
    print(f"{ROWS} ids of text: {min(_seconds(partial(hash_ids, ids)) for _ in range(3)):.2f} s")


def _seconds(call: partial[object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
