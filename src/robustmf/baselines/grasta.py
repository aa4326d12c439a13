"""GRASTA: Grassmannian robust adaptive subspace tracking (He, Balzano & Szlam 2012)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.baselines.interface import Baseline
from robustmf.kernels.subspace import MAX_LEVEL, fold_columns, track
from robustmf.kernels.team import block_bounds
from robustmf.validation import require_integer

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class GRASTAOptions:
    """Constants of the method.

    Attributes
    ----------
    penalty_growth : float
        Factor by which the penalty parameter of ADMM grows per step, as in the authors' code for
        robust matrix completion.
    """

    penalty_growth: float = 2.0


OPTIONS = GRASTAOptions()


@dataclass(eq=False, repr=False)
class GRASTA(Baseline):
    """Least absolute deviations, Σ |e|, by tracking the subspace column by column.

    If the matrix has more rows than columns, rows and columns change roles. The method is not
    stable: on the paper's synthetic problem some runs end with a large error, as the paper reports.

    Parameters
    ----------
    rank : int, default=10
        Dimension of the subspace.
    inner_max_iter : int, default=20
        Number of ADMM steps per column.
    max_iter : int, default=20
        Number of passes over the columns, each in a new random order. The authors' demo has 10.
    tol : float, default=1e-8
        Tolerance of ADMM. The default is the authors'.
    random_state : int, Generator or None, default=None
        Seed of the initial subspace and of the orders.
    n_jobs : int or None, default=None
        Number of threads; None means all cores.
    callbacks : sequence of callables, default=()
        See :class:`Baseline`.

    References
    ----------
    J. He, L. Balzano and A. Szlam, Incremental gradient on the Grassmannian for online foreground
    and background separation in subsampled video, CVPR 2012.
    """

    inner_max_iter: int = 20
    max_iter: int = 20
    tol: float = 1e-8

    def _check_parameters(self) -> None:
        require_integer("inner_max_iter", self.inner_max_iter, 1)

    def _solver(
        self, operations: CPUOperations, rng: np.random.Generator
    ) -> tuple[SubspaceTracking, Array, Array]:
        m, n = operations.observed.shape
        tracking = SubspaceTracking(
            operations,
            rng,
            passes=int(self.max_iter),
            inner_max_iter=int(self.inner_max_iter),
            tol=float(self.tol),
            transposed=m > n,
        )
        short, long = sorted((m, n))
        U = np.linalg.qr(rng.standard_normal((short, int(self.rank))))[0]
        return tracking, U, np.zeros((long, int(self.rank)))


class SubspaceTracking:
    """One step is a pass over the columns.

    The last pass is followed by the computation of the coefficients of all columns for the final
    subspace.

    Parameters
    ----------
    operations : CPUOperations
        Operations on the observed entries.
    rng : Generator
        Draws the order of the columns in each pass.
    passes : int
        Number of passes.
    inner_max_iter : int
        Number of ADMM steps per column.
    tol : float
        Tolerance of ADMM.
    transposed : bool
        Whether to track the rows instead of the columns.
    """

    def __init__(
        self,
        operations: CPUOperations,
        rng: np.random.Generator,
        passes: int,
        inner_max_iter: int,
        tol: float,
        transposed: bool,
    ) -> None:
        self._transposed = transposed
        self._operations = operations.transposed if transposed else operations
        self._columns = self._operations.observed.columns
        self._rng = rng
        self._remaining = passes
        self._inner_max_iter = inner_max_iter
        # growth of the penalty, tolerance, number of steps
        self._admm = (OPTIONS.penalty_growth, tol, inner_max_iter)
        # the controller's mu, its level, and the scale of its steps (0: not yet set)
        self._controller = np.array([1.0, 0.0, 0.0])
        #: Level of the step size controller after each column of the last pass.
        self.levels = np.zeros(0)

    @property
    def factors(self) -> tuple[Array, Array]:
        """The factors of the rows and of the columns."""
        dtype = self._operations.observed.dtype
        subspace = self._U.astype(dtype)
        coefficients = self._coefficients.astype(dtype)
        return (coefficients, subspace) if self._transposed else (subspace, coefficients)

    def begin(self, U: Array, V: Array) -> float:
        """Set the orthonormal basis U of the subspace and initial coefficients V."""
        self._U = U.astype(np.float64)
        self._coefficients = V.astype(np.float64)
        self._gamma_before = np.zeros(len(U))
        self._w_before = np.zeros(U.shape[1])
        return self._value()

    def step(self) -> float:
        """Make one pass over the columns in a random order."""
        self.visit(self._rng.permutation(len(self._columns)))
        self._remaining -= 1
        if self._remaining == 0 or self._is_at_max_level():
            self._fit_coefficients()
        return self._value()

    def visit(self, order: NDArray[np.intp]) -> None:
        """Update the subspace with the columns in this order."""
        columns = self._columns
        self.levels = np.zeros(len(order))
        track(
            order,
            columns.pointers,
            columns.indices,
            columns.values,
            self._U,
            *self._admm,
            self._controller,
            self._gamma_before,
            self._w_before,
            self._coefficients,
            self.levels,
        )

    def _fit_coefficients(self) -> None:
        """Compute the coefficients of all columns for the current subspace."""
        columns = self._columns
        bounds = block_bounds(columns.pointers, 64)
        work = self._inner_max_iter * self._U.shape[1] * len(columns.values)
        self._operations.team.run(
            fold_columns,
            len(bounds) - 1,
            work,
            bounds,
            columns.pointers,
            columns.indices,
            columns.values,
            self._U,
            *self._admm,
            self._coefficients,
        )

    def _value(self) -> float:
        """Return the sum of absolute residuals."""
        dtype = self._operations.observed.dtype
        e = self._operations.residuals(self._U.astype(dtype), self._coefficients.astype(dtype))
        return float(np.abs(e).sum(dtype=np.float64))

    def _is_at_max_level(self) -> bool:
        return bool(self._controller[1] >= MAX_LEVEL)

    def convergence_reason(self, before: float, objective: float, tol: float) -> str | None:
        """Test whether the steps have their smallest size or all passes are made."""
        if self._is_at_max_level():
            return "the step size controller reached its maximum level"
        return "all passes made" if self._remaining == 0 else None

    def report(self) -> dict[str, float]:
        """Return the level of the step size controller."""
        return {"level": float(self._controller[1])}
