"""The initial point of the iterations: factors, biases, and the noise level there.

From the paper's Gaussian factors every nonconvex loss ends in a bad local minimum; ``init="auto"``
avoids that. See docs/design/initialization.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robustmf.backends.base import EntryOperations
from robustmf.backends.ridge import Ridges
from robustmf.data.factorization import Factorization
from robustmf.initialization.graduated import (
    Candidate,
    continued_factors,
    graduated_factors,
)
from robustmf.initialization.noise_mixture import NoiseModel
from robustmf.initialization.problem import Problem
from robustmf.initialization.search import searched_factors
from robustmf.losses import L2, Huber, Loss
from robustmf.solvers.settings import Init

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class InitialPointOptions:
    """Constants of initial points.

    Attributes
    ----------
    ridge_sweeps : int
        Sweeps of ``init="ridge"``.
    bias_sweeps : int
        Sweeps of the biases alone.
    missed_share : float
        A fit that explains a smaller share of the entries has not found the signal.
    """

    ridge_sweeps: int = 15
    bias_sweeps: int = 10
    missed_share: float = 0.5


OPTIONS = InitialPointOptions()


@dataclass(frozen=True)
class InitialPoint:
    """Factors (and biases) to start from, with what is known about the noise there.

    Attributes
    ----------
    factorization : Factorization
    sigma : float
        The robust standard deviation of the residuals.
    ridge : float or None, default=None
        The ridge that corresponds to the noise; None where no search for the right basin was made.
    weak_signal : bool, default=False
        Whether the signal is weak relative to the noise, or was missed.
    missed_signal : bool, default=False
        Whether the search failed: with coarse values (half stars) a bounded loss may fit a few of
        them exactly and treat the others as outliers.
    noise : NoiseModel or None, default=None
        Scales of rows and columns and the distribution, where they were learned.
    ridges : (FactorRidge, FactorRidge) or None, default=None
        The ridge of each factor of rows and columns, where it was learned.
    reliability : array over the entries, or None, default=None
        The probability that an entry is no outlier, where that was learned.
    """

    factorization: Factorization
    sigma: float
    ridge: float | None = None
    weak_signal: bool = False
    missed_signal: bool = False
    noise: NoiseModel | None = None
    ridges: Ridges | None = None
    reliability: Array | None = None

    @property
    def transposed(self) -> InitialPoint:
        """The same for the transposed matrix."""
        noise = None if self.noise is None else self.noise.transposed
        ridges = None if self.ridges is None else (self.ridges[1], self.ridges[0])
        return replace(
            self, factorization=self.factorization.transposed, noise=noise, ridges=ridges
        )

    @classmethod
    def from_candidate(cls, found: Candidate, problem: Problem) -> InitialPoint:
        """The result of a search for the right basin of attraction."""
        missed = problem.explained(found.U, found.V, found.sigma) < OPTIONS.missed_share
        return cls(
            _without_biases(problem.operations, found.U, found.V),
            found.sigma,
            problem.ridge(found.sigma) if found.ridge is None else found.ridge,
            missed or problem.is_weak(found.sigma, found.noise is not None),
            missed,
            found.noise,
            found.ridges,
            found.reliability,
        )


def _without_biases(operations: EntryOperations, U: Array, V: Array) -> Factorization:
    """UVᵀ, with zero biases in the memory of the entries."""
    row_bias, column_bias = (operations.array(np.zeros(len(A), A.dtype)) for A in (U, V))
    return Factorization(U, V, None, row_bias, column_bias)


def gaussian_factors(
    shape: tuple[int, int], rank: int, rng: np.random.Generator, dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """Independent N(0, 1) factors, as the paper states."""
    m, n = shape
    U = rng.standard_normal((m, rank)).astype(dtype)
    V = rng.standard_normal((n, rank)).astype(dtype)
    return U, V


def initial_point(
    init: Init | Factorization,
    problem: Problem,
    loss: Loss,
    rng: np.random.Generator,
    found: Candidate | None = None,
) -> InitialPoint:
    """The initial point, without biases, for a value of the parameter ``init``.

    ``found`` is the result of a search that was made already.
    """
    operations = problem.operations
    observed = operations.observed
    if isinstance(init, Factorization):
        if loss.robust:
            U = init.row_factors.copy()
            V = init.column_factors.copy()
            return InitialPoint.from_candidate(continued_factors(problem, U, V, rng), problem)
        init = (init.row_factors, init.column_factors)
    if not isinstance(init, str):
        given = given_factors(init, observed.shape, problem.rank, observed.dtype)
        U, V = map(operations.array, given)
    elif init == "random":
        drawn = gaussian_factors(observed.shape, problem.rank, rng, observed.dtype)
        U, V = map(operations.array, drawn)
    elif init == "ridge" or not loss.robust:
        U, V = problem.ridge_factors(rng, OPTIONS.ridge_sweeps)
    else:
        if found is None:
            found = default_candidate(problem, rng)
        return InitialPoint.from_candidate(found, problem)
    sigma = problem.noise(problem.residuals(U, V))
    return InitialPoint(_without_biases(operations, U, V), sigma)


def default_candidate(problem: Problem, rng: np.random.Generator) -> Candidate:
    """Factors of the problem's rank or fewer, by the search that fits the size of the data."""
    found = searched_factors(problem.operations, problem.rank, rng)
    return graduated_factors(problem, rng) if found is None or found.rank == 0 else found


