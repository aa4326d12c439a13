"""``RobustMF``: the scikit-learn face of the package."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from robustmf.device import device_observed, device_operations, require_device
from robustmf.inner import InnerRule
from robustmf.kernels.team import Team
from robustmf.losses import Loss, make_loss
from robustmf.memory import fit_bytes
from robustmf.observed import Observed, as_observed
from robustmf.operations import Operations
from robustmf.solvers.fitting import Settings, fit
from robustmf.solvers.fold_in import fold_in
from robustmf.solvers.loop import Callback
from robustmf.solvers.start import Init
from robustmf.validation import entry_weights, generator, positions, require_integer, require_positive, warn_of_empty

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
    theta : "auto", float or None
        Scale θ of the loss, in the unit of the data. "auto" is a robust estimate of the noise times the loss's own constant;
        None keeps the loss's own, as "auto" does for a loss given as an object.
    reg : "auto", "paper" or float
        λ. "paper" is 20/(m+n). "auto" is the same in units of the data (so that data times c needs no other setting), and not below
        σ̂²/(variance of a factor), the ridge of the posterior mode at the noise level seen.
    reg_by_count : bool
        Multiply λ by the number of entries of each row and column.
    bias : bool
        Add a center, a bias for each row and one for each column: center + b_i + c_j + u_i·v_j.
    solver : {"auto", "irls", "varpro", "mm"}
        "irls" sweeps over rows and columns, for large sparse data; "varpro" eliminates the long side, for few rows or columns and
        any pattern; "mm" is the paper's algorithm (RMFNL), for losses that are concave in |residual|. "auto" chooses between the
        first two by the shape.
    inner : {"apg", "apg-dense", "ladmpsap"}
        How "mm" minimises its surrogate. The last two are for comparison: they need m × n memory.
    init : "auto", "ridge", "random" or (U, V)
        "auto" is graduated non-convexity with repair; "ridge" strongly regularised least squares; "random" the Gaussian start of
        the paper (which fails for nonconvex losses).
    n_init : int
        Fits from so many random starts; the one with the best objective is kept.
    certify : bool
        For a loss with a kink: end with "mm" iterations until the point is critical for the loss itself, and measure it.
    max_iter, tol : int, float
        Stop when the objective changes by less than ``tol`` of its value, or after ``max_iter`` iterations.
    inner_max_iter, inner_tol : int, float
        The same for each inner solve of "mm".
    inner_gap : float or None
        Stop inner solves by the duality gap instead: at this share of the decrease reached.
    random_state : int, Generator or None
        For the start.
    device : {"cpu", "cuda"}
        Where fits, fold-in and scores are computed: "cuda" is one NVIDIA GPU (torch's current one), with the extra ``gpu``. It offers
        the solvers "irls" and "mm" (with inner="apg"). Factors and scores come back as NumPy arrays.
    n_jobs : int or None
        Threads; None means all cores. Results do not depend on it.
    verbose : int
        1 shows a progress bar, and which solver was chosen and why.
    callbacks : sequence of callables
        Called with a :class:`~robustmf.solvers.loop.Snapshot` after each iteration; returning True ends the fit.

    Attributes
    ----------
    row_factors_, column_factors_ : ndarray, U and V
    components_ : ndarray (r, n), Vᵀ
    loss_ : Loss, reg_ : float, theta_ : float
        The loss, λ and θ that were used.
    row_bias_, column_bias_, center_ : ndarray, ndarray, float
        The biases; zeros where ``bias`` is False.
    solver_, solver_reason_ : str
        The solver that was used, and why.
    history_ : dict of lists
        Per iteration (0 is the start): objective, seconds; for "mm" also gap, criticality (a bound), inner_iterations.
    n_iter_, converged_, stop_reason_
        How the fit ended.
    criticality_ : float
        Norm of the smallest element of the Clarke subdifferential at the result, 0 at a critical point: measured by "mm" and by
        ``certify``, else NaN.
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
        loss: str | Loss = "welsch",
        theta: float | Literal["auto"] | None = "auto",
        reg: float | Literal["auto", "paper"] = "auto",
        reg_by_count: bool = False,
        bias: bool = False,
        solver: str = "auto",
        inner: str = "apg",
        init: Init = "auto",
        n_init: int = 1,
        certify: bool = False,
        max_iter: int = 300,
        tol: float = 1e-4,
        inner_max_iter: int = 300,
        inner_tol: float = 1e-6,
        inner_gap: float | None = None,
        random_state: int | np.random.Generator | None = None,
        device: str = "cpu",
        n_jobs: int | None = None,
        verbose: int = 0,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.rank = rank
        self.loss = loss
        self.theta = theta
        self.reg = reg
        self.reg_by_count = reg_by_count
        self.bias = bias
        self.solver = solver
        self.inner = inner
        self.init = init
        self.n_init = n_init
        self.certify = certify
        self.max_iter = max_iter
        self.tol = tol
        self.inner_max_iter = inner_max_iter
        self.inner_tol = inner_tol
        self.inner_gap = inner_gap
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    def fit(self, X: Any, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Factorize X: sparse (every stored entry is observed, zeros too), dense (NaN is missing), or :class:`Observed`.

        ``sample_weight`` multiplies each entry's loss: one number ≥ 0 an observed entry, in row order, or an m × n array.
        """
        observed = self._observed(X)
        self._check_parameters(observed)
        weights = None if sample_weight is None else entry_weights(sample_weight, observed)
        warn_of_empty(observed, self.bias)
        # a stream of its own: with the stream that drew the data, a Gaussian start would be the truth
        rng = generator(self.random_state).spawn(1)[0]
        with Team(self.n_jobs) as team, self._progress() as shown:
            operations = self._operations(observed, team)
            weights = None if weights is None else operations.array(weights)
            found = fit(self._settings(observed, shown), operations, weights, rng)
        self.row_factors_, self.column_factors_ = np.asarray(found.U), np.asarray(found.V)
        self.components_ = self.column_factors_.T
        self._has_bias = bool(self.bias)
        self.center_, self.row_bias_, self.column_bias_ = found.center, np.asarray(found.row_bias), np.asarray(found.column_bias)
        self.loss_, self.theta_, self.reg_ = found.loss, found.loss.theta, found.reg
        self.solver_, self.solver_reason_ = found.solver, found.reason
        self.history_, self.n_iter_ = found.outcome.history, found.outcome.iterations
        self.converged_, self.stop_reason_ = found.outcome.converged, found.outcome.reason
        self.criticality_ = found.criticality
        self.n_features_in_ = observed.shape[1]
        if self.verbose:
            print(f"{type(self).__name__}: solver {self.solver_} ({self.solver_reason_}); {self.stop_reason_}", file=sys.stderr)
        return self

    def _observed(self, X: Any) -> Observed:
        """The entries of X, where this model computes."""
        require_device(self.device)
        return as_observed(X) if self.device == "cpu" else device_observed(X)

    def _operations(self, observed: Any, team: Team) -> Operations:
        return (
            Operations(observed, team)
            if self.device == "cpu"
            else device_operations(observed, team, int(self.rank) + int(self.bias), self.solver)
        )

    def _reg(self, observed: Observed) -> float:
        return 20 / sum(observed.shape) if isinstance(self.reg, str) else float(self.reg)

    def _settings(self, observed: Observed, shown: Sequence[Callback]) -> Settings:
        theta = None if self.theta == "auto" else self.theta
        return Settings(
            rank=int(self.rank),
            loss=make_loss(self.loss, theta),
            auto_theta=self.theta == "auto" and isinstance(self.loss, str),
            reg=self._reg(observed),
            auto_reg=self.reg == "auto",
            reg_by_count=self.reg_by_count,
            bias=self.bias,
            solver=self.solver,
            inner=self.inner,
            rule=InnerRule(self.inner_tol, self.inner_gap, self.inner_max_iter),
            init=self.init,
            n_init=int(self.n_init),
            certify=self.certify,
            max_iter=int(self.max_iter),
            tol=float(self.tol),
            callbacks=[*(self.callbacks or ()), *shown],
        )

    @contextmanager
    def _progress(self) -> Iterator[Sequence[Callback]]:
        if not self.verbose:
            yield ()
            return
        from robustmf.solvers.progress import ProgressBar  # noqa: PLC0415 - rich is imported only when something is shown

        with ProgressBar(f"{type(self).__name__} rank {self.rank}", self.max_iter) as bar:
            yield (bar,)

    def memory_estimate(
        self, X: Any = None, *, shape: tuple[int, int] | None = None, n_entries: int | None = None, dtype: Any = "float64"
    ) -> int:
        """Bytes that ``fit`` will take at its peak for X, or for entries that are not there yet, by shape, number and dtype.

        Counted are the entries by rows and by columns, the factors and the working arrays; not the interpreter (about 0.2 GB), nor
        what the entries are made from.
        """
        if X is not None:
            observed = as_observed(X)
            shape, n_entries, dtype = observed.shape, observed.n_entries, observed.dtype
        if shape is None or n_entries is None:
            raise ValueError("memory_estimate needs X, or shape=(m, n) and n_entries=")
        graduated = isinstance(self.init, str) and self.init == "auto"
        return fit_bytes(shape, int(n_entries), int(self.rank), np.dtype(dtype).itemsize, self.solver, graduated)

    def predict(self, rows: ArrayLike, cols: ArrayLike) -> Array:
        """Predicted values at the given row and column numbers, pair by pair."""
        check_is_fitted(self)
        i = positions(rows, "rows", len(self.row_factors_))
        j = positions(cols, "cols", len(self.column_factors_))
        product = np.einsum("...q,...q->...", self.row_factors_[i], self.column_factors_[j])
        return np.asarray(product + self.row_bias_[i] + self.column_bias_[j] + self.column_bias_.dtype.type(self.center_))

    def transform(self, X: Any) -> Array:
        """Robust fold-in: factors for the rows of X, the columns' factors held. A row without entries gets zeros.

        With ``bias`` there is one more column, the bias of the row.
        """
        check_is_fitted(self)
        observed = self._observed(X)
        if observed.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {observed.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features as input."
            )
        V, shifts = self.column_factors_.astype(observed.dtype, copy=False), None
        if self._has_bias:
            V, shifts = np.hstack([V, np.ones((len(V), 1), V.dtype)]), self._shifts().astype(V.dtype)
        reg = self.reg_ * observed.rows.counts if self.reg_by_count else self.reg_
        with Team(self.n_jobs) as team:
            operations = self._operations(observed, team)
            shifts = None if shifts is None else operations.array(shifts)
            return np.asarray(fold_in(operations, self.loss_, reg, operations.array(V), shifts))

    def fit_transform(self, X: Any, y: None = None, sample_weight: ArrayLike | None = None) -> Array:
        """Fit, and return the factors of the rows as fitted (with ``bias``, the row's bias as the last column)."""
        self.fit(X, sample_weight=sample_weight)
        return np.hstack([self.row_factors_, self.row_bias_[:, None]]) if self._has_bias else self.row_factors_

    def entry_weights(self, X: Any) -> Array:
        """How far each observed entry of X (same rows as in ``fit``, in row order) is trusted: 1 = fully, near 0 = a gross outlier.

        The loss's slope relative to that of least squares for a smooth loss, to its slope at 0 for a kinked one.
        """
        residual = self._residuals(X)
        of = self.loss_.derivative if self.loss_.concave else self.loss_.weight
        return np.asarray(of(residual) / of(np.zeros(1, residual.dtype)))

    def _residuals(self, X: Any) -> Array:
        """Values minus predictions at the observed entries, in row order."""
        check_is_fitted(self)
        observed = self._observed(X)
        wanted = (len(self.row_factors_), len(self.column_factors_))
        if observed.shape != wanted:
            raise ValueError(f"X must have the shape of the fitted matrix, {wanted}, got {observed.shape}")
        rows = observed.rows
        if self.device == "cpu":
            return np.asarray(rows.values - self.predict(rows.group_of_entry(), rows.indices))
        U, V = (A.astype(observed.dtype, copy=False) for A in self._predictors())
        with Team(self.n_jobs) as team:
            operations = self._operations(observed, team)
            return np.asarray(operations.residuals(operations.array(U), operations.array(V)))

    def _predictors(self) -> tuple[Array, Array]:
        """Factors whose product is the prediction, biases included."""
        if not self._has_bias:
            return self.row_factors_, self.column_factors_
        ones = [np.ones_like(A[:, :1]) for A in (self.row_factors_, self.column_factors_)]
        left = np.hstack([self.row_factors_, self.row_bias_[:, None], ones[0]])
        return left, np.hstack([self.column_factors_, ones[1], self._shifts()[:, None]])

    def _shifts(self) -> Array:
        """What a column's prediction has before any row is known."""
        return self.column_bias_ + self.column_bias_.dtype.type(self.center_)

    def inverse_transform(self, T: ArrayLike) -> Array:
        """The rows that the factors T (as :meth:`transform` gives them) predict, dense."""
        check_is_fitted(self)
        factors, wanted = np.asarray(T), len(self.components_) + int(self._has_bias)
        if factors.ndim != 2 or factors.shape[1] != wanted:
            raise ValueError(f"T must have shape (rows, {wanted}), got shape {factors.shape}")
        if not self._has_bias:
            return np.asarray(factors @ self.components_)
        return np.asarray(factors[:, :-1] @ self.components_ + factors[:, -1:] + self._shifts())

    def score(self, X: Any, y: None = None) -> float:
        """Minus the mean absolute error over the observed entries of X (same rows as in ``fit``): larger is better."""
        return -float(np.abs(self._residuals(X)).mean(dtype=np.float64))

    def _check_parameters(self, observed: Observed) -> None:
        require_integer("rank", self.rank, 1, min(observed.shape), f" = min{observed.shape}")
        require_integer("max_iter", self.max_iter, 0)
        require_integer("inner_max_iter", self.inner_max_iter, 1)
        require_integer("n_init", self.n_init, 1)
        if self.theta is not None and self.theta != "auto":
            require_positive("theta", self.theta, also="'auto' or None")
        if self.reg not in ("auto", "paper"):
            require_positive("reg", self.reg, also="'auto' or 'paper'")
        require_positive("tol", self.tol)
        require_positive("inner_tol", self.inner_tol)
        if self.inner_gap is not None:
            require_positive("inner_gap", self.inner_gap)


class RMFNL(RobustMF):
    """The paper's algorithm with the paper's settings: ``solver="mm"``, ``inner="apg"``, θ = 1, λ = 20/(m+n).

    See :class:`RobustMF` for parameters and attributes. The start is the one that works, not the paper's (``init="random"``).
    """

    def __init__(
        self,
        rank: int = 10,
        *,
        loss: str | Loss = "lsp",
        theta: float | Literal["auto"] | None = 1.0,
        reg: float | Literal["auto", "paper"] = "paper",
        init: Init = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        random_state: int | np.random.Generator | None = None,
        device: str = "cpu",
        n_jobs: int | None = None,
        verbose: int = 0,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        super().__init__(
            rank, loss=loss, theta=theta, reg=reg, solver="mm", inner="apg", init=init, max_iter=max_iter, tol=tol,
            random_state=random_state, device=device, n_jobs=n_jobs, verbose=verbose, callbacks=callbacks,
        )  # fmt: skip
