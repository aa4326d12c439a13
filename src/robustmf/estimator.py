"""``RobustMF``: the scikit-learn face of the package."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from robustmf.exceptions import EmptyRowsWarning
from robustmf.inner import InnerRule, make_inner
from robustmf.kernels.team import Team
from robustmf.losses import Loss, make_loss
from robustmf.objective import Objective
from robustmf.observed import Observed, as_observed
from robustmf.operations import Operations
from robustmf.solvers.fold_in import fold_in
from robustmf.solvers.loop import Callback, Outcome, run
from robustmf.solvers.mm import MM
from robustmf.solvers.start import gaussian_start, ridge_start

Array = NDArray[np.floating[Any]]


class RobustMF(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Robust matrix factorization: U (m × r) and V (n × r) with UVᵀ close to the clean entries of X.

    Minimises Σ φ(|X_ij − u_i·v_j|) + λ/2 (‖U‖² + ‖V‖²) over the observed entries.

    Parameters
    ----------
    rank : int
        Number of factors r, from 1 to min(m, n).
    loss : str or Loss
        φ by its name (see :func:`robustmf.losses.loss_names`) or as an object of your own.
    theta : float or None
        Scale θ of the loss, in the unit of the data; None keeps the loss's own.
    reg : "auto" or float
        λ; "auto" is 20/(m+n), as in the paper.
    solver : {"mm"}
        "mm" is the paper's algorithm (RMFNL), for losses that are concave in |residual|.
    inner : {"apg", "apg-dense", "ladmpsap"}
        How "mm" minimises its surrogate. The last two are for comparison: they need m × n memory.
    init : "auto", "random" or (U, V)
        "auto" is strongly regularised least squares, "random" the Gaussian start of the paper (which fails for nonconvex losses).
    max_iter, tol : int, float
        Stop when the objective changes by less than ``tol`` of its value, or after ``max_iter`` outer iterations.
    inner_max_iter, inner_tol : int, float
        The same for each inner solve.
    inner_gap : float or None
        Stop inner solves by the duality gap instead: at this share of the decrease reached.
    random_state : int, Generator or None
        For the start.
    n_jobs : int or None
        Threads; None means all cores. Results do not depend on it.
    verbose : int
        1 shows a progress bar.
    callbacks : sequence of callables
        Called with a :class:`~robustmf.solvers.loop.Snapshot` after each iteration; returning True ends the fit.

    Attributes
    ----------
    row_factors_, column_factors_ : ndarray, U and V
    components_ : ndarray (r, n), Vᵀ
    loss_ : Loss, reg_ : float, theta_ : float
        The loss, λ and θ that were used.
    history_ : dict of lists
        Per iteration (0 is the start): objective, seconds, gap, criticality (a bound), inner_iterations.
    n_iter_, converged_, stop_reason_
        How the fit ended.
    criticality_ : float
        Norm of the smallest element of the Clarke subdifferential at the result: 0 at a critical point.
    n_features_in_ : int
        Number of columns.

    Examples
    --------
    >>> from robustmf import RobustMF
    >>> from robustmf.datasets import make_synthetic
    >>> data = make_synthetic(250, random_state=0)
    >>> model = RobustMF(rank=5, random_state=0).fit(data.train)
    >>> bool(data.test_rmse(model.row_factors_, model.column_factors_) < 0.12)
    True
    """

    def __init__(
        self,
        rank: int = 10,
        *,
        loss: str | Loss = "lsp",
        theta: float | None = None,
        reg: float | Literal["auto"] = "auto",
        solver: str = "mm",
        inner: str = "apg",
        init: str | tuple[ArrayLike, ArrayLike] = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        inner_max_iter: int = 300,
        inner_tol: float = 1e-6,
        inner_gap: float | None = None,
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.rank = rank
        self.loss = loss
        self.theta = theta
        self.reg = reg
        self.solver = solver
        self.inner = inner
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.inner_max_iter = inner_max_iter
        self.inner_tol = inner_tol
        self.inner_gap = inner_gap
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    def fit(self, X: Any, y: None = None) -> Self:
        """Factorize X: sparse (every stored entry is observed, zeros too), dense (NaN is missing), or :class:`Observed`."""
        observed = as_observed(X)
        self._check_parameters(observed)
        loss = make_loss(self.loss, self.theta)
        reg = 20 / sum(observed.shape) if self.reg == "auto" else float(self.reg)
        _warn_of_empty(observed)
        with Team(self.n_jobs) as team:
            operations = Operations(observed, team)
            rule = InnerRule(self.inner_tol, self.inner_gap, self.inner_max_iter)
            solver = MM(operations, Objective(loss, reg), make_inner(self.inner), rule)
            outcome = self._run(solver, *self._start(operations))
            self.criticality_ = solver.criticality()
        self.row_factors_, self.column_factors_ = solver.factors
        self.components_ = self.column_factors_.T
        self.loss_, self.theta_, self.reg_ = loss, loss.theta, reg
        self.history_, self.n_iter_ = outcome.history, outcome.iterations
        self.converged_, self.stop_reason_ = outcome.converged, outcome.reason
        self.n_features_in_ = observed.shape[1]
        return self

    def predict(self, rows: ArrayLike, cols: ArrayLike) -> Array:
        """Predicted values at the given row and column numbers, pair by pair."""
        check_is_fitted(self)
        i = _positions(rows, "rows", len(self.row_factors_))
        j = _positions(cols, "cols", len(self.column_factors_))
        return np.asarray(np.einsum("...q,...q->...", self.row_factors_[i], self.column_factors_[j]))

    def transform(self, X: Any) -> Array:
        """Robust fold-in: factors for the rows of X, the columns' factors held. A row without entries gets zeros."""
        check_is_fitted(self)
        observed = as_observed(X)
        if observed.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {observed.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features as input."
            )
        V = self.column_factors_.astype(observed.dtype, copy=False)
        with Team(self.n_jobs) as team:
            return fold_in(Operations(observed, team), Objective(self.loss_, self.reg_), V)

    def inverse_transform(self, T: ArrayLike) -> Array:
        """The rows that the factors T predict: T·Vᵀ, dense."""
        check_is_fitted(self)
        factors = np.asarray(T)
        if factors.ndim != 2 or factors.shape[1] != len(self.components_):
            raise ValueError(f"T must have shape (rows, {len(self.components_)}), got shape {factors.shape}")
        return np.asarray(factors @ self.components_)

    def score(self, X: Any, y: None = None) -> float:
        """Minus the mean absolute error over the observed entries of X (same rows as in ``fit``): larger is better."""
        check_is_fitted(self)
        observed = as_observed(X)
        wanted = (len(self.row_factors_), len(self.column_factors_))
        if observed.shape != wanted:
            raise ValueError(f"X must have the shape of the fitted matrix, {wanted}, got {observed.shape}")
        rows = observed.rows
        return -float(np.abs(rows.values - self.predict(rows.group_of_entry(), rows.indices)).mean(dtype=np.float64))

    def _run(self, solver: MM, U: Array, V: Array) -> Outcome:
        if not self.verbose:
            return run(solver, U, V, self.max_iter, self.tol, self.callbacks)
        from robustmf.solvers.progress import ProgressBar  # noqa: PLC0415 - rich is imported only when something is shown

        with ProgressBar(f"{type(self).__name__} rank {self.rank}", self.max_iter) as bar:
            outcome = run(solver, U, V, self.max_iter, self.tol, [*self.callbacks, bar])
            bar.done(outcome.iterations)
        return outcome

    def _start(self, operations: Operations) -> tuple[Array, Array]:
        observed = operations.observed
        # a stream of its own: with the stream that drew the data, a Gaussian start would be the truth
        rng = np.random.default_rng(self.random_state).spawn(1)[0]
        if isinstance(self.init, str):
            if self.init == "auto":
                return ridge_start(operations, self.rank, rng)
            if self.init == "random":
                return gaussian_start(observed.shape, self.rank, rng, observed.dtype)
            raise ValueError(f"init must be 'auto', 'random' or a pair (U, V), got init={self.init!r}")
        U, V = (np.array(A, dtype=observed.dtype, order="C") for A in self.init)
        if U.shape != (observed.shape[0], self.rank) or V.shape != (observed.shape[1], self.rank):
            raise ValueError(
                f"init=(U, V) must have shapes {(observed.shape[0], self.rank)}, {(observed.shape[1], self.rank)}, got {U.shape}, {V.shape}"
            )
        if not (np.isfinite(U).all() and np.isfinite(V).all()):
            raise ValueError("init=(U, V) must be finite, got NaN or infinity")
        return U, V

    def _check_parameters(self, observed: Observed) -> None:
        _require_integer("rank", self.rank, 1, min(observed.shape), f" = min{observed.shape}")
        _require_integer("max_iter", self.max_iter, 0)
        _require_integer("inner_max_iter", self.inner_max_iter, 1)
        if self.theta is not None:
            _require_positive("theta", self.theta)
        if self.reg != "auto":
            _require_positive("reg", self.reg, also="'auto'")
        _require_positive("tol", self.tol)
        _require_positive("inner_tol", self.inner_tol)
        if self.inner_gap is not None:
            _require_positive("inner_gap", self.inner_gap)
        if self.solver != "mm":
            raise ValueError(f"solver must be 'mm', got solver={self.solver!r}")


class RMFNL(RobustMF):
    """The paper's algorithm with the paper's settings: ``solver="mm"``, ``inner="apg"``, θ = 1, λ = 20/(m+n).

    See :class:`RobustMF` for parameters and attributes. The start is the one that works, not the paper's (``init="random"``).
    """

    def __init__(
        self,
        rank: int = 10,
        *,
        loss: str | Loss = "lsp",
        theta: float | None = 1.0,
        reg: float | Literal["auto"] = "auto",
        init: str | tuple[ArrayLike, ArrayLike] = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        super().__init__(
            rank, loss=loss, theta=theta, reg=reg, solver="mm", inner="apg", init=init, max_iter=max_iter, tol=tol,
            random_state=random_state, n_jobs=n_jobs, verbose=verbose, callbacks=callbacks,
        )  # fmt: skip


def _warn_of_empty(observed: Observed) -> None:
    rows = int((observed.rows.counts == 0).sum())
    columns = int((observed.columns.counts == 0).sum())
    if rows or columns:
        warnings.warn(
            f"{rows} of {observed.shape[0]} rows and {columns} of {observed.shape[1]} columns have no observed entry; "
            "their factors are zero and so are their predictions",
            EmptyRowsWarning,
            stacklevel=3,
        )


def _require_integer(name: str, value: Any, low: int, high: int | None = None, why: str = "") -> None:
    allowed = f"an integer >= {low}" if high is None else f"an integer from {low} to {high}{why}"
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be {allowed}, got {name}={value!r}")
    if int(value) < low or (high is not None and int(value) > high):
        raise ValueError(f"{name} must be {allowed}, got {name}={value!r}")


def _require_positive(name: str, value: Any, also: str = "") -> None:
    allowed = "a finite number > 0" + (f" or {also}" if also else "")
    if isinstance(value, (bool, str)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be {allowed}, got {name}={value!r}")
    if not (np.isfinite(float(value)) and float(value) > 0):
        raise ValueError(f"{name} must be {allowed}, got {name}={value!r}")


def _positions(index: ArrayLike, name: str, size: int) -> NDArray[np.integer[Any]]:
    array = np.asarray(index)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got dtype {array.dtype}")
    if array.size and (array.min() < 0 or array.max() >= size):
        raise ValueError(f"{name} must lie in 0 … {size - 1}, got {array.min() if array.min() < 0 else array.max()}")
    return array
