"""AltImpute: softImpute by alternating least squares (Hastie, Mazumder, Lee & Zadeh 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.baselines.interface import Baseline
from robustmf.baselines.spectral import Reg, chosen_reg, require_reg
from robustmf.data.observed import Observed
from robustmf.solvers.base import Callback

Array = NDArray[np.floating[Any]]


class AltImpute(Baseline):
    """Least squares with the nuclear norm, ½ Σ e² + λ‖Z‖_* over matrices Z of rank at most r, by alternating imputed ridge steps.

    Parameters
    ----------
    reg : float, "auto" or "paper"
        λ ≥ 0. "auto" is a share of the noise scale, chosen by validation; "paper" is 20/(m+n), which hardly regularises.
    final_svd : bool
        End with one step that shrinks all singular values by λ exactly.
    tol : float
        Stop when ‖Z_new − Z‖² ≤ tol·‖Z‖². The authors' 1e-5 ends well before the optimum.
    rank, max_iter, random_state, n_jobs, callbacks
        See :class:`Baseline`.

    Attributes
    ----------
    reg_ : float
        λ as used.
    singular_values_ : ndarray
        Of Z.

    References
    ----------
    T. Hastie, R. Mazumder, J. D. Lee and R. Zadeh, Matrix completion and low-rank SVD via fast alternating least squares, JMLR 2015.
    """

    def __init__(
        self,
        rank: int = 10,
        *,
        reg: Reg = "auto",
        final_svd: bool = True,
        max_iter: int = 2000,
        tol: float = 1e-8,
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.rank, self.reg, self.final_svd = rank, reg, final_svd
        self.max_iter, self.tol = max_iter, tol
        self.random_state, self.n_jobs, self.callbacks = random_state, n_jobs, callbacks

    def _check_parameters(self, observed: Observed) -> None:
        super()._check_parameters(observed)
        require_reg(self.reg)

    def _solver(
        self, operations: CPUOperations, rng: np.random.Generator
    ) -> tuple[SoftImpute, Array, Array]:
        observed, rank = operations.observed, int(self.rank)
        self.reg_ = chosen_reg(self.reg, observed, rank, rng)
        m, n = observed.shape
        U = np.linalg.svd(rng.standard_normal((m, rank)), full_matrices=False)[0].astype(
            observed.dtype
        )
        last = int(self.max_iter) if self.final_svd else None
        return (
            SoftImpute(operations, self.reg_, float(self.tol), last),
            U,
            np.zeros((n, rank), observed.dtype),
        )

    @property
    def singular_values_(self) -> Array:
        """Singular values of Z, descending."""
        return np.asarray(
            np.linalg.norm(self.column_factors_, axis=0) * np.linalg.norm(self.row_factors_, axis=0)
        )


class SoftImpute:
    """Z = U diag(d) Vᵀ with orthonormal U, V. A half-step fills in the missing entries by Z, then regresses with the ridge λ.

    Parameters
    ----------
    reg, tol : float
        λ; stop when ‖Z_new − Z‖² ≤ tol·‖Z‖².
    last : int or None
        End with exact shrinkage, after so many iterations at the latest; None does without.
    """

    def __init__(self, operations: CPUOperations, reg: float, tol: float, last: int | None) -> None:
        self._operations, self._reg, self._tol, self._last = operations, reg, tol, last
        self._iterations, self._change = 0, float("inf")

    @property
    def factors(self) -> tuple[Array, Array]:
        """(U√d, V√d)."""
        root = np.sqrt(self._d)
        return self._U * root, self._V * root

    def begin(self, U: Array, V: Array, d: Array | None = None) -> float:
        """Start with U (orthonormal), V (orthonormal or 0) and the singular values d, ones by default."""
        self._U, self._V = U, V
        self._d = np.ones(U.shape[1], U.dtype) if d is None else d
        return self._value()

    def step(self) -> float:
        """Columns, then rows; the last step ends with exact shrinkage."""
        self._iterations += 1
        before = (self._U, self._d, self._V)
        self._regress_columns()
        self._regress_rows(self._shrink)
        self._change = _relative_change(before, (self._U, self._d, self._V))
        if (
            self._last is not None
            and self._reg > 0
            and (self._change < self._tol or self._iterations == self._last)
        ):
            self._regress_rows(lambda s: s)
            self._d = np.maximum(self._d - self._d.dtype.type(self._reg), 0)
        return self._value()

    def _shrink(self, A: Array) -> Array:
        return A if self._reg == 0 else A * (self._d / (self._d + self._d.dtype.type(self._reg)))

    def _regress_columns(self) -> None:
        e = self._operations.residuals(self._U * self._d, self._V)
        filled = self._shrink(self._operations.column_products(e, self._U) + self._V * self._d)
        self._V, self._d, rotation = _svd(filled)
        self._U = self._U @ rotation

    def _regress_rows(self, shrink: Any) -> None:
        e = self._operations.residuals(self._U * self._d, self._V)
        filled = shrink(self._operations.row_products(e, self._V) + self._U * self._d)
        self._U, self._d, rotation = _svd(filled)
        self._V = self._V @ rotation

    def _value(self) -> float:
        e = self._operations.residuals(self._U * self._d, self._V)
        nuclear = float(self._d.sum(dtype=np.float64)) if self._V.any() else 0.0
        return 0.5 * float(np.square(e, dtype=np.float64).sum()) + self._reg * nuclear

    def settled(self, before: float, objective: float, tol: float) -> str | None:
        """Z hardly changes."""
        return f"the matrix changed by less than tol={tol:g}" if self._change < tol else None

    def report(self) -> dict[str, float]:
        """The relative change of Z."""
        return {"change": self._change}


def _svd(A: Array) -> tuple[Array, Array, Array]:
    U, s, Vt = np.linalg.svd(A, full_matrices=False)
    return np.ascontiguousarray(U), s, np.ascontiguousarray(Vt.T)


def _relative_change(old: tuple[Array, Array, Array], new: tuple[Array, Array, Array]) -> float:
    """‖Z_new − Z_old‖²/‖Z_old‖² from the factors."""
    (U, d, V), (U1, d1, V1) = old, new
    cross = np.sum((d1[:, None] * (U1.T @ U)) * (d[:, None] * (V.T @ V1)).T, dtype=np.float64)
    size = float(np.square(d, dtype=np.float64).sum()) if V.any() else 0.0
    return float((size + np.square(d1, dtype=np.float64).sum() - 2 * cross) / max(size, 1e-9))
