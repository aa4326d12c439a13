"""How fast one GPU is: half-steps at several ranks beside their bounds, whole fits, fold-in, recommendation; and the CPU's results.

Every figure is the median of repeated runs after one that compiles. Needs a GPU; ``robustmf bench gpu`` runs it.
"""

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

import robustmf
from benchmarks.gpu_agreement import RANKS, half_step_error, same_as_cpu, same_as_cpu_large
from benchmarks.gpu_problem import Made, clean_rmse, make_entries
from benchmarks.netflix_scale import RANK, SHAPE
from robustmf.backends.base import ProblemSize
from robustmf.backends.cuda.array import DeviceArray
from robustmf.backends.cuda.memory_estimate import fit_bytes
from robustmf.backends.cuda.observed import DeviceObserved
from robustmf.backends.cuda.operations import CUDAOperations
from robustmf.backends.cuda.recommend import top_columns
from robustmf.estimator import RMFNL, RobustMF
from robustmf.kernels.team import Team
from robustmf.losses import LSP, Laplace, Loss, Smoothed, Welsch
from robustmf.solvers.memory import IRLS_MEMORY

MOVIELENS = (69_878, 10_677)


def run(
    announce: Callable[[str], None], total: int = 100_000_000, movielens: int = 10_000_000
) -> dict[str, Any]:
    """All measurements, as one record. A part that fails is recorded with its error, and the others go on."""
    record: dict[str, Any] = {
        "version": robustmf.__version__, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
        "entries": total,
    }  # fmt: skip
    warnings.simplefilter("ignore")
    record["ceilings"] = ceilings()
    made = make_entries(total, SHAPE)
    parts: dict[str, Callable[[], Any]] = {
        "build": lambda: build(made),
        "sweeps": lambda: sweeps(made, announce),
        "long_tail": lambda: long_tail(made, total),
        "fits": lambda: fits(made),
        "fold_in": lambda: fold_in_rate(made),
        "recommend": lambda: recommend_rate(made),
        "mm": lambda: mm_fit(movielens),
        "half_step_error": half_step_error,
        "same_as_cpu": same_as_cpu,
        "same_as_cpu_large": lambda: same_as_cpu_large(made),
        "memory": lambda: memory(made),
    }
    for name, measure in parts.items():
        announce(name)
        try:
            record[name] = measure()
        except Exception as error:
            record[name] = {"error": f"{type(error).__name__}: {error}"[:2000]}
            announce(f"{name}: {error}")
        torch.cuda.empty_cache()
    return record


def milliseconds(work: Callable[[], Any], repeats: int = 7, in_a_row: int = 1) -> float:
    """Median time on the card, after one run to compile; several calls in a row hide the host's time to launch."""
    work()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(in_a_row):
            work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / in_a_row)
    return float(np.median(times))


def seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """Median wall time, after one run to compile."""
    times = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return float(np.median(times[1:]))


def ceilings() -> dict[str, float]:
    """What the card can do: bytes copied a second, and multiply–adds (two operations each) of a matrix product."""
    a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    copy = 2 * len(a) / milliseconds(lambda: b.copy_(a)) * 1e3
    x = torch.randn(8192, 8192, device="cuda")
    product = 2 * 8192**3 / milliseconds(lambda: x @ x) * 1e3
    y = x.bfloat16()
    matrix = 2 * 8192**3 / milliseconds(lambda: y @ y) * 1e3
    return {
        "copy_bytes_per_second": copy,
        "float32_operations_per_second": product,
        "bfloat16_operations_per_second": matrix,
    }


def build(made: Made) -> dict[str, float]:
    """From coordinates on the card to rows, columns and lanes."""
    i, j, values = made[:3]

    def work() -> None:
        observed = DeviceObserved.from_indices(i, j, values, SHAPE)
        operations = _operations(observed)
        _ = operations.lanes, operations.transposed.lanes

    return {"milliseconds": 1e3 * seconds(work)}


def _operations(observed: DeviceObserved) -> CUDAOperations:
    return CUDAOperations(observed, Team(1))


