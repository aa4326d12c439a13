"""Numbers: a fit of the data in another unit, in another order, transposed, or in float32 is the same fit."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from robustmf import Observed, RobustMF
from robustmf.exceptions import RobustMFWarning
from torture.generated import explore
from torture.tally import Tally

TITLE = "other unit, other order, transposed, float32: the same fit, for every solver"
CASES, FEW = 600, 40

Array = np.ndarray[Any, Any]

#: Standard deviation of the noise; values are of size 1.
NOISE = 0.05

#: Solver, loss, and the power of the unit that the loss grows with: λ goes with the unit to this power less one.
WAYS = (
    ("irls", "welsch", 2), ("irls", "huber", 2), ("irls", "cauchy", 2), ("irls", "lsp", 0), ("irls", "l1", 1),
    ("mm", "lsp", 0), ("mm", "geman", 0), ("mm", "laplace", 0), ("mm", "l1", 1),
    ("varpro", "welsch", 2), ("varpro", "lsp", 0), ("varpro", "l1", 1),
)  # fmt: skip

#: From a given start, after a few iterations: differences beside the largest prediction. Units that are powers of four change exponents
#: alone; another order changes the order of sums.
SAME_UNIT, SAME_SUMS = 1e-12, 1e-6

#: float32 beside float64, root mean square over the same.
SINGLE = 1e-3

#: From init="auto" on a strong signal, root mean square in units of the noise: another unit, which is no power of two, and another order.
SAME_AUTO, SAME_VALLEY = 1e-6, 0.3


@dataclass(frozen=True)
class Case:
    """A problem and what is done to it."""

    way: tuple[str, str, int]
    change: str
    m: int
    n: int
    rank: int
    power: int
    seed: int


def cases() -> st.SearchStrategy[Case]:
    """All of them."""
    return st.builds(
        Case,
        way=st.sampled_from(WAYS),
        change=st.sampled_from(("unit", "order", "transposed", "float32", "unit, auto", "order, auto", "transposed, auto")),
        m=st.integers(8, 30),
        n=st.integers(8, 30),
        rank=st.integers(1, 3),
        power=st.integers(-12, 12),
        seed=st.integers(0, 2**31),
    )


def problem(case: Case) -> tuple[Array, Array, Array]:
    """A low-rank matrix with noise, a few outliers and missing entries, and a start near the truth."""
    rng = np.random.default_rng(case.seed)
    A, B = rng.standard_normal((case.m, case.rank)), rng.standard_normal((case.n, case.rank))
    X = A @ B.T + NOISE * rng.standard_normal((case.m, case.n))
    X += 8 * (rng.random(X.shape) < 0.03) * rng.choice([-1, 1], X.shape)
    X[rng.random(X.shape) < 0.2] = np.nan
    return X, A + 0.1 * rng.standard_normal(A.shape), B + 0.1 * rng.standard_normal(B.shape)


def fitted(X: Array, case: Case, U: Array, V: Array, unit: float = 1.0, **more: Any) -> Array:
    """Predictions everywhere, from the given start."""
    solver, loss, degree = case.way
    given: dict[str, Any] = {"theta": 0.5 * unit, "reg": 0.05 * unit ** (degree - 1), "init": (U, V), "max_iter": 6, "tol": 1e-300, **more}
    model = RobustMF(case.rank, solver=solver, loss=loss, bias=False, random_state=0, n_jobs=1, **given).fit(Observed.from_dense(X))
    return np.asarray(model.row_factors_.astype(float) @ model.column_factors_.T.astype(float))


def found(X: Array, case: Case) -> Array:
    """Predictions everywhere, with nothing given but solver and loss."""
    solver, loss, _ = case.way
    model = RobustMF(case.rank, solver=solver, loss=loss, bias=False, random_state=0, n_jobs=1).fit(Observed.from_dense(X))
    return np.asarray(model.row_factors_ @ model.column_factors_.T)


def check(case: Case) -> float:
    """How far apart the two are, in units of what is allowed."""
    if case.change.endswith("auto"):  # a strong signal has entries enough for each row and column
        case = replace(case, m=case.m + 20, n=case.n + 20)
    X, U, V = problem(case)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", RobustMFWarning)
        apart, allowed = _automatic(case, X) if case.change.endswith("auto") else _from_start(case, X, U, V)
    assert apart <= allowed, f"{apart:.2e} apart, {allowed:g} allowed"
    return apart / allowed


def _from_start(case: Case, X: Array, U: Array, V: Array) -> tuple[float, float]:
    solver = case.way[0]
    if case.change == "unit":
        root = 2.0**case.power
        one, other, allowed = fitted(X, case, U, V), fitted(X * root**2, case, U * root, V * root, root**2) / root**2, SAME_UNIT
    elif case.change == "order":
        rng = np.random.default_rng(case.seed + 1)
        p, q = rng.permutation(case.m), rng.permutation(case.n)
        one, other, allowed = fitted(X, case, U, V)[np.ix_(p, q)], fitted(X[np.ix_(p, q)], case, U[p], V[q]), SAME_SUMS
    elif case.change == "transposed":
        # irls does the rows first, varpro the columns of a square matrix: iterates differ, and both end in the same valley
        sided = solver == "irls" or (solver == "varpro" and case.m == case.n)
        more: dict[str, Any] = {"max_iter": 3000, "tol": 1e-13} if sided else {}
        one, other, allowed = fitted(X, case, U, V, **more), fitted(X.T, case, V, U, **more).T, SAME_SUMS
        if sided:
            return float(np.sqrt(np.mean(np.square(one - other))) / NOISE), SAME_VALLEY
    else:
        one, other = fitted(X, case, U, V), fitted(X.astype(np.float32), case, U.astype(np.float32), V.astype(np.float32))
        return float(np.sqrt(np.mean(np.square(one - other))) / np.abs(one).max()), SINGLE
    return float(np.abs(one - other).max() / np.abs(one).max()), allowed


def _automatic(case: Case, X: Array) -> tuple[float, float]:
    rng = np.random.default_rng(case.seed + 1)
    one, allowed = found(X, case), SAME_VALLEY
    if case.change == "unit, auto":
        unit = 10.0 ** (case.power / 4)
        other, allowed = found(X * unit, case) / unit, SAME_AUTO
    elif case.change == "order, auto":
        p, q = rng.permutation(case.m), rng.permutation(case.n)
        other = np.empty_like(one)
        other[np.ix_(p, q)] = found(X[np.ix_(p, q)], case)
    else:
        other = found(X.T.copy(), case).T
    return float(np.sqrt(np.mean(np.square(one - other))) / NOISE), allowed


def run(tally: Tally, cases_wanted: int, seed: int) -> None:
    """Problems of 8 to 30 rows and columns, or with nothing given of 28 to 50."""
    explore(tally, cases(), check, cases_wanted, seed)
