"""How fast the paper's algorithm is here: inner solvers side by side, the fused pass, growth, memory."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import robustmf
from benchmarks.sizes import part, side
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.datasets import make_synthetic
from robustmf.initialization.initial_point import gaussian_start
from robustmf.kernels.team import Team
from robustmf.losses import LSP
from robustmf.solvers.mm import LADMPSAP, MM, Increment, SparseAPG
from robustmf.solvers.mm.acceleration import accelerated
from robustmf.solvers.mm.apg import SparseSurrogateSteps
from robustmf.solvers.mm.apg_dense import DenseSteps
from robustmf.solvers.mm.ladmpsap import LADMPSAPRun
from robustmf.solvers.mm.surrogate import Surrogate
from robustmf.solvers.objective import Objective, paper_reg

Array = NDArray[np.floating[Any]]

#: Inner solvers are timed to this relative accuracy of the surrogate, by the best lower bound known.
ACCURACY = 1e-5

_REPEATS = 9

#: Seconds after which a solver that has not reached the accuracy is given up.
_LONGEST = 60.0


def run(size: int, scale: float, announce: Callable[[str], None]) -> dict[str, Any]:
    """All measurements, as one record."""
    size = side(size, scale)
    record: dict[str, Any] = {
        "version": robustmf.__version__,
        "machine": platform.processor() or platform.machine(),
        "size": size,
    }
    announce(f"inner solvers at m = {size}")
    record["inner"] = inner_solvers(size)
    announce("the fused pass")
    record["passes"] = [
        fused_pass(side(m, scale), part(entries, scale), rank, n=side(n, scale))
        for m, n, entries, rank in (
            (1000, 1000, 34_539, 5),
            (6040, 3449, 1_000_000, 10),
            (20_000, 20_000, 1_000_000, 5),
            (20_000, 20_000, 2_000_000, 5),
        )
    ]
    announce(f"m = n = {part(_LARGE_SIDE, scale):,} with 10 entries a row")
    record["large"] = large(part(_LARGE_SIDE, scale))
    return record


def inner_solvers(size: int) -> list[dict[str, Any]]:
    """Seconds to the same surrogate accuracy, LSP loss, first outer step from the paper's Gaussian start, one thread."""
    data = make_synthetic(size, random_state=0)
    with Team(1) as team:
        operations = CPUOperations(data.train, team)
        U, V = gaussian_start(data.train.shape, 5, np.random.default_rng(1), data.train.dtype)
        surrogate = Surrogate(
            operations,
            Objective(LSP(), paper_reg(operations.observed.shape)),
            U,
            V,
            operations.residuals(U, V),
        )
        best = SparseAPG().solve(surrogate, MM(gap=1e-9, max_iter=20_000))
        target = best.value * (1 + ACCURACY)
        zero = np.zeros_like(surrogate.weights)
        authors, faster = (
            LADMPSAPRun(LADMPSAP(penalty=penalty), surrogate) for penalty in (None, 0.1)
        )
        dense, sparse = DenseSteps(surrogate, zero), SparseSurrogateSteps(surrogate, zero)
        return [
            _time_to(
                "LADMPSAP (authors' first penalty)",
                _forever(authors.step),
                authors.increment,
                target,
            ),
            _time_to(
                "LADMPSAP (first penalty 0.1)", _forever(faster.step), faster.increment, target
            ),
            _time_to("APG (dense)", accelerated(dense), dense.increment, target),
            _time_to("APG", accelerated(sparse), sparse.increment, target),
        ]


def _forever(step: Callable[[], object]) -> Iterator[object]:
    while True:
        yield step()