def _bounds(operations: CUDAOperations, rank: int, ceilings: dict[str, float]) -> dict[str, float]:
    """The fewest bytes and operations of a half-step, as times: entries and factors once through memory; the sums by symmetry.

    ``matrix_ms`` is the time of the matrix units for what is asked of them above rank 16: four products of whole tiles.
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


def sweeps(made: Made, announce: Callable[[str], None]) -> list[dict[str, Any]]:
    """Milliseconds of the two half-steps and of the objective, by rank and loss."""
    operations = _operations(DeviceObserved.from_indices(*made[:3], SHAPE))
    found = []
    measured = ceilings()
    for rank in RANKS:
        rng = torch.Generator("cuda").manual_seed(1)
        U, V = (0.3 * torch.randn(k, rank, device="cuda", generator=rng) for k in SHAPE)
        if rank == RANK:
            U, V = made[3] + 0.1 * U, made[4] + 0.1 * V
        for loss in (Welsch(1.0), Smoothed(1.0, LSP(), 0.1), Smoothed(1.0, Laplace(), 0.1)):
            found.append(
                {"rank": rank, "loss": loss.name, **_sweep(operations, loss, U, V, measured)}
            )
            announce(
                f"rank {rank} {loss.name}: sweep {found[-1]['sweep_ms']:.2f} ms, objective {found[-1]['objective_ms']:.2f} ms"
            )
    return found


def _sweep(
    operations: CUDAOperations, loss: Loss, U: Tensor, V: Tensor, measured: dict[str, float]
) -> dict[str, Any]:
    """The half-steps, the objective, and passes that only gather and add the other side's factors: what a half-step cannot do without."""
    other = operations.transposed
    u: Any = DeviceArray(U)
    v: Any = DeviceArray(V)
    rows = milliseconds(lambda: operations.half_step(loss, 1.0, u.copy(), v), 5, 5)
    columns = milliseconds(lambda: other.half_step(loss, 1.0, v.copy(), u), 5, 5)
    objective = milliseconds(lambda: operations.loss_sum(loss, u, v))
    return {
        "rows_ms": rows,
        "columns_ms": columns,
        "objective_ms": objective,
        "sweep_ms": rows + columns,
        "sweep_with_objective_ms": rows + columns + objective,
        "rows_gather_only_ms": milliseconds(
            lambda: operations._product(operations.values, V, None), 5, 5
        ),
        "columns_gather_only_ms": milliseconds(lambda: other._product(other.values, U, None), 5, 5),
        "rows_bound": _bounds(operations, V.shape[1], measured),
        "columns_bound": _bounds(other, V.shape[1], measured),
    }


def long_tail(made: Made, total: int) -> dict[str, Any]:
    """The columns' half-step with long tails, and with columns of about equal length, as many entries."""
    found: dict[str, Any] = {}
    for name, data in (("long_tail", made), ("equal", make_entries(total, SHAPE, tail=0.0))):
        operations = _operations(DeviceObserved.from_indices(*data[:3], SHAPE)).transposed
        found[f"{name}_columns_ms"] = _half_step_ms(operations, data[4], data[3])
        found[f"{name}_longest"], found[f"{name}_entries"] = (
            int(operations.counts.max()),
            operations.observed.n_entries,
        )
    return found


def _half_step_ms(operations: CUDAOperations, U: Tensor, V: Tensor) -> float:
    return milliseconds(
        lambda: operations.half_step(Welsch(1.0), 1.0, DeviceArray(U.clone()), DeviceArray(V)), 5, 5
    )


