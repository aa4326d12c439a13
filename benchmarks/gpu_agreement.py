"""Entries drawn on the GPU, and whether the GPU gives the results of the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import timed
from benchmarks.problems import NETFLIX_RANK, NETFLIX_SHAPE, NOISE, OUTLIERS, pair_products
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.backends.cuda.observed import DeviceObserved
from robustmf.backends.cuda.operations import CUDAOperations
from robustmf.data.observed import Observed
from robustmf.estimator import RobustMF
from robustmf.kernels.team import Team
from robustmf.losses import Welsch

#: Rows and columns of the entries, their values, and the true factors.
Drawn = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]

#: Shape of the problem on which devices are compared.
_SHAPE = (6040, 3706)


def draw_entries(total: int, shape: tuple[int, int], tail: float = 1.5, seed: int = 0) -> Drawn:
    """Entries distributed as in :func:`benchmarks.problems.netflix_entries`, in random order."""
    m, n = shape
    rng = torch.Generator("cuda").manual_seed(seed)
    on = {"device": "cuda", "generator": rng}
    activity = torch.exp(1.3 * torch.randn(m, **on))
    popularity = torch.exp(tail * torch.randn(n, **on)).double().cumsum(0)
    popularity /= popularity[-1].clone()
    expected = torch.clamp(1.45 * total * activity / activity.sum(), max=0.25 * n)
    counts = torch.poisson(expected, generator=rng).long()
    parts = []
    for low in range(0, m, m // 8 + 1):
        some = counts[low : low + m // 8 + 1]
        rows = torch.repeat_interleave(torch.arange(low, low + len(some), device="cuda"), some)
        drawn = torch.rand(len(rows), dtype=torch.float64, **on)
        columns = torch.searchsorted(popularity, drawn).clamp(max=n - 1)
        parts.append(torch.unique(rows * n + columns))
    position = torch.cat(parts)
    position = position[torch.randperm(len(position), **on)[:total]]
    i = torch.div(position, n, rounding_mode="floor")
    j = (position - i * n).int()
    i = i.int()
    U = 0.5 * torch.randn(m, NETFLIX_RANK, **on)
    V = 0.5 * torch.randn(n, NETFLIX_RANK, **on)
    slices = zip(i.split(10_000_000), j.split(10_000_000), strict=True)
    values = torch.cat([(U[a.long()] * V[b.long()]).sum(1) for a, b in slices])
    values += NOISE * torch.randn(len(values), **on)
    bad = torch.rand(len(values), **on) < OUTLIERS
    values += 5 * bad * torch.sign(torch.randn(len(values), **on))
    return i, j, values, U, V


def cuda_operations(drawn: Drawn, shape: tuple[int, int] = NETFLIX_SHAPE) -> CUDAOperations:
    """Operations on the entries on the GPU."""
    return CUDAOperations(DeviceObserved.from_indices(*drawn[:3], shape), Team(1))


def host_observed(drawn: Drawn, shape: tuple[int, int], dtype: Any = np.float32) -> Observed:
    """The same entries in host memory."""
    i, j, values = (array.cpu().numpy() for array in drawn[:3])
    return Observed.from_indices(i, j, values.astype(dtype), shape)


def clean_rmse(model: RobustMF, U: Tensor, V: Tensor) -> float:
    """RMSE against the product of the true factors at random positions."""
    rng = np.random.default_rng(5)
    i = rng.integers(0, len(U), 1_000_000)
    j = rng.integers(0, len(V), 1_000_000)
    clean = pair_products(U.cpu().numpy(), V.cpu().numpy(), i, j)
    return float(np.sqrt(np.mean(np.square(model.predict(i, j) - clean, dtype=np.float64))))


def half_step_error(ranks: Sequence[int]) -> list[dict[str, float]]:
    """‖U − U₆₄‖ / ‖U₆₄‖ of a float32 half-step on either device; U₆₄ is computed in float64."""
    narrow = host_observed(draw_entries(1_000_000, _SHAPE, tail=1.0, seed=3), _SHAPE)
    wide = narrow.with_values(narrow.rows.values.astype(np.float64))
    on_gpu = DeviceObserved.from_host(narrow, torch.device("cuda"))
    found = []
    with Team(None) as team:
        made: dict[str, Any] = {
            "wide": CPUOperations(wide, team),
            "cpu": CPUOperations(narrow, team),
            "gpu": CUDAOperations(on_gpu, team),
        }
        for rank in ranks:
            rng = np.random.default_rng(rank)
            U, V = ((0.3 * rng.standard_normal((k, rank))).astype(np.float32) for k in _SHAPE)
            solved = {}
            for name, operations in made.items():
                dtype = operations.observed.dtype
                left = operations.array(U.astype(dtype))
                operations.half_step(Welsch(1.0), 1.0, left, operations.array(V.astype(dtype)))
                solved[name] = np.asarray(left, np.float64)
            size = np.linalg.norm(solved["wide"])
            cpu, gpu = (np.linalg.norm(solved[k] - solved["wide"]) / size for k in ("cpu", "gpu"))
            found.append({"rank": rank, "cpu": float(cpu), "gpu": float(gpu)})
    return found


def same_as_cpu() -> list[dict[str, Any]]:
    """RMSE on both devices from the same seed with the same number of sweeps.

    ``cpu_itself`` is how far the RMSE of the CPU moves when every value moves by about its last
    bit: no device can agree better.
    """
    denser = {"loss": "welsch", "entries": 4_000_000}
    cases: list[dict[str, Any]] = [
        {"loss": "welsch"},
        {"loss": "lsp"},
        {"loss": "laplace"},
        {"loss": "welsch", "bias": True},
        {"loss": "welsch", "init": "auto"},
        {"loss": "welsch", "init": "auto", "bias": "auto", "max_iter": 300, "tol": 1e-4},
        {"loss": "lsp", "solver": "mm", "max_iter": 5},
        {**denser, "rank": 32},
        {**denser, "rank": 64},
        {"loss": "welsch", "rank": 32, "dtype": "float64"},
        {"loss": "welsch", "rank": 32},
    ]
    return [_compared(**case) for case in cases]


def _compared(entries: int = 500_000, dtype: str = "float32", **settings: Any) -> dict[str, Any]:
    drawn = draw_entries(entries, _SHAPE, tail=1.0, seed=3)
    observed = host_observed(drawn, _SHAPE, dtype)
    noise = np.random.default_rng(9).standard_normal(observed.n_entries)
    moved = observed.rows.values * (1 + np.finfo(dtype).eps * noise)
    others = (
        ("cpu", observed),
        ("cuda", observed),
        ("cpu", observed.with_values(moved.astype(dtype))),
    )
    defaults: dict[str, Any] = {
        "rank": NETFLIX_RANK,
        "init": "ridge",
        "max_iter": 20,
        "tol": 1e-12,
        "random_state": 0,
    }
    models = [RobustMF(**defaults | settings, device=device).fit(X) for device, X in others]
    cpu, gpu, itself = (clean_rmse(model, *drawn[3:]) for model in models)
    objectives = [model.history_["objective"][-1] for model in models]
    case = ", ".join(f"{name}={value}" for name, value in settings.items())
    case += f", {dtype}, {observed.n_entries:,} entries"
    return {
        "case": case,
        "cpu_rmse": cpu,
        "gpu_rmse": gpu,
        "relative": abs(gpu / cpu - 1),
        "cpu_itself": abs(itself / cpu - 1),
        "objective_relative": abs(objectives[1] / objectives[0] - 1),
        "iterations": [model.n_iter_ for model in models[:2]],
    }


def same_as_cpu_large(drawn: Drawn, sweeps: int = 5) -> list[dict[str, float]]:
    """The same on the large problem with the ridge initialization, at several ranks."""
    observed = host_observed(drawn, NETFLIX_SHAPE)
    found = []
    for rank in (NETFLIX_RANK, 32, 64):
        settings: dict[str, Any] = {
            "theta": 1.0,
            "reg": 1.0,
            "init": "ridge",
            "max_iter": sweeps,
            "tol": 1e-12,
            "random_state": 0,
        }
        models = [RobustMF(rank, **settings, device=device) for device in ("cpu", "cuda")]
        times = [timed(partial(model.fit, observed))[0] for model in models]
        cpu, gpu = (clean_rmse(model, *drawn[3:]) for model in models)
        found.append(
            {
                "rank": rank,
                "sweeps": sweeps,
                "cpu_rmse": cpu,
                "gpu_rmse": gpu,
                "relative": abs(gpu / cpu - 1),
                "cpu_seconds": times[0],
                "gpu_seconds": times[1],
            }
        )
    return found
