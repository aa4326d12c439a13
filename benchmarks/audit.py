"""``robustmf audit`` of a CSV file with a million ratings, as a user runs it: seconds.

Every run is a separate process, timed from its start to its end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import announce, column, markdown

SMALL = {"entries": 20_000, "runs": 1}

#: Users and items of MovieLens-1M.
_USERS = 6040
_ITEMS = 3706


def write_ratings(path: Path, n_entries: int, seed: int = 0) -> None:
    """Write long-tailed star ratings with 1 % reversed, and twenty items that only receive 5."""
    rng = np.random.default_rng(seed)
    drawn = int(1.4 * n_entries)
    items = _ITEMS * max(1, n_entries // 2_000_000)
    users = _USERS * items // _ITEMS
    popularity = rng.lognormal(sigma=1.3, size=items)
    activity = rng.lognormal(sigma=1.0, size=users)
    i = rng.choice(users, drawn, p=activity / activity.sum())
    j = rng.choice(items, drawn, p=popularity / popularity.sum())
    i, j = np.divmod(rng.permutation(np.unique(i * items + j))[:n_entries], items)
    U = 0.45 * rng.standard_normal((users, 5))
    V = 0.6 * rng.standard_normal((items, 5))
    mean = 3.6 + 0.4 * rng.standard_normal(users)[i] + 0.5 * rng.standard_normal(items)[j]
    mean += np.einsum("tq,tq->t", U[i], V[j])
    stars = np.clip(np.rint(mean + 0.7 * rng.standard_normal(len(i))), 1, 5).astype(int)
    reversed_ = rng.random(len(i)) < 0.01
    stars[reversed_] = 6 - stars[reversed_]
    stars[np.isin(j, rng.choice(items, 20, replace=False))] = 5
    columns = np.column_stack([i + 1, j + 1, stars, 10**9 + np.arange(len(i))])
    np.savetxt(path, columns, "%d", ",", header="userId,movieId,rating,timestamp", comments="")


def run(entries: int = 1_000_000, runs: int = 3) -> dict[str, Any]:
    """Audit the file, and write it cleaned, ``runs`` times each after one that compiles."""
    with tempfile.TemporaryDirectory() as folder:
        ratings = Path(folder) / "ratings.csv"
        write_ratings(ratings, entries)
        audit = ["audit", str(ratings), "--json"]
        cleaned = str(ratings.with_name("cleaned.csv"))
        clean = ["clean", str(ratings), "-o", cleaned, "--json"]
        _measured(audit)
        found: dict[str, Any] = {"entries": entries}
        for name, command in (("audit", audit), ("robustmf clean", clean)):
            announce(name)
            found[name] = [_measured(command) for _ in range(runs)]
    return found


def _measured(arguments: list[str]) -> dict[str, float]:
    import resource  # noqa: PLC0415 - does not exist on Windows

    command = [sys.executable, "-m", "robustmf.cli", *arguments]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    document = json.loads(done.stdout)
    suspicious = document.get("suspicious_entries", document.get("removed"))
    return {"seconds": seconds, "cpu_seconds": used, "suspicious": suspicious}


def table(results: dict[str, Any]) -> str:
    """One row per command that was measured."""
    rows = []
    commands = {
        "audit": "robustmf audit ratings.csv",
        "robustmf clean": "robustmf clean ratings.csv -o cleaned.csv",
    }
    for name, command in commands.items():
        if name not in results:
            continue
        seconds = column(results[name], "seconds")
        used = np.median(column(results[name], "cpu_seconds"))
        figures = [f"{np.median(seconds):.1f}", f"{seconds.max():.1f}", f"{used:.1f}"]
        rows.append([f"`{command}`", len(seconds), *figures])
    header = ["command", "runs", "median seconds", "longest", "median CPU seconds"]
    return markdown(f"{results['entries']:,} ratings", header, rows)
