"""The half-step and its uses: ns per entry, fold-in, start-up, irls against mm, cmfrec."""

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

from benchmarks.measure import announce, interleaved, markdown, part, quickest, side, timed
from benchmarks.plain_half_step import plain_half_step
from benchmarks.problems import long_tailed, movielens_sized, operations, random_factors
from robustmf.data.observed import Observed
from robustmf.datasets import load_movielens, make_synthetic
from robustmf.estimator import RobustMF
from robustmf.initialization.problem import Problem
from robustmf.losses import LSP, Smoothed, Welsch
from robustmf.solvers.base import Snapshot
from robustmf.solvers.fold_in import fold_in
from robustmf.solvers.objective import Objective, paper_reg

SMALL = {"scale": 0.001, "starts": 1}

Array = NDArray[np.floating[Any]]

RANKS = (5, 8, 10, 16, 32, 64)

#: Relative distances from the objective that mm ends with.
WITHIN = (0.01, 0.003, 0.001, 0.0003, 0.0)


def run(scale: float = 1.0, starts: int = 4) -> dict[str, Any]:
    """All measurements; a scale below 1 makes the problems smaller; ``starts`` of a process."""
    record: dict[str, Any] = {}
    announce("half-step at ranks " + ", ".join(map(str, RANKS)))
    record["half_steps"] = half_steps(scale)
    record["peak_gfma"] = peak_fma()
    announce("fold-in")
    record["fold_in"] = fold_in_rate(part(200_000, scale))
    announce("start-up")
    record["startup"] = startup(starts)
    announce("irls against mm")
    record["irls_against_mm"] = irls_against_mm(scale)
    announce("cost of the default initialization")
    record["initialization_cost"] = initialization_cost(scale)
    announce("cmfrec")
    record["cmfrec"] = cmfrec_sweep(scale)
    return record


def half_steps(scale: float, repeats: int = 25) -> list[dict[str, Any]]:
    """Nanoseconds per entry at each rank, beside a plain kernel, repetitions interleaved."""
    observed = long_tailed(side(6040, scale), side(3706, scale), part(1_000_000, scale))
    rows = observed.rows
    wide = observed.with_values(rows.values.astype(np.float64))
    lsp = Smoothed(1.0, LSP(), 0.01)
    float32 = (np.float32(0.1), np.float32(1), np.float32(1e-4))
    found = []
    with (
        operations(observed, 1) as one,
        operations(observed, 2) as two,
        operations(wide, 1) as double,
    ):
        for rank in RANKS:
            U, V = random_factors(observed.shape, rank, rank)
            U64 = U.astype(np.float64)
            V64 = V.astype(np.float64)

            def plain(U: Array = U, V: Array = V) -> None:
                plain_half_step(rows.pointers, rows.indices, rows.values, U.copy(), V, *float32)

            def step(on: Any, loss: Any, U: Array, V: Array) -> None:
                on.half_step(loss, 0.1, U.copy(), V)

            works: dict[str, Callable[[], Any]] = {
                "plain": plain,
                "one thread": partial(step, one, lsp, U, V),
                "two threads": partial(step, two, lsp, U, V),
                "welsch": partial(step, one, Welsch(1.0), U, V),
                "float64": partial(step, double, lsp, U64, V64),
            }
            best = interleaved(works, repeats)
            per_entry = {name: 1e9 * s / observed.n_entries for name, s in best.items()}
            found.append({"rank": rank, "nanoseconds": per_entry})
    return found


def peak_fma() -> float:
    """GFMA/s of one thread in float32, from a matrix product by BLAS."""
    A = np.ones((1500, 1500), np.float32)
    with threadpool_limits(1):
        return float(1500**3 / quickest(lambda: A @ A, 5) / 1e9)


def fold_in_rate(rows: int, entries_per_row: int = 30, rank: int = 10) -> dict[str, Any]:
    """New rows per second, Welsch loss."""
    V = random_factors((1, 5000), rank, 0)[1]
    observed = long_tailed(rows, len(V), rows * entries_per_row)
    with operations(observed) as on:
        seconds = quickest(lambda: fold_in(on, Welsch(1.0), 0.1, V), 1)
    rate = rows / seconds
    return {"rows": rows, "entries": observed.n_entries, "rank": rank, "rows_per_second": rate}


def irls_against_mm(scale: float, repeats: int = 3) -> list[dict[str, Any]]:
    """Seconds and passes of irls and mm to the same objective, from the same initial point.

    The loss is LSP, nonsmooth at 0. A pass of mm is a step on the dual, one of irls a sweep. Runs
    are interleaved and the quickest counts; on MovieLens-1M, where it is available, each runs once.
    """
    problems = [
        ("m = 1000", make_synthetic(side(1000, scale), random_state=0).train, 5, repeats),
        ("size of MovieLens-1M", movielens_sized(scale).train, 10, repeats),
    ]
    try:
        problems.append(("MovieLens-1M, centred", _movielens(scale), 10, 1))
    except FileNotFoundError as error:
        announce(f"without MovieLens-1M: {error}")
    return [line for problem in problems for line in _against_mm(*problem)]


