"""Figure 2: how fast each optimizer minimises the surrogate of the first outer iteration."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.reproduction.plan import Experiment, Run
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

RANK, ITERATIONS = 5, 300

#: Figure 2(a) of the paper: time and space of an iteration.
COMPLEXITIES = {
    "LADMPSAP": ("O(mnr)", "O(mn)"),
    "APG(dense)": ("O(mnr)", "O(mn)"),
    "APG": ("O(nnz(W)·r + (m+n)r)", "O(nnz(W) + (m+n)r)"),
}


def runs(quick: bool) -> list[Run]:
    """M = 1000 as in the paper; m = 250 when quick too, where the dense ones are cheap."""
    return [
        Run("figure2", optimizer, f"m = {m}", 0)
        for m in ((250,) if quick else (250, 1000))
        for optimizer in COMPLEXITIES
    ]


def execute(run: Run) -> dict[str, Any]:
    """F − min F after each of 300 iterations, LSP loss, from the Gaussian start; min F from a solve to a gap of 1e-9."""
    m = int(run.data.removeprefix("m = "))
    data = make_synthetic(m, rank=RANK, random_state=run.seed)
    with Team(1) as team:
        operations = CPUOperations(data.train, team)
        U, V = gaussian_start(
            data.train.shape, RANK, np.random.default_rng(1000 + run.seed), data.train.dtype
        )
        surrogate = Surrogate(
            operations,
            Objective(LSP(), paper_reg(operations.observed.shape)),
            U,
            V,
            operations.residuals(U, V),
        )
        best = SparseAPG().solve(surrogate, MM(gap=1e-9, max_iter=20_000))
        steps, increment = _steps(run.method, surrogate)
        next(steps)  # compiles; what it did is part of the iteration
        seconds = 0.0
        curve: dict[str, list[float]] = {
            "iteration": [0],
            "seconds": [0.0],
            "excess": [surrogate.at_zero - best.value],
        }
        for k in range(2, ITERATIONS + 1):
            started = time.perf_counter()
            next(steps)
            seconds += time.perf_counter() - started
            if k % max(1, k // 20) == 0:
                curve["iteration"].append(k)
                curve["seconds"].append(seconds * k / (k - 1))
                curve["excess"].append(max(increment(k).value - best.value, 0.0))
    return {"curve": curve, "optimum": best.value, "entries": data.train.n_entries}


def _steps(
    optimizer: str, surrogate: Surrogate
) -> tuple[Iterator[object], Callable[[int], Increment]]:
    if optimizer == "LADMPSAP":
        run = LADMPSAPRun(LADMPSAP(), surrogate)
        return _forever(run.step), run.increment
    steps = (DenseSteps if optimizer == "APG(dense)" else SparseSurrogateSteps)(
        surrogate, np.zeros_like(surrogate.weights)
    )
    return iter(accelerated(steps)), steps.increment


def _forever(step: Callable[[], object]) -> Iterator[object]:
    while True:
        yield step()


EXPERIMENT = Experiment("figure2", "Convergence of the optimizers on one surrogate", runs, execute)
