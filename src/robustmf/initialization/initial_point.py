"""Where the iteration starts: factors, and the noise level seen there.

The paper's Gaussian start leads every nonconvex loss into a bad valley. "auto" is a start that works; docs/design/initialization.md has the
figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robustmf.backends.base import EntryOperations
from robustmf.data.factorization import Factorization
from robustmf.initialization.graduated import Found, continued, graduated_start
from robustmf.initialization.problem import Problem
from robustmf.initialization.scales import Held, Values
from robustmf.losses import L2, Huber, Loss
from robustmf.solvers.settings import Init

Array = NDArray[np.floating[Any]]

_RIDGE_SWEEPS = 15
_BIAS_SWEEPS = 10

#: A fit that explains less than this share of the entries has not found the signal.
_MOST = 0.5


@dataclass(frozen=True)
class Start:
    """Factors to start at, and the robust standard deviation of their residuals.

    Where the search for the right valley was made: the ridge that goes with the noise; whether the signal is weak beside the noise; and
    whether it was lost: with coarse values (half stars) a bounded loss can fit a few of them exactly and call the others outliers.
    """

    U: Array
    V: Array
    sigma: float
    ridge: float | None = None
    weak: bool = False
    lost: bool = False

    @classmethod
    def of(cls, found: Found, problem: Problem) -> Start:
        """What the search found."""
        lost = problem.explained(found.U, found.V, found.sigma) < _MOST
        return cls(
            found.U,
            found.V,
            found.sigma,
            problem.ridge(found.sigma),
            lost or problem.is_weak(found.sigma),
            lost,
        )


def gaussian_start(
    shape: tuple[int, int], rank: int, rng: np.random.Generator, dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """Independent N(0, 1) factors, as the paper states."""
    m, n = shape
    return rng.standard_normal((m, rank)).astype(dtype), rng.standard_normal((n, rank)).astype(
        dtype
    )


def make_start(
    init: Init | Factorization, problem: Problem, loss: Loss, rng: np.random.Generator
) -> Start:
    """The start that ``init`` asks for."""
    observed = problem.operations.observed
    if isinstance(init, Factorization) and loss.robust:
        return Start.of(
            continued(problem, init.row_factors.copy(), init.column_factors.copy(), rng), problem
        )
    if isinstance(init, Factorization):
        init = (init.row_factors, init.column_factors)
    if not isinstance(init, str):
        U, V = map(
            problem.operations.array,
            given_factors(init, observed.shape, problem.rank, observed.dtype),
        )
    elif init == "random":
        U, V = map(
            problem.operations.array,
            gaussian_start(observed.shape, problem.rank, rng, observed.dtype),
        )
    elif init == "ridge" or not loss.robust:
        U, V = problem.ridge_start(rng, _RIDGE_SWEEPS)
    else:
        return Start.of(graduated_start(problem, rng), problem)
    return Start(U, V, problem.sigma(problem.residuals(U, V)))


def bias_sweeps(values: Values) -> tuple[float, list[Loss]]:
    """The center, and the loss of each sweep over the biases: once least squares, then the Huber loss."""
    center = values.median()
    size = values.distances(center).median() or 1.0
    return center, [L2(), *[Huber(size)] * (_BIAS_SWEEPS - 1)]


def bias_half_step(
    operations: EntryOperations, loss: Loss, reg: float, own: Array, other: Array, center: float
) -> None:
    """The rows' biases, in place, the columns' held."""
    operations.half_step(
        loss, reg, own, np.ones_like(other), shifts=other[:, 0] + other.dtype.type(center)
    )


def bias_start(operations: EntryOperations, reg: float) -> tuple[float, Array, Array]:
    """Center, row and column biases by themselves."""
    observed = operations.observed
    center, losses = bias_sweeps(Held(observed.rows.values))
    b, c = (operations.array(np.zeros((k, 1), observed.dtype)) for k in observed.shape)
    for loss in losses:
        bias_half_step(operations, loss, reg, b, c, center)
        bias_half_step(operations.transposed, loss, reg, c, b, center)
    return center, b, c


def without_biases(
    operations: EntryOperations, center: float, row_bias: Array, column_bias: Array
) -> EntryOperations:
    """What the biases leave over."""
    rows = operations.observed.rows
    left = (
        rows.values
        - row_bias[rows.group_of_entry(), 0]
        - column_bias[rows.indices, 0]
        - rows.values.dtype.type(center)
    )
    return operations.on(operations.observed.with_values(left))


def check_init(init: Init | Factorization) -> None:
    """Refuse what :func:`make_start` does not know."""
    if isinstance(init, Factorization):
        return
    if isinstance(init, str):
        if init not in ("auto", "ridge", "random"):
            raise ValueError(
                f"init must be 'auto', 'ridge', 'random' or a pair (U, V), got init={init!r}"
            )
    elif not (isinstance(init, (tuple, list)) and len(init) == 2):
        what = f"{len(init)} of them" if isinstance(init, (tuple, list)) else f"init={init!r}"
        raise TypeError(
            f"init must be 'auto', 'ridge', 'random' or a pair (U, V) of arrays, got {what}"
        )


def given_factors(
    init: tuple[ArrayLike, ArrayLike], shape: tuple[int, int], rank: int, dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """A pair (U, V) that was given, checked, as copies."""
    try:
        U, V = (np.array(A, dtype=dtype, order="C") for A in init)
    except (TypeError, ValueError) as error:
        raise TypeError(f"init=(U, V) must be two arrays of real numbers: {error}") from None
    if U.shape != (shape[0], rank) or V.shape != (shape[1], rank):
        raise ValueError(
            f"init=(U, V) must have shapes {(shape[0], rank)}, {(shape[1], rank)}, got {U.shape}, {V.shape}"
        )
    if not (np.isfinite(U).all() and np.isfinite(V).all()):
        raise ValueError("init=(U, V) must be finite, got NaN or infinity")
    return U, V
