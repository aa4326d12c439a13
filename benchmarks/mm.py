"""The paper's algorithm: inner solvers to equal accuracy, ns per entry of a pass, memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from benchmarks.measure import (
    announce,
    in_new_process,
    markdown,
    part,
    peak_gigabytes,
    quickest,
    side,
    timed,
)
from benchmarks.problems import operations
from robustmf.datasets import make_synthetic
from robustmf.estimator import RMFNL
from robustmf.initialization.initial_point import gaussian_factors
from robustmf.losses import LSP
from robustmf.solvers.mm import LADMPSAP, MM, Increment, SparseAPG
from robustmf.solvers.mm.acceleration import accelerated
from robustmf.solvers.mm.apg import SparseSurrogateSteps
from robustmf.solvers.mm.apg_dense import DenseSteps
from robustmf.solvers.mm.ladmpsap import LADMPSAPRun
from robustmf.solvers.mm.surrogate import Surrogate
from robustmf.solvers.objective import Objective, paper_reg

SMALL = {"scale": 0.001}

#: Inner solvers are timed to this relative accuracy of the surrogate.
ACCURACY = 1e-5

#: Seconds after which an inner solver that has not reached the accuracy is stopped.
LONGEST = 60.0

#: Rows, columns, entries and rank of the problems on which one pass is timed.
PASSES = (
    (1000, 1000, 34_539, 5),
    (6040, 3449, 1_000_000, 10),
    (20_000, 20_000, 1_000_000, 5),
    (20_000, 20_000, 2_000_000, 5),
)

#: Rows and columns of the large problem, which has 10 entries per row.
LARGE = 200_000


def run(size: int = 1000, scale: float = 1.0) -> dict[str, Any]:
    """All measurements; ``size`` is that of the problem for the inner solvers."""
    size = side(size, scale)
    record: dict[str, Any] = {"size": size}
    announce(f"inner solvers at m = {size}")
    record["inner"] = inner_solvers(size)
    announce("one pass")
    record["passes"] = [
        fused_pass(side(m, scale), side(n, scale), part(entries, scale), rank)
        for m, n, entries, rank in PASSES
    ]
    m = part(LARGE, scale)
    announce(f"m = n = {m:,} with 10 entries per row")
    record["large"] = in_new_process(large, m)
    return record


def first_surrogate(on: Any, rank: int, rng: np.random.Generator) -> Surrogate:
    """The surrogate of the first outer iteration: LSP loss, the paper's Gaussian initialization."""
    shape = on.observed.shape
    U, V = gaussian_factors(shape, rank, rng, on.observed.dtype)
    return Surrogate(on, Objective(LSP(), paper_reg(shape)), U, V, on.residuals(U, V))


def inner_steps(
    solver: str, surrogate: Surrogate
) -> tuple[Iterator[object], Callable[[int], Increment]]:
    """Steps of an inner solver, and the increment after some of them."""
    if solver.startswith("LADMPSAP"):
        penalty = 0.1 if solver.endswith("0.1)") else None
        run = LADMPSAPRun(LADMPSAP(penalty=penalty), surrogate)
        return (run.step() for _ in count()), run.increment
    steps = DenseSteps if "dense" in solver else SparseSurrogateSteps
    made = steps(surrogate, np.zeros_like(surrogate.weights))
    return iter(accelerated(made)), made.increment


def inner_solvers(size: int) -> list[dict[str, Any]]:
    """Seconds to the same accuracy of the surrogate on one thread."""
    names = (
        "LADMPSAP (authors' first penalty)",
        "LADMPSAP (first penalty 0.1)",
        "APG (dense)",
        "APG",
    )
    data = make_synthetic(size, random_state=0)
    with operations(data.train, 1) as on:
        surrogate = first_surrogate(on, 5, np.random.default_rng(1))
        best = SparseAPG().solve(surrogate, MM(gap=1e-9, max_iter=20_000))
        target = best.value * (1 + ACCURACY)
        return [_time_to(name, *inner_steps(name, surrogate), target) for name in names]


