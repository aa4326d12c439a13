"""GRASTA: Grassmannian robust adaptive subspace tracking (He, Balzano & Szlam 2012)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.baselines.interface import Baseline
from robustmf.data.observed import Observed
from robustmf.kernels.subspace import fold_columns, track
from robustmf.kernels.team import block_bounds
from robustmf.solvers.base import Callback
from robustmf.validation import require_integer

Array = NDArray[np.floating[Any]]

#: The authors' settings for robust completion: growth of ADMM's penalty, its tolerance; the level at which tracking has settled.
_GROWTH, _ADMM_TOL, _TOP_LEVEL = 2.0, 1e-8, 20


class GRASTA(Baseline):
    """Σ |e| by following the subspace column by column, in passes; rows and columns change roles where there are more rows.

    The method is not stable: of the runs on the paper's problem some end far off, as the paper itself reports.

    Parameters
    ----------
    inner_max_iter : int
        ADMM steps a column.
    max_iter : int
        Passes over the columns, each in a new random order.
    rank, tol, random_state, n_jobs, callbacks
        See :class:`Baseline`; ``tol`` is ADMM's.

    References
    ----------
    J. He, L. Balzano and A. Szlam, Incremental gradient on the Grassmannian for online foreground and background separation in
    subsampled video, CVPR 2012.
    """

    def __init__(
        self,
        rank: int = 10,
        *,
        inner_max_iter: int = 20,
        max_iter: int = 20,
        tol: float = _ADMM_TOL,
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.rank, self.inner_max_iter = rank, inner_max_iter
        self.max_iter, self.tol = max_iter, tol
        self.random_state, self.n_jobs, self.callbacks = random_state, n_jobs, callbacks

    def _check_parameters(self, observed: Observed) -> None:
        super()._check_parameters(observed)
        require_integer("inner_max_iter", self.inner_max_iter, 1)

    def _solver(
        self, operations: CPUOperations, rng: np.random.Generator
    ) -> tuple[SubspaceTracking, Array, Array]:
        m, n = operations.observed.shape
        tracking = SubspaceTracking(
            operations,
            rng,
            int(self.max_iter),
            int(self.inner_max_iter),
            float(self.tol),
            swapped=m > n,
        )
        short, long = sorted((m, n))
        U = np.linalg.qr(rng.standard_normal((short, int(self.rank))))[0]
        return tracking, U, np.zeros((long, int(self.rank)))


class SubspaceTracking:
    """One step is a pass over the columns; the last one ends with the weights of all columns for the final subspace.

    ``swapped`` follows the rows instead.
    """

    def __init__(
        self,
        operations: CPUOperations,
        rng: np.random.Generator,
        passes: int,
        inner_max_iter: int,
        tol: float,
        swapped: bool,
    ) -> None:
        self._swapped = swapped
        self._operations = operations.transposed if swapped else operations
        self._columns = self._operations.observed.columns
        self._rng, self._left, self._admm = rng, passes, (_GROWTH, tol, inner_max_iter)
        self._state = np.array([1.0, 0.0, 0.0])
        #: level of the step controller after each column of the last pass
        self.levels = np.zeros(0)

    @property
    def factors(self) -> tuple[Array, Array]:
        """(U, weights), rows first."""
        dtype = self._operations.observed.dtype
        subspace, weights = self._U.astype(dtype), self._weights.astype(dtype)
        return (weights, subspace) if self._swapped else (subspace, weights)

    def begin(self, U: Array, V: Array) -> float:
        """Start with the orthonormal basis U of the subspace, and the weights V (of no effect)."""
        self._U, self._weights = U.astype(np.float64), V.astype(np.float64)
        self._gamma_before, self._w_before = np.zeros(len(U)), np.zeros(U.shape[1])
        return self._value()

    def step(self) -> float:
        """A pass."""
        self.visit(self._rng.permutation(len(self._columns)))
        self._left -= 1
        if self._left == 0 or self._state[1] >= _TOP_LEVEL:
            bounds = block_bounds(self._columns.pointers, 64)
            work = self._admm[2] * self._U.shape[1] * len(self._columns.values)
            columns = self._columns
            self._operations.team.run(
                fold_columns, len(bounds) - 1, work,
                bounds, columns.pointers, columns.indices, columns.values, self._U, *self._admm, self._weights,
            )  # fmt: skip
        return self._value()

    def visit(self, order: NDArray[np.intp]) -> None:
        """Follow the columns in this order."""
        columns, self.levels = self._columns, np.zeros(len(order))
        track(
            order, columns.pointers, columns.indices, columns.values, self._U, *self._admm,
            self._state, self._gamma_before, self._w_before, self._weights, self.levels,
        )  # fmt: skip

    def _value(self) -> float:
        e = self._operations.residuals(
            *(A.astype(self._operations.observed.dtype) for A in (self._U, self._weights))
        )
        return float(np.abs(e).sum(dtype=np.float64))

    def settled(self, before: float, objective: float, tol: float) -> str | None:
        """The steps have become as short as they get, or all passes are made."""
        if self._state[1] >= _TOP_LEVEL:
            return "the step controller reached its top level"
        return "all passes made" if self._left == 0 else None

    def report(self) -> dict[str, float]:
        """The level of the step controller."""
        return {"level": float(self._state[1])}
