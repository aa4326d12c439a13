"""Numbers: a fit of the data in another unit, in another order, transposed, or in float32 is the same fit."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from robustmf import Observed, RobustMF
from robustmf.exceptions import RobustMFWarning
from robustmf.losses import make_loss
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
#: alone; another order, and the transpose, change the order of sums.
SAME_UNIT, SAME_SUMS = 1e-12, 1e-6

#: ``irls`` does the rows first, and ``varpro`` keeps those of a square matrix: a matrix and its transpose take different ways. With a
#: smooth loss they end at one point. Alternation on a kinked one stalls where no row and no column alone can gain, which is not one point:
#: objectives then differ by less than this share.
SAME_END, STALLED = 1e-5, 0.05
TO_THE_END: dict[str, Any] = {"max_iter": 3000, "tol": 1e-13}

#: float32 beside float64, root mean square over the same.
SINGLE = 1e-3

#: From init="auto", root mean square in units of the noise: another unit, which is no power of two; and another order, for which
#: other numbers are drawn.
SAME_AUTO, SAME_VALLEY = 1e-6, 0.3

#: Of a small problem these losses have several valleys: of 120 in another order, 3 ended in another one, objectives 0.3 to 1.6 % apart.
SEVERAL_VALLEYS = ("lsp", "geman", "laplace")


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


def fitted(X: Array, case: Case, U: Array, V: Array, unit: float = 1.0, **more: Any) -> tuple[Array, float]:
    """Predictions everywhere, from the given start; and the objective."""
    degree = case.way[2]
    given: dict[str, Any] = {"theta": 0.5 * unit, "reg": 0.05 * unit ** (degree - 1), "init": (U, V), "max_iter": 6, "tol": 1e-300, **more}
    return found(X, case, **given)


def found(X: Array, case: Case, **more: Any) -> tuple[Array, float]:
    """The same with nothing given but solver and loss."""
    solver, loss, _ = case.way
    model = RobustMF(case.rank, solver=solver, loss=loss, bias=False, random_state=0, n_jobs=1, **more).fit(Observed.from_dense(X))
    return np.asarray(model.row_factors_.astype(float) @ model.column_factors_.T.astype(float)), model.history_["objective"][-1]


def check(case: Case) -> float:
    """How far apart the two are, in units of what is allowed."""
    if case.change == "order, auto" and case.way[1] in SEVERAL_VALLEYS:  # entries enough for each row and column to know the right one
        case = replace(case, m=case.m + 20, n=case.n + 20)
    X, U, V = problem(case)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", RobustMFWarning)
        apart, allowed = _automatic(case, X) if case.change.endswith("auto") else _from_start(case, X, U, V)
    assert apart <= allowed, f"{apart:.2e} apart, {allowed:g} allowed"
    return apart / allowed


def is_sided(case: Case) -> bool:
    """Whether the solver treats rows and columns differently."""
    return case.way[0] == "irls" or (case.way[0] == "varpro" and case.m == case.n)


def _from_start(case: Case, X: Array, U: Array, V: Array) -> tuple[float, float]:
    if case.change == "unit":
        root = 2.0**case.power
        one, other, allowed = fitted(X, case, U, V)[0], fitted(X * root**2, case, U * root, V * root, root**2)[0] / root**2, SAME_UNIT
    elif case.change == "order":
        rng = np.random.default_rng(case.seed + 1)
        p, q = rng.permutation(case.m), rng.permutation(case.n)
        one, other, allowed = fitted(X, case, U, V)[0][np.ix_(p, q)], fitted(X[np.ix_(p, q)], case, U[p], V[q])[0], SAME_SUMS
    elif case.change == "transposed":
        more = TO_THE_END if is_sided(case) else {}
        return _transposed(case, fitted(X, case, U, V, **more), fitted(X.T, case, V, U, **more))
    else:
        one, other = fitted(X, case, U, V)[0], fitted(X.astype(np.float32), case, U.astype(np.float32), V.astype(np.float32))[0]
        return float(np.sqrt(np.mean(np.square(one - other))) / np.abs(one).max()), SINGLE
    return float(np.abs(one - other).max() / np.abs(one).max()), allowed


def _transposed(case: Case, one: tuple[Array, float], other: tuple[Array, float]) -> tuple[float, float]:
    if is_sided(case) and make_loss(case.way[1], None).concave:
        return abs(one[1] - other[1]) / one[1], STALLED
    return float(np.abs(one[0] - other[0].T).max() / np.abs(one[0]).max()), SAME_END if is_sided(case) else SAME_SUMS


def _automatic(case: Case, X: Array) -> tuple[float, float]:
    rng = np.random.default_rng(case.seed + 1)
    if case.change == "transposed, auto":
        more = TO_THE_END if is_sided(case) else {}
        return _transposed(case, found(X, case, **more), found(X.T.copy(), case, **more))
    one, allowed = found(X, case)[0], SAME_VALLEY
    if case.change == "unit, auto":
        unit = 10.0 ** (case.power / 4)
        other, allowed = found(X * unit, case)[0] / unit, SAME_AUTO
    else:
        p, q = rng.permutation(case.m), rng.permutation(case.n)
        other = np.empty_like(one)
        other[np.ix_(p, q)] = found(X[np.ix_(p, q)], case)[0]
    return float(np.sqrt(np.mean(np.square(one - other))) / NOISE), allowed


def run(tally: Tally, cases_wanted: int, seed: int) -> None:
    """Problems of 8 to 30 rows and columns."""
    explore(tally, cases(), check, cases_wanted, seed)
