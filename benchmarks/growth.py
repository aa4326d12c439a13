"""Seconds per sweep of irls against the number of entries, the rank and the threads.

Welsch loss, float32, 100 entries per row, long-tailed columns; the quickest of five sweeps.
"""

from __future__ import annotations

from typing import Any

from benchmarks.measure import announce, markdown, part, quickest
from benchmarks.problems import long_tailed, operations, random_factors
from robustmf.data.observed import Observed
from robustmf.losses import Welsch

SMALL = {"scale": 0.001}
ENTRIES = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
RANKS = (1, 2, 4, 8, 16, 32, 64, 128)
THREADS = (1, 2)

#: Entries and rank where the other quantity varies.
BASE_ENTRIES = 3_000_000
BASE_RANK = 10


def run(scale: float = 1.0) -> dict[str, list[dict[str, Any]]]:
    """Seconds along each of the three axes."""
    record: dict[str, list[dict[str, Any]]] = {"entries": [], "rank": [], "threads": []}
    for entries in ENTRIES:
        observed = _problem(part(entries, scale))
        announce(f"{observed.n_entries:,} entries")
        seconds = sweep_seconds(observed, BASE_RANK, 1)
        record["entries"].append({"x": observed.n_entries, "seconds": seconds})
    observed = _problem(part(BASE_ENTRIES, scale))
    for rank in RANKS:
        announce(f"rank {rank}")
        record["rank"].append({"x": rank, "seconds": sweep_seconds(observed, rank, 1)})
    for threads in THREADS:
        for rank in (5, 10, 32):
            seconds = sweep_seconds(observed, rank, threads)
            point = {"x": threads, "rank": rank, "entries": observed.n_entries}
            record["threads"].append({**point, "seconds": seconds})
    return record


def _problem(entries: int) -> Observed:
    return long_tailed(max(60, entries // 100), max(60, entries // 300), entries)


def sweep_seconds(observed: Observed, rank: int, threads: int) -> float:
    """The quickest of five sweeps."""
    U, V = random_factors(observed.shape, rank, 0)
    with operations(observed, threads) as on_rows:
        on_columns = on_rows.transposed

        def sweep() -> None:
            on_rows.half_step(Welsch(1.0), 0.1, U, V)
            on_columns.half_step(Welsch(1.0), 0.1, V, U)

        return quickest(sweep, 5)


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    """One table per axis."""
    one = {line["rank"]: line["seconds"] for line in results["threads"] if line["x"] == 1}
    tables = []
    for axis in ("entries", "rank"):
        rows = [[f"{point['x']:,}", f"{point['seconds']:.4f}"] for point in results[axis]]
        tables.append(markdown(f"A sweep against {axis}, one thread", [axis, "seconds"], rows))
    threads = [
        [p["x"], p["rank"], f"{p['seconds']:.4f}", f"{one[p['rank']] / p['seconds']:.2f}"]
        for p in results["threads"]
    ]
    title = f"A sweep of {results['threads'][0]['entries']:,} entries against threads"
    tables.append(markdown(title, ["threads", "rank", "seconds", "speed-up"], threads))
    return "\n".join(tables)


def figure(results: dict[str, list[dict[str, Any]]]) -> None:
    """Seconds against entries and rank."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 - an extra

    _, panels = plt.subplots(1, 2)
    for axes, axis in zip(panels, ("entries", "rank"), strict=True):
        points = results[axis]
        x = [point["x"] for point in points]
        axes.loglog(x, [point["seconds"] for point in points], "o-", markersize=4)
        axes.set(xlabel=axis, ylabel="seconds", title=f"A sweep against {axis}")
