"""Common interface of the comparison systems: parameters, ``fit``, ``predict``, ``history_``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from robustmf.backends.cpu.blas import one_blas_thread
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.data.checks import require_magnitude, warn_of_empty
from robustmf.data.observed import Observed, as_observed
from robustmf.exceptions import NumericalError, WarnsOncePerSearch
from robustmf.kernels.team import Team
from robustmf.solvers.base import Callback, Solver, run, warn_of_limit
from robustmf.validation import (
    as_generator,
    require_indices,
    require_integer,
    require_positive,
)

Array = NDArray[np.floating[Any]]


@dataclass(eq=False, repr=False)
class Baseline(WarnsOncePerSearch, BaseEstimator):  # type: ignore[misc]
    """Estimator of factors L (m × r) and R (n × r) such that LRᵀ approximates X.

    A subclass is a dataclass whose fields are its further parameters, and the defaults of
    ``max_iter`` and ``tol``. It defines objective, initialization and stopping rule: it implements
    ``_solver``, which creates the algorithm and its initial point, and may override
    ``_check_parameters`` and ``_bounds``.

    Parameters
    ----------
    rank : int, default=10
        Number of factors r.
    max_iter : int
        Maximum number of iterations.
    tol : float
        Tolerance of the method's stopping rule.
    random_state : int, Generator or None, default=None
        Seed of the initialization and of random orders.
    n_jobs : int or None, default=None
        Number of threads; None means all cores. Results do not depend on it.
    callbacks : sequence of callables, default=()
        Called with a :class:`~robustmf.solvers.base.Snapshot` after each iteration; a callback
        that returns True stops the fit.

    Attributes
    ----------
    row_factors_, column_factors_ : ndarray
        L and R. Some methods append columns that represent means.
    history_ : dict of lists
        Objective, seconds and quantities specific to the method, per iteration; index 0 is the
        initial point.
    bounds_ : (low, high) or None
        Interval to which predictions are clipped; None if the method does not clip them.
    n_iter_ : int
        Number of iterations.
    converged_ : bool
        Whether the stopping rule was met.
    stop_reason_ : str
        Why the iteration stopped.

    Examples
    --------
    >>> from robustmf.baselines import ScaledASD
    >>> from robustmf.datasets import make_synthetic
    >>> clean = make_synthetic(100, rank=2, noise=0.0, outliers=0.0, observed=0.8, random_state=0)
    >>> model = ScaledASD(rank=2, tol=1e-8, random_state=0).fit(clean.train)
    >>> bool(clean.test_rmse(model.row_factors_, model.column_factors_) < 1e-3)
    True
    """

    rank: int = 10
    _: KW_ONLY
    max_iter: int
    tol: float
    random_state: int | np.random.Generator | None = None
    n_jobs: int | None = None
    callbacks: Sequence[Callback] = ()

    @abstractmethod
    def _solver(
        self, operations: CPUOperations, rng: np.random.Generator
    ) -> tuple[Solver, Array, Array]:
        """Create the algorithm and its initial point (U, V)."""

    def _check_parameters(self) -> None:
        """Raise an error for invalid parameters that only this method has."""

    def _bounds(self, observed: Observed) -> tuple[float, float] | None:
        """Return the interval to which predictions are clipped, or None."""
        return None

    def fit(self, X: Any, y: None = None) -> Self:
        """Factorize X.

        Parameters
        ----------
        X : sparse matrix, array or Observed
            Sparse: every stored entry is observed, zeros included. Dense: NaN is missing.
        y : None, default=None
            Ignored.

        Returns
        -------
        self : Baseline
            The fitted estimator.
        """
        observed = as_observed(X)
        require_integer("rank", self.rank, 1, min(observed.shape), f" = min{observed.shape}")
        require_integer("max_iter", self.max_iter, 1)
        require_positive("tol", self.tol)
        self._check_parameters()
        require_magnitude(observed)
        warn_of_empty(observed, False)
        # A separate stream: if the same stream had drawn the data, a Gaussian initialization would
        # be equal to the true factors.
        rng = as_generator(self.random_state).spawn(1)[0]
        try:
            # Overflow shows in the objective, which the loop checks.
            with (
                Team(self.n_jobs) as team,
                one_blas_thread(),
                np.errstate(all="ignore"),
            ):
                solver, U, V = self._solver(CPUOperations(observed, team), rng)
                outcome = run(solver, U, V, int(self.max_iter), float(self.tol), self.callbacks)
            warn_of_limit(outcome, int(self.max_iter), float(self.tol))
        except np.linalg.LinAlgError as error:
            raise NumericalError(
                f"{error}; the values may be too large for their precision ({observed.dtype})"
            ) from None
        row_factors, column_factors = solver.factors
        self.row_factors_ = row_factors.copy()
        self.column_factors_ = column_factors.copy()
        # Initial values of rows and columns without entries carry no information; appended
        # columns that represent means are kept.
        self.row_factors_[observed.rows.counts == 0, : self.rank] = 0
        self.column_factors_[observed.columns.counts == 0, : self.rank] = 0
        self.history_ = outcome.history
        self.n_iter_ = outcome.iterations
        self.converged_ = outcome.converged
        self.stop_reason_ = outcome.reason
        self.bounds_ = self._bounds(observed)
        self.n_features_in_ = observed.shape[1]
        return self

    def predict(self, rows: ArrayLike, columns: ArrayLike) -> Array:
        """Predict the values at pairs of row and column indices.

        Parameters
        ----------
        rows, columns : array-like of int
            Indices from 0, of the same shape.

        Returns
        -------
        predictions : ndarray
            One value per pair.
        """
        check_is_fitted(self)
        i = require_indices("rows", rows, len(self.row_factors_))
        j = require_indices("columns", columns, len(self.column_factors_))
        product = np.einsum("...q,...q->...", self.row_factors_[i], self.column_factors_[j])
        return np.asarray(product if self.bounds_ is None else np.clip(product, *self.bounds_))


def value_range(observed: Observed) -> tuple[float, float]:
    """Return the smallest and the largest observed value."""
    return float(observed.rows.values.min()), float(observed.rows.values.max())
