"""Determinism: fits do not depend on the number of threads, the run, or the process."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from robustmf import MM, RMFNL, Observed, RobustMF, baselines
from robustmf.datasets import make_synthetic
from robustmf.exceptions import RobustMFWarning
from robustmf.kernels import team
from stress.tally import Tally

TITLE = "same bits with 1, 2 and 4 threads, from run to run, in another process"
CASES = 84
FEW = 21

#: Threads of the fit and of BLAS; the last repeats a number of threads of the fit.
_THREADS = ((1, 1), (2, 2), (4, 4), (2, 1))

#: Rows and columns of tall matrices: BLAS divides sums over so many rows between its threads.
_TALL = (11_000, 24)


def _model(**settings: Any) -> Callable[[int, int], Any]:
    return lambda jobs, seed: RobustMF(rank=3, n_jobs=jobs, random_state=seed, **settings)


def _baseline(kind: type[Any], **settings: Any) -> Callable[[int, int], Any]:
    return lambda jobs, seed: kind(rank=3, n_jobs=jobs, random_state=seed, **settings)


_MODELS: dict[str, Callable[[int, int], Any]] = {
    "irls": _model(solver="irls"),
    "irls, tall": _model(solver="irls", max_iter=3),
    "irls, nonsmooth": _model(solver="irls", loss="mcp", max_iter=60),
    "irls, biases": _model(solver="irls", bias=True, loss="lsp", max_iter=40),
    "irls, λ by count": _model(solver="irls", reg_by_count=True, reg=0.01, loss="huber"),
    "irls, non-negative": _model(nonnegative=True, max_iter=40),
    "mm": _model(solver="mm", loss="lsp", max_iter=15),
    "mm, dense": _model(solver=MM(inner="apg-dense"), loss="lsp", max_iter=5),
    "mm, ladmpsap": _model(solver=MM(inner="ladmpsap", max_iter=30), loss="lsp", max_iter=2),
    "RMFNL": lambda jobs, seed: RMFNL(rank=3, n_jobs=jobs, random_state=seed, max_iter=15),
    "varpro": _model(solver="varpro", max_iter=10),
    "certify": _model(loss="l1", certify=True, max_iter=3),
    "validation": _model(validation_fraction=0.1, loss="geman"),
    "n_init": _model(n_init=3, init="random", loss="cauchy"),
    "defaults": _model(),
    "AltGrad": _baseline(baselines.AltGrad, max_iter=30),
    "AltImpute": _baseline(baselines.AltImpute, max_iter=20),
    "GRASTA": _baseline(baselines.GRASTA, max_iter=3),
    "OMDL": _baseline(baselines.OMDL, max_iter=3),
    "RMC": _baseline(baselines.RMC, max_iter=20),
    "RMFMM": _baseline(baselines.RMFMM, max_iter=2),
    "RP": _baseline(baselines.RP, max_iter=20),
    "ScaledASD": _baseline(baselines.ScaledASD, max_iter=30),
}


def run(tally: Tally, cases: int, seed: int) -> None:
    """Problems of 40 to 110 rows, and tall ones; small work uses all threads too."""
    names = list(_MODELS)
    with _another_process() as other:
        for case in range(cases):
            name = names[case % len(names)]
            with tally.case(f"{name}, case {case}"):
                elsewhere = other.submit(_digests, name, [seed, case], 1, 1)
                first, *others = (_digests(name, [seed, case], *threads) for threads in _THREADS)
                for digests in (*others, elsewhere.result()):
                    differ = [key for key, digest in first.items() if digests[key] != digest]
                    assert not differ, f"{', '.join(differ)} differ"


@contextmanager
def _another_process() -> Iterator[ProcessPoolExecutor]:
    """A fresh interpreter, with its own hash seed and one BLAS thread from the beginning."""
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
            other.submit(os.getpid).result()
            yield other
    finally:
        if before is None:
            del os.environ["OPENBLAS_NUM_THREADS"]
        else:
            os.environ["OPENBLAS_NUM_THREADS"] = before


@contextmanager
def _always_threaded() -> Iterator[None]:
    before = team.OPTIONS
    team.OPTIONS = team.TeamOptions(small_work=0)
    try:
        yield
    finally:
        team.OPTIONS = before


def _digests(name: str, seed: list[int], jobs: int, blas: int) -> dict[str, str]:
    """Digests of the results of a fit and of the model's methods."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(40, 110))
    columns = rows + int(rng.integers(60))
    if "tall" in name:
        rows, columns = _TALL
    data = make_synthetic(
        rows,
        columns,
        rank=3,
        observed=float(rng.uniform(0.25, 0.6)),
        random_state=rng,
    ).train
    if rng.random() < 0.4:
        by_row = data.rows
        data = Observed.from_indices(
            by_row.group_of_entry(), by_row.indices, by_row.values.astype(np.float32), data.shape
        )
    with warnings.catch_warnings(), threadpool_limits(blas, user_api="blas"), _always_threaded():
        warnings.simplefilter("ignore", RobustMFWarning)
        model = _MODELS[name](jobs, seed[1])
        found = _found(model.fit(data))
        if isinstance(model, RobustMF):
            new = data.to_sparse()[: max(3, rows // 4)]
            folded = model.transform(new)
            outputs = {
                "transform": folded,
                "inverse_transform": model.inverse_transform(folded),
                "entry_weights": model.entry_weights(data),
            }
            found |= outputs | {"outlier_scores": np.asarray(model.outlier_scores(data))}
            found |= {
                f"partial_fit {key}": array for key, array in _found(model.partial_fit(new)).items()
            }
    return {
        key: hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        for key, array in found.items()
    }


def _found(model: Any) -> dict[str, Any]:
    names = (
        "row_factors_",
        "column_factors_",
        "row_bias_",
        "column_bias_",
        "reg_",
        "theta_",
        "criticality_",
        "n_iter_",
    )
    found = {name: np.asarray(getattr(model, name)) for name in names if hasattr(model, name)}
    return found | {"objective": np.asarray(model.history_["objective"])}
