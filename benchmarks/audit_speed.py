"""``robustmf audit`` as a user runs it: a file of ratings, a process of its own, seconds on the clock and of the processors."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_USERS, _ITEMS = 6040, 3706


def write_ratings(path: Path, n_entries: int, seed: int = 0) -> None:
    """Stars of MovieLens-1M's shape, long-tailed, with tastes; one in a hundred turned around, and twenty items that only get 5."""
    rng = np.random.default_rng(seed)
    wanted, items = int(1.4 * n_entries), _ITEMS * max(1, n_entries // 2_000_000)
    users = _USERS * items // _ITEMS
    popular, active = rng.lognormal(sigma=1.3, size=items), rng.lognormal(sigma=1.0, size=users)
    pairs = rng.choice(users, wanted, p=active / active.sum()) * items + rng.choice(
        items, wanted, p=popular / popular.sum()
    )
    i, j = np.divmod(rng.permutation(np.unique(pairs))[:n_entries], items)
    tastes = np.einsum(
        "tq,tq->t",
        0.45 * rng.standard_normal((users, 5))[i],
        0.6 * rng.standard_normal((items, 5))[j],
    )
    mean = 3.6 + 0.4 * rng.standard_normal(users)[i] + 0.5 * rng.standard_normal(items)[j] + tastes
    stars = np.clip(np.rint(mean + 0.7 * rng.standard_normal(len(i))), 1, 5).astype(int)
    turned = rng.random(len(i)) < 0.01
    stars[turned] = 6 - stars[turned]
    stars[np.isin(j, rng.choice(items, 20, replace=False))] = 5
    columns = np.column_stack([i + 1, j + 1, stars, 10**9 + np.arange(len(i))])
    np.savetxt(path, columns, "%d", ",", header="userId,movieId,rating,timestamp", comments="")


def run(n_entries: int, runs: int, announce: Callable[[str], None]) -> dict[str, Any]:
    """Look at the file, and clean it, ``runs`` times each after one that compiles."""
    with tempfile.TemporaryDirectory() as folder:
        ratings = Path(folder) / "ratings.csv"
        write_ratings(ratings, n_entries)
        looking = ["audit", str(ratings), "--json"]
        cleaning = [
            *looking,
            "-o",
            str(ratings.with_name("suspicious.csv")),
            "--clean",
            str(ratings.with_name("cleaned.csv")),
        ]
        _measured(looking)
        found: dict[str, Any] = {"entries": n_entries}
        for name, command in (("look", looking), ("clean", cleaning)):
            announce(name)
            found[name] = [_measured(command) for _ in range(runs)]
    return found


def _measured(arguments: list[str]) -> dict[str, float]:
    import resource  # noqa: PLC0415 - not on Windows, where the other measurements shall run

    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "robustmf.cli", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "seconds": seconds,
        "cpu_seconds": spent,
        "suspicious": json.loads(done.stdout)["suspicious_entries"],
    }


def table(found: dict[str, Any]) -> list[list[str]]:
    """One line a command: the medians and the longest."""
    lines = [["command", "runs", "median seconds", "longest", "median CPU seconds"]]
    for name, options in (("look", ""), ("clean", " -o suspicious.csv --clean cleaned.csv")):
        clock, spent = (
            np.array([run[kind] for run in found[name]]) for kind in ("seconds", "cpu_seconds")
        )
        shown = [f"{np.median(clock):.1f}", f"{clock.max():.1f}", f"{np.median(spent):.1f}"]
        lines.append([f"robustmf audit ratings.csv{options}", str(len(clock)), *shown])
    return lines
