"""How fast the half-step and what stands on it are: kernel, threads, fold-in, irls against mm, peers, start-up."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.half_step_baseline import half_step_baseline
from benchmarks.sizes import part, side
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.data.observed import Observed
from robustmf.datasets import load_movielens, make_synthetic
from robustmf.estimator import RobustMF
from robustmf.initialization.problem import Problem
from robustmf.kernels.team import Team
from robustmf.losses import LSP, Loss, Smoothed, Welsch
from robustmf.solvers.base import Snapshot
from robustmf.solvers.fold_in import fold_in
from robustmf.solvers.objective import Objective, paper_reg

Array = NDArray[np.floating[Any]]

RANKS = (5, 8, 10, 16, 32, 64)

#: ns an entry and thread of a hand-written AVX-512 C++ half-step, measured elsewhere on this class of machine.
_HAND_WRITTEN = {5: 7.0, 10: 12.0, 16: 20.0}


def long_tailed(m: int, n: int, entries: int, seed: int = 0, dtype: str = "float32") -> Observed:
    """Entries with long-tailed columns, values N(0, 1)."""
    rng = np.random.default_rng(seed)
    i, j = (
        rng.integers(0, m, entries, dtype=np.int32),
        (n * rng.random(entries) ** 2).astype(np.int32),
    )
    return Observed.from_indices(
        i, j, rng.standard_normal(entries).astype(dtype), (m, n), duplicates="last"
    )


def half_steps(scale: float, repeats: int = 25) -> list[dict[str, Any]]:
    """Ns an entry at each rank, beside the baseline in the same run (repeats interleaved, the best of each taken)."""
    observed = long_tailed(side(6040, scale), side(3706, scale), part(1_000_000, scale))
    rows, lines = observed.rows, []
    loss = Smoothed(1.0, LSP(), 0.01)
    with Team(1) as one, Team(2) as two:
        for rank in RANKS:
            rng = np.random.default_rng(rank)
            U, V = (rng.standard_normal((k, rank)).astype(np.float32) for k in observed.shape)
            wide = Observed.from_indices(
                rows.group_of_entry(), rows.indices, rows.values.astype(np.float64), observed.shape
            )
            wide_U, wide_V = U.astype(np.float64), V.astype(np.float64)
            on_one, on_two, on_wide = (
                CPUOperations(observed, one),
                CPUOperations(observed, two),
                CPUOperations(wide, one),
            )
            jobs: dict[str, Callable[[], object]] = {
                "baseline": partial(_baseline, observed, U, V),
                "one thread": partial(_half_step, on_one, loss, U, V),
                "two threads": partial(_half_step, on_two, loss, U, V),
                "welsch": partial(_half_step, on_one, Welsch(1.0), U, V),
                "float64": partial(_half_step, on_wide, loss, wide_U, wide_V),
            }
            best = dict.fromkeys(jobs, np.inf)
            for _ in range(repeats + 1):
                for name, job in jobs.items():
                    started = time.perf_counter()
                    job()
                    best[name] = min(best[name], time.perf_counter() - started)
            lines.append(
                {
                    "rank": rank,
                    "nanoseconds": {name: 1e9 * s / observed.n_entries for name, s in best.items()},
                }
            )
    return lines


def _baseline(observed: Observed, U: Array, V: Array) -> None:
    rows = observed.rows
    half_step_baseline(
        rows.pointers,
        rows.indices,
        rows.values,
        U.copy(),
        V,
        np.float32(0.1),
        np.float32(1),
        np.float32(1e-4),
    )


def _half_step(operations: CPUOperations, loss: Loss, U: Array, V: Array) -> None:
    operations.half_step(loss, 0.1, U.copy(), V)


def peak_fma(repeats: int = 5) -> float:
    """GFMA/s of one thread in float32, by a matrix product that BLAS runs at full speed."""
    A = np.ones((1500, 1500), np.float32)
    with threadpool_limits(1):
        times = []
        for _ in range(repeats):
            started = time.perf_counter()
            A @ A
            times.append(time.perf_counter() - started)
    return float(1500**3 / min(times) / 1e9)


def fold_in_rate(rows: int, entries_a_row: int = 30, rank: int = 10) -> dict[str, Any]:
    """New rows a second, with their outliers down-weighted."""
    rng = np.random.default_rng(0)
    n = 5000
    V = rng.standard_normal((n, rank)).astype(np.float32)
    observed = long_tailed(rows, n, rows * entries_a_row)
    with Team() as team:
        operations = CPUOperations(observed, team)
        fold_in(operations, Welsch(1.0), 0.1, V)
        started = time.perf_counter()
        fold_in(operations, Welsch(1.0), 0.1, V)
        seconds = time.perf_counter() - started
    return {
        "rows": rows,
        "entries": observed.n_entries,
        "rank": rank,
        "rows_per_second": rows / seconds,
    }


def irls_against_mm(
    scale: float, announce: Callable[[str], None], repeats: int = 3
) -> list[dict[str, Any]]:
    """Seconds and passes of irls and of mm, from one start, to within a share of the objective mm ends with (LSP, kink and all).

    A pass of mm is a step on the dual, one of irls a sweep. Runs are interleaved, and the quickest of each is taken. On the ratings of
    MovieLens-1M themselves, where they are at hand, mm takes a minute, and each runs once.
    """
    problems = [
        ("m = 1000", make_synthetic(side(1000, scale), random_state=0).train, 5, repeats),
        ("MovieLens-1M's size", _movielens_sized(scale), 10, repeats),
    ]
    try:
        problems.append(("MovieLens-1M, centred", _movielens(scale), 10, 1))
    except FileNotFoundError as error:
        announce(f"irls against mm: without MovieLens-1M itself ({error})")
    lines = []
    for name, data, rank, times in problems:
        with Team() as team:
            start = Problem(CPUOperations(data, team), rank, paper_reg(data.shape)).ridge_start(
                np.random.default_rng(1), 15
            )
            for solver in ("mm", "irls"):  # compiles
                _trace(solver, CPUOperations(data, team), rank, start, 2)
            runs = [
                {
                    solver: _trace(solver, CPUOperations(data, team), rank, start)
                    for solver in ("mm", "irls")
                }
                for _ in range(times)
            ]
        best = min(value for _, _, value in runs[0]["mm"])
        whole = {
            f"{solver}_whole": min(run[solver][-1][0] for run in runs) for solver in ("mm", "irls")
        }
        end = runs[0]["irls"][-1][2] / best - 1
        for share in (0.01, 0.003, 0.001, 0.0003, 0.0):
            line: dict[str, Any] = {
                "problem": name,
                "entries": data.n_entries,
                "within": share,
                **whole,
                "irls_end": end,
            }
            for solver in ("mm", "irls"):
                reached = [
                    next(
                        ((t, k) for t, k, value in run[solver] if value <= best * (1 + share)), None
                    )
                    for run in runs
                ]
                line[solver], line[f"{solver}_passes"] = min(
                    (r for r in reached if r is not None), default=(None, None)
                )
            lines.append(line)
    return lines


def _movielens(scale: float) -> Observed:
    """The ratings less their mean; at a smaller scale those of the first users."""
    ratings = load_movielens("1m", paper_filter=True, download=False).ratings
    rows = ratings.rows
    users = side(len(rows), scale)
    pointers = rows.pointers[: users + 1]
    values = rows.values[: pointers[-1]]
    return Observed.from_indices(
        rows.group_of_entry()[: pointers[-1]],
        rows.indices[: pointers[-1]],
        values - values.mean(),
        (users, ratings.shape[1]),
    )


def _movielens_sized(scale: float) -> Observed:
    return make_synthetic(
        side(6040, scale),
        side(3449, scale),
        rank=10,
        observed=2_000_000 / (6040 * 3449),
        random_state=0,
    ).train


def _trace(
    solver: str, on: CPUOperations, rank: int, start: tuple[Array, Array], max_iter: int = 300
) -> list[tuple[float, int, float]]:
    """Seconds, passes and H after each iteration, until the solver is content at the default ``tol``."""
    objective = Objective(LSP(1.0), paper_reg(on.observed.shape))
    trace: list[tuple[float, int, float]] = []

    def note(snapshot: Snapshot) -> None:
        passes = (trace[-1][1] if trace else 0) + int(
            snapshot.details.get("inner_iterations", bool(trace))
        )
        value = on.loss_sum(objective.loss, *snapshot.factors) + objective.penalty(
            *snapshot.factors
        )
        trace.append((snapshot.seconds, passes, value))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        RobustMF(
            rank,
            loss="lsp",
            theta=1.0,
            reg=objective.reg,
            solver=solver,
            init=start,
            max_iter=max_iter,
            callbacks=[note],
        ).fit(on.observed)
    return trace


def start_cost(scale: float, repeats: int = 7) -> list[dict[str, Any]]:
    """CPU seconds (one thread) with the default start and with the plain one (ridge, then sweeps), on clean data and with 5 % outliers."""
    lines = []
    for share, m, tol in product((0.0, 0.05), (side(500, scale), side(1000, scale)), (1e-4, 1e-5)):
        data = make_synthetic(m, outliers=share, random_state=7)
        times, errors = {"auto": np.inf, "ridge": np.inf}, {}
        for _ in range(repeats):
            for init in ("auto", "ridge"):
                model = RobustMF(5, init=init, random_state=0, n_jobs=1, tol=tol)
                started = time.process_time()
                model.fit(data.train)
                times[init] = min(times[init], time.process_time() - started)
                errors[init] = data.test_rmse(model.row_factors_, model.column_factors_)
        lines.append({"m": m, "outliers": share, "tol": tol, "seconds": times, "rmse": errors})
    return lines


def cmfrec_sweep(scale: float) -> dict[str, Any] | None:
    """Seconds a sweep at rank 10 on 5 million entries, two threads: cmfrec's exact ALS, and irls with the Welsch loss."""
    try:
        from cmfrec import CMF  # noqa: PLC0415 - an optional competitor
    except ImportError:
        return None
    observed = long_tailed(side(50_000, scale), side(10_000, scale), part(5_300_000, scale))
    X = sp.coo_array(observed.to_sparse())

    def cmf(sweeps: int) -> float:
        model = CMF(
            k=10, lambda_=0.1, method="als", use_cg=False, finalize_chol=False, user_bias=False, item_bias=False, center=False,
            niter=sweeps, nthreads=2, verbose=False, use_float=True, precompute_for_predictions=False,
        )  # fmt: skip
        started = time.perf_counter()
        model.fit(sp.coo_matrix(X))
        return time.perf_counter() - started

    def ours(sweeps: int) -> float:
        rng = np.random.default_rng(0)
        U, V = (rng.standard_normal((k, 10)).astype(np.float32) for k in observed.shape)
        with Team(2) as team:
            operations = CPUOperations(observed, team)
            operations.half_step(Welsch(1.0), 0.1, U, V)
            operations.transposed.half_step(Welsch(1.0), 0.1, V, U)
            started = time.perf_counter()
            for _ in range(sweeps):
                operations.half_step(Welsch(1.0), 0.1, U, V)
                operations.transposed.half_step(Welsch(1.0), 0.1, V, U)
            return time.perf_counter() - started

    cmf(1)
    theirs = min((cmf(11) - cmf(1)) / 10 for _ in range(3))
    mine = min(ours(10) / 10 for _ in range(3))
    return {"entries": observed.n_entries, "cmfrec": theirs, "robustmf": mine}


