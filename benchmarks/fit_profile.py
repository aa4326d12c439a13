"""Where the time of a default fit of a large table goes: seconds per function, on CPU or GPU.

Entries in the shape of Netflix, from arrays on the host to factors on the host. A fit without a
profile gives the time; another one under cProfile the share of each function, with kernels of the
GPU launched synchronously, so that their time is that of the function that launches them. Each of
the two runs in a process of its own, after fits that compile.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.measure import announce, in_new_process, markdown, peak_gigabytes
from benchmarks.problems import NETFLIX_RANK, NETFLIX_SHAPE, netflix_entries
from robustmf.estimator import RobustMF

SMALL = {"entries": 20_000}

#: Functions that take less than this share of the profiled fit are left out.
_LEAST_SHARE = 0.003


def run(
    entries: int = 10_000_000, device: str = "cpu", threads: int = 1, repeats: int = 1
) -> dict[str, Any]:
    """Seconds of default fits with and without a given rank, and their profiles."""
    record: dict[str, Any] = {"device": device, "threads": threads}
    for kind in ("seconds", "profile"):
        announce(kind)
        found = in_new_process(measured, kind, entries, device, threads, repeats)
        record |= {"entries": found.pop("entries")}
        record[kind] = found
    return record


def measured(kind: str, entries: int, device: str, threads: int, repeats: int) -> dict[str, Any]:
    """Seconds or the profile of the default fit with a given rank, and without one."""
    if device == "cuda" and kind == "profile":
        os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
    X = drawn(entries, device)
    found: dict[str, Any] = {"entries": X.nnz}
    for name, rank in (("rank given", NETFLIX_RANK), ("default", "auto")):
        model = RobustMF(rank, random_state=0, n_jobs=threads, device=device)
        model.fit(X)  # compiles
        if kind == "profile":
            found[name] = _profile(model, X)
            continue
        seconds = []
        for _ in range(repeats):
            started = time.perf_counter()
            _factors(model.fit(X))
            seconds.append(time.perf_counter() - started)
        announce(f"{name}: {seconds}")
        found[name] = {
            "seconds": float(np.median(seconds)),
            "rank": int(model.rank_),
            "iterations": int(model.n_iter_),
            "peak_gigabytes": peak_gigabytes(),
        }
    return found


def drawn(entries: int, device: str) -> Any:
    """Entries in the shape of Netflix as a sparse array on the host; on a GPU drawn there."""
    if device == "cuda":
        from benchmarks.gpu_agreement import draw_entries  # noqa: PLC0415 - imports torch

        i, j, values = (array.cpu().numpy() for array in draw_entries(entries, NETFLIX_SHAPE)[:3])
    else:
        i, j, values = netflix_entries(entries)[:3]
    return sp.coo_array((values, (i, j)), shape=NETFLIX_SHAPE)


def _factors(model: RobustMF) -> Any:
    return model.row_factors_, model.column_factors_


def _profile(model: RobustMF, X: Any) -> list[dict[str, Any]]:
    """Calls, and seconds with and without those of the functions called, largest first."""
    profile = cProfile.Profile()
    profile.enable()
    _factors(model.fit(X))
    profile.disable()
    stats: Any = pstats.Stats(profile)
    lines = [
        {"function": _name(*place), "calls": calls, "seconds": total, "own seconds": own}
        for place, (_, calls, own, total, _) in stats.stats.items()
        if total > _LEAST_SHARE * stats.total_tt
    ]
    return sorted(lines, key=lambda line: -line["seconds"])


def _name(path: str, line: int, function: str) -> str:
    """A function of the package with its file, another one with its name."""
    return f"{Path(path).parent.name}/{Path(path).name}:{line} {function}" if line else function


def table(results: dict[str, Any]) -> str:
    """Times, and one table of functions per fit."""
    seconds = results["seconds"]
    title = f"{results['entries']:,} entries, {results['device']}, threads: {results['threads']}"
    rows = [[name, *found.values()] for name, found in seconds.items()]
    tables = [markdown(title, ["fit", "seconds", "rank", "iterations", "peak GB"], rows)]
    for name, lines in results["profile"].items():
        header = ["function", "calls", "seconds", "own seconds"]
        cells = [
            [line["function"], line["calls"], *(f"{line[key]:.3f}" for key in header[2:])]
            for line in lines
        ]
        tables.append(markdown(f"Functions, {name}", header, cells))
    return "\n".join(tables)
