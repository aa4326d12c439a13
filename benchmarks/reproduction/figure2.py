"""Figure 2: how fast each optimizer minimizes the surrogate of the first outer iteration."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.mm import first_surrogate, inner_steps
from benchmarks.problems import operations
from benchmarks.reproduction.plan import Experiment, Run, seeded
from robustmf.datasets import make_synthetic
from robustmf.solvers.mm import MM, SparseAPG

RANK = 5
ITERATIONS = 300
SEEDS = 5
SIZES = ("m = 250", "m = 1000")

#: Figure 2(a) of the paper: time and memory of an iteration.
COMPLEXITIES = {
    "LADMPSAP": ("O(mnr)", "O(mn)"),
    "APG(dense)": ("O(mnr)", "O(mn)"),
    "APG": ("O(nnz(W)·r + (m+n)r)", "O(nnz(W) + (m+n)r)"),
}


def runs(quick: bool) -> list[Run]:
    """M = 1000 as in the paper, and m = 250, where the dense optimizers are cheap."""
    sizes = SIZES[:1] if quick else SIZES
    return seeded("figure2", COMPLEXITIES, sizes, lambda method, data: 1 if quick else SEEDS)


def execute(run: Run) -> dict[str, Any]:
    """F − min F after each of 300 iterations; min F is that of a solve to a gap of 1e-9."""
    m = int(run.data.removeprefix("m = "))
    data = make_synthetic(m, rank=RANK, random_state=run.seed)
    with operations(data.train, 1) as on:
        surrogate = first_surrogate(on, RANK, np.random.default_rng(1000 + run.seed))
        best = SparseAPG().solve(surrogate, MM(gap=1e-9, max_iter=20_000))
        next(inner_steps(run.method, surrogate)[0])  # compiles
        steps, increment = inner_steps(run.method, surrogate)
        seconds = 0.0
        excess = surrogate.at_zero - best.value
        curve: dict[str, list[float]] = {"iteration": [0], "seconds": [0.0], "excess": [excess]}
        for k in range(1, ITERATIONS + 1):
            started = time.process_time()
            next(steps)
            seconds += time.process_time() - started
            if k % max(1, k // 20) == 0:
                curve["iteration"].append(k)
                curve["seconds"].append(seconds)
                curve["excess"].append(max(increment(k).value - best.value, 0.0))
    return {"curve": curve, "optimum": best.value, "entries": data.train.n_entries}


def settings(run: Run) -> dict[str, Any]:
    """Loss, rank and iterations."""
    return {"loss": "lsp", "theta": 1.0, "rank": RANK, "iterations": ITERATIONS}


def probe(method: str) -> float:
    """Distance from the minimum after all iterations at m = 60."""
    return float(execute(Run("figure2", method, "m = 60", 0))["curve"]["excess"][-1])


EXPERIMENT = Experiment(
    "figure2", "Convergence of the optimizers on one surrogate", runs, execute, settings, probe
)