_STARTUP = """
import time
started = time.perf_counter()
import robustmf
imported = time.perf_counter() - started
import numpy as np
from robustmf import RobustMF
first = []
X = np.random.default_rng(0).standard_normal((300, 200))
RobustMF(5, init="ridge", random_state=0, callbacks=[lambda s: first.append(time.perf_counter())]).fit(X)
print(imported, first[0] - started)
"""


def startup() -> dict[str, float]:
    """Seconds of ``import robustmf``, and from there to the first iteration of the first fit, in a new process with warm kernels."""
    best = [np.inf, np.inf]
    for _ in range(4):
        out = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _STARTUP],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        best = [min(a, float(b)) for a, b in zip(best, out, strict=True)]
    return {"import": best[0], "first_iteration": best[1]}


def run(scale: float, announce: Callable[[str], None]) -> dict[str, Any]:
    """All measurements, as one record."""
    record: dict[str, Any] = {}
    announce("half-step at ranks " + ", ".join(map(str, RANKS)))
    record["half_steps"], record["peak_gfma"] = half_steps(scale), peak_fma()
    announce("fold-in")
    record["fold_in"] = fold_in_rate(part(200_000, scale))
    announce("start-up")
    record["startup"] = startup()
    announce("irls against mm")
    record["irls_against_mm"] = irls_against_mm(scale, announce)
    announce("cost of the default start")
    record["start_cost"] = start_cost(scale)
    announce("cmfrec")
    record["cmfrec"] = cmfrec_sweep(scale)
    return record


