"""The measurements of :mod:`benchmarks.gpu`, which need torch and a GPU."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import triton
from torch import Tensor

from benchmarks.gpu_agreement import (
    Drawn,
    clean_rmse,
    cuda_operations,
    draw_entries,
    half_step_error,
    same_as_cpu,
    same_as_cpu_large,
)
from benchmarks.gpu_recommend import top_columns
from benchmarks.measure import announce, timed
from benchmarks.problems import NETFLIX_RANK, NETFLIX_SHAPE
from robustmf.backends.base import ProblemSize
from robustmf.backends.cuda.array import DeviceArray
from robustmf.backends.cuda.memory_estimate import fit_bytes
from robustmf.backends.cuda.observed import DeviceObserved
from robustmf.estimator import RMFNL, RobustMF
from robustmf.losses import LSP, Laplace, Loss, Smoothed, Welsch
from robustmf.solvers.registry import solver_memory

MOVIELENS_SHAPE = (69_878, 10_677)
RANKS = (5, 10, 16, 32, 64, 128)


def measure(entries: int, movielens: int) -> dict[str, Any]:
    """All measurements; a part that fails is recorded with its error."""
    record: dict[str, Any] = {"entries": entries, "ceilings": ceilings()}
    drawn = draw_entries(entries, NETFLIX_SHAPE)
    parts: dict[str, Callable[[], Any]] = {
        "build": lambda: build(drawn),
        "sweeps": lambda: sweeps(drawn),
        "long_tail": lambda: long_tail(drawn, entries),
        "fits": lambda: fits(drawn),
        "fold_in": lambda: fold_in_rate(drawn),
        "recommend": lambda: recommend_rate(drawn),
        "mm": lambda: mm_fit(movielens),
        "half_step_error": lambda: half_step_error(RANKS),
        "same_as_cpu": same_as_cpu,
        "same_as_cpu_large": lambda: same_as_cpu_large(drawn),
        "memory": lambda: memory(drawn),
    }
    for name, part in parts.items():
        announce(name)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                record[name] = part()
        except Exception as error:  # the other parts are still measured
            record[name] = {"error": f"{type(error).__name__}: {error}"[:2000]}
            announce(f"{name}: {error}")
        torch.cuda.empty_cache()
    return record


def milliseconds(work: Callable[[], Any], repeats: int = 7, calls: int = 1) -> float:
    """Median time on the GPU; several calls in sequence hide the time of launches."""
    work()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / calls)
    return float(np.median(times))


def seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """Median wall time after one run that compiles."""

    def synchronized() -> None:
        work()
        torch.cuda.synchronize()

    synchronized()
    return float(np.median([timed(synchronized)[0] for _ in range(repeats)]))


def ceilings() -> dict[str, float]:
    """Bytes copied per second, and operations per second of matrix products."""
    a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    x = torch.randn(8192, 8192, device="cuda")
    y = x.bfloat16()
    operations = 2 * 8192**3
    return {
        "copy_bytes_per_second": 2 * len(a) / milliseconds(lambda: b.copy_(a)) * 1e3,
        "float32_operations_per_second": operations / milliseconds(lambda: x @ x) * 1e3,
        "bfloat16_operations_per_second": operations / milliseconds(lambda: y @ y) * 1e3,
    }


def build(drawn: Drawn) -> dict[str, float]:
    """From coordinates on the GPU to rows, columns and lanes."""

    def work() -> None:
        operations = cuda_operations(drawn)
        _ = operations.lanes, operations.transposed.lanes

    return {"milliseconds": 1e3 * seconds(work)}


def _bounds(operations: Any, rank: int, ceilings: dict[str, float]) -> dict[str, float]:
    """Least times of a half-step by bytes and operations.

    Entries and factors pass once through memory, and sums use symmetry. ``matrix_ms`` is the time
    of the matrix units above rank 16: four products of complete tiles.
    """
    m, n = operations.observed.shape
    entries = operations.observed.n_entries
    size = 8 * entries + 4 * rank * (2 * m + n)
    work = 2 * entries * (rank * (rank + 1) / 2 + 3 * rank) + 2 * m * rank**3 / 6
    sectors = 32 * -(-rank * 4 // 32) * entries
    tiles = 4 * 2 * triton.next_power_of_2(rank) ** 2 * entries if rank > 16 else 0
    return {
        "bytes_ms": 1e3 * size / ceilings["copy_bytes_per_second"],
        "operations_ms": 1e3 * work / ceilings["float32_operations_per_second"],
        "matrix_ms": 1e3 * tiles / ceilings["bfloat16_operations_per_second"],
        "gathered_gigabytes": sectors / 1e9,
    }


def sweeps(drawn: Drawn) -> list[dict[str, Any]]:
    """Milliseconds of the two half-steps and of the objective, by rank and loss."""
    operations = cuda_operations(drawn)
    found = []
    measured = ceilings()
    for rank in RANKS:
        rng = torch.Generator("cuda").manual_seed(1)
        U, V = (0.3 * torch.randn(k, rank, device="cuda", generator=rng) for k in NETFLIX_SHAPE)
        if rank == NETFLIX_RANK:
            U = drawn[3] + 0.1 * U
            V = drawn[4] + 0.1 * V
        for loss in (Welsch(1.0), Smoothed(1.0, LSP(), 0.1), Smoothed(1.0, Laplace(), 0.1)):
            times = _sweep(operations, loss, U, V, measured)
            announce(f"rank {rank} {loss.name}: sweep {times['sweep_ms']:.2f} ms")
            found.append({"rank": rank, "loss": loss.name, **times})
    return found


def _sweep(
    operations: Any, loss: Loss, U: Tensor, V: Tensor, measured: dict[str, float]
) -> dict[str, Any]:
    """Half-steps, objective, and passes that only gather and add the factors of the other side."""
    other = operations.transposed
    u: Any = DeviceArray(U)
    v: Any = DeviceArray(V)
    rows = milliseconds(lambda: operations.half_step(loss, 1.0, u.copy(), v), 5, 5)
    columns = milliseconds(lambda: other.half_step(loss, 1.0, v.copy(), u), 5, 5)
    objective = milliseconds(lambda: operations.loss_sum(loss, u, v))
    rows_gather = milliseconds(lambda: operations._product(operations.values, V, None), 5, 5)
    columns_gather = milliseconds(lambda: other._product(other.values, U, None), 5, 5)
    return {
        "rows_ms": rows,
        "columns_ms": columns,
        "objective_ms": objective,
        "sweep_ms": rows + columns,
        "sweep_with_objective_ms": rows + columns + objective,
        "rows_gather_only_ms": rows_gather,
        "columns_gather_only_ms": columns_gather,
        "rows_bound": _bounds(operations, V.shape[1], measured),
        "columns_bound": _bounds(other, V.shape[1], measured),
    }


def long_tail(drawn: Drawn, total: int) -> dict[str, Any]:
    """The half-step of the columns with long tails, and with columns of about equal length."""
    found: dict[str, Any] = {}
    equal = draw_entries(total, NETFLIX_SHAPE, tail=0.0)
    for name, data in (("long_tail", drawn), ("equal", equal)):
        operations = cuda_operations(data).transposed
        U = data[4]
        V = DeviceArray(data[3])
        found[f"{name}_columns_ms"] = milliseconds(
            lambda operations=operations, U=U, V=V: operations.half_step(  # type: ignore[misc]
                Welsch(1.0), 1.0, DeviceArray(U.clone()), V
            ),
            5,
            5,
        )
        found[f"{name}_longest"] = int(operations.counts.max())
        found[f"{name}_entries"] = operations.observed.n_entries
    return found


def _host(i: Tensor, j: Tensor, values: Tensor, shape: tuple[int, int]) -> Any:
    arrays = [array.cpu().numpy() for array in (i, j, values)]
    return sp.coo_array((arrays[2], (arrays[0], arrays[1])), shape=shape)


def _same_bits(a: Any, b: Any) -> bool:
    names = ("row_factors_", "column_factors_")
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


def fits(drawn: Drawn) -> dict[str, Any]:
    """Complete fits: from host arrays to host factors, and from arrays on the GPU."""
    i, j, values, U, V = drawn
    host = _host(i, j, values, NETFLIX_SHAPE)
    rng = np.random.default_rng(0)
    init = tuple(
        (0.3 * rng.standard_normal((k, NETFLIX_RANK))).astype(np.float32) for k in NETFLIX_SHAPE
    )

    def fit(X: Any = None, **settings: Any) -> RobustMF:
        X = DeviceObserved.from_indices(i, j, values, NETFLIX_SHAPE) if X is None else X
        settings = {"init": init, "max_iter": 20, **settings}
        return RobustMF(
            NETFLIX_RANK, theta=1.0, reg=1.0, tol=1e-12, random_state=0, device="cuda", **settings
        ).fit(X)

    found: dict[str, Any] = {
        "sweeps": 20,
        "host_seconds": seconds(lambda: fit(host)),
        "device_seconds": seconds(fit),
    }
    model = fit()
    found["same_bits"] = _same_bits(model, fit())
    found["sweep_in_fit_ms"] = 1e3 * float(np.median(np.diff(model.history_["seconds"])))
    nonsmooth = fit(loss="lsp")
    found["lsp_sweep_in_fit_ms"] = 1e3 * float(np.median(np.diff(nonsmooth.history_["seconds"])))
    found["entries_to_host_seconds"] = timed(lambda: nonsmooth.entries_["values"])[0]
    found["rmse_against_clean"] = clean_rmse(model, U, V)
    found["ridge_init_seconds"] = seconds(lambda: fit(init="ridge"), 1)
    default = RobustMF(NETFLIX_RANK, random_state=0, device="cuda")
    found["host_defaults_seconds"] = seconds(lambda: default.fit(host), 1)
    found["host_defaults_rmse"] = clean_rmse(default, U, V)
    found["host_defaults_iterations"] = default.n_iter_
    return found


def memory(drawn: Drawn) -> dict[str, Any]:
    """Peak memory on the GPU beside the estimate: 20 sweeps, and a fit with defaults."""
    X = _host(*drawn[:3], NETFLIX_SHAPE)
    for array in drawn[:3]:
        array.resize_(0)
    settings: dict[str, Any] = {"random_state": 0, "device": "cuda"}
    sweeps = RobustMF(
        NETFLIX_RANK, theta=1.0, reg=1.0, init="random", max_iter=20, tol=1e-12, **settings
    )
    size = ProblemSize(NETFLIX_SHAPE, X.nnz, NETFLIX_RANK, 4)
    return {
        "peak_gigabytes": _peak(sweeps, X),
        "defaults_peak_gigabytes": _peak(RobustMF(NETFLIX_RANK, **settings), X),
        "estimate_gigabytes": fit_bytes(size, solver_memory("irls")) / 1e9,
    }


def _peak(model: RobustMF, X: Any) -> float:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    model.fit(X)
    return float((torch.cuda.max_memory_allocated() - before) / 1e9)


def fold_in_rate(drawn: Drawn, rows: int = 100_000) -> dict[str, float]:
    """Rows per second, from host arrays and from arrays on the GPU, to host factors."""
    i, j, values = drawn[:3]
    model = RobustMF(
        NETFLIX_RANK, theta=1.0, reg=1.0, init="ridge", max_iter=3, random_state=0, device="cuda"
    )
    model.fit(DeviceObserved.from_indices(i, j, values, NETFLIX_SHAPE))
    some = i < rows
    shape = (rows, NETFLIX_SHAPE[1])
    host = _host(i[some], j[some], values[some], shape)
    on_gpu = DeviceObserved.from_indices(i[some], j[some], values[some], shape)
    return {
        "rows": rows,
        "entries": int(some.sum()),
        "host_rows_per_second": rows / seconds(lambda: model.transform(host)),
        "device_rows_per_second": rows / seconds(lambda: model.transform(on_gpu)),
    }


def recommend_rate(drawn: Drawn, count: int = 10) -> dict[str, float]:
    """Users per second: the ten best columns of every row, without those it has entries in."""
    U, V = drawn[3:]
    operations = cuda_operations(drawn)
    taken = seconds(lambda: top_columns(U, V, count, operations))
    return {"users": len(U), "count": count, "seconds": taken, "users_per_second": len(U) / taken}


def mm_fit(total: int) -> dict[str, Any]:
    """The paper's algorithm in the size of MovieLens-10M: complete fits, and one dual step."""
    drawn = draw_entries(total, MOVIELENS_SHAPE)
    i, j, values, U, V = drawn
    host = _host(i, j, values, MOVIELENS_SHAPE)
    found: dict[str, Any] = {"entries": total}
    settings: dict[str, Any] = {"random_state": 0, "device": "cuda"}
    for init in ("ridge", "auto"):
        RMFNL(NETFLIX_RANK, init=init, max_iter=1, **settings).fit(host)
        started = time.perf_counter()
        model = RMFNL(NETFLIX_RANK, init=init, **settings).fit(host)
        taken = time.perf_counter() - started
        passes = sum(model.history_["inner_iterations"])
        loop = model.history_["seconds"][-1]
        found[init] = {
            "fit_seconds": taken,
            "outer_iterations": model.n_iter_,
            "passes": passes,
            "loop_seconds": loop,
            "milliseconds_per_pass": 1e3 * loop / passes,
            "objective": model.history_["objective"][-1],
            "rmse_against_clean": clean_rmse(model, U, V),
            "converged": model.converged_,
        }
    found["same_bits"] = _same_bits(model, RMFNL(NETFLIX_RANK, init="auto", **settings).fit(host))
    found["dual_step_ms"] = _dual_step_ms(drawn)
    return found


def _dual_step_ms(drawn: Drawn) -> float:
    operations = cuda_operations(drawn, MOVIELENS_SHAPE)
    u, v = (DeviceArray(A) for A in drawn[3:])
    increments: Any = tuple(DeviceArray(0.01 * A) for A in drawn[3:])
    curvatures: Any = tuple(DeviceArray(torch.ones(k, device="cuda")) for k in MOVIELENS_SHAPE)
    e = operations.residuals(u, v)
    w = DeviceArray(1 / (1 + e.tensor.abs()))
    x = DeviceArray(torch.zeros_like(e.tensor))
    x_new = DeviceArray(torch.empty_like(e.tensor))
    products = operations.products(x, u, v)
    step = operations.dual_pass(NETFLIX_RANK)
    return milliseconds(
        lambda: step.step(e, w, curvatures, 0.5, 1.0, (u, v), increments, x, x, x_new, products)
    )
