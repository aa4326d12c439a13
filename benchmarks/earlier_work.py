"""The measurements of :mod:`benchmarks.earlier_code`, in a process of one version of the package.

It is given names of works on the standard input and answers each with a line of JSON. Everything
that has another name in an earlier version is imported by :func:`_first`.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

RANKS = (5, 10, 32)
RANK = 5
NOISE = 0.3
ITERATIONS = 21

#: Half-steps that are measured together.
_HALF_STEPS = 20


def _first(*names: str) -> Any:
    """The first of some objects, ``module:name``, that exists in this version."""
    for name in names:
        module, _, attribute = name.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"this version has none of {', '.join(names)}")


def works(scale: float, device: str) -> dict[str, Callable[[], dict[str, Any]]]:
    """All works by name."""
    entries = max(int(1e6 * scale), 3000)
    found: dict[str, Callable[[], dict[str, Any]]] = {}
    if device == "cpu":
        half_step = _HalfSteps(entries)
        for dtype in ("float32", "float64"):
            for rank in RANKS:
                found[f"half-step, rank {rank}, {dtype}"] = partial(half_step, rank, dtype)
    table = low_rank(entries)
    for rank, loss in ((RANK, "welsch"), (10, "huber"), (10, "lsp")):
        found[f"sweep, rank {rank}, {loss}"] = partial(_sweep, table, rank, loss, device)
    found["default fit, rank given"] = partial(_default_fit, table, device)
    return found


def _observed(m: int, n: int, i: Any, j: Any, values: Any) -> Any:
    from robustmf import Observed  # noqa: PLC0415 - of the version of this process

    return Observed.from_indices(i, j, values, (m, n), duplicates="last")


def _positions(m: int, n: int, entries: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    i = rng.integers(0, m, entries, dtype=np.int32)
    return i, (n * rng.random(entries) ** 2).astype(np.int32)


def low_rank(entries: int) -> tuple[Any, Any, Any]:
    """A float32 table of rank 5 with noise and 5 % outliers, and its true factors."""
    m = max(entries // 100, round(2 * entries**0.5))
    n = round(1.5 * entries**0.5)
    i, j = _positions(m, n, entries)
    rng = np.random.default_rng(1)
    U, V = (rng.standard_normal((size, RANK)) for size in (m, n))
    values = np.einsum("tq,tq->t", U[i], V[j]) + NOISE * rng.standard_normal(entries)
    values += 5 * RANK**0.5 * (rng.random(entries) < 0.05) * rng.choice([-1, 1], entries)
    return _observed(m, n, i, j, values.astype(np.float32)), U, V


class _HalfSteps:
    """Half-steps on one thread; a call measures several."""

    def __init__(self, entries: int) -> None:
        operations = _first(
            "robustmf.backends.cpu.operations:CPUOperations", "robustmf.operations:Operations"
        )
        team = _first("robustmf.kernels.team:Team")(1)
        self._loss = _first("robustmf.losses:Welsch")(1.0)
        m = max(entries // 150, 60)
        n = max(entries // 250, 60)
        i, j = _positions(m, n, entries)
        values = np.random.default_rng(1).standard_normal(entries)
        self._on = {
            dtype: operations(_observed(m, n, i, j, values.astype(dtype)), team)
            for dtype in ("float32", "float64")
        }

    def __call__(self, rank: int, dtype: str) -> dict[str, Any]:
        operations = self._on[dtype]
        rng = np.random.default_rng(rank)
        U, V = (rng.standard_normal((k, rank)).astype(dtype) for k in operations.observed.shape)
        started = time.process_time()
        for _ in range(_HALF_STEPS):
            operations.half_step(self._loss, 0.1, U, V)
        return {"seconds": (time.process_time() - started) / _HALF_STEPS}


def _sweep(table: Any, rank: int, loss: str, device: str) -> dict[str, Any]:
    """Seconds per iteration of irls from given factors, at fixed θ and λ."""
    from robustmf import RobustMF  # noqa: PLC0415

    observed = table[0]
    rng = np.random.default_rng(3)
    init = tuple(rng.standard_normal((size, rank)).astype(np.float32) for size in observed.shape)
    clock = time.process_time if device == "cpu" else time.perf_counter
    times: list[float] = []
    RobustMF(
        rank,
        loss=loss,
        theta=1.0,
        reg=1.0,
        bias=False,
        solver="irls",
        init=init,
        max_iter=ITERATIONS,
        tol=1e-12,
        device=device,
        n_jobs=1,
        callbacks=[lambda _: times.append(clock())],
    ).fit(observed)
    return {"seconds": (times[-1] - times[0]) / (len(times) - 1)}


def _default_fit(table: Any, device: str) -> dict[str, Any]:
    from robustmf import RobustMF  # noqa: PLC0415

    observed, U, V = table
    clock = time.process_time if device == "cpu" else time.perf_counter
    started = clock()
    model = RobustMF(RANK, random_state=0, device=device, n_jobs=1).fit(observed)
    seconds = clock() - started
    i, j = _positions(*observed.shape, 10_000)
    found = np.einsum("tq,tq->t", model.row_factors_[i], model.column_factors_[j])
    if hasattr(model, "row_bias_"):
        found = found + model.center_ + model.row_bias_[i] + model.column_bias_[j]
    error = found - np.einsum("tq,tq->t", U[i], V[j])
    return {"seconds": seconds, "error": float(np.sqrt(np.mean(error**2))) / NOISE}


def main(scale: str, device: str) -> None:
    """Answer requests until the standard input ends."""
    warnings.simplefilter("ignore")
    known = works(float(scale), device)
    for line in sys.stdin:
        name = line.strip()
        answer = {"names": list(known)} if name == "names" else known[name]()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
