"""The numerical version of default fits: whether the code still has the results of a record.

The version is the errors of default fits on small fixed problems. A refactoring does not change it;
a change of the results does, without a number that must be raised by hand. New records
contain it, ``numerics.json`` has that of the present code, and the page of benchmarks states for
each record whether both agree. Neither needs Git.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robustmf import RobustMF
from robustmf.backends.cpu.blas import one_blas_thread

#: The numerical version of the present code, written by ``python -m benchmarks tables``.
PATH = Path(__file__).parent / "numerics.json"

#: Relative difference that rounding errors on other processors explain.
_TOLERANCE = 1e-3


def _problems() -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Tables and what is to be found in them.

    Noise and outliers of both signs; unequal noise of rows, and outliers of one sign; rows, columns
    and coarse values as those of ratings.
    """
    rng = np.random.default_rng(20260)
    problems = []
    for kind in ("plain", "unequal", "ratings"):
        U, V = (rng.standard_normal((size, 3)) for size in (150, 100))
        clean = U @ V.T
        noise = 0.3 * rng.standard_normal(clean.shape)
        outliers = 8 * np.sign(rng.standard_normal(clean.shape))
        if kind == "unequal":
            noise *= np.exp(rng.standard_normal(150))[:, None]
            outliers = np.abs(outliers)
        if kind == "ratings":
            clean = 3 + 0.3 * (clean + U[:, :1] + V[:, 0])
        table = clean + noise
        bad = rng.random(clean.shape) < 0.1
        table[bad] = (clean + outliers)[bad]
        if kind == "ratings":
            table = np.clip(np.round(table), 1, 5)
        table[rng.random(clean.shape) < 0.5] = np.nan
        problems.append((table, clean))
    return problems


@cache
def version() -> tuple[float, ...]:
    """The errors of the present code, to five digits."""
    errors = []
    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore")
        for table, clean in _problems():
            i, j = np.indices(table.shape).reshape(2, -1)
            predicted = RobustMF(random_state=0).fit(table).predict(i, j)
            errors.append(float(f"{np.sqrt(np.mean((predicted - clean[i, j]) ** 2)):.5g}"))
    return tuple(errors)


def agrees(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two versions are equal but for rounding errors."""
    return len(one) == len(other) and bool(np.allclose(one, other, rtol=_TOLERANCE, atol=0))


def recorded() -> tuple[float, ...]:
    """The version in ``numerics.json``."""
    return tuple(json.loads(PATH.read_text(encoding="utf-8")))


def write() -> None:
    """Write the version of the present code, where it differs from the one in the file."""
    if not (PATH.exists() and agrees(recorded(), version())):
        PATH.write_text(json.dumps(version()) + "\n", encoding="utf-8")
