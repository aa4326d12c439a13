"""Numbers: a fit of the data in another unit, in another order, transposed, or in float32 is the same fit."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from robustmf import Observed, RobustMF
from robustmf.exceptions import RobustMFWarning
from robustmf.losses import make_loss
from stress.generated import explore
from stress.tally import Tally

TITLE = "other unit, other order, transposed, float32: the same fit, for every solver"
CASES, FEW = 600, 40

Array = np.ndarray[Any, Any]

#: Standard deviation of the noise; values are of size 1.
NOISE = 0.05

#: Solver, loss, and the power of the unit that the loss grows with: λ goes with the unit to this power less one.
WAYS = (
    ("irls", "welsch", 2),
    ("irls", "huber", 2),
    ("irls", "cauchy", 2),
    ("irls", "lsp", 0),
    ("irls", "l1", 1),
    ("mm", "lsp", 0),
    ("mm", "geman", 0),
    ("mm", "laplace", 0),
    ("mm", "l1", 1),
    ("varpro", "welsch", 2),
    ("varpro", "lsp", 0),
    ("varpro", "l1", 1),
)

#: From a given start, after a few iterations: differences beside the largest prediction. Units that are powers of four change exponents
#: alone; another order, and the transpose, change the order of sums.
SAME_UNIT, SAME_SUMS = 1e-12, 1e-6

#: ``irls`` does the rows first, and ``varpro`` keeps those of a square matrix: a matrix and its transpose take different ways. With a
#: smooth loss they end at one point, where both are iterated until the objective falls no more: a fit that ends at a change of 1e-13 can
#: be 1e-5 of the largest prediction away from that point, on either side of it.
SAME_END = 1e-6
TO_THE_END: dict[str, Any] = {"max_iter": 3000, "tol": 1e-300}

#: Alternation on a kinked loss stalls where no row and no column alone can gain, which is not one point: objectives then differ by less
#: than this share, for a matrix and its transpose. On the way there the last digits of the data can grow to the first: 1 of some 2,000
#: fits in a unit that is no power of two ended elsewhere, after a hundred sweeps of less than 1e-4 each. In a unit that is a power of
#: four it is the same fit to the last bit, as it is for every solver and loss.
STALLED = 0.05

#: From a start that is given, not found, these can go to one of two valleys, by whether rows or columns are done first: 2 of some 350
#: did, both of rank 3 with 4 entries in a row. The end of either must then be an end of the other too.
TWO_ENDS = ("huber",)

#: float32 beside float64, root mean square over the same.
SINGLE = 1e-3

#: From init="auto", root mean square in units of the noise: another unit, which is no power of two; and another order, for which
#: other numbers are drawn.
SAME_AUTO, SAME_VALLEY = 1e-6, 0.3

#: Of a small problem these losses have several valleys: of 120 in another order, 3 ended in another one, objectives 0.3 to 1.6 % apart.
SEVERAL_VALLEYS = ("lsp", "geman", "laplace")

#: And every loss does where there are fewer entries than this for each free parameter: of 83 entries for 54 parameters Welsch's had four,
#: objectives 0.1 to 1.2 % apart, with the same θ and λ.
ENTRIES_ENOUGH = 2


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
        change=st.sampled_from(
            (
                "unit",
                "order",
                "transposed",
                "float32",
                "unit, auto",
                "order, auto",
                "transposed, auto",
            )
        ),
        m=st.integers(8, 30),
        n=st.integers(8, 30),
        rank=st.integers(1, 3),
        power=st.integers(-12, 12).filter(bool),
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


class End(NamedTuple):
    """Where a fit ended: predictions everywhere, the objective, and the factors."""

    product: Array
    objective: float
    factors: tuple[Array, Array]

    def apart(self, other: End) -> float:
        """The largest difference between predictions, beside the largest of them."""
        return float(np.abs(self.product - other.product).max() / np.abs(self.product).max())

    def turned(self) -> End:
        """The same of the transposed matrix."""
        return End(self.product.T, self.objective, (self.factors[1], self.factors[0]))


def fitted(X: Array, case: Case, U: Array, V: Array, unit: float = 1.0, **more: Any) -> End:
    """From the given start."""
    degree = case.way[2]
    given: dict[str, Any] = {
        "theta": 0.5 * unit,
        "reg": 0.05 * unit ** (degree - 1),
        "init": (U, V),
        "max_iter": 6,
        "tol": 1e-300,
        **more,
    }
    return found(X, case, **given)


def found(X: Array, case: Case, **more: Any) -> End:
    """The same with nothing given but solver and loss."""
    solver, loss, _ = case.way
    model = RobustMF(
        case.rank, solver=solver, loss=loss, bias=False, random_state=0, n_jobs=1, **more
    ).fit(Observed.from_dense(X))
    U, V = model.row_factors_.astype(float), model.column_factors_.astype(float)
    return End(np.asarray(U @ V.T), model.history_["objective"][-1], (U, V))


def check(case: Case) -> float:
    """How far apart the two are, in units of what is allowed."""
    X, U, V = problem(case)
    if case.change == "order, auto" and (
        case.way[1] in SEVERAL_VALLEYS or has_few_entries(case, X)
    ):
        # entries enough for each row and column to know the right valley
        case = replace(case, m=case.m + 20, n=case.n + 20)
        X, U, V = problem(case)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", RobustMFWarning)
        apart, allowed = (
            _automatic(case, X) if case.change.endswith("auto") else _from_start(case, X, U, V)
        )
    assert apart <= allowed, f"{apart:.2e} apart, {allowed:g} allowed"
    return apart / allowed


def has_few_entries(case: Case, X: Array) -> bool:
    """Whether residuals do not tell the noise."""
    return int(np.isfinite(X).sum()) < ENTRIES_ENOUGH * case.rank * (case.m + case.n - case.rank)


def is_sided(case: Case) -> bool:
    """Whether the solver treats rows and columns differently."""
    return case.way[0] == "irls" or (case.way[0] == "varpro" and case.m == case.n)


def stalls(case: Case) -> bool:
    """Whether the end depends on the last digits: alternation on a loss with a kink."""
    return case.way[0] == "irls" and make_loss(case.way[1], None).concave


def _from_start(case: Case, X: Array, U: Array, V: Array) -> tuple[float, float]:
    if case.change == "unit":
        root, allowed = 2.0**case.power, SAME_UNIT
        one, other = (
            fitted(X, case, U, V).product,
            fitted(X * root**2, case, U * root, V * root, root**2).product / root**2,
        )
    elif case.change == "order":
        rng = np.random.default_rng(case.seed + 1)
        p, q = rng.permutation(case.m), rng.permutation(case.n)
        one, other, allowed = (
            fitted(X, case, U, V).product[np.ix_(p, q)],
            fitted(X[np.ix_(p, q)], case, U[p], V[q]).product,
            SAME_SUMS,
        )
    elif case.change == "transposed":
        return _transposed_start(case, X, U, V)
    else:
        one, other = (
            fitted(X, case, U, V).product,
            fitted(X.astype(np.float32), case, U.astype(np.float32), V.astype(np.float32)).product,
        )
        return float(np.sqrt(np.mean(np.square(one - other))) / np.abs(one).max()), SINGLE
    return float(np.abs(one - other).max() / np.abs(one).max()), allowed


def _transposed_start(case: Case, X: Array, U: Array, V: Array) -> tuple[float, float]:
    more = TO_THE_END if is_sided(case) else {}
    one, other = fitted(X, case, U, V, **more), fitted(X.T, case, V, U, **more)
    apart, allowed = _transposed(case, one, other)
    if apart > allowed and case.way[1] in TWO_ENDS:
        stays = (
            other.turned().apart(fitted(X, case, *other.turned().factors, **more)),
            one.turned().apart(fitted(X.T, case, *one.turned().factors, **more)),
        )
        return max(stays), allowed
    return apart, allowed


def _transposed(case: Case, one: End, other: End) -> tuple[float, float]:
    if is_sided(case) and make_loss(case.way[1], None).concave:
        return abs(one.objective - other.objective) / one.objective, STALLED
    return one.apart(other.turned()), SAME_END if is_sided(case) else SAME_SUMS


def _automatic(case: Case, X: Array) -> tuple[float, float]:
    rng = np.random.default_rng(case.seed + 1)
    if case.change == "transposed, auto":
        more = TO_THE_END if is_sided(case) else {}
        return _transposed(case, found(X, case, **more), found(X.T.copy(), case, **more))
    one, allowed = found(X, case).product, SAME_VALLEY
    if case.change == "unit, auto":
        exact, unit = 4.0**case.power, 10.0 ** (case.power / 4)
        assert np.array_equal(found(X * exact, case).product, one * exact), (
            f"not the same digits in a unit of 4^{case.power}"
        )
        if stalls(case):
            return _unit_where_it_stalls(case, X, unit)
        other, allowed = found(X * unit, case).product / unit, SAME_AUTO
    else:
        p, q = rng.permutation(case.m), rng.permutation(case.n)
        other = np.empty_like(one)
        other[np.ix_(p, q)] = found(X[np.ix_(p, q)], case).product
    return float(np.sqrt(np.mean(np.square(one - other))) / NOISE), allowed


def _unit_where_it_stalls(case: Case, X: Array, unit: float) -> tuple[float, float]:
    begun = found(X, case, max_iter=0).product - found(X * unit, case, max_iter=0).product / unit
    assert np.sqrt(np.mean(np.square(begun))) <= SAME_AUTO * NOISE, "not the same start"
    one, other = found(X, case), found(X * unit, case)
    return abs(other.objective / unit ** case.way[2] - one.objective) / one.objective, STALLED


def run(tally: Tally, cases_wanted: int, seed: int) -> None:
    """Problems of 8 to 30 rows and columns."""
    explore(tally, cases(), check, cases_wanted, seed)