def bias_sweeps(values: Array) -> tuple[float, list[Loss]]:
    """The center, and the loss of each sweep over the biases: first least squares, then Huber's."""
    center = float(np.median(values))
    deviations = np.abs(values - center)
    least = np.finfo(values.dtype).eps * float(deviations.max())  # that of rounding
    size = max(float(np.median(deviations)) or 1.0, float(least))
    return center, [L2(), *[Huber(size)] * (OPTIONS.bias_sweeps - 1)]


def bias_half_step(
    operations: EntryOperations, loss: Loss, reg: float, own: Array, other: Array, center: float
) -> None:
    """Solve for the biases of the rows, in place, with those of the columns held fixed.

    Both are arrays with one column.
    """
    operations.half_step(
        loss, reg, own, np.ones_like(other), shifts=other[:, 0] + other.dtype.type(center)
    )


def initial_biases(operations: EntryOperations, reg: float) -> tuple[float, Array, Array]:
    """Center, row biases and column biases of a model without factors."""
    observed = operations.observed
    center, losses = bias_sweeps(observed.rows.values)
    b, c = (operations.array(np.zeros((k, 1), observed.dtype)) for k in observed.shape)
    for loss in losses:
        bias_half_step(operations, loss, reg, b, c, center)
        bias_half_step(operations.transposed, loss, reg, c, b, center)
    return center, b[:, 0], c[:, 0]


def subtract_biases(
    operations: EntryOperations, center: float, row_bias: Array, column_bias: Array
) -> EntryOperations:
    """Operations on the entries minus center and biases."""
    rows = operations.observed.rows
    left = (
        rows.values
        - row_bias[rows.group_of_entry()]
        - column_bias[rows.indices]
        - rows.values.dtype.type(center)
    )
    return operations.on(operations.observed.with_values(left))


def check_init(init: Any) -> None:
    """Refuse a value of the parameter ``init`` that :func:`initial_point` does not know."""
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
    """A pair (U, V) given by the user, checked and copied."""
    try:
        U, V = (np.array(A, dtype=dtype, order="C") for A in init)
    except (TypeError, ValueError) as error:
        raise TypeError(f"init=(U, V) must be two arrays of real numbers: {error}") from None
    if U.shape != (shape[0], rank) or V.shape != (shape[1], rank):
        raise ValueError(
            f"init=(U, V) must have shapes {(shape[0], rank)}, {(shape[1], rank)}, "
            f"got {U.shape}, {V.shape}"
        )
    if not (np.isfinite(U).all() and np.isfinite(V).all()):
        raise ValueError("init=(U, V) must be finite, got NaN or infinity")
    return U, V
