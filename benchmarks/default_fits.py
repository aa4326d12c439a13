"""Default fits against 20 sweeps of irls, against cmfrec, and on small, corrupted and dense tables.

Seconds of default fits of synthetic tables (rank 5, noise 0.3, 5 % outliers, long-tailed columns,
float32), with and without a given rank, relative to 20 sweeps from random factors, without the
rest of their fit. MovieLens-1M and Jester, a tenth of the entries held out: CPU seconds of fit and
prediction, and RMSE, beside cmfrec with its default settings (15 iterations of exact ALS) and the
same rank, one thread each. The other tables have the CPU seconds at commit 90051e4 beside those
now.

Each fit runs in a separate process, after one of a part of the table, so that compiled kernels are
loaded. With one thread seconds are CPU seconds, otherwise those that pass. ``ROBUSTMF_DATA`` names
the folder of the files; tables without one are named.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import announce, in_new_process, markdown, peak_gigabytes, side, timed
from benchmarks.problems import long_tailed, pair_products, random_factors
from benchmarks.real_tables import (
    HELD_OUT,
    TABLES,
    Array,
    cmfrec_predictions,
    data_folder,
    prediction_error,
)
from robustmf.data.observed import Observed
from robustmf.datasets import make_synthetic, make_video
from robustmf.estimator import RobustMF
from robustmf.selection import entry_split

SMALL = {"largest": 3_000, "scale": 0.001}

SIZES = tuple(10**k for k in range(4, 9))
RANK = 5
NOISE = 0.3
OUTLIERS = 0.05
SWEEPS = 20

#: Entries of the fit that loads the compiled kernels: more than are searched whole.
_WARM_UP = 300_000

#: The default ridge of cmfrec.
_CMFREC_RIDGE = 10.0

RATINGS = ("MovieLens-1M", "Jester")

#: Entries that are drawn together.
_PART = 4_000_000


def run(
    data: Path | None = None,
    largest: int = 1_000_000,
    scale: float = 1.0,
    threads: int = 1,
    only: str = "",
) -> dict[str, list[dict[str, Any]]]:
    """All parts, or one of growth, ratings and tables; ``largest`` entries, at most, in the first.

    ``scale`` is that of the size of the tables of the last part; ``threads`` are those of the
    first.
    """
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "growth": partial(_growth, largest, threads),
        "ratings": partial(_ratings, data),
        "tables": partial(_tables, scale),
    }
    return {name: part() if only in name else [] for name, part in parts.items()}


# --- synthetic tables of growing size ---


def synthetic(entries: int) -> Observed:
    """A table with about as many entries, and more rows and columns the more it has."""
    m = max(entries // 100, round(2 * entries**0.5))
    observed = long_tailed(m, round(1.5 * entries**0.5), round(1.1 * entries))
    U, V = random_factors(observed.shape, RANK, 1)
    rng = np.random.default_rng(2)
    i = observed.rows.group_of_entry()
    values = observed.rows.values * np.float32(NOISE)
    for low in range(0, len(values), _PART):
        part = slice(low, low + _PART)
        values[part] += pair_products(U, V, i[part], observed.rows.indices[part])
    bad = rng.random(len(values), dtype=np.float32) < OUTLIERS
    size = np.float32(5 * RANK**0.5)
    values[bad] += size * rng.choice(np.array([-1, 1], np.float32), int(bad.sum()))
    return observed.with_values(values)


def _growth(largest: int, threads: int) -> list[dict[str, Any]]:
    records = []
    for entries in [size for size in SIZES if size <= largest] or [largest]:
        record: dict[str, Any] = {"threads": threads}
        for name in ("sweeps", "rank given", "default"):
            found = in_new_process(growth_fit, name, entries, threads)
            announce(f"{entries:,} entries, {name}: {found}")
            record["entries"] = found.pop("entries")
            record[name] = found
        records.append(record)
    return records


def growth_fit(name: str, entries: int, threads: int) -> dict[str, Any]:
    """Seconds of 20 sweeps (and their fit), or of a default fit with or without a given rank."""
    observed = synthetic(entries)
    if name != "sweeps":
        rank = "auto" if name == "default" else RANK
        found = _measured(partial(_default_fit, rank, threads), observed, threads)
        return {"entries": observed.n_entries, **found}
    times: list[float] = []

    def fit(table: Observed) -> RobustMF:
        times.clear()
        return RobustMF(
            RANK,
            theta=4 * NOISE,
            reg=1.0,
            init=random_factors(table.shape, RANK, 3),
            max_iter=SWEEPS,
            tol=1e-12,
            random_state=0,
            n_jobs=threads,
            callbacks=[lambda _: times.append(_clock(threads)())],
        ).fit(table)

    found = _measured(fit, observed, threads)
    fit_seconds = found["seconds"]
    found |= {"seconds": times[-1] - times[0], "fit_seconds": fit_seconds}
    return {"entries": observed.n_entries, **found}


def _default_fit(rank: int | str, threads: int, table: Observed) -> RobustMF:
    return RobustMF(rank, random_state=0, n_jobs=threads).fit(table)


def _clock(threads: int) -> Callable[[], float]:
    return time.process_time if threads == 1 else time.perf_counter


def _measured(
    fit: Callable[[Observed], RobustMF], observed: Observed, threads: int = 1
) -> dict[str, Any]:
    """Seconds, rank, iterations and memory of a fit, after one of a part of the table."""
    first = int(np.searchsorted(observed.rows.pointers, observed.n_entries - _WARM_UP))
    fit(observed.later_rows(first) if observed.n_entries > _WARM_UP else observed)
    before = peak_gigabytes()
    seconds, model = timed(lambda: fit(observed), _clock(threads))
    return {
        "seconds": seconds,
        "rank": int(model.rank_),
        "solver": model.solver_,
        "iterations": int(model.n_iter_),
        "peak_gigabytes": peak_gigabytes(),
        "peak_before_gigabytes": before,
    }


# --- ratings, beside cmfrec ---


def _ratings(data: Path | None) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for name in RATINGS:
        try:
            own = in_new_process(rated, name, data_folder(data), None)
        except RuntimeError as error:
            announce(f"{name}: {error}")
            records.append({"table": name, "missing": True})
            continue
        record = {"table": name, "default": own, "cmfrec": None}
        if importlib.util.find_spec("cmfrec") is not None:
            record["cmfrec"] = in_new_process(rated, name, data_folder(data), own["rank"])
        records.append(record)
        announce(f"{record}")
    return records


def rated(name: str, folder: Path, rank: int | None) -> dict[str, Any]:
    """CPU seconds and RMSE of the default fit, or of cmfrec with a rank."""
    table = TABLES[name](folder)
    entries = Observed(table.entries.rows, table.entries.shape)  # positions instead of ids
    train, test = entry_split(entries, (1 - HELD_OUT, HELD_OUT), 0)
    found: dict[str, Any] = {"rank": rank}

    def predicted() -> Array:
        if rank is not None:
            return cmfrec_predictions(train, test, rank, _CMFREC_RIDGE)
        model = RobustMF(random_state=0, n_jobs=1).fit(train)
        found.update(rank=int(model.rank_), bias=bool(model.has_bias_))
        return np.asarray(model.predict(test.rows.group_of_entry(), test.rows.indices))

    predicted()
    seconds, predictions = timed(predicted, time.process_time)
    rmse = prediction_error(table, test, predictions)
    memory = peak_gigabytes()
    return {**found, "entries": train.n_entries, "seconds": seconds, "rmse": rmse} | {
        "peak_gigabytes": memory
    }


# --- small, corrupted and dense tables ---


def _corrupted(share: float, scale: float) -> Observed:
    m = side(400, scale)
    return make_synthetic(m, observed=0.4, outliers=share, random_state=0).train


def _tall(m: int, n: int, outliers: float, scale: float) -> Observed:
    data = make_synthetic(side(m, scale), n, observed=0.5, outliers=outliers, random_state=0)
    return data.train


def _video(scale: float) -> Observed:
    """A pixel per row, a frame per column."""
    share = scale ** (1 / 3)
    frames = make_video(*(round(share * size) for size in (200, 240, 320)), random_state=0).frames
    return Observed.from_dense(frames.reshape(len(frames), -1).T)


#: The table of a scale, the given rank, and the CPU seconds of the default fit at commit 90051e4.
CASES: dict[str, tuple[Callable[[float], Observed], int | None, str]] = {
    **{
        f"400 × 400, 32,000 entries, {share:.0%} outliers": (
            partial(_corrupted, share),
            None,
            "8–11",
        )
        for share in (0.2, 0.3, 0.4)
    },
    "2000 × 100, 10 % outliers": (partial(_tall, 2000, 100, 0.1), None, "6.5"),
    "2000 × 300, rank three too high": (partial(_tall, 2000, 300, 0.05), RANK + 3, "42"),
    "dense video, 76,800 × 200, rank 3": (_video, 3, "52"),
}


def _tables(scale: float) -> list[dict[str, Any]]:
    records = []
    for name in CASES:
        records.append({"table": name, **in_new_process(case_fit, name, scale)})
        announce(f"{records[-1]}")
    return records


def case_fit(name: str, scale: float) -> dict[str, Any]:
    """CPU seconds of the default fit of one of the tables."""
    make, rank, before = CASES[name]
    observed = make(scale)
    found = _measured(partial(_default_fit, rank or "auto", 1), observed)
    return {"entries": observed.n_entries, "before": before, **found}


# --- page ---


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    """One table per part."""
    parts = {"growth": _growth_table, "ratings": _ratings_table, "tables": _cases_table}
    return "\n".join(part(results[name]) for name, part in parts.items() if results[name])


def _growth_table(records: list[dict[str, Any]]) -> str:
    rows = []
    for record in records:
        sweeps = record["sweeps"]["seconds"]
        whole = record["sweeps"]["fit_seconds"]
        cells = [f"{record['entries']:,}", f"{sweeps:.3g}", f"{whole:.3g}"]
        for name in ("rank given", "default"):
            seconds = record[name]["seconds"]
            cells += [
                f"{seconds:.3g}",
                f"{seconds / sweeps:.1f}",
                f"{1e6 * seconds / record['entries']:.2f}",
                f"{record[name]['peak_gigabytes']:.2f}",
            ]
        rows.append([*cells, record["default"]["rank"]])
    threads = records[0]["threads"]
    own = ["seconds", "/ sweeps", "µs per entry", "peak GB"]
    header = [
        "entries",
        f"{SWEEPS} sweeps",
        "fit of these",
        *(f"rank given: {name}" for name in own),
    ]
    header += [f"not given: {name}" for name in own]
    return markdown(f"Synthetic tables, threads: {threads}", [*header, "rank found"], rows)


def _ratings_table(records: list[dict[str, Any]]) -> str:
    rows = []
    for record in records:
        if record.get("missing"):
            rows.append([record["table"], "no file", *[""] * 7])
            continue
        own = record["default"]
        peer = record["cmfrec"]
        rows.append(
            [
                record["table"],
                f"{own['entries']:,}",
                f"{own['rank']}{', biases' if own['bias'] else ''}",
                *_cells(own),
                *(_cells(peer) if peer else ["not installed", "", ""]),
            ]
        )
    own_names = ["CPU s", "RMSE", "peak GB"]
    header = ["table", "entries", "rank", *(f"default: {name}" for name in own_names)]
    return markdown("Ratings", [*header, *(f"cmfrec: {name}" for name in own_names)], rows)


def _cells(found: dict[str, Any]) -> list[str]:
    return [f"{found['seconds']:.1f}", f"{found['rmse']:.4f}", f"{found['peak_gigabytes']:.2f}"]


def _cases_table(records: list[dict[str, Any]]) -> str:
    rows = [
        [
            record["table"],
            f"{record['entries']:,}",
            record["before"],
            f"{record['seconds']:.2f}",
            record["rank"],
            record["solver"],
            f"{record['peak_gigabytes']:.2f}",
        ]
        for record in records
    ]
    header = ["table", "entries", "CPU s before", "CPU s", "rank", "solver", "peak GB"]
    return markdown("Other tables", header, rows)


def figure(results: dict[str, list[dict[str, Any]]]) -> None:
    """Time per entry, and time relative to the sweeps, against the number of entries."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 - an extra

    records = results["growth"]
    entries = [record["entries"] for record in records]
    _, panels = plt.subplots(1, 2)
    for name in ("sweeps", "rank given", "default"):
        seconds = [record[name]["seconds"] for record in records]
        label = f"{SWEEPS} sweeps" if name == "sweeps" else name
        per_entry = [1e6 * own / count for own, count in zip(seconds, entries, strict=True)]
        panels[0].loglog(entries, per_entry, "o-", markersize=4, label=label)
        if name != "sweeps":
            ratios = [own / r["sweeps"]["seconds"] for own, r in zip(seconds, records, strict=True)]
            panels[1].loglog(entries, ratios, "o-", markersize=4, label=label)
    panels[0].set(xlabel="entries", ylabel="µs per entry", title="Time per entry")
    panels[1].set(xlabel="entries", ylabel="ratio", title=f"Time relative to {SWEEPS} sweeps")
    for axes in panels:
        axes.legend()
