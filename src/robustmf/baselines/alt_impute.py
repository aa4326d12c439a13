"""AltImpute: softImpute by alternating least squares (Hastie, Mazumder, Lee & Zadeh 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.baselines.interface import Baseline
from robustmf.baselines.spectral import Reg, chosen_reg, require_reg

Array = NDArray[np.floating[Any]]


@dataclass(eq=False, repr=False)
class AltImpute(Baseline):
    """Least squares with the nuclear norm, ½ Σ e² + λ‖Z‖_*, over matrices Z of rank at most r.

    The algorithm alternates between imputation of the missing entries and ridge regression of
    either factor.

    Parameters
    ----------
    rank : int, default=10
        Maximum rank r.
    reg : float, "auto" or "paper", default="auto"
        λ ≥ 0. "auto" is a fraction of the noise scale, chosen by validation; "paper" is 20/(m+n),
        a weak regularization.
    final_svd : bool, default=True
        Whether to end with an exact soft-thresholding of the singular values by λ.
    max_iter : int, default=2000
        Maximum number of iterations.
    tol : float, default=1e-8
        Stop when ‖Z_new − Z‖² < tol·‖Z‖². The authors' default of 1e-5 stops far from the optimum.
    random_state : int, Generator or None, default=None
        Seed of the Gaussian initialization.
    n_jobs : int or None, default=None
        Number of threads; None means all cores.
    callbacks : sequence of callables, default=()
        See :class:`Baseline`.

    Attributes
    ----------
    reg_ : float
        The value of λ that was used.
    singular_values_ : ndarray
        Singular values of Z.

    References
    ----------
    T. Hastie, R. Mazumder, J. D. Lee and R. Zadeh, Matrix completion and low-rank SVD via fast
    alternating least squares, JMLR 2015.
    """

    reg: Reg = "auto"
    final_svd: bool = True
    max_iter: int = 2000
    tol: float = 1e-8

    def _check_parameters(self) -> None:
        require_reg(self.reg)

    def _solver(
        self, operations: CPUOperations, rng: np.random.Generator
    ) -> tuple[SoftImpute, Array, Array]:
        observed = operations.observed
        rank = int(self.rank)
        self.reg_ = chosen_reg(self.reg, observed, rank, rng)
        m, n = observed.shape
        gaussian = rng.standard_normal((m, rank))
        U = np.linalg.svd(gaussian, full_matrices=False)[0].astype(observed.dtype)
        V = np.zeros((n, rank), observed.dtype)
        last = int(self.max_iter) if self.final_svd else None
        return SoftImpute(operations, self.reg_, float(self.tol), last), U, V

    @property
    def singular_values_(self) -> Array:
        """Singular values of Z, descending."""
        return np.asarray(
            np.linalg.norm(self.column_factors_, axis=0) * np.linalg.norm(self.row_factors_, axis=0)
        )


class SoftImpute:
    """Z = U diag(d) Vᵀ with orthonormal U and V.

    A half-step imputes the missing entries by Z and then solves the ridge regression with λ.

    Parameters
    ----------
    operations : CPUOperations
        Operations on the observed entries.
    reg : float
        λ ≥ 0.
    tol : float
        The final soft-thresholding follows when ‖Z_new − Z‖² < tol·‖Z‖².
    last : int or None
        Number of iterations after which the final soft-thresholding takes place at the latest;
        None omits it.
    """

    def __init__(self, operations: CPUOperations, reg: float, tol: float, last: int | None) -> None:
        self._operations = operations
        self._reg = reg
        self._tol = tol
        self._last = last
        self._iterations = 0
        self._change = float("inf")

    @property
    def factors(self) -> tuple[Array, Array]:
        """(U√d, V√d)."""
        root = np.sqrt(self._d)
        return self._U * root, self._V * root

    def begin(self, U: Array, V: Array, d: Array | None = None) -> float:
        """Set the initial point: U orthonormal, V orthonormal or 0, d = 1 by default."""
        self._U = U
        self._V = V
        self._d = np.ones(U.shape[1], U.dtype) if d is None else d
        return self._value()

    def step(self) -> float:
        """Update columns, then rows; the last step ends with the exact soft-thresholding."""
        self._iterations += 1
        before = (self._U, self._d, self._V)
        self._regress_columns()
        self._regress_rows(shrink=True)
        self._change = _relative_change(before, (self._U, self._d, self._V))
        is_last = self._change < self._tol or self._iterations == self._last
        if self._last is not None and self._reg > 0 and is_last:
            self._regress_rows(shrink=False)
            self._d = np.maximum(self._d - self._d.dtype.type(self._reg), 0)
        return self._value()

    def _shrunk(self, A: Array) -> Array:
        """Return A with its columns scaled by d/(d + λ), the solution of the ridge regression."""
        return A if self._reg == 0 else A * (self._d / (self._d + self._d.dtype.type(self._reg)))

    def _regress_columns(self) -> None:
        """Update V by regression of the imputed matrix on U."""
        e = self._operations.residuals(self._U * self._d, self._V)
        imputed = self._operations.column_products(e, self._U) + self._V * self._d
        self._V, self._d, rotation = _svd(self._shrunk(imputed))
        self._U = self._U @ rotation

    def _regress_rows(self, shrink: bool) -> None:
        """Update U by regression of the imputed matrix on V, with or without the ridge."""
        e = self._operations.residuals(self._U * self._d, self._V)
        imputed = self._operations.row_products(e, self._V) + self._U * self._d
        self._U, self._d, rotation = _svd(self._shrunk(imputed) if shrink else imputed)
        self._V = self._V @ rotation

    def _value(self) -> float:
        """Return the objective."""
        e = self._operations.residuals(self._U * self._d, self._V)
        nuclear = float(self._d.sum(dtype=np.float64)) if self._V.any() else 0.0
        return 0.5 * float(np.square(e, dtype=np.float64).sum()) + self._reg * nuclear

    def convergence_reason(self, before: float, objective: float, tol: float) -> str | None:
        """Test the relative change of Z."""
        return f"the matrix changed by less than tol={tol:g}" if self._change < tol else None

    def report(self) -> dict[str, float]:
        """Return the squared relative change of Z."""
        return {"change": self._change}


def _svd(A: Array) -> tuple[Array, Array, Array]:
    """Return (U, s, V) of A = U diag(s) Vᵀ, with contiguous U and V."""
    U, s, Vt = np.linalg.svd(A, full_matrices=False)
    return np.ascontiguousarray(U), s, np.ascontiguousarray(Vt.T)


def _relative_change(old: tuple[Array, Array, Array], new: tuple[Array, Array, Array]) -> float:
    """Return ‖Z_new − Z_old‖²/‖Z_old‖², computed from the factors."""
    U, d, V = old
    U1, d1, V1 = new
    cross = np.sum((d1[:, None] * (U1.T @ U)) * (d[:, None] * (V.T @ V1)).T, dtype=np.float64)
    size = float(np.square(d, dtype=np.float64).sum()) if V.any() else 0.0
    return float((size + np.square(d1, dtype=np.float64).sum() - 2 * cross) / max(size, 1e-9))