def _time_to(
    name: str, steps: Iterator[object], increment: Callable[[int], Increment], target: float
) -> dict[str, Any]:
    """Iterations and seconds to the target; evaluations of the surrogate are not timed."""
    seconds = 0.0
    best = np.inf
    for k in range(1, 100_000):
        started = time.perf_counter()
        next(steps)
        seconds += time.perf_counter() - started
        if k % max(1, k // 20) == 0:
            best = min(best, increment(k).value)
            if best <= target or seconds > LONGEST:
                break
    excess = best / target * (1 + ACCURACY) - 1
    reached = bool(best <= target)
    return {
        "solver": name,
        "iterations": k,
        "seconds": seconds,
        "reached": reached,
        "excess": excess,
    }


def fused_pass(m: int, n: int, entries: int, rank: int) -> dict[str, Any]:
    """Nanoseconds per entry of one dual step, on one thread and on all, and by NumPy and SciPy."""
    data = make_synthetic(m, n, rank=rank, observed=2 * entries / (m * n), random_state=0)
    times: dict[str, float] = {}
    for threads, n_jobs in (("one thread", 1), ("all threads", None)):
        with operations(data.train, n_jobs) as on:
            surrogate = first_surrogate(on, rank, np.random.default_rng(1))
            steps = SparseSurrogateSteps(surrogate, np.zeros_like(surrogate.weights))
            times[threads] = quickest(partial(_one_step, steps), 9)
            if n_jobs == 1:
                times["numpy"] = quickest(numpy_pass(surrogate), 9)
    size = data.train.n_entries
    per_entry = {name: 1e9 * seconds / size for name, seconds in times.items()}
    return {"rows": m, "columns": n, "entries": size, "rank": rank, "nanoseconds": per_entry}


def _one_step(steps: SparseSurrogateSteps) -> None:
    steps.step(1.0)
    steps.accept(0.5)


def numpy_pass(surrogate: Surrogate) -> Callable[[], object]:
    """The same step written with NumPy and SciPy."""
    observed = surrogate.operations.observed
    dual = surrogate.dual()
    U, V = dual.factors
    a, g = dual.inverses
    p, q = dual.pulls
    i = observed.rows.group_of_entry()
    j = observed.rows.indices
    alpha, gamma = dual.curvatures()
    curvature = alpha[i] + gamma[j]
    X = observed.with_values(np.zeros(observed.n_entries)).to_sparse()
    state = {"x": np.zeros(observed.n_entries), "before": np.zeros(observed.n_entries)}

    def step() -> object:
        x = state["x"]
        z = x + 0.5 * (x - state["before"])
        X.data[:] = z
        dU = a[:, None] * (X @ V - p)
        dV = g[:, None] * (X.T @ U - q)
        rho = surrogate.residual - np.einsum("tq,tq->t", dU[i], V[j])
        rho -= np.einsum("tq,tq->t", U[i], dV[j])
        new = np.clip(z + rho / curvature, -surrogate.weights, surrogate.weights)
        X.data[:] = new
        squares = a @ np.square(X @ V - p).sum(1) + g @ np.square(X.T @ U - q).sum(1)
        state["x"] = new
        state["before"] = x
        return 0.5 * squares - new @ surrogate.residual

    return step


def large(m: int) -> dict[str, Any]:
    """Three outer iterations at m × m with 10 entries per row: seconds and peak of memory."""
    data = make_synthetic(m, rank=5, observed=20 / m, random_state=0)
    model = RMFNL(5, random_state=1, max_iter=3, tol=1e-12)
    seconds, _ = timed(lambda: model.fit(data.train))
    entries = data.train.n_entries
    peak = peak_gigabytes()
    return {"side": m, "entries": entries, "seconds": seconds, "peak_gigabytes": peak}


def table(results: dict[str, Any]) -> str:
    """Inner solvers, passes, and the large problem."""
    apg = next(line["seconds"] for line in results["inner"] if line["solver"] == "APG")
    inner = []
    for line in results["inner"]:
        ratio = line["seconds"] / apg
        shown = f"{ratio:.1f}" if line["reached"] else f"> {ratio:.0f} (at {line['excess']:.1e})"
        inner.append([line["solver"], line["iterations"], f"{line['seconds']:.3f}", shown])
    passes = []
    for line in results["passes"]:
        ns = line["nanoseconds"]
        figures = [ns["one thread"], ns["all threads"], ns["numpy"], ns["numpy"] / ns["one thread"]]
        size = [line["rows"], line["columns"], f"{line['entries']:,}", line["rank"]]
        passes.append([*size, *(f"{figure:.1f}" for figure in figures)])
    big = results["large"]
    title = f"Inner solvers to relative accuracy {ACCURACY:g}, m = {results['size']}, one thread"
    problem = f"m = n = {big['side']:,}, {big['entries']:,} entries, rank 5, three outer iterations"
    header = ["rows", "columns", "entries", "rank", "one thread", "all threads", "NumPy and SciPy"]
    return "\n".join(
        [
            markdown(title, ["solver", "iterations", "seconds", "relative to APG"], inner),
            markdown("One pass of the dual, ns per entry", [*header, "× faster"], passes),
            markdown(
                problem,
                ["seconds", "peak GB"],
                [[f"{big['seconds']:.1f}", f"{big['peak_gigabytes']:.2f}"]],
            ),
        ]
    )