def tables(record: dict[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """The record as tables of text."""
    half = [
        [
            "rank",
            "baseline",
            "ours",
            "× faster",
            "two threads",
            "speed-up",
            "Welsch",
            "float64",
            "FMA bound",
            "hand-written C++",
        ]
    ]
    for line in record["half_steps"]:
        r, ns = line["rank"], line["nanoseconds"]
        shown = [
            ns["baseline"],
            ns["one thread"],
            ns["baseline"] / ns["one thread"],
            ns["two threads"],
        ]
        shown += [
            ns["one thread"] / ns["two threads"],
            ns["welsch"],
            ns["float64"],
            (r * (r + 1) / 2 + 2 * r) / record["peak_gfma"],
        ]
        half.append([str(r), *(f"{value:.2f}" for value in shown), str(_HAND_WRITTEN.get(r, ""))])
    mm = [["problem", "entries", "within", "mm", "irls", "× faster", "passes of mm", "sweeps"]]
    for line in record["irls_against_mm"]:
        shown = [f"{line['mm']:.3f} s", "not reached", "", str(line["mm_passes"]), ""]
        if line["irls"] is not None:
            shown[1:3], shown[4] = (
                [f"{line['irls']:.3f} s", f"{line['mm'] / line['irls']:.1f}"],
                str(line["irls_passes"]),
            )
        mm.append([line["problem"], str(line["entries"]), f"{100 * line['within']:g} %", *shown])
        if line["within"] == 0:
            times = [
                f"{line['mm_whole']:.3f} s",
                f"{line['irls_whole']:.3f} s",
                f"{line['mm_whole'] / line['irls_whole']:.1f}",
            ]
            mm.append(
                [
                    line["problem"],
                    "",
                    f"tol=1e-4; irls {100 * line['irls_end']:+.3f} %",
                    *times,
                    "",
                    "",
                ]
            )
    cost = [
        [
            "m",
            "outliers",
            "tol",
            "default start",
            "plain start",
            "ratio",
            "RMSE",
            "RMSE, plain start",
        ]
    ]
    for line in record["start_cost"]:
        auto, plain = line["seconds"]["auto"], line["seconds"]["ridge"]
        times = [
            f"{auto:.3f} s",
            f"{plain:.3f} s",
            f"{auto / plain:.2f}",
            f"{line['rmse']['auto']:.4f}",
            f"{line['rmse']['ridge']:.4f}",
        ]
        cost.append([str(line["m"]), f"{100 * line['outliers']:.0f} %", f"{line['tol']:g}", *times])
    start, peer = record["startup"], record["cmfrec"]
    rest = [
        ["what", "figure"],
        [
            "new rows folded in a second (30 entries each, rank 10)",
            f"{record['fold_in']['rows_per_second']:,.0f}",
        ],
        ["import robustmf", f"{start['import']:.2f} s"],
        [
            "import to first iteration, new process, warm kernels",
            f"{start['first_iteration']:.2f} s",
        ],
    ]
    if peer is not None:
        theirs, ours = peer["cmfrec"], peer["robustmf"]
        rest.append(
            [
                f"sweep at rank 10, {peer['entries']:,} entries: cmfrec's exact ALS",
                f"{theirs:.3f} s",
            ]
        )
        rest.append(["the same by irls", f"{ours:.3f} s ({theirs / ours:.1f}×)"])
    return [
        ("one half-step, ns an entry, float32, LSP loss, 6040 × 3706 with a million entries", half),
        ("seconds to the same objective (LSP, from one start)", mm),
        ("what the default start costs", cost),
        ("the rest", rest),
    ]
