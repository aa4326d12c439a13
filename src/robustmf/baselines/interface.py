"""What every comparison system offers, and the little they share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from robustmf.backends.cpu.blas import one_blas_thread
from robustmf.backends.cpu.operations import CPUOperations
from robustmf.data.observed import Observed, as_observed
from robustmf.exceptions import NumericalError
from robustmf.kernels.team import Team
from robustmf.solvers.base import Callback, Solver, run, warn_of_limit
from robustmf.validation import (
    generator,
    positions,
    require_integer,
    require_magnitude,
    require_positive,
    warn_of_empty,
)

Array = NDArray[np.floating[Any]]


class Baseline(BaseEstimator):  # type: ignore[misc]
    """A method that finds L (m × r) and R (n × r) with LRᵀ close to X, by its own objective and its own rules.

    Every method has these parameters, beside its own:

    Parameters
    ----------
    rank : int
        Number of factors r.
    max_iter, tol : int, float
        Stop after so many iterations, or by the method's own rule with this tolerance.
    random_state : int, Generator or None
        For the start and for any random order.
    n_jobs : int or None
        Threads; None means all cores. Results do not depend on it.
    callbacks : sequence of callables
        Called with a :class:`~robustmf.solvers.base.Snapshot` after each iteration; returning True ends the fit.

    Attributes
    ----------
    row_factors_, column_factors_ : ndarray
        L and R.
    history_ : dict of lists
        Per iteration (0 is the start): objective, seconds, and what the method adds.
    bounds_ : (low, high) or None
        The range that predictions are cropped to, where the method does that.
    n_iter_, converged_, stop_reason_
        How the fit ended.

    Examples
    --------
    >>> from robustmf.baselines import ScaledASD
    >>> from robustmf.datasets import make_synthetic
    >>> clean = make_synthetic(100, rank=2, noise=0.0, outliers=0.0, observed=0.8, random_state=0)
    >>> model = ScaledASD(rank=2, tol=1e-8, random_state=0).fit(clean.train)
    >>> bool(clean.test_rmse(model.row_factors_, model.column_factors_) < 1e-3)
    True
    """

    rank: int
    max_iter: int
    tol: float
    random_state: int | np.random.Generator | None
    n_jobs: int | None
    callbacks: Sequence[Callback]

    @abstractmethod
    def _solver(
        self, operations: CPUOperations, rng: np.random.Generator
    ) -> tuple[Solver, Array, Array]:
        """The solver and the point it starts at."""

    def _bounds(self, observed: Observed) -> tuple[float, float] | None:
        """Predictions are cropped to this range, where the method does that."""
        return None

    def _check_parameters(self, observed: Observed) -> None:
        """Refuse bad parameters by name; methods with more of them add their own."""
        require_integer("rank", self.rank, 1, min(observed.shape), f" = min{observed.shape}")
        require_integer("max_iter", self.max_iter, 1)
        require_positive("tol", self.tol)

    def fit(self, X: Any, y: None = None) -> Self:
        """Factorize X: sparse (every stored entry is observed, zeros too), dense (NaN is missing), or :class:`Observed`."""
        observed = as_observed(X)
        self._check_parameters(observed)
        require_magnitude(observed)
        warn_of_empty(observed, False)
        # a stream of its own: with the stream that drew the data, a Gaussian start would be the truth
        rng = generator(self.random_state).spawn(1)[0]
        try:
            # what overflows shows in the objective, where the loop looks for it
            with (
                Team(self.n_jobs) as team,
                one_blas_thread(),
                np.errstate(over="ignore", invalid="ignore", divide="ignore"),
            ):
                solver, U, V = self._solver(CPUOperations(observed, team), rng)
                outcome = run(solver, U, V, int(self.max_iter), float(self.tol), self.callbacks)
            warn_of_limit(outcome, int(self.max_iter), float(self.tol))
        except np.linalg.LinAlgError as error:
            raise NumericalError(
                f"{error}; the values may be too large for their precision ({observed.dtype})"
            ) from None
        self.row_factors_, self.column_factors_ = (A.copy() for A in solver.factors)
        # what a start put where there is no entry means nothing; constant columns that carry means stay
        self.row_factors_[observed.rows.counts == 0, : self.rank] = 0
        self.column_factors_[observed.columns.counts == 0, : self.rank] = 0
        self.history_, self.n_iter_ = outcome.history, outcome.iterations
        self.converged_, self.stop_reason_ = outcome.converged, outcome.reason
        self.bounds_ = self._bounds(observed)
        self.n_features_in_ = observed.shape[1]
        return self

    def predict(self, rows: ArrayLike, cols: ArrayLike) -> Array:
        """Predicted values at the given row and column numbers, pair by pair."""
        check_is_fitted(self)
        i = positions(rows, "rows", len(self.row_factors_))
        j = positions(cols, "cols", len(self.column_factors_))
        product = np.einsum("...q,...q->...", self.row_factors_[i], self.column_factors_[j])
        return np.asarray(product if self.bounds_ is None else np.clip(product, *self.bounds_))


def value_range(observed: Observed) -> tuple[float, float]:
    """The smallest and the largest observed value."""
    return float(observed.rows.values.min()), float(observed.rows.values.max())
