"""Reading ratings from CSV, Parquet and files in Netflix's format: seconds and peak memory.

Each file is read in a separate process, the structures that fits use included.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import announce, in_new_process, markdown, peak_gigabytes, timed
from robustmf.data.observed import Observed
from robustmf.datasets.catalog import MOVIELENS, NETFLIX
from robustmf.datasets.netflix import load_netflix
from robustmf.io import read_ratings

SMALL = {"entries": 10_000, "netflix_entries": 10_000, "repeats": 1}

#: Seconds that 10 million ratings may take.
BOUNDS = {"csv": 10.0, "parquet": 2.0}


def run(
    entries: int = 10_000_000, netflix_entries: int = 20_000_000, repeats: int = 3
) -> list[dict[str, Any]]:
    """One record per file; Netflix's format in two sizes."""
    records = []
    with tempfile.TemporaryDirectory(prefix="robustmf-loading-") as folder:
        base = Path(folder)
        announce(f"writing {entries:,} ratings, and {netflix_entries:,} in Netflix's format")
        # in a separate process: on Linux the peak of a child begins at that of its parent
        in_new_process(_write, base, entries, netflix_entries)
        files = {
            "ratings.csv": "csv",
            "ratings.parquet": "parquet",
            "part": "netflix",
            "": "netflix",
        }
        for name, kind in files.items():
            announce(f"reading {kind}")
            runs = [in_new_process(_read, kind, base / name) for _ in range(repeats)]
            records.append(
                {
                    "kind": kind,
                    "entries": runs[0]["entries"],
                    "seconds": [one["seconds"] for one in runs],
                    "peak_gigabytes": max(one["peak_gigabytes"] for one in runs),
                }
            )
    return records


def _read(kind: str, path: Path) -> dict[str, Any]:
    """Read once, after a conversion that loads the compiled kernels."""
    Observed.from_triplets(row=np.array([1, 2]), col=np.array([1, 2]), value=np.array([1.0, 2.0]))
    seconds, loaded = timed(
        lambda: load_netflix(path).ratings if kind == "netflix" else read_ratings(path)
    )
    peak = peak_gigabytes()
    return {"entries": loaded.n_entries, "seconds": seconds, "peak_gigabytes": peak}


def _write(base: Path, entries: int, netflix_entries: int) -> None:
    import pyarrow as pa  # noqa: PLC0415 - only the process that writes needs it
    import pyarrow.csv as pacsv  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    rng = np.random.default_rng(0)
    m, n = MOVIELENS["10m"].shape
    positions = np.unique(rng.integers(0, m * n, int(1.02 * entries)))[:entries]
    users, items = np.divmod(rng.permutation(positions), n)
    table = pa.table(
        {
            "userId": users + 1,
            "movieId": 6 * items + 1,
            "rating": rng.integers(1, 11, len(positions)) / 2,
            "timestamp": rng.integers(789_652_009, 1_231_131_736, len(positions)),
        }
    )
    pacsv.write_csv(table, base / "ratings.csv")
    pq.write_table(table, base / "ratings.parquet")
    _write_netflix(base, netflix_entries)


def _write_netflix(base: Path, entries: int) -> None:
    """Write four files with 4,442 movies each, and a folder that holds the first file alone."""
    import pyarrow as pa  # noqa: PLC0415 - only the process that writes needs it
    import pyarrow.csv as pacsv  # noqa: PLC0415

    rng = np.random.default_rng(1)
    (base / "netflix").mkdir()
    ids = rng.choice(2_649_429, NETFLIX.shape[0], replace=False) + 1
    movies = NETFLIX.shape[1] // 4
    options = pacsv.WriteOptions(include_header=False, quoting_style="none")
    for part in range(4):
        share = rng.exponential(size=movies)
        counts = np.maximum(1, (entries / 4 * share / share.sum()).astype(int))
        with (base / f"netflix/combined_data_{part + 1}.txt").open("wb") as file:
            for movie, count in enumerate(counts, part * movies + 1):
                # a window of the shuffled users: distinct and in no order
                window = rng.integers(len(ids)) + np.arange(min(count, len(ids)))
                users = np.take(ids, window, mode="wrap")
                stars = rng.integers(1, 6, len(users))
                dates = np.full(len(users), "2005-09-06")
                file.write(f"{movie}:\n".encode())
                table = pa.table([users, stars, dates], ["user", "rating", "date"])
                pacsv.write_csv(table, file, options)
    (base / "part/netflix").mkdir(parents=True)
    (base / "part/netflix/combined_data_1.txt").symlink_to(base / "netflix/combined_data_1.txt")


def table(results: list[dict[str, Any]]) -> str:
    """One row per file, and complete Netflix by linear extrapolation from its two sizes."""
    rows = []
    for one in results:
        bounded = one["kind"] in BOUNDS and one["entries"] >= 9_900_000
        rows.append(
            [
                one["kind"],
                f"{one['entries']:,}",
                f"{np.median(one['seconds']):.2f}",
                f"{max(one['seconds']):.2f}",
                f"{BOUNDS[one['kind']]:g}" if bounded else "",
                f"{one['peak_gigabytes']:.2f}",
            ]
        )
    small, large = (one for one in results if one["kind"] == "netflix")

    def extrapolated(value: Callable[[dict[str, Any]], float]) -> float:
        slope = (value(large) - value(small)) / (large["entries"] - small["entries"])
        return value(large) + slope * (NETFLIX.n_ratings - large["entries"])

    seconds = extrapolated(lambda one: float(np.median(one["seconds"])))
    peak = extrapolated(lambda one: one["peak_gigabytes"])
    complete = ["netflix, extrapolated", f"{NETFLIX.n_ratings:,}", f"{seconds:.0f}", "", ""]
    rows.append([*complete, f"{peak:.2f}"])
    header = ["file", "ratings", "median seconds", "longest", "bound", "peak GB"]
    return markdown("", header, rows)