def _against_mm(name: str, data: Observed, rank: int, turns: int) -> list[dict[str, Any]]:
    with operations(data) as on:
        problem = Problem(on, rank, paper_reg(data.shape))
        initial = problem.ridge_factors(np.random.default_rng(1), 15)
        solvers = ("mm", "irls")
        for solver in solvers:  # compiles
            _trace(solver, on, rank, initial, 2)
        runs = [{one: _trace(one, on, rank, initial) for one in solvers} for _ in range(turns)]
    best = min(value for _, _, value in runs[0]["mm"])
    ends: dict[str, Any] = {f"{s}_whole": min(run[s][-1][0] for run in runs) for s in solvers}
    ends["irls_end"] = runs[0]["irls"][-1][2] / best - 1
    lines = []
    for share in WITHIN:
        line = {"problem": name, "entries": data.n_entries, "within": share, **ends}
        for solver in solvers:
            reached = [_first_below(run[solver], best * (1 + share)) for run in runs]
            known = [one for one in reached if one is not None]
            line[solver], line[f"{solver}_passes"] = min(known, default=(None, None))
        lines.append(line)
    return lines


def _first_below(trace: list[tuple[float, int, float]], value: float) -> tuple[float, int] | None:
    return next(((seconds, passes) for seconds, passes, at in trace if at <= value), None)


def _movielens(scale: float) -> Observed:
    """The ratings minus their mean; at a smaller scale those of the first users."""
    ratings = load_movielens("1m", paper_filter=True, download=False).ratings
    rows = ratings.rows
    users = side(len(rows), scale)
    end = rows.pointers[users]
    values = rows.values[:end]
    shape = (users, ratings.shape[1])
    i = rows.group_of_entry()[:end]
    return Observed.from_indices(i, rows.indices[:end], values - values.mean(), shape)


def _trace(
    solver: str, on: Any, rank: int, initial: tuple[Array, Array], max_iter: int = 300
) -> list[tuple[float, int, float]]:
    """Seconds, passes and objective after each iteration, until the default ``tol``."""
    objective = Objective(LSP(1.0), paper_reg(on.observed.shape))
    trace: list[tuple[float, int, float]] = []

    def note(snapshot: Snapshot) -> None:
        before = trace[-1][1] if trace else 0
        passes = before + int(snapshot.details.get("inner_iterations", bool(trace)))
        U, V = snapshot.factors
        value = on.loss_sum(objective.loss, U, V) + objective.penalty(U, V)
        trace.append((snapshot.seconds, passes, value))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        RobustMF(
            rank,
            loss="lsp",
            theta=1.0,
            reg=objective.reg,
            solver=solver,
            init=initial,
            max_iter=max_iter,
            callbacks=[note],
        ).fit(on.observed)
    return trace


def initialization_cost(scale: float, repeats: int = 7) -> list[dict[str, Any]]:
    """CPU seconds of one thread with the default initialization and with plain ridge sweeps."""
    lines = []
    for share, m, tol in product((0.0, 0.05), (side(500, scale), side(1000, scale)), (1e-4, 1e-5)):
        data = make_synthetic(m, outliers=share, random_state=7)
        models = {
            init: RobustMF(5, init=init, random_state=0, n_jobs=1, tol=tol)
            for init in ("auto", "ridge")
        }
        fits = {init: partial(model.fit, data.train) for init, model in models.items()}
        seconds = interleaved(fits, repeats, time.process_time)
        errors = {
            init: data.test_rmse(model.row_factors_, model.column_factors_)
            for init, model in models.items()
        }
        lines.append({"m": m, "outliers": share, "tol": tol, "seconds": seconds, "rmse": errors})
    return lines


def cmfrec_sweep(scale: float) -> dict[str, Any] | None:
    """Seconds per sweep, rank 10, 5 million entries, two threads: cmfrec's exact ALS and irls."""
    try:
        from cmfrec import CMF  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    observed = long_tailed(side(50_000, scale), side(10_000, scale), part(5_300_000, scale))
    X = sp.coo_matrix(observed.to_sparse())

    def cmf(sweeps: int) -> float:
        model = CMF(
            k=10,
            lambda_=0.1,
            method="als",
            use_cg=False,
            finalize_chol=False,
            user_bias=False,
            item_bias=False,
            center=False,
            niter=sweeps,
            nthreads=2,
            verbose=False,
            use_float=True,
            precompute_for_predictions=False,
        )
        return timed(lambda: model.fit(X))[0]

    U, V = random_factors(observed.shape, 10, 0)
    with operations(observed, 2) as on:
        on_columns = on.transposed

        def sweeps() -> None:
            for _ in range(10):
                on.half_step(Welsch(1.0), 0.1, U, V)
                on_columns.half_step(Welsch(1.0), 0.1, V, U)

        ours = quickest(sweeps, 3) / 10
    cmf(1)
    theirs = min((cmf(11) - cmf(1)) / 10 for _ in range(3))
    return {"entries": observed.n_entries, "cmfrec": theirs, "robustmf": ours}