def fits(made: Made) -> dict[str, Any]:
    """Whole fits: from host arrays to host factors, and from arrays on the card; the second run's time, the first one compiles."""
    i, j, values, U, V = made
    host = sp.coo_array((values.cpu().numpy(), (i.cpu().numpy(), j.cpu().numpy())), shape=SHAPE)
    rng = np.random.default_rng(0)
    start = tuple((0.3 * rng.standard_normal((k, RANK))).astype(np.float32) for k in SHAPE)
    found: dict[str, Any] = {"sweeps": 20}

    def fit(X: Any, **settings: Any) -> RobustMF:
        return RobustMF(
            RANK, theta=1.0, reg=1.0, tol=1e-12, random_state=0, device="cuda", **settings
        ).fit(X)

    def device_arrays() -> DeviceObserved:
        return DeviceObserved.from_indices(i, j, values, SHAPE)

    found["host_seconds"] = seconds(lambda: fit(host, init=start, max_iter=20))
    found["device_seconds"] = seconds(lambda: fit(device_arrays(), init=start, max_iter=20))
    model = fit(device_arrays(), init=start, max_iter=20)
    again = fit(device_arrays(), init=start, max_iter=20)
    found["same_bits"] = bool(
        np.array_equal(model.row_factors_, again.row_factors_)
        and np.array_equal(model.column_factors_, again.column_factors_)
    )
    found["sweep_in_fit_ms"] = 1e3 * float(np.median(np.diff(model.history_["seconds"])))
    kinked = fit(device_arrays(), loss="lsp", init=start, max_iter=20)
    found["lsp_sweep_in_fit_ms"] = 1e3 * float(np.median(np.diff(kinked.history_["seconds"])))
    started = time.perf_counter()
    _ = kinked.entries_["values"]
    found["entries_to_host_seconds"] = time.perf_counter() - started
    found["rmse_against_clean"] = clean_rmse(model, U, V)
    found["ridge_start_seconds"] = seconds(
        lambda: fit(device_arrays(), init="ridge", max_iter=20), 1
    )
    default = RobustMF(RANK, random_state=0, device="cuda")
    found["host_defaults_seconds"] = seconds(lambda: default.fit(host), 1)
    found["host_defaults_rmse"], found["host_defaults_iterations"] = (
        clean_rmse(default, U, V),
        default.n_iter_,
    )
    return found


def memory(made: Made) -> dict[str, Any]:
    """The most that fits take on the card, beside the estimate: 20 sweeps from a random start, and every default."""
    host = [array.cpu().numpy() for array in made[:3]]
    for array in made[:3]:
        array.resize_(0)
    X = sp.coo_array((host[2], (host[0], host[1])), shape=SHAPE)
    sweeps = RobustMF(
        RANK,
        theta=1.0,
        reg=1.0,
        init="random",
        max_iter=20,
        tol=1e-12,
        random_state=0,
        device="cuda",
    )
    return {
        "peak_gigabytes": _peak(sweeps, X),
        "defaults_peak_gigabytes": _peak(RobustMF(RANK, random_state=0, device="cuda"), X),
        "estimate_gigabytes": fit_bytes(ProblemSize(SHAPE, len(host[2]), RANK, 4), IRLS_MEMORY)
        / 1e9,
    }


def _peak(model: RobustMF, X: Any) -> float:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    model.fit(X)
    return float((torch.cuda.max_memory_allocated() - before) / 1e9)


def fold_in_rate(made: Made, rows: int = 100_000) -> dict[str, float]:
    """Rows a second: new rows as host arrays to host factors."""
    i, j, values = made[:3]
    model = RobustMF(
        RANK, theta=1.0, reg=1.0, init="ridge", max_iter=3, random_state=0, device="cuda"
    )
    model.fit(DeviceObserved.from_indices(i, j, values, SHAPE))
    some = i < rows
    host = sp.coo_array(
        (values[some].cpu().numpy(), (i[some].cpu().numpy(), j[some].cpu().numpy())),
        shape=(rows, SHAPE[1]),
    )
    on_card = DeviceObserved.from_indices(i[some], j[some], values[some], (rows, SHAPE[1]))
    return {
        "rows": rows,
        "entries": int(some.sum()),
        "host_rows_per_second": rows / seconds(lambda: model.transform(host)),
        "device_rows_per_second": rows / seconds(lambda: model.transform(on_card)),
    }


def recommend_rate(made: Made, count: int = 10) -> dict[str, float]:
    """Users a second: the ten best columns for every row, those it has entries in left out."""
    i, j, values, U, V = made
    operations = _operations(DeviceObserved.from_indices(i, j, values, SHAPE))
    taken = seconds(lambda: top_columns(U, V, count, operations))
    return {"users": len(U), "count": count, "seconds": taken, "users_per_second": len(U) / taken}


