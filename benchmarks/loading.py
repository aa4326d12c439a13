"""How long it takes to load ratings, and how much memory: CSV and Parquet of MovieLens-10M's size, files of Netflix's form."""

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

from robustmf.data.observed import Observed
from robustmf.datasets.catalog import MOVIELENS, NETFLIX
from robustmf.datasets.netflix import load_netflix
from robustmf.io.reading import read_ratings

#: Seconds that 10 million ratings may take.
BOUNDS = {"csv": 10.0, "parquet": 2.0}
_REPEATS = 3


def run(
    entries: int, netflix_entries: int, announce: Callable[[str], None]
) -> list[dict[str, Any]]:
    """A record a kind of file: seconds of each load, each in a process of its own, and its peak memory."""
    records = []
    with tempfile.TemporaryDirectory(prefix="robustmf-loading-") as folder:
        base = Path(folder)
        announce(
            f"writing {entries:,} ratings as CSV and Parquet, {netflix_entries:,} in Netflix's form"
        )
        # in a process of its own too: on Linux a child's peak begins at its parent's
        _call("write", base, str(entries), str(netflix_entries))
        for kind, path in (
            ("csv", base / "ratings.csv"),
            ("parquet", base / "ratings.parquet"),
            ("netflix", base / "part"),
            ("netflix", base),
        ):
            announce(f"loading {kind}")
            runs = [json.loads(_call(kind, path)) for _ in range(_REPEATS)]
            peak = max(one["peak_gigabytes"] for one in runs)
            records.append(
                {
                    "kind": kind,
                    "entries": runs[0]["entries"],
                    "seconds": [one["seconds"] for one in runs],
                    "peak_gigabytes": peak,
                }
            )
    return records


def tables(records: list[dict[str, Any]]) -> list[tuple[str, list[list[str]]]]:
    """The records as a table of text, with the whole of Netflix by a line through its two sizes."""
    lines = [["file", "ratings", "median seconds", "longest", "allowed", "peak GB"]]
    for one in records:
        allowed = (
            f"{BOUNDS[one['kind']]:g}"
            if one["kind"] in BOUNDS and one["entries"] >= 9_900_000
            else ""
        )
        shown = [
            f"{np.median(one['seconds']):.2f}",
            f"{max(one['seconds']):.2f}",
            allowed,
            f"{one['peak_gigabytes']:.2f}",
        ]
        lines.append([one["kind"], f"{one['entries']:,}", *shown])
    small, large = (one for one in records if one["kind"] == "netflix")

    def line(of: Callable[[dict[str, Any]], float]) -> float:
        slope = (of(large) - of(small)) / (large["entries"] - small["entries"])
        return of(large) + slope * (NETFLIX.n_ratings - large["entries"])

    seconds, peak = (
        line(lambda one: float(np.median(one["seconds"]))),
        line(lambda one: one["peak_gigabytes"]),
    )
    lines.append(
        [
            "netflix, whole, extrapolated",
            f"{NETFLIX.n_ratings:,}",
            f"{seconds:.0f}",
            "",
            "",
            f"{peak:.2f} (allowed 3)",
        ]
    )
    return [("Loading ratings, structure included, each in a process of its own", lines)]


def _call(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "benchmarks.loading", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _load(kind: str, path: Path) -> None:
    """Load once and print a record; kernels compiled and kept on disk beforehand."""
    Observed.from_triplets(row=np.array([1, 2]), col=np.array([1, 2]), value=np.array([1.0, 2.0]))
    started = time.perf_counter()
    loaded = load_netflix(path).ratings if kind == "netflix" else read_ratings(path)
    seconds = time.perf_counter() - started
    print(json.dumps({"entries": loaded.n_entries, "seconds": seconds, "peak_gigabytes": _peak()}))


def _write_table(base: Path, entries: int) -> None:
    """Distinct places in MovieLens-10M's shape in random order, half stars, time stamps; columns as its latest sets name them."""
    import pyarrow as pa  # noqa: PLC0415 - the command line imports this file at every start
    import pyarrow.csv as pacsv  # noqa: PLC0415 - as above
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    rng = np.random.default_rng(0)
    m, n = MOVIELENS["10m"].shape
    places = rng.permutation(np.unique(rng.integers(0, m * n, int(1.02 * entries)))[:entries])
    users, items = np.divmod(places, n)
    table = pa.table({
        "userId": users + 1,
        "movieId": 6 * items + 1,
        "rating": rng.integers(1, 11, len(places)) / 2,
        "timestamp": rng.integers(789_652_009, 1_231_131_736, len(places)),
    })  # fmt: skip
    pacsv.write_csv(table, base / "ratings.csv")
    pq.write_table(table, base / "ratings.parquet")


def _write_netflix(base: Path, entries: int) -> None:
    """Four files with Netflix's 480,189 users (numbered with gaps), 4,442 movies each; and a folder with the first file alone."""
    import pyarrow as pa  # noqa: PLC0415 - as above
    import pyarrow.csv as pacsv  # noqa: PLC0415 - as above

    rng = np.random.default_rng(1)
    (base / "netflix").mkdir()
    ids = rng.choice(2_649_429, NETFLIX.shape[0], replace=False) + 1
    movies = NETFLIX.shape[1] // 4
    for part in range(4):
        share = rng.exponential(size=movies)
        counts = np.maximum(1, (entries / 4 * share / share.sum()).astype(int))
        with (base / f"netflix/combined_data_{part + 1}.txt").open("wb") as file:
            for movie, count in enumerate(counts, part * movies + 1):
                # a window of the shuffled users, from anywhere: distinct and in no order
                users = np.take(
                    ids, rng.integers(len(ids)) + np.arange(min(count, len(ids))), mode="wrap"
                )
                table = pa.table(
                    [users, rng.integers(1, 6, len(users)), np.full(len(users), "2005-09-06")],
                    ["user", "rating", "date"],
                )
                file.write(f"{movie}:\n".encode())
                pacsv.write_csv(
                    table, file, pacsv.WriteOptions(include_header=False, quoting_style="none")
                )
    (base / "part/netflix").mkdir(parents=True)
    (base / "part/netflix/combined_data_1.txt").symlink_to(base / "netflix/combined_data_1.txt")


def _peak() -> float:
    import resource  # noqa: PLC0415 - not on Windows, where the other measurements shall run

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


if __name__ == "__main__":
    if sys.argv[1] == "write":
        _write_table(Path(sys.argv[2]), int(sys.argv[3]))
        _write_netflix(Path(sys.argv[2]), int(sys.argv[4]))
    else:
        _load(sys.argv[1], Path(sys.argv[2]))
