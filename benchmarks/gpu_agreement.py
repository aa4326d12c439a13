"""Whether the GPU finds what the CPU finds: half-steps beside float64's, whole fits from equal seeds with as many sweeps."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.gpu_problem import Made, clean_rmse, make_entries
from benchmarks.netflix_scale import RANK, SHAPE
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.backends.cuda.observed import DeviceObserved
from robustmf.backends.cuda.operations import CUDAOperations
from robustmf.data.observed import Observed
from robustmf.estimator import RobustMF
from robustmf.kernels.team import Team
from robustmf.losses import Welsch

RANKS = (5, 10, 16, 32, 64)


def half_step_error() -> list[dict[str, float]]:
    """How far a half-step in float32 is from the same one in float64, on either device: ‖U − U₆₄‖ / ‖U₆₄‖."""
    shape = (6040, 3706)
    i, j, values, _, _ = make_entries(1_000_000, shape, tail=1.0, seed=3)
    narrow = Observed.from_indices(i.cpu().numpy(), j.cpu().numpy(), values.cpu().numpy(), shape)
    wide = narrow.with_values(narrow.rows.values.astype(np.float64))
    found = []
    with Team(None) as team:
        for rank in RANKS:
            rng = np.random.default_rng(rank)
            U, V = ((0.3 * rng.standard_normal((k, rank))).astype(np.float32) for k in shape)
            made: dict[str, CPUOperations] = {
                "wide": CPUOperations(wide, team),
                "cpu": CPUOperations(narrow, team),
                "gpu": CUDAOperations(DeviceObserved.from_host(narrow, torch.device("cuda")), team),
            }
            solved: dict[str, Any] = {}
            for name, operations in made.items():
                kind = operations.observed.dtype
                solved[name] = operations.array(U.astype(kind))
                operations.half_step(
                    Welsch(1.0), 1.0, solved[name], operations.array(V.astype(kind))
                )
                solved[name] = np.asarray(solved[name], np.float64)
            size = np.linalg.norm(solved["wide"])
            errors = {
                name: float(np.linalg.norm(solved[name] - solved["wide"]) / size)
                for name in ("cpu", "gpu")
            }
            found.append({"rank": rank, **errors})
    return found


def same_as_cpu() -> list[dict[str, Any]]:
    """RMSE on both devices, from the same seed with as many sweeps: 6,040 × 3,706 with half a million entries, unless said otherwise.

    ``cpu_itself`` is how far the CPU's RMSE moves when every value is moved by about its last bit: no device can agree with it better.
    """
    denser = {"loss": "welsch", "entries": 4_000_000}
    cases: list[dict[str, Any]] = [
        {"loss": "welsch"}, {"loss": "lsp"}, {"loss": "laplace"}, {"loss": "welsch", "bias": True}, {"loss": "welsch", "init": "auto"},
        {"loss": "welsch", "init": "auto", "bias": "auto", "max_iter": 300, "tol": 1e-4},
        {"loss": "lsp", "solver": "mm", "max_iter": 5}, {**denser, "rank": 32}, {**denser, "rank": 64},
        {"loss": "welsch", "rank": 32, "dtype": "float64"}, {"loss": "welsch", "rank": 32},
    ]  # fmt: skip
    return [_same(dict(case)) for case in cases]


def _same(case: dict[str, Any]) -> dict[str, Any]:
    shape, given = (6040, 3706), dict(case)
    total, kind = case.pop("entries", 500_000), np.dtype(case.pop("dtype", "float32"))
    i, j, values, U, V = make_entries(total, shape, tail=1.0, seed=3)
    observed = Observed.from_indices(
        i.cpu().numpy(), j.cpu().numpy(), values.cpu().numpy().astype(kind), shape
    )
    settings: dict[str, Any] = {
        "rank": RANK,
        "init": "ridge",
        "max_iter": 20,
        "tol": 1e-12,
        "random_state": 0,
        **case,
    }
    moved = 1 + np.finfo(kind).eps * np.random.default_rng(9).standard_normal(observed.n_entries)
    others = (
        ("cpu", observed),
        ("cuda", observed),
        ("cpu", observed.with_values((observed.rows.values * moved).astype(kind))),
    )
    models = [RobustMF(**settings, device=device).fit(X) for device, X in others]
    cpu, gpu, itself = (clean_rmse(model, U, V) for model in models)
    objective = [model.history_["objective"][-1] for model in models]
    return {
        **given, "entries": observed.n_entries, "cpu_rmse": cpu, "gpu_rmse": gpu, "relative": abs(gpu / cpu - 1),
        "cpu_itself": abs(itself / cpu - 1), "objective_relative": abs(objective[1] / objective[0] - 1),
        "iterations": [model.n_iter_ for model in models[:2]],
    }  # fmt: skip


def same_as_cpu_large(made: Made, sweeps: int = 5) -> list[dict[str, float]]:
    """The same on the large problem, from its ridge start, at several ranks."""
    i, j, values, U, V = made
    observed = Observed.from_indices(i.cpu().numpy(), j.cpu().numpy(), values.cpu().numpy(), SHAPE)
    return [_same_large(observed, rank, sweeps, U, V) for rank in (RANK, 32, 64)]


def _same_large(
    observed: Observed, rank: int, sweeps: int, U: Tensor, V: Tensor
) -> dict[str, float]:
    settings: dict[str, Any] = {
        "theta": 1.0,
        "reg": 1.0,
        "init": "ridge",
        "max_iter": sweeps,
        "tol": 1e-12,
        "random_state": 0,
    }
    models, times = [], []
    for device in ("cpu", "cuda"):
        started = time.perf_counter()
        models.append(RobustMF(rank, **settings, device=device).fit(observed))
        times.append(time.perf_counter() - started)
    rmse = [clean_rmse(model, U, V) for model in models]
    return {
        "rank": rank, "sweeps": sweeps, "cpu_rmse": rmse[0], "gpu_rmse": rmse[1], "relative": abs(rmse[1] / rmse[0] - 1),
        "cpu_seconds": times[0], "gpu_seconds": times[1],
    }  # fmt: skip