_STARTUP = """
import time
started = time.perf_counter()
import robustmf
imported = time.perf_counter() - started
import numpy as np
from robustmf import RobustMF
first = []
X = np.random.default_rng(0).standard_normal((300, 200))
note = lambda snapshot: first.append(time.perf_counter())
RobustMF(5, init="ridge", random_state=0, callbacks=[note]).fit(X)
print(imported, first[0] - started)
"""


def startup(repeats: int) -> dict[str, float]:
    """Seconds of ``import robustmf``, and until the first iteration, in a new process."""
    command = [sys.executable, "-W", "ignore", "-c", _STARTUP]
    outputs = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(repeats)
    ]
    imported, first = np.array(outputs, float).min(axis=0)
    return {"import": float(imported), "first_iteration": float(first)}


def table(results: dict[str, Any]) -> str:
    """Half-steps, irls against mm, cost of the initialization, and single figures."""
    tables = [_half_step_table(results), _mm_table(results["irls_against_mm"])]
    cost = []
    for line in results["initialization_cost"]:
        default = line["seconds"]["auto"]
        plain = line["seconds"]["ridge"]
        cost.append(
            [
                line["m"],
                f"{line['outliers']:.0%}",
                f"{line['tol']:g}",
                f"{default:.3f}",
                f"{plain:.3f}",
                f"{default / plain:.2f}",
                f"{line['rmse']['auto']:.4f}",
                f"{line['rmse']['ridge']:.4f}",
            ]
        )
    header = ["m", "outliers", "tol", "default", "ridge", "ratio", "RMSE", "RMSE, ridge"]
    tables.append(markdown("CPU seconds of fits with two initializations", header, cost))
    startup = results["startup"]
    peer = results["cmfrec"]
    rate = results["fold_in"]["rows_per_second"]
    rest = [
        ["new rows folded in per second (30 entries each, rank 10)", f"{rate:,.0f}"],
        ["`import robustmf`", f"{startup['import']:.2f} s"],
        ["import to first iteration, compiled kernels", f"{startup['first_iteration']:.2f} s"],
    ]
    if peer is not None:
        theirs = peer["cmfrec"]
        ours = peer["robustmf"]
        what = f"sweep at rank 10, {peer['entries']:,} entries"
        rest.append([f"{what}: cmfrec's exact ALS", f"{theirs:.3f} s"])
        rest.append([f"{what}: irls", f"{ours:.3f} s ({theirs / ours:.1f} × faster)"])
    return "\n".join([*tables, markdown("Single figures", ["quantity", "measured"], rest)])


def _half_step_table(results: dict[str, Any]) -> str:
    rows = []
    for line in results["half_steps"]:
        rank = line["rank"]
        ns = line["nanoseconds"]
        ours = ns["one thread"]
        bound = (rank * (rank + 1) / 2 + 2 * rank) / results["peak_gfma"]
        figures = [ns["plain"], ours, ns["plain"] / ours, ns["two threads"]]
        figures += [ours / ns["two threads"], ns["welsch"], ns["float64"], bound]
        rows.append([rank, *(f"{figure:.2f}" for figure in figures)])
    header = [
        "rank",
        "plain Numba kernel",
        "robustmf",
        "× faster",
        "two threads",
        "speed-up",
        "Welsch",
        "float64",
        "bound by FMA",
    ]
    title = "A half-step, ns per entry, float32, LSP loss, 6040 × 3706 with a million entries"
    return markdown(title, header, rows)


def _mm_table(lines: list[dict[str, Any]]) -> str:
    rows = []
    for line in lines:
        row = [line["problem"], f"{line['entries']:,}"]
        mm = line["mm"]
        irls = line["irls"]
        reached = [f"{irls:.3f}", f"{mm / irls:.1f}"] if irls else ["not reached", ""]
        passes = [line["mm_passes"], line["irls_passes"] or ""]
        rows.append([*row, f"{100 * line['within']:g} %", f"{mm:.3f}", *reached, *passes])
        if line["within"] == 0:
            ends = line["mm_whole"], line["irls_whole"]
            where = f"default tol; irls ends {100 * line['irls_end']:+.3f} %"
            figures = [f"{ends[0]:.3f}", f"{ends[1]:.3f}", f"{ends[0] / ends[1]:.1f}"]
            rows.append([*row, where, *figures, "", ""])
    header = [
        "problem",
        "entries",
        "above the end of mm",
        "mm",
        "irls",
        "× faster",
        "passes",
        "sweeps",
    ]
    return markdown("Seconds to the same objective (LSP, same initial point)", header, rows)


def figure(results: dict[str, Any]) -> None:
    """Nanoseconds per entry against the rank."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 - an extra

    _, axes = plt.subplots()
    ranks = [step["rank"] for step in results["half_steps"]]
    labels = {"plain": "plain Numba kernel", "float64": "float64", "one thread": "float32"}
    for key, label in labels.items():
        times = [step["nanoseconds"][key] for step in results["half_steps"]]
        axes.loglog(ranks, times, "o-", markersize=4, label=label)
    axes.set(xlabel="rank", ylabel="ns per entry", title="A half-step on one core")
    axes.set_xticks(ranks, ranks)
    axes.minorticks_off()
    axes.legend()
