"""One GPU (extra ``gpu``): half-steps beside their bounds, fits, fold-in, agreement with the CPU.

480,189 × 17,770 with 100 million entries, and the size of MovieLens-10M for mm. Times are medians
of repeated runs after one that compiles.
"""

from __future__ import annotations

from typing import Any

from benchmarks.measure import figures, markdown, shown
from robustmf.backends.registry import get_backend

SMALL = {"entries": 200_000, "movielens": 20_000}


def run(entries: int = 100_000_000, movielens: int = 10_000_000) -> dict[str, Any]:
    """All measurements; an ImportError or RuntimeError without torch or a GPU."""
    get_backend("cuda").check_available()
    from benchmarks import gpu_speed  # noqa: PLC0415 - imports torch

    return gpu_speed.measure(entries, movielens)


def table(results: dict[str, Any]) -> str:
    """Sweeps by rank and loss, agreement with the CPU, and single figures."""
    tables = []
    if isinstance(results["sweeps"], list):
        tables.append(_sweep_table(results["sweeps"]))
    parts = ("build", "long_tail", "fits", "fold_in", "recommend", "mm", "memory")
    tables.append(figures("Single figures", {name: results[name] for name in parts}))
    columns = {
        "half_step_error": ("rank", "cpu", "gpu"),
        "same_as_cpu": ("case", "relative", "cpu_itself"),
        "same_as_cpu_large": (
            "rank",
            "cpu_rmse",
            "gpu_rmse",
            "relative",
            "cpu_seconds",
            "gpu_seconds",
        ),
    }
    titles = {
        "half_step_error": "Relative error of a float32 half-step against float64",
        "same_as_cpu": "Relative difference of the RMSE, and how far that of the CPU moves when "
        "every value moves by its last bit",
        "same_as_cpu_large": "100 million entries, five sweeps",
    }
    for name, keys in columns.items():
        if isinstance(results[name], list):
            rows = [[shown(line[key]) for key in keys] for line in results[name]]
            tables.append(markdown(titles[name], [key.replace("_", " ") for key in keys], rows))
    return "\n".join(tables)


def _sweep_table(lines: list[dict[str, Any]]) -> str:
    rows = []
    for line in lines:
        gather = line["rows_gather_only_ms"] + line["columns_gather_only_ms"]
        times = [
            line[key] for key in ("rows_ms", "columns_ms", "sweep_ms", "sweep_with_objective_ms")
        ]
        bounds = [
            line["rows_bound"][kind] + line["columns_bound"][kind]
            for kind in ("bytes_ms", "operations_ms", "matrix_ms")
        ]
        rows.append([line["rank"], line["loss"], *(f"{t:.2f}" for t in (*times, gather, *bounds))])
    header = [
        "rank",
        "loss",
        "rows",
        "columns",
        "sweep",
        "with objective",
        "gather only",
        "bound by bytes",
        "bound by operations",
        "matrix units",
    ]
    return markdown("A sweep of irls, milliseconds", header, rows)