def _time_to(
    name: str, steps: Iterator[object], increment: Callable[[int], Increment], target: float
) -> dict[str, Any]:
    """Iterations and seconds until the surrogate value reaches the target; the clock stops while it is evaluated."""
    seconds, best = 0.0, np.inf
    for k in range(1, 100_000):
        started = time.perf_counter()
        next(steps)
        seconds += time.perf_counter() - started
        if k % max(1, k // 20) == 0:
            best = min(best, increment(k).value)
            if best <= target or seconds > _LONGEST:
                break
    return {
        "solver": name,
        "iterations": k,
        "seconds": seconds,
        "reached": bool(best <= target),
        "excess": best / target * (1 + ACCURACY) - 1,
    }


def fused_pass(m: int, entries: int, rank: int, n: int) -> dict[str, Any]:
    """Nanoseconds an entry of one dual step, on one thread and on all, against plain NumPy/SciPy doing the same."""
    data = make_synthetic(m, n, rank=rank, observed=2 * entries / (m * n), random_state=0)
    times: dict[str, float] = {}
    for threads, n_jobs in (("one thread", 1), ("all threads", None)):
        with Team(n_jobs) as team:
            operations = CPUOperations(data.train, team)
            U, V = gaussian_start(
                data.train.shape, rank, np.random.default_rng(1), data.train.dtype
            )
            surrogate = Surrogate(
                operations, Objective(LSP(), paper_reg((m, n))), U, V, operations.residuals(U, V)
            )
            steps = SparseSurrogateSteps(surrogate, np.zeros_like(surrogate.weights))
            times[threads] = _best(partial(_one_step, steps))
            if n_jobs == 1:
                times["numpy"] = _best(numpy_pass(surrogate))
    per_entry = {name: 1e9 * seconds / data.train.n_entries for name, seconds in times.items()}
    return {
        "rows": m,
        "columns": n,
        "entries": data.train.n_entries,
        "rank": rank,
        "nanoseconds": per_entry,
    }


def _one_step(steps: SparseSurrogateSteps) -> None:
    steps.step(1.0)
    steps.accept(0.5)


def numpy_pass(surrogate: Surrogate) -> Callable[[], object]:
    """The same step written plainly with NumPy and SciPy."""
    observed, dual = surrogate.operations.observed, surrogate.dual()
    (U, V), (a, g), (p, q) = dual.factors, dual.inverses, dual.pulls
    i, j = observed.rows.group_of_entry(), observed.rows.indices
    alpha, gamma = dual.curvatures()
    curvature = alpha[i] + gamma[j]
    X = observed.with_values(np.zeros(observed.n_entries)).to_sparse()
    state = {"x": np.zeros(observed.n_entries), "before": np.zeros(observed.n_entries)}

    def step() -> object:
        x, before = state["x"], state["before"]
        z = x + 0.5 * (x - before)
        X.data[:] = z
        dU, dV = a[:, None] * (X @ V - p), g[:, None] * (X.T @ U - q)
        rho = (
            surrogate.residual
            - np.einsum("tq,tq->t", dU[i], V[j])
            - np.einsum("tq,tq->t", U[i], dV[j])
        )
        new = np.clip(z + rho / curvature, -surrogate.weights, surrogate.weights)
        X.data[:] = new
        value = (
            0.5 * (a @ np.square(X @ V - p).sum(1) + g @ np.square(X.T @ U - q).sum(1))
            - new @ surrogate.residual
        )
        state["x"], state["before"] = new, x
        return value

    return step


def _best(action: Callable[[], object]) -> float:
    action()
    times = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times)


#: Rows and columns of the large problem; its entries are 10 a row.
_LARGE_SIDE = 200_000

_LARGE = """
import resource, sys, time
from robustmf import RMFNL
from robustmf.datasets import make_synthetic
m = int(sys.argv[1])
data = make_synthetic(m, rank=5, observed=20 / m, random_state=0)
started = time.perf_counter()
model = RMFNL(5, random_state=1, max_iter=3, tol=1e-12).fit(data.train)
print(data.train.n_entries, time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def large(m: int) -> dict[str, Any]:
    """Three outer iterations at m × m with 10 entries a row in a process of its own: seconds, and the peak of its memory."""
    command = [sys.executable, "-W", "ignore", "-c", _LARGE, str(m)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "side": m,
        "entries": int(out[0]),
        "seconds": float(out[1]),
        "peak_gigabytes": int(out[2]) * unit / 1e9,
    }


def tables(record: dict[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """The record as tables of text."""
    apg = next(line["seconds"] for line in record["inner"] if line["solver"] == "APG")
    inner = [["inner solver", "iterations", "seconds", "× APG"]] + [
        [
            line["solver"],
            str(line["iterations"]),
            f"{line['seconds']:.3f}",
            f"{line['seconds'] / apg:.1f}"
            if line["reached"]
            else f"> {line['seconds'] / apg:.0f} (stopped at {line['excess']:.1e})",
        ]
        for line in record["inner"]
    ]
    passes = [["rows", "columns", "entries", "rank", "ns/entry", "all threads", "NumPy/SciPy", "× faster"]] + [
        [
            str(line["rows"]), str(line["columns"]), str(line["entries"]), str(line["rank"]), f"{line['nanoseconds']['one thread']:.1f}",
            f"{line['nanoseconds']['all threads']:.1f}", f"{line['nanoseconds']['numpy']:.1f}",
            f"{line['nanoseconds']['numpy'] / line['nanoseconds']['one thread']:.1f}",
        ]
        for line in record["passes"]
    ]  # fmt: skip
    big = record["large"]
    large_table = [
        ["entries", "seconds (3 outer iterations)", "peak GB"],
        [str(big["entries"]), f"{big['seconds']:.1f}", f"{big['peak_gigabytes']:.2f}"],
    ]
    return [
        (
            f"seconds to relative surrogate accuracy {ACCURACY:g}, m = {record['size']}, one thread",
            inner,
        ),
        ("one fused pass of the dual (one thread)", passes),
        (f"m = n = {big['side']:,}, rank 5", large_table),
    ]