def mm_fit(total: int) -> dict[str, Any]:
    """The paper's algorithm at MovieLens-10M's size: whole fit from host arrays, and the time of a pass."""
    i, j, values, U, V = make_entries(total, MOVIELENS)
    host = sp.coo_array((values.cpu().numpy(), (i.cpu().numpy(), j.cpu().numpy())), shape=MOVIELENS)
    found: dict[str, Any] = {"entries": total}
    for init in ("ridge", "auto"):
        RMFNL(RANK, init=init, max_iter=1, random_state=0, device="cuda").fit(host)
        started = time.perf_counter()
        model = RMFNL(RANK, init=init, random_state=0, device="cuda").fit(host)
        taken = time.perf_counter() - started
        passes = sum(model.history_["inner_iterations"])
        found[init] = {
            "fit_seconds": taken, "outer_iterations": model.n_iter_, "passes": passes, "loop_seconds": model.history_["seconds"][-1],
            "milliseconds_per_pass": 1e3 * model.history_["seconds"][-1] / passes, "objective": model.history_["objective"][-1],
            "rmse_against_clean": clean_rmse(model, U, V), "converged": model.converged_,
        }  # fmt: skip
    again = RMFNL(RANK, init="auto", random_state=0, device="cuda").fit(host)
    found["same_bits"] = bool(
        np.array_equal(model.row_factors_, again.row_factors_)
        and np.array_equal(model.column_factors_, again.column_factors_)
    )
    observed = DeviceObserved.from_indices(i, j, values, MOVIELENS)
    operations = _operations(observed)
    u, v = DeviceArray(U), DeviceArray(V)
    e = operations.residuals(u, v)
    w, x = DeviceArray(1 / (1 + e.tensor.abs())), DeviceArray(torch.zeros_like(e.tensor))
    x_new, products, increments = (
        DeviceArray(torch.empty_like(e.tensor)),
        operations.products(x, u, v),
        (DeviceArray(0.01 * U), DeviceArray(0.01 * V)),
    )
    curvatures = tuple(DeviceArray(torch.ones(k, device="cuda")) for k in MOVIELENS)
    step = operations.dual_pass(RANK)
    found["dual_step_ms"] = milliseconds(
        lambda: step.step(e, w, curvatures, 0.5, 1.0, (u, v), increments, x, x, x_new, products)
    )
    return found


def tables(found: dict[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """The record as tables to print."""
    head = "rank,loss,rows ms,columns ms,sweep ms,with objective,gather only,bytes bound,operations bound,matrix units"
    lines = [head.split(",")]
    for line in found["sweeps"] if isinstance(found["sweeps"], list) else []:
        both = [line["rows_bound"], line["columns_bound"]]
        lines.append([
            str(line["rank"]), line["loss"], f"{line['rows_ms']:.2f}", f"{line['columns_ms']:.2f}", f"{line['sweep_ms']:.2f}",
            f"{line['sweep_with_objective_ms']:.2f}", f"{line['rows_gather_only_ms'] + line['columns_gather_only_ms']:.2f}",
            *(f"{sum(b[kind] for b in both):.2f}" for kind in ("bytes_ms", "operations_ms", "matrix_ms")),
        ])  # fmt: skip
    made = [("A sweep of irls", lines)]
    for name in ("build", "long_tail", "fits", "fold_in", "recommend", "mm", "memory"):
        made.append(
            (
                name.replace("_", " "),
                [["what", "figure"], *([key, _shown(value)] for key, value in found[name].items())],
            )
        )
    same, errors = found["same_as_cpu"], found["half_step_error"]
    if isinstance(errors, list):
        shown = [[str(e["rank"]), f"{e['cpu']:.1e}", f"{e['gpu']:.1e}"] for e in errors]
        made.append(("error of a half-step", [["rank", "CPU", "GPU"], *shown]))
    large = found["same_as_cpu_large"]
    if isinstance(large, list):
        names = ("cpu_rmse", "gpu_rmse", "relative", "cpu_seconds", "gpu_seconds")
        rmse = [["rank", "CPU's RMSE", "GPU's", "relative difference", "CPU's seconds", "GPU's"]]
        rmse += [[str(c["rank"]), *(_shown(c[name]) for name in names)] for c in large]
        made.append((f"the large problem, {large[0]['sweeps']} sweeps", rmse))
    if isinstance(same, list):
        columns = ["case", "relative difference of RMSE", "CPU against itself"]
        made.append(
            (
                "same as the CPU",
                [
                    columns,
                    *([str(c), f"{c['relative']:.1e}", f"{c['cpu_itself']:.1e}"] for c in same),
                ],
            )
        )
    return made


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
