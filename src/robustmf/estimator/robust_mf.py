"""``RobustMF``, ``RMFNL`` with the settings of the paper, and ``load`` for saved models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, Never, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from robustmf.answers import errors, matrices, recommendations, scores
from robustmf.answers.tables import factor_rows, per_pair
from robustmf.backends.registry import get_backend
from robustmf.data.checks import entry_weights, new_rows, require_in_memory
from robustmf.data.ids import require_distinct
from robustmf.data.observed import Observed, as_observed, read_table
from robustmf.data.table_form import ColumnNames
from robustmf.estimator import parameters, saving, sklearn_interface, training
from robustmf.exceptions import WarnsOncePerSearch
from robustmf.io.checkpoint import as_checkpoint
from robustmf.losses import Loss
from robustmf.model import FittedModel
from robustmf.outliers import cleaning
from robustmf.outliers.audit import Audit
from robustmf.outliers.cleaning import Cleaned
from robustmf.outliers.scores import Rows, noise_level
from robustmf.outliers.scores import audit as find_suspects
from robustmf.solvers.base import Callback
from robustmf.solvers.mm.options import MM
from robustmf.solvers.settings import Init
from robustmf.validation import UNBOUNDED, require_score

Array = NDArray[np.floating[Any]]


def _fitted(path: str, doc: str) -> Any:
    """An attribute of a fitted estimator that is read from ``self.model_``."""
    read = attrgetter(path)
    return property(lambda self: read(_model_of(self)), doc=doc)


def _model_of(estimator: Any) -> FittedModel:
    """The fitted model; AttributeError, so that ``hasattr`` is False, before a fit."""
    model: FittedModel | None = vars(estimator).get("model_")
    if model is None:
        raise AttributeError(
            f"this {type(estimator).__name__} is not fitted yet: attributes that end in an "
            "underscore are set by fit"
        )
    return model


class RobustMF(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    WarnsOncePerSearch,
    BaseEstimator,  # type: ignore[misc]
):
    """Robust matrix factorization: U (m × r) and V (n × r) with UVᵀ close to the clean entries.

    Minimizes Σ φ(|X_ij − u_i·v_j|) + λ/2 (‖U‖² + ‖V‖²) over the observed entries.

    Parameters
    ----------
    rank : "auto" or int, default="auto"
        Number of factors r, from 1 to min(m, n). "auto" finds it from the data, together with the
        model, which may have no factors. With ``init="auto"`` a given rank is an upper bound on the
        factors that are searched for, and the others are zero. Where ``init`` is a pair (U, V),
        "auto" is its number of columns. On a cluster the rank must be given.
    loss : str or Loss, default="welsch"
        φ by its name (see :func:`robustmf.losses.loss_names`) or as a user-defined object.
    theta : "auto", float or None, default="auto"
        Scale θ of the loss, in the unit of the data. "auto" is a robust estimate of the noise times
        the loss's efficiency constant, or less where the learned distribution of the noise has
        heavy tails; None keeps the loss's own scale, as "auto" does for a loss given as an object.
    reg : "auto", "paper" or float, default="auto"
        Regularization λ. "paper" is 20/(m+n). With "auto" and losses of ``degree`` 2, as "welsch"
        and "huber", λ follows the noise that ``init="auto"`` has learned: each factor has its own
        ridge, σ² times its prior precision, and ``reg_`` is that of the mean precision. For a loss
        that is not robust ("l2"), for ``init="ridge"`` and where the signal is weak, it is the λ
        that predicts held-out entries best; the fit is then made to all of them. Otherwise it is
        "paper" in units of the data. The design page "Regularization and biases" lists all cases.
    reg_by_count : bool, default=False
        Multiply λ by the number of entries of each row and column.
    bias : "auto" or bool, default="auto"
        Add a center, a bias for each row and one for each column: center + b_i + c_j + u_i·v_j.
        "auto" compares models with and without biases by their evidence and by the errors of
        entries that are predicted from the others, and chooses the simplest whose error exceeds
        the lowest by at most one standard error; ``candidates_`` lists them. Where λ is chosen on
        held-out entries instead, biases are added if they lower the error there clearly.
        There are none where λ or initial factors are given, with ``init="random"``, with
        ``certify``, and with the solvers "mm" and "varpro".
        With biases ``transform`` returns one more column.
    nonnegative : bool, default=False
        Constrain all elements of U and V to be non-negative, also the factors that ``transform``
        returns: robust non-negative matrix factorization, for counts, intensities and mixtures.
        It is available with the solver "irls", which "auto" then chooses. The model has no biases:
        ``bias="auto"`` is False, and True is refused. Values may be negative, such as those of
        noise around zero.
    solver : {"auto", "irls", "varpro", "mm"} or MM, default="auto"
        "irls" is iteratively reweighted least squares, for large sparse data; "varpro" is variable
        projection, for matrices with few rows or columns, without biases and weights and on the CPU
        only; "mm" is the paper's algorithm (RMFNL), for losses that are concave in |residual|, and
        :class:`robustmf.MM` sets its options. "auto" chooses between the first two by the shape,
        the share of observed entries and the loss.
    init : "auto", "ridge", "random" or (U, V), default="auto"
        Initial factors. "auto" is a search by variational inference, which also finds the rank, the
        distribution of the noise and its level in each row and column; on large data the rows and
        columns with most entries are searched, and where nothing is found graduated non-convexity
        is used. The solver "varpro" starts from variable projection, and a loss that is not robust
        ("l2") from "ridge". "ridge" is least squares on clipped values; "random" the Gaussian
        initialization of the paper, from which nonconvex losses fail.
    n_init : int, default=1
        Number of initializations. The fit with the lowest objective is kept; with
        ``validation_fraction``, the one with the lowest validation error.
    certify : bool or MM, default=False
        For a nonsmooth loss: finish with "mm" iterations until the point is critical for the loss
        itself, and report ``criticality_``. :class:`robustmf.MM` sets their options. ``history_``
        and ``n_iter_`` then describe these iterations, not those of the solver before them.
    max_iter : int, default=300
        Maximum number of iterations.
    tol : float, default=1e-4
        Stop when the objective decreases by no more than ``tol`` of its value; 0 stops when it does
        not decrease any more.
    validation_fraction : float or None, default=None
        Hold out this fraction of the entries, chosen by a hash of their ids and ``random_state``,
        and stop when the mean absolute error there has not decreased for ``patience`` iterations;
        the iterate where it was lowest is kept.
    patience : int, default=5
        See ``validation_fraction``.
    bounds : "auto", (low, high) or None, default="auto"
        Clip predictions to this interval, whose ends may be infinite. "auto" recognizes the ends
        of a discrete scale, such as 1, 2, …, 5: at least 95 % of the entries have one of 3 to 101
        evenly spaced values, and they end there rather than becoming rare. Each end is judged by
        itself: where few ratings are low, only the upper end may be found, and counts end at 0.
        Values outside of the scale, such as a stray 99, do not widen it. Other data are not
        clipped; None clips nothing. On a cluster the scale is that of a sample of the values.
    random_state : int, Generator or None, default=None
        Random numbers of the initialization and of the entries that are held out.
    device : {"cpu", "cuda"}, default="cpu"
        Where fits, fold-in and residuals are computed. "cuda" is one NVIDIA GPU (torch's current
        one), with the extra ``gpu``; it offers the solvers "irls" and "mm" (with inner="apg").
        Factors and scores are returned as NumPy arrays.
    n_jobs : int or None, default=None
        Number of threads. None and -1 mean all cores, -2 all but one. Results do not depend on it.
    verbose : int, default=0
        1 shows a progress bar for a fit and an audit, with the phase and an estimate of the time
        left, and which solver was chosen and why.
    callbacks : sequence of callables, default=()
        Called with a :class:`~robustmf.solvers.base.Snapshot` after each iteration; returning True
        ends the fit.

    Attributes
    ----------
    rank_ : int
        The rank r, found or given; 0 for a model of center and biases alone.
    candidates_ : tuple of ModelCandidate
        The models that were compared: ``model`` ("center", "biases", "centers", "factors", or one
        of the first three "and factors"), ``rank``, ``error`` and ``standard_error`` (mean absolute
        error of entries predicted from the others, truncated at three noise levels; with centers
        of columns in different units, in units of the columns' noise) and ``chosen``.
        Empty where none were compared.
    failed_checks_ : tuple of str
        The checks that the fit fails, in words: too many entries flagged as outliers, rows or
        columns with most entries flagged, errors above those of the median. Empty where it passes
        them; otherwise :meth:`fit` issues an UnreliableFitWarning.
    row_factors_, column_factors_ : ndarray of shape (m, r) and (n, r)
        U and V.
    components_ : ndarray of shape (r, n)
        Vᵀ.
    loss_, reg_, theta_
        The loss, λ and θ that were used.
    noise_ : float
        The noise of a typical clean entry, as a standard deviation, estimated from the residuals:
        68 % of the clean values deviate by less from the truth. Computed when it is read. Too small
        for losses that fit some entries exactly ("l1"), and too large for "l2" with outliers.
    row_bias_, column_bias_, center_ : ndarray, ndarray, float
        The biases; zeros where the model has none.
    has_bias_ : bool
        Whether the model has biases.
    bias_unit_ : float
        Biases are regularized by λ/bias_unit_². 1 where λ is given; with ``reg="auto"`` such that
        this is the learned ridge of the row biases, and where none was learned the root of the
        scale of the data, which is the unit of the factors.
    solver_, solver_reason_ : str
        The solver that was used, and why.
    history_ : dict of lists
        Per iteration (0 is the initial point): objective, seconds; with ``validation_fraction``
        validation, the error on held-out entries; for "mm" also gap, criticality (a bound) and
        inner_iterations. With ``certify``, of the final "mm" iterations.
    n_iter_, converged_, stop_reason_
        Number of iterations, and how the fit ended. With ``certify``, of the final "mm" iterations.
    best_iteration_ : int
        The iteration that was kept: the last one, or with ``validation_fraction`` the best one.
    criticality_ : float
        Norm of the smallest element of the Clarke subdifferential at the result, 0 at a critical
        point: computed by "mm" and by ``certify``, otherwise NaN.
    row_ids_, column_ids_ : list or None
        The ids of rows and columns, where X had them: the labels of a wide table, the ids of a
        long one or of an :class:`Observed`.
    bounds_ : (low, high) or None
        The interval to which predictions are clipped, given or found; an end may be infinite.
        None if they are not clipped.
    median_, scale_ : float
        Median of the values, and of their absolute values.
    row_scales_, column_scales_ : ndarray of shape (m,) and (n,)
        The noise of entry (i, j) is ``row_scales_[i] * column_scales_[j]`` times that of a typical
        entry. Learned with ``init="auto"`` and ``theta="auto"``, for losses of ``degree`` 2 and
        models without biases, or with centers of the scaled side alone; ones where the data show no
        differences, and where they are not learned. θ is that of a typical entry.
    entries_ : mapping of ndarray
        The fitted entries by rows (pointers, indices, values, weights), for :meth:`recommend` and
        :meth:`partial_fit`. Those of a fit on a GPU stay there until first used.
    model_ : FittedModel
        All of the above in one object, without the estimator's parameters.
    n_features_in_, feature_names_in_
        Number of columns, and their names where X was a table with names.

    Notes
    -----
    Ctrl-C ends a fit with the current iterate, and a warning; during the initialization there is no
    iterate yet, and KeyboardInterrupt is raised.

    Examples
    --------
    >>> from robustmf import RobustMF
    >>> from robustmf.datasets import make_synthetic
    >>> data = make_synthetic(250, random_state=0)
    >>> model = RobustMF(rank=5, random_state=0).fit(data.train)
    >>> bool(data.test_rmse(model.row_factors_, model.column_factors_) < 0.12)
    True
    """

    model_: FittedModel

    rank_ = _fitted("factors.rank", "The rank r, found or given.")
    row_factors_ = _fitted("factors.row_factors", "U, of shape (m, r).")
    column_factors_ = _fitted("factors.column_factors", "V, of shape (n, r).")
    components_ = _fitted("factors.column_factors.T", "Vᵀ, of shape (r, n).")
    row_bias_ = _fitted("factors.row_bias", "Biases of the rows; zeros without biases.")
    column_bias_ = _fitted("factors.column_bias", "Biases of the columns; zeros without biases.")
    center_ = _fitted("center", "The center of a model with biases; 0 without biases.")
    has_bias_ = _fitted("factors.has_bias", "Whether the model has biases.")
    bias_unit_ = _fitted("bias_unit", "Biases are regularized by λ/bias_unit_².")
    loss_ = _fitted("loss", "The loss at the scale of the fit.")
    theta_ = _fitted("loss.theta", "The scale θ of the loss.")
    reg_ = _fitted("reg", "The regularization λ.")
    median_ = _fitted("median", "Median of the values.")
    scale_ = _fitted("scale", "Median of the absolute values.")
    row_scales_ = _fitted("row_scales", "Noise of the rows relative to the typical one.")
    column_scales_ = _fitted("column_scales", "Noise of the columns relative to the typical one.")
    row_ids_ = _fitted("row_ids", "Ids of the rows, or None.")
    column_ids_ = _fitted("column_ids", "Ids of the columns, or None.")
    entries_ = _fitted("entries", "The fitted entries by rows.")
    solver_ = _fitted("summary.solver", "The solver that was used.")
    solver_reason_ = _fitted("summary.solver_reason", "Why this solver was used.")
    history_ = _fitted("summary.history", "Objective, seconds and more per iteration.")
    n_iter_ = _fitted("summary.n_iter", "Number of iterations.")
    converged_ = _fitted("summary.converged", "Whether the objective converged.")
    stop_reason_ = _fitted("summary.stop_reason", "Why the iteration stopped.")
    best_iteration_ = _fitted("summary.best_iteration", "The iteration that was kept.")
    candidates_ = _fitted("summary.candidates", "The models that were compared.")
    failed_checks_ = _fitted("summary.failed_checks", "The checks that the fit fails.")
    criticality_ = _fitted("summary.criticality", "Norm of the smallest subgradient, or NaN.")

    @property
    def bounds_(self) -> tuple[float, float] | None:
        """The interval to which predictions are clipped; None where they are not."""
        bounds = parameters.bounds_of(self, _model_of(self).bounds)
        return None if bounds == UNBOUNDED else bounds

    def __init__(
        self,
        rank: int | Literal["auto"] = "auto",
        *,
        loss: str | Loss = "welsch",
        theta: float | Literal["auto"] | None = "auto",
        reg: float | Literal["auto", "paper"] = "auto",
        reg_by_count: bool = False,
        bias: bool | Literal["auto"] = "auto",
        nonnegative: bool = False,
        solver: str | MM = "auto",
        init: Init = "auto",
        n_init: int = 1,
        certify: bool | MM = False,
        max_iter: int = 300,
        tol: float = 1e-4,
        validation_fraction: float | None = None,
        patience: int = 5,
        bounds: tuple[float, float] | Literal["auto"] | None = "auto",
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
        self.nonnegative = nonnegative
        self.solver = solver
        self.init = init
        self.n_init = n_init
        self.certify = certify
        self.max_iter = max_iter
        self.tol = tol
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.bounds = bounds
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    # --- Fitting ----------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: None = None,
        weights: ArrayLike | None = None,
        *,
        row: Any = None,
        col: Any = None,
        value: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        resume: str | os.PathLike[str] | None = None,
        client: Any = None,
        **unknown: Never,
    ) -> Self:
        """Factorize X.

        Parameters
        ----------
        X : table, sparse matrix, array or Observed
            A table of pandas, polars, Arrow, …: wide, whose labels are the ids of rows and columns
            (see :meth:`Observed.from_dense`), or long, with ``row``, ``col`` and ``value``; a
            sparse matrix (every stored entry is observed, zeros too); a dense array (NaN is
            missing); or :class:`Observed`.
        y : None, default=None
            Ignored; for compatibility with scikit-learn.
        weights : array, default=None
            Factors of each entry's loss: one number ≥ 0 per line of a long table, otherwise per
            observed entry in row order; or an m × n array. The labels of a table or column of
            pandas must be those of X, in any order. An entry of weight 0 is not observed. (They
            weight entries; scikit-learn's sample_weight weights rows.)
        row, col, value : name of a column, default=None
            The columns of row ids, column ids and values of a long table, one line per entry, as in
            :meth:`Observed.from_triplets`. Only ``row``: the column of row ids of a wide table.
        checkpoint : path, default=None
            A file to write the state of the fit to. If it exists and belongs to the same fit (data,
            parameters, seed, release), the fit is resumed, and ends with the same bits as one that
            was never interrupted. At the end it holds the result: fitted again, the model is
            returned at once. ``n_jobs``, ``verbose`` and ``callbacks`` may change; callbacks
            receive new iterations only.
        checkpoint_every : float, default=60.0
            Seconds between two writes; 0 writes after each iteration. The initial point is written
            as soon as it is found.
        resume : path, default=None
            As ``checkpoint``, but the file must exist.
        client : dask.distributed.Client, default=None
            Fit on this cluster (extra ``dask``). X is then a long table, a Dask DataFrame of
            triplets, a Parquet file or a folder of them, a list of tables, or
            :class:`robustmf.backends.dask.Triplets`, which has more options; weights are a column.
            The checkpoint is a folder.
        **unknown
            None: any other argument is a TypeError, which has the remedy for ``sample_weight``.

        Returns
        -------
        self

        Raises
        ------
        CheckpointError
            The file is damaged, of another version, or of another fit. It is not changed.
        CheckpointWriteError
            The file cannot be written; the last version is intact.
        """
        sklearn_interface.refuse_arguments("fit", unknown)
        seeded = self.random_state is not None
        state = as_checkpoint(checkpoint, checkpoint_every, resume, seeded, self.device)
        names = ColumnNames(row, col, value).checked()
        if client is not None:
            fitted = training.fit_on_cluster(self, X, weights, client, state, names)
            return self._set_model(*fitted)
        require_in_memory(X)
        with training.fit_progress(self) as shown:
            observed = self._observe(X, read_table(X, names), reset=True)
            on_entries = None if weights is None else entry_weights(weights, observed)
            if on_entries is not None and not on_entries.all():
                used, on_entries = training.with_weight(observed.to_host(), on_entries)
                observed = get_backend(self.device).observe(used)
            model = training.fit_entries(self, observed, on_entries, shown, checkpoint=state)
        return self._set_model(model, observed)

    def partial_fit(
        self,
        X: Any,
        y: None = None,
        weights: ArrayLike | None = None,
        *,
        row: Any = None,
        col: Any = None,
        value: Any = None,
    ) -> Self:
        """Continue the fit with more entries.

        Without row ids all rows of X are new. With ids (those of a table or of
        :meth:`Observed.from_triplets`, as in the first call) rows and columns are matched by id,
        new ones are appended, and a new value replaces an old one.

        New rows and columns are folded in, and iterations over all entries continue from there,
        which takes a few sweeps. When the entries have doubled since the last initialization, the
        factors are initialized again, so that all initializations together cost at most twice the
        last. With ``rank="auto"`` the iterations continue at the rank of the fitted model, and the
        rank is found again whenever the factors are initialized again. The entries are kept in the
        model, 8 (float32) or 12 bytes each. ``validation_fraction`` applies to full fits only.

        Parameters
        ----------
        X : table, sparse matrix, array or Observed
            As in :meth:`fit`.
        y : None, default=None
            Ignored; for compatibility with scikit-learn.
        weights : array, default=None
            As in :meth:`fit`.
        row, col, value : name of a column, default=None
            As in :meth:`fit`; they need to be given in the first call only.

        Returns
        -------
        self
        """
        names = ColumnNames(row, col, value).checked()
        if not hasattr(self, "model_"):
            return self.fit(X, weights=weights, row=row, col=col, value=value)
        training.require_entries(self.model_)
        with training.fit_progress(self) as shown:
            new = self._observe(X, self.model_.read(X, names), reset=False).to_host()
            on_entries = None if weights is None else entry_weights(weights, new)
            fitted = training.fit_more_entries(self, self._model(), new, on_entries, shown)
        return self._set_model(*fitted)

    def _set_model(self, model: FittedModel, observed: Any) -> Self:
        """Become fitted to these entries, and warn of what fails."""
        self.n_features_in_ = observed.shape[1]
        self.model_ = model
        training.warn_of_result(self, observed)
        return self

    def _observe(self, X: Any, entries: Any, *, reset: bool) -> Observed:
        """The ``entries`` of X on the backend, its columns checked (``reset``: remembered)."""
        observed = get_backend(self.device).observe(entries)
        form = observed.form
        column = None if form is None or form.is_long else form.names.row
        require_distinct(observed.row_ids, "row", column)
        sklearn_interface.check_columns(self, X, observed, reset=reset)
        return observed

    def fit_transform(
        self, X: Any, y: None = None, weights: ArrayLike | None = None, **options: Any
    ) -> Array:
        """Fit, and return the factors of the rows; with biases, the row bias is the last column.

        The rows are in the order of :meth:`transform`.
        """
        model = self.fit(X, weights=weights, **options).model_
        is_long = model.form is not None and model.form.is_long
        entries: Any = model
        if is_long:  # lines of weight 0 name rows, too
            entries = model.fitted_entries() if weights is None else model.read(X)
        return self._factor_rows(model.row_outputs, X, entries)

    def memory_estimate(
        self,
        X: Any = None,
        *,
        shape: tuple[int, int] | None = None,
        n_entries: int | None = None,
        dtype: Any = "float64",
        source_bytes: int = 0,
    ) -> int:
        """Bytes that ``fit`` takes at its peak for X, or for entries of this number and shape.

        Counted are the entries by rows and by columns, the factors and the working arrays; not the
        interpreter (about 0.2 GB). Biases count where they are requested, not where ``bias="auto"``
        may choose them. With ``rank="auto"`` the estimate is for rank 16, or min(m, n) if that is
        less. The search itself tries ranks up to min(m, n) − 1, and no more than 50: the estimate
        with ``rank=50`` is an upper bound. A checkpoint takes three times the size of its file
        while it is written, in addition. With ``device="cuda"`` the bytes are those of the GPU, the
        larger of two peaks: sorting the entries, and the fit.

        Parameters
        ----------
        X : as in ``fit``, default=None
            The data; or None, with ``shape`` and ``n_entries``.
        shape : (int, int), default=None
            Shape of the matrix.
        n_entries : int, default=None
            Number of observed entries.
        dtype : dtype, default="float64"
            Precision of the values.
        source_bytes : int, default=0
            Bytes per entry of the source that entries are made from and that is released before the
            fit: 12 for int32 numbers and float32 values given to ``Observed.from_indices``;
            ``from_triplets`` takes 8 more than its columns. The estimate is then the larger of the
            peak of the conversion, source included, and that of the fit.

        Returns
        -------
        int
            Bytes.
        """
        if X is not None:
            observed = as_observed(X)
            shape = observed.shape
            n_entries = observed.n_entries
            dtype = observed.dtype
        if shape is None or n_entries is None:
            raise ValueError("memory_estimate needs X, or shape=(m, n) and n_entries=")
        return parameters.fit_bytes(self, shape, int(n_entries), dtype, source_bytes)

    # --- Answers ----------------------------------------------------------------------------

    def _model(self) -> FittedModel:
        """The fitted model, with the estimator's present bounds, device and threads."""
        check_is_fitted(self)
        if not len(self.model_.factors.row_factors):
            raise ValueError(
                "the factors of this model are not in memory: a cluster wrote them as shards; "
                "use robustmf.backends.dask.ShardedModel(folder)"
            )
        return replace(
            self.model_,
            bounds=parameters.bounds_of(self, self.model_.bounds),
            device=self.device,
            n_jobs=self.n_jobs,
        )

    def _rows(self, X: Any, *, by_name: bool = False) -> Observed:
        """New rows as entries, the number and names of their columns checked.

        ``by_name``: columns with ids may be some of those of the fit, in any order.
        """
        check_is_fitted(self)
        entries = self.model_.read(X, new=True)
        observed = new_rows(entries, get_backend(self.device).observe)
        if not by_name or observed.column_ids is None or self.model_.column_ids is None:
            sklearn_interface.check_columns(self, X, observed, reset=False)
        return observed

    def _entries(self, X: Any, rows: str) -> Any:
        """The entries of a table, or of new rows; anything else, None included, as it is."""
        if X is None:
            return None
        return self._rows(X) if rows == "new" else self._model().read(X)

    def _factor_rows(self, T: Array, X: Any, observed: Any) -> Any:
        """Factors of the rows of X; a table if ``set_output`` requests one."""
        output = sklearn_interface.output_library(self)
        return factor_rows(T, self.get_feature_names_out(), X, observed, output)

    @property
    def noise_(self) -> float:
        """The noise of a typical clean entry, as a standard deviation."""
        return noise_level(self._model())

    @property
    def _n_features_out(self) -> int:
        return self.model_.n_outputs

    def predict(self, rows: Any, columns: Any = None) -> Any:
        """Predictions for pairs of a row and a column, or for all entries of a matrix.

        Parameters
        ----------
        rows : one or several ids, or numbers; or array or wide table
            Ids where the fit had ids (a list, array or column of them, or a single one), otherwise
            row numbers. Without ``columns``, a dense matrix of rows as :meth:`transform` takes
            them: each row is predicted from its own entries, bad ones corrected and missing ones
            filled in. A sparse one or a long table is refused, as the result would be dense.
        columns : one or several ids, or numbers, default=None
            Likewise for columns. The two are paired in the order given, and broadcast.

        Returns
        -------
        ndarray, column or table
            One prediction per pair, a column with their index if ``rows`` or ``columns`` is a
            column of a table; or the predicted matrix, a table if a table was given. Bias and
            factors of an unknown id are 0, so that the prediction is ``center_`` and the bias of
            the known side; a model without biases predicts ``median_``; both with a warning.
            Numbers must exist.
        """
        model = self._model()
        if columns is not None:
            return per_pair(model.predict(rows, columns), rows, columns)
        return matrices.predict(model, rows, self._rows)

    def impute(self, X: Any, *, rows: Rows = "fitted") -> Any:
        """X with its missing values filled by predictions; observed values are not changed.

        Parameters
        ----------
        X : table or dense array
            Data with gaps: missing cells of a wide table or an array, or missing values of a long
            table.
        rows : {"fitted", "new"}, default="fitted"
            With "fitted" X has rows of the fit. With "new" its rows are not part of the fit: each
            is predicted from its own entries, as in :meth:`transform`.

        Returns
        -------
        table or ndarray
            As X. Values in columns that the fit does not know, or that had no entry there, stay
            missing, and so do those of rows without entries if the model has no biases.

        Examples
        --------
        >>> import numpy as np
        >>> from robustmf import RobustMF
        >>> X = np.outer([1.0, 2, 3, 4, 5], [1.0, 3, 2, 5, 4])
        >>> X[1, 3] = np.nan
        >>> RobustMF(rank=1, random_state=0).fit(X).impute(X)[1].round(2)
        array([ 2.,  6.,  4., 10.,  8.])
        """
        return matrices.impute(self._model(), X, rows, self._rows)

    def clean(
        self,
        X: Any,
        *,
        at_most: float = 0.001,
        replace: bool = False,
        rows: Rows = "fitted",
        attacks: bool = False,
    ) -> Cleaned:
        """X with its bad entries set missing or replaced by predictions, and which those are.

        ``robustmf clean FILE -o OUT`` is the same for files.

        Parameters
        ----------
        X : as in ``fit``
            Entries of the fitted matrix, or new rows.
        at_most : float, default=0.001
            Entries with a score up to this are bad; about this share of the clean entries is
            changed, too. See :meth:`outlier_scores`.
        replace : bool, default=False
            Replace bad entries by predictions. If False, they are missing in the result, which
            ``impute`` fills.
        rows : {"fitted", "new"}, default="fitted"
            As in :meth:`outlier_scores`.
        attacks : bool, default=False
            As in :meth:`outlier_scores`.

        Returns
        -------
        data, mask : as X
            The cleaned data, and True where they were changed. Both have the form of a table or a
            dense array; a column of row labels is False in the mask, and the mask of a long table
            is a column. Of a sparse matrix or an :class:`Observed` the mask is an array in row
            order.

        Examples
        --------
        >>> import pandas as pd
        >>> from robustmf import RobustMF
        >>> table = pd.DataFrame({f"s{k}": [k * t + 0.01 * (t % 3) for t in range(1, 40)]
        ...                       for k in range(1, 9)})
        >>> table.loc[4, "s2"] = 99.0
        >>> model = RobustMF(rank=1, random_state=0).fit(table)
        >>> cleaned, mask = model.clean(table, replace=True)
        >>> bool(mask.loc[4, "s2"]), bool(abs(cleaned.loc[4, "s2"] - 10) < 0.1)
        (True, True)
        """
        require_score("at_most", at_most)
        return cleaning.clean(
            self._model(),
            X,
            self._entries(X, rows),
            rows=rows,
            at_most=at_most,
            attacks=attacks,
            replace=replace,
        )

    def recommend(
        self, users: Any = None, n: int = 10, *, ratings: Any = None, exclude_seen: bool = True
    ) -> Any:
        """The n columns with the highest predictions for each of the given rows.

        Parameters
        ----------
        users : one or several ids, or row numbers, default=None
            As in :meth:`predict`. For an unknown id the columns with the highest biases are
            returned, with a warning. A model without biases cannot rank columns for it: its
            recommendations are empty (None and NaN), with a warning; where no id is known, this
            raises.
        n : int, default=10
            Number of columns.
        ratings : mapping, or as in ``transform``, default=None
            Instead of ``users``: the ratings of new users, which are folded in without a fit. A
            mapping of column ids to values, or a Series whose index is column ids, is one user;
            otherwise each row is one. The columns of a table are matched by name, in any order, and
            need not be all of those of the fit.
        exclude_seen : bool, default=True
            Leave out the columns in which the row had an entry in the fit, or in ``ratings``.

        Returns
        -------
        items, scores : ndarray of shape (n,) for one user, (users, n) for several
            Column ids (numbers, where the fit had none), best first, and the predictions. Exact;
            ties go to the first column. Where fewer than n columns are left, the rest is None (−1
            for numbers) and NaN. If ``users`` is a column of a table, or ``ratings`` a table of
            several users: instead a table with a line per recommendation, which holds the id of
            the user, position, item and prediction; the users of a long table are in the order in
            which its lines name them first.

        Examples
        --------
        >>> import numpy as np
        >>> from robustmf import RobustMF
        >>> X = np.outer([1.0, 2, 3, 4, 5, 6], [1.0, 3, 2, 5, 4, 6])
        >>> X[0, 3] = X[0, 5] = np.nan
        >>> items, scores = RobustMF(rank=1, random_state=0).fit(X).recommend(0, n=2)
        >>> items
        array([5, 3])

        A new user, who rated columns 0 and 2:

        >>> model = RobustMF(rank=1, random_state=0).fit(X)
        >>> items, scores = model.recommend(ratings={0: 2.0, 2: 4.0}, n=2)
        >>> items, scores.round(1)
        (array([5, 3]), array([12., 10.]))
        """
        read = partial(self._rows, by_name=True)
        return recommendations.recommend(
            self._model(), users, n, ratings, read, exclude_seen=exclude_seen
        )

    def similar_items(self, items: Any, n: int = 10) -> Any:
        """The n columns most similar to each of the given ones.

        The similarity is the cosine between the predictions of two columns over all rows, without
        biases.

        Parameters
        ----------
        items : one or several ids, or column numbers
            As in :meth:`predict`; an unknown one raises.
        n : int, default=10
            Number of columns.

        Returns
        -------
        items, scores : ndarray
            As in :meth:`recommend`; the scores of a table are called "similarity".
        """
        return recommendations.similar_items(self._model(), items, n)

    def transform(self, X: Any) -> Array:
        """Robust fold-in: factors of the rows of X with the columns' factors fixed.

        Bad entries of a row are downweighted. With biases there is one more column, the bias of the
        row. A row without entries gets zeros: its prediction is the biases of the columns (0
        without). The columns of a long table or an :class:`Observed` with ids are matched by id,
        and entries in unknown columns are ignored, with a warning; otherwise the columns are in the
        order of the fit.

        Parameters
        ----------
        X : as in ``fit``
            New rows.

        Returns
        -------
        ndarray of shape (rows, r) or (rows, r + 1)
            The rows are in the order of X; those of a long table in the order in which its lines
            name them first. With ``set_output(transform="pandas")`` their ids are the index, with
            "polars" those of a long table are the first column.
        """
        observed = self._rows(X)
        return self._factor_rows(self._model().fold_in(observed), X, observed)

    def inverse_transform(self, T: ArrayLike) -> Array:
        """The rows predicted by factors T as :meth:`transform` returns them; not clipped."""
        return self._model().reconstruct(T)

    def score(
        self,
        X: Any,
        y: None = None,
        *,
        rows: Literal["new", "fitted"] = "new",
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Negative mean absolute error over the observed entries of X: larger is better.

        Parameters
        ----------
        X : as in ``fit``
            Entries to predict.
        y : None, default=None
            Ignored; for compatibility with scikit-learn.
        rows : {"new", "fitted"}, default="new"
            With "new" the rows of X are new ones, as in :meth:`transform` and in cross-validation
            over rows: each entry is predicted from the other entries of its row, a fifth of these
            left out at a time. A long table whose rows were in the fit is scored with a warning:
            cross-validation of a table with scikit-learn splits its lines; give an
            :class:`Observed`, whose rows it splits. With "fitted" X has the rows of ``fit``, and
            holds entries of that matrix, fitted or held out.
        sample_weight : array of shape (rows,), default=None
            Weights of the rows of X, which multiply the errors of their entries. The index of a
            column of pandas must be the labels of these rows, in any order.

        Returns
        -------
        float
        """
        return errors.score(self._model(), X, self._entries(X, rows), rows, sample_weight)

    def outlier_scores(self, X: Any = None, *, rows: Rows = "fitted", attacks: bool = False) -> Any:
        """For each observed entry, the share of clean entries that deviate as much or more.

        A small score is suspicious: entries with a score up to 0.01 are about 1 % of the clean
        entries, and the outliers. Residuals are corrected for the influence of a fitted entry on
        the fit, and for the uncertainty of the prediction of a new one.

        Parameters
        ----------
        X : as in ``fit``, or None, default=None
            Entries of the fitted matrix: those of the fit (None), or others, which are recognized.
            A long table has the columns that were named in ``fit``.
        rows : {"fitted", "new"}, default="fitted"
            With "new" the rows of X are not part of the fit; they are folded in. Entries in unknown
            rows or columns have score NaN, with a warning.
        attacks : bool, default=False
            Also use the evidence against the entry's whole row and column: the smallest of the
            three scores, corrected for taking the smallest. For attacks that write whole rows or
            columns.

        Returns
        -------
        ndarray, Series or table
            One score per entry. Of a wide table: a table with its labels, NaN where nothing is
            observed. Of a long table: a column with a score per line, in its order and with its
            index, so that ``df["score"] = model.outlier_scores()``; where this order is not known
            (the model was loaded from a file, or entries were added by ``partial_fit``), a table
            of row ids, column ids and scores. Otherwise an array in row order.
        """
        return scores.outlier_scores(
            self._model(), self._entries(X, rows), rows=rows, attacks=attacks
        )

    def row_scores(self, X: Any = None, *, rows: Rows = "fitted") -> Any:
        """For each row, the share of clean rows that would look as bad or worse.

        The evidence is a row's residuals, the mean and variance of its values, the co-occurrence of
        its columns, and how many entries it shares with suspicious columns. New rows are compared
        with those of the fit. A row without entries has score 1. On data without an attack, 0.1 to
        0.2 % of the rows of measurements had a score up to 0.01, and 0.7 % of those of ratings
        (``python -m benchmarks calibration``): scores are conservative.

        Parameters
        ----------
        X : as in ``fit``, or None, default=None
            As in :meth:`outlier_scores`.
        rows : {"fitted", "new"}, default="fitted"
            As in :meth:`outlier_scores`.

        Returns
        -------
        ndarray, Series or table
            One score per row of the fit, or of X where its rows are new. For a table of pandas a
            Series whose index is the row labels, for one of polars or Arrow a table of labels and
            scores.
        """
        return scores.row_scores(self._model(), self._entries(X, rows), rows=rows)

    def column_scores(self, X: Any = None, *, rows: Rows = "fitted") -> Any:
        """For each column, the share of clean columns that would look as bad or worse.

        With ``rows="new"`` a column is judged by the entries of the fit and of the new rows
        together. On data without an attack, 0.1 to 0.3 % of the columns of measurements had a score
        up to 0.01, but 2.6 % of those of ratings: there a low score is an indication, not a
        probability.

        Parameters
        ----------
        X : as in ``fit``, or None, default=None
            As in :meth:`outlier_scores`.
        rows : {"fitted", "new"}, default="fitted"
            As in :meth:`outlier_scores`.

        Returns
        -------
        ndarray, Series or table
            One score per column, with its label as in :meth:`row_scores`.
        """
        return scores.column_scores(self._model(), self._entries(X, rows), rows=rows)

    def audit(
        self, X: Any = None, *, rows: Rows = "fitted", top: int = 10, at_most: float = 0.01
    ) -> Audit:
        """The most suspicious entries, rows and columns, each with the reason in words.

        Parameters
        ----------
        X : as in ``fit``, or None, default=None
            As in :meth:`outlier_scores`.
        rows : {"fitted", "new"}, default="fitted"
            As in :meth:`outlier_scores`.
        top : int, default=10
            The largest number of entries, of rows and of columns to list.
        at_most : float, default=0.01
            List nothing with a score above this.

        Returns
        -------
        Audit

        Examples
        --------
        >>> from robustmf import RobustMF
        >>> from robustmf.datasets import make_synthetic
        >>> data = make_synthetic(250, random_state=0)
        >>> found = RobustMF(rank=5, random_state=0).fit(data.train).audit(top=3)
        >>> round(1 - found.clean_share, 2), len(found.entries)
        (0.05, 3)
        """
        require_score("at_most", at_most)
        with training.audit_progress(self):
            return find_suspects(
                self._model(), self._entries(X, rows), rows=rows, top=top, at_most=at_most
            )

    def entry_weights(self, X: Any) -> Any:
        """The weight of each observed entry of X in the fit: 1 is full weight, near 0 an outlier.

        The derivative of the loss relative to that of least squares for a smooth loss, and to the
        derivative at 0 for a nonsmooth one. X has the rows of ``fit``. Weights are in the form of
        the table X as in :meth:`outlier_scores`, otherwise in row order.
        """
        return errors.entry_weights(self._model(), X)

    # --- Files and pages --------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file of plain data, for :func:`robustmf.load`.

        An existing file is replaced completely or not at all. Ids may be int, float, str, bool,
        bytes, tuple, date, datetime, timedelta, UUID, Decimal or NumPy numbers and dates. Code
        cannot be saved: a user-defined loss or callbacks raise
        :class:`~robustmf.exceptions.NotSavableError`.
        """
        saving.save(self, self._model(), path, (RobustMF, RMFNL))

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        title: str = "Robust matrix factorization",
        tracks: bool = False,
        at_most: float = 0.01,
    ) -> Path:
        """Write a page about the fit: one HTML file that opens offline.

        It shows the table before and after cleaning, the most suspicious entries, rows and columns
        with reasons, what θ and λ mean for these data, the evidence for the rank, residuals and
        weights, convergence, a map of the factors, and what is needed to repeat the fit.

        Parameters
        ----------
        path : path
            The file to write.
        title : str, default="Robust matrix factorization"
            Title of the page.
        tracks : bool, default=False
            Show points in space: the rows are alternately x and y of points in frames, and the rank
            is 4.
        at_most : float, default=0.01
            List nothing with a score above this.

        Returns
        -------
        Path
            The file.
        """
        from robustmf.report.fit_page import write  # noqa: PLC0415 - the layer above
        from robustmf.report.fit_record import fit_record  # noqa: PLC0415 - likewise

        require_score("at_most", at_most)
        file = Path(path)
        write(fit_record(self, tracks=tracks, at_most=at_most), file, title)
        return file

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The parameters; after a fit that found the rank also the rank, as a comment."""
        text = sklearn_interface.wrapped(super().__repr__(N_CHAR_MAX))
        found = parameters.finds_rank(self) and hasattr(self, "model_")
        return f"{text}  # {parameters.rank_text(self)}" if found else text

    def _html_repr(self) -> str:
        """scikit-learn's diagram for notebooks, and a summary of the fit below it."""
        from sklearn.utils import estimator_html_repr  # noqa: PLC0415 - for notebooks only

        from robustmf.report.summary import summary_html  # noqa: PLC0415 - likewise

        diagram = str(estimator_html_repr(self))
        return diagram + (summary_html(self) if hasattr(self, "model_") else "")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class RMFNL(RobustMF):
    """The paper's algorithm with the paper's settings: ``solver="mm"``, θ = 1, λ = 20/(m+n).

    Attributes and methods are those of :class:`RobustMF`. The model has no biases, and there is one
    initialization.

    Parameters
    ----------
    rank : int, default=10
        Number of factors. The paper's settings have no search for it.
    loss : str or Loss, default="lsp"
        A loss that is concave in |residual|.
    theta : "auto", float or None, default=1.0
        Scale θ of the loss.
    reg : "auto", "paper" or float, default="paper"
        Regularization λ; "paper" is 20/(m+n).
    init : "auto", "ridge", "random" or (U, V), default="auto"
        Initial factors, as in :class:`RobustMF`. The paper's are "random", from which nonconvex
        losses fail.
    bounds : (low, high) or None, default=None
        Clip predictions to this interval.
    max_iter : int, default=300
    tol : float, default=1e-4
    validation_fraction : float or None, default=None
    patience : int, default=5
    random_state : int, Generator or None, default=None
    device : {"cpu", "cuda"}, default="cpu"
    n_jobs : int or None, default=None
    verbose : int, default=0
    callbacks : sequence of callables, default=()
        As in :class:`RobustMF`, with the same defaults.
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
            rank,
            loss=loss,
            theta=theta,
            reg=reg,
            bias=False,
            solver="mm",
            init=init,
            max_iter=max_iter,
            tol=tol,
            validation_fraction=validation_fraction,
            patience=patience,
            bounds=bounds,
            random_state=random_state,
            device=device,
            n_jobs=n_jobs,
            verbose=verbose,
            callbacks=callbacks,
        )


def load(path: str | os.PathLike[str]) -> RobustMF:
    """The model that ``model.save(path)`` wrote, equal bit for bit.

    Nothing in the file is executed.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    RobustMF or RMFNL

    Raises
    ------
    ModelFileError
        The file is damaged, truncated, of another version, not a model file, or inconsistent.

    Examples
    --------
    >>> import numpy as np
    >>> import robustmf
    >>> X = np.outer(np.arange(1.0, 13), np.arange(1.0, 9))
    >>> model = robustmf.RobustMF(rank=1, random_state=0).fit(X)
    >>> model.save("model.robustmf")
    >>> bool(robustmf.load("model.robustmf").predict(3, 4) == model.predict(3, 4))
    True
    """
    estimator: RobustMF = saving.load(path, (RobustMF, RMFNL))
    return estimator
