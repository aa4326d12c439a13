"""Determinism: the same data, parameters and seed give the same bits with 1, 2 and 4 threads, and again."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from robustmf import RobustMF
from robustmf.datasets import make_synthetic
from robustmf.exceptions import NotConvergedWarning
from torture.tally import Tally

TITLE = "same bits with 1, 2 and 4 threads and from run to run"
CASES, FEW = 120, 4

_WAYS: list[dict[str, Any]] = [
    {"solver": "irls"},
    {"solver": "mm", "loss": "lsp"},
    {"solver": "varpro", "max_iter": 20},
    {"solver": "irls", "bias": True, "loss": "lsp"},
]


def run(tally: Tally, cases: int, seed: int) -> None:
    """Fit problems of 60 to 300 rows, each with 1, 2, 4 and again 2 threads."""
    for case, rng in enumerate(np.random.default_rng(seed).spawn(cases)):
        way, rows = _WAYS[case % len(_WAYS)], int(rng.integers(60, 300))
        with tally.case(f"{way}, {rows} rows, case {case}"), warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConvergedWarning)
            data = make_synthetic(rows, rank=3, random_state=rng).train
            fits = [RobustMF(rank=3, n_jobs=jobs, random_state=case, **way).fit(data) for jobs in (1, 2, 4, 2)]
            for name in ("row_factors_", "column_factors_", "row_bias_", "column_bias_"):
                first, *others = (getattr(model, name) for model in fits)
                assert all(first.tobytes() == other.tobytes() for other in others), f"{name} differs"
