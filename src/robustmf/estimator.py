"""``RobustMF``: its parameters, what they mean and which are refused; and ``RMFNL``, the paper's settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import FitPlan, ProblemSize
from robustmf.backends.registry import get_backend
from robustmf.data.observed import Observed, as_observed
from robustmf.initialization.problem import SAMPLE as SCALE_SAMPLE
from robustmf.learning import Learner
from robustmf.losses import Loss, make_loss
from robustmf.solvers.base import Callback
from robustmf.solvers.memory import solver_memory
from robustmf.solvers.mm import MM
from robustmf.solvers.objective import paper_reg
from robustmf.solvers.registry import is_worth_eliminating
from robustmf.solvers.settings import Init, Settings
from robustmf.validation import (
    require_bounds,
    require_callables,
    require_flag,
    require_integer,
    require_positive,
    require_share,
)

Array = NDArray[np.floating[Any]]

#: Statistics of the values are taken over at most about this many of them.
_SAMPLE = 1_000_000

#: partial_fit starts anew when the entries have grown by this factor since the last start.
_GROWTH = 2


class RobustMF(Learner):
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
        λ. "paper" is 20/(m+n). "auto" follows the noise that is seen: σ̂²/(variance of a factor), the ridge of the posterior mode. Where
        noise is above a third of the spread of the values (or parameters are more than half as many as entries), as with ratings, λ is
        the one that predicts some entries set aside best, and the fit is then made to all of them. For losses with a kink, and starts
        other than ``init="auto"``, it is "paper" in units of the data (data times c needs no other setting).
    reg_by_count : bool
        Multiply λ by the number of entries of each row and column.
    bias : "auto" or bool
        Add a center, a bias for each row and one for each column: center + b_i + c_j + u_i·v_j. "auto" decides together with
        ``reg="auto"``: where the signal is weak, and entries set aside are predicted clearly better with them. Else, and wherever λ
        is given, there are none. With them ``transform`` has one column more.
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
    validation_fraction : float or None
        Set this share of the entries aside, by a hash of their ids and ``random_state``, and stop when the mean absolute error there
        has not fallen for ``patience`` iterations; the iterate where it was lowest is kept.
    patience : int
        See ``validation_fraction``.
    bounds : (low, high) or None
        Predictions are clipped to these, as for ratings from 1 to 5.
    random_state : int, Generator or None
        For the start, and for what is set aside.
    device : {"cpu", "cuda"}
        Where fits, fold-in and residuals are computed: "cuda" is one NVIDIA GPU (torch's current one), with the extra ``gpu``. It offers
        the solvers "irls" and "mm" (with inner="apg"). Factors and scores come back as NumPy arrays.
    n_jobs : int or None
        Threads; None means all cores. Results do not depend on it.
    verbose : int
        1 shows a progress bar, and which solver was chosen and why.
    callbacks : sequence of callables
        Called with a :class:`~robustmf.solvers.base.Snapshot` after each iteration; returning True ends the fit.

    Attributes
    ----------
    row_factors_, column_factors_ : ndarray
        U (m, r) and V (n, r).
    components_ : ndarray
        Vᵀ (r, n).
    loss_, reg_, theta_
        The loss, λ and θ that were used.
    row_bias_, column_bias_, center_ : ndarray, ndarray, float
        The biases; zeros where the model has none.
    has_bias_ : bool
        Whether the model has biases.
    bias_unit_ : float
        The ridge on biases is λ/bias_unit_²: 1 where λ is given; with ``reg="auto"`` the root of the data's spread, as factors are measured
        by the root of the data's unit.
    solver_, solver_reason_ : str
        The solver that was used, and why.
    history_ : dict of lists
        Per iteration (0 is the start): objective, seconds; with ``validation_fraction`` validation, the error on what was set aside; for
        "mm" also gap, criticality (a bound), inner_iterations.
    n_iter_, converged_, stop_reason_
        How the fit ended.
    best_iteration_ : int
        The iteration that was kept: the last one, or with ``validation_fraction`` the best one.
    criticality_ : float
        Norm of the smallest element of the Clarke subdifferential at the result, 0 at a critical point: measured by "mm" and by
        ``certify``, else NaN.
    row_ids_, column_ids_ : list or None
        The ids of rows and columns, where X had them (:meth:`Observed.from_triplets`).
    median_, scale_ : float
        Median of the values, and of their absolute values.
    entries_ : mapping of ndarray
        The entries that the fit has seen, by rows (pointers, indices, values, weights), for :meth:`recommend` and :meth:`partial_fit`.
        Those that a GPU has put in order stay there until first asked for.
    n_features_in_, feature_names_in_
        Number of columns, and their names where X was a table with names.

    Notes
    -----
    Ctrl-C ends a fit with what it has, and a warning; while the start is being looked for there is nothing yet, and KeyboardInterrupt
    goes through.

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
        bias: bool | Literal["auto"] = "auto",
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
        validation_fraction: float | None = None,
        patience: int = 5,
        bounds: tuple[float, float] | None = None,
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
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.bounds = bounds
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    def _reg(self, observed: Observed) -> float:
        return paper_reg(observed.shape) if isinstance(self.reg, str) else float(self.reg)

    def _settings(self, observed: Observed, shown: Sequence[Callback]) -> Settings:
        theta = None if self.theta == "auto" else self.theta
        mm = MM(self.inner, self.inner_max_iter, self.inner_tol, self.inner_gap)
        return Settings(
            rank=int(self.rank),
            loss=make_loss(self.loss, theta),
            auto_theta=self.theta == "auto" and isinstance(self.loss, str),
            reg=self._reg(observed),
            auto_reg=self.reg == "auto",
            reg_by_count=self.reg_by_count,
            bias=self.bias if isinstance(self.bias, str) else bool(self.bias),
            bias_unit=1.0,
            solver=self.solver,
            mm=mm,
            init=self.init,
            n_init=int(self.n_init),
            certify=mm.certifying() if self.certify else None,
            max_iter=int(self.max_iter),
            tol=float(self.tol),
            callbacks=[*(self.callbacks or ()), *shown],
            validation_fraction=self.validation_fraction,
            patience=int(self.patience),
            bounds=require_bounds(self.bounds),
        )

    def memory_estimate(
        self,
        X: Any = None,
        *,
        shape: tuple[int, int] | None = None,
        n_entries: int | None = None,
        dtype: Any = "float64",
        source_bytes: int = 0,
    ) -> int:
        """Bytes that ``fit`` will take at its peak for X, or for entries that are not there yet, by shape, number and dtype.

        Counted are the entries by rows and by columns, the factors and the working arrays; not the interpreter (about 0.2 GB). Biases count
        where they are asked for, not where ``bias="auto"`` may choose them. A checkpoint takes three times the size of its file while it
        is written, on top. With ``device="cuda"`` the bytes are those of the card, the larger of its peaks: putting the entries in order,
        and the fit.

        Parameters
        ----------
        source_bytes : int
            Bytes an entry of what the entries are made from and that is let go before the fit: 12 for int32 numbers and float32
            values given to ``Observed.from_indices``; ``from_triplets`` takes 8 more than its columns. The estimate is then the
            larger of two peaks, that of the conversion, its source included, and that of the fit.
        """
        if X is not None:
            observed = as_observed(X)
            shape, n_entries, dtype = observed.shape, observed.n_entries, observed.dtype
        if shape is None or n_entries is None:
            raise ValueError("memory_estimate needs X, or shape=(m, n) and n_entries=")
        backend = get_backend(self.device)
        bias = self.bias is True
        nonsmooth = make_loss(self.loss, None if self.theta == "auto" else self.theta).concave
        eliminates = (
            self.solver == "auto"
            and backend.capabilities.host_arrays
            and not bias
            and is_worth_eliminating(shape, int(n_entries), int(self.rank), nonsmooth)
        )
        size = ProblemSize(
            shape, int(n_entries), int(self.rank) + int(bias), np.dtype(dtype).itemsize
        )
        plan = FitPlan(
            solver_memory("varpro" if eliminates else self.solver),
            scale_sample=SCALE_SAMPLE,
            graduated=isinstance(self.init, str) and self.init == "auto",
            held_out=self.validation_fraction is not None,
            bias=bias,
            source_bytes=int(source_bytes),
        )
        return backend.fit_bytes(size, plan)

    def _check_parameters(self, observed: Observed) -> None:
        require_integer("rank", self.rank, 1, min(observed.shape), f" = min{observed.shape}")
        self._check_settings()

    def _check_settings(self) -> None:
        """All that can be checked without data."""
        require_integer("max_iter", self.max_iter, 0)
        require_integer("inner_max_iter", self.inner_max_iter, 1)
        require_integer("n_init", self.n_init, 1)
        require_integer("patience", self.patience, 1)
        for name in ("reg_by_count", "certify"):
            require_flag(name, getattr(self, name))
        if not isinstance(self.bias, str) or self.bias != "auto":
            require_flag("bias", self.bias, also="'auto'")
        require_callables("callbacks", self.callbacks)
        require_share("validation_fraction", self.validation_fraction)
        require_bounds(self.bounds)
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
        validation_fraction: float | None = None,
        patience: int = 5,
        bounds: tuple[float, float] | None = None,
        random_state: int | np.random.Generator | None = None,
        device: str = "cpu",
        n_jobs: int | None = None,
        verbose: int = 0,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        super().__init__(
            rank, loss=loss, theta=theta, reg=reg, bias=False, solver="mm", inner="apg", init=init, max_iter=max_iter, tol=tol,
            validation_fraction=validation_fraction, patience=patience, bounds=bounds,
            random_state=random_state, device=device, n_jobs=n_jobs, verbose=verbose, callbacks=callbacks,
        )  # fmt: skip
