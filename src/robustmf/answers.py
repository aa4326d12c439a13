"""What a fitted model answers: values, factors of new rows, the best columns for a row, a score."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from robustmf.backends.base import EntryOperations
from robustmf.backends.registry import get_backend
from robustmf.data.factorization import UNKNOWN
from robustmf.data.ids import Vocabulary
from robustmf.data.observed import Compressed, Observed
from robustmf.exceptions import UnknownIdsWarning, warn_user
from robustmf.kernels.team import Team
from robustmf.losses import Loss
from robustmf.prediction import Predictor
from robustmf.ranking import Ranked, seen_pairs, similar, top_n
from robustmf.solvers.fold_in import Columns
from robustmf.solvers.memory import solver_memory
from robustmf.validation import (
    columns_by_id,
    new_rows,
    positions,
    require_bounds,
    require_integer,
    require_magnitude,
)

Array = NDArray[np.floating[Any]]

#: Made from the ids when first asked for: kept beside the models, not in them, so that a saved model is its data and nothing else.
_lookups: WeakKeyDictionary[Answers, dict[str, tuple[Sequence[Hashable], Vocabulary]]] = (
    WeakKeyDictionary()
)


class Answers(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Methods that need nothing but the attributes of a fit; see :class:`robustmf.RobustMF`."""

    n_jobs: int | None
    device: str
    solver: str
    bounds: tuple[float, float] | None
    reg_by_count: bool
    row_factors_: Array
    column_factors_: Array
    components_: Array
    row_bias_: Array
    column_bias_: Array
    center_: float
    median_: float
    scale_: float
    loss_: Loss
    reg_: float
    row_ids_: Sequence[Hashable] | None
    column_ids_: Sequence[Hashable] | None
    entries_: Mapping[str, Any]
    bias_unit_: float
    _has_bias: bool

    @property
    def has_bias_(self) -> bool:
        """Whether the fitted model has biases: asked for, or chosen by the data."""
        return self._has_bias

    def predict(self, rows: Any, cols: Any = None) -> Array:
        """Predicted values for pairs of a row and a column; or, given a matrix alone, for every place of it.

        Parameters
        ----------
        rows, cols : one or several ids, or numbers
            Ids where the fit had ids (a list, array or column of them, or one), else row and column numbers. The two are taken pair by
            pair, in the order given, and broadcast. An unknown id has bias and factors 0, so the answer is ``center_`` and
            the bias of the side that is known; a model without biases answers with ``median_``. Numbers must exist.
        cols : None
            Then ``rows`` is a dense matrix of rows as :meth:`transform` takes them, and the answer another one: each row as its own
            entries predict it, bad ones cleaned and missing ones filled in. A sparse one is refused, as its answer would be dense.
        """
        self._require_factors()
        if cols is None:
            if isinstance(rows, Observed) or sp.issparse(rows):
                raise TypeError(
                    "predict of a whole sparse matrix would be a dense one; ask for pairs with predict(rows, cols), "
                    "or for some rows at a time with inverse_transform(transform(X))"
                )
            return self._predictor().clip(self.inverse_transform(self._fold_in(rows)))
        return self._predictor().pairs(
            self._numbers("row", rows, "rows"), self._numbers("column", cols, "cols")
        )

    def _require_factors(self) -> None:
        """Refuse a model that is not fitted, or whose factors a cluster has written as shards."""
        check_is_fitted(self)
        if not len(self.row_factors_):
            raise ValueError(
                "the factors of this model are not here: a cluster wrote them as shards; robustmf.backends.dask.ShardedModel(folder) answers"
            )

    def _predictor(self) -> Predictor:
        return Predictor(
            self.row_factors_, self.column_factors_, self.center_, self.row_bias_, self.column_bias_,
            None if self._has_bias else self.median_, require_bounds(self.bounds),
        )  # fmt: skip

    def _numbers(
        self, side: Literal["row", "column"], asked: Any, argument: str
    ) -> NDArray[np.integer[Any]]:
        """Row or column numbers from what a caller names them by, in the argument of this name."""
        lookup = self._lookup(side)
        if lookup is not None:
            return lookup.indices(asked)
        size = len(self.row_factors_ if side == "row" else self.column_factors_)
        return positions(asked, argument, size)

    def _lookup(self, side: Literal["row", "column"]) -> Vocabulary | None:
        ids = self.row_ids_ if side == "row" else self.column_ids_
        if ids is None:
            return None
        known = _lookups.setdefault(self, {})
        if side not in known or known[side][0] is not ids:
            known[side] = (ids, Vocabulary(ids, side))
        return known[side][1]

    def recommend(self, users: Any, n: int = 10, *, exclude_seen: bool = True) -> Ranked:
        """The n columns with the highest predictions for each of the given rows.

        Parameters
        ----------
        users : one or several ids, or row numbers
            As in :meth:`predict`. An unknown id gets the columns with the highest biases. A model without biases has nothing to rank
            columns by for it: its line is empty (None and NaN), with a warning; where no id is known, this raises.
        exclude_seen : bool
            Leave out the columns that the row had an entry for in the fit.

        Returns
        -------
        items, scores : ndarray of shape (n,) for one user, (users, n) for several
            Column ids (numbers, where the fit had none), best first, and the predictions. Exact; of equal ones the first column.
            Where fewer than n columns are left, the rest is None (−1 for numbers) and NaN.

        Examples
        --------
        >>> import numpy as np
        >>> from robustmf import RobustMF
        >>> X = np.outer([1.0, 2, 3, 4, 5, 6], [1.0, 3, 2, 5, 4, 6])
        >>> X[0, 3] = X[0, 5] = np.nan
        >>> items, scores = RobustMF(rank=1, random_state=0).fit(X).recommend(0, n=2)
        >>> items
        array([5, 3])
        """
        self._require_factors()
        require_integer("n", n, 1)
        i = self._numbers("row", users, "users")
        flat, unknown = i.ravel(), i.ravel() == UNKNOWN
        unranked = unknown if not self._has_bias else np.zeros_like(unknown)
        if unranked.any():
            told = f"{int(unknown.sum())} of {len(flat)} users are unknown, and a model without biases has nothing to rank columns by"
            if unranked.all():
                raise ValueError(f"{told}; fit with bias=True, or ask for users of the fit")
            warn_user(
                f"{told} for them: their lines are empty; fit with bias=True, or leave them out",
                UnknownIdsWarning,
            )
        U = np.where(unknown[:, None], self.row_factors_.dtype.type(0), self.row_factors_[flat])
        seen = seen_pairs(self._fitted_entries().rows, flat) if exclude_seen else None
        numbers, scores = top_n(U, self.column_factors_, self._shifts(), int(n), seen)
        scores += np.where(unknown, self.row_bias_.dtype.type(0), self.row_bias_[flat])[:, None]
        numbers[unranked], scores[unranked] = UNKNOWN, np.nan
        return self._named(numbers, self._predictor().clip(scores), i.shape)

    def similar_items(self, items: Any, n: int = 10) -> Ranked:
        """The n columns most like each of the given ones, and the cosine between what the two are predicted over all rows (without biases).

        ``items`` are ids or column numbers as in :meth:`predict`; an unknown one raises. The answer is as in :meth:`recommend`.
        """
        self._require_factors()
        require_integer("n", n, 1)
        j = self._numbers("column", items, "items")
        flat = j.ravel()
        if (flat == UNKNOWN).any():
            raise ValueError(
                f"items must be known to the fit, got {int((flat == UNKNOWN).sum())} unknown id(s)"
            )
        if not self.column_factors_[flat].any(axis=1).all():
            raise ValueError(
                "items must have entries in the fit: the factors of one of them are zero, and it is like no other"
            )
        numbers, scores = similar(self.row_factors_, self.column_factors_, flat, int(n))
        return self._named(numbers, scores, j.shape)

    def _named(self, numbers: NDArray[np.intp], scores: Array, shape: tuple[int, ...]) -> Ranked:
        """Columns by their ids, where there are any; one line for one question."""
        names: NDArray[Any] = numbers
        if self.column_ids_ is not None:
            ids = np.empty(len(self.column_ids_) + 1, object)
            ids[:-1] = self.column_ids_  # the last is None, where UNKNOWN = −1 points
            names = ids[numbers]
        return Ranked(
            names.reshape(*shape, names.shape[1]), scores.reshape(*shape, scores.shape[1])
        )

    def transform(self, X: Any) -> Array:
        """Robust fold-in: factors for the rows of X, the columns' factors held; a row's bad entries are weighted down.

        With biases there is one more column, the bias of the row. A row without entries gets zeros: it is predicted as the biases of
        the columns (0 without). An :class:`Observed` with ids has its columns found by these, and entries in unknown columns are
        left out, with a warning; in anything else the columns stand in the order of the fit.
        """
        self._require_factors()
        return self._fold_in(X)

    def _fold_in(self, X: Any) -> Array:
        observed = self._new_rows(X)
        with Team(self.n_jobs) as team:
            return np.asarray(
                self._columns().fold_in(self._operations(observed, team, self._n_features_out))
            )

    def _new_rows(self, X: Any) -> Observed:
        observed = new_rows(X, self._placed)
        self._check_columns(X, observed, reset=False)
        require_magnitude(observed, new=True)
        lookup = self._lookup("column")
        if observed.column_ids is not None and lookup is not None:
            observed = columns_by_id(observed.to_host(), lookup)
        return self._placed(observed)

    def _placed(self, X: Any) -> Observed:
        """X as entries, where this model computes."""
        return get_backend(self.device).observe(X)

    def _operations(self, observed: Any, team: Team, rank: int) -> EntryOperations:
        """The operations on placed entries; ``rank`` counts a bias as one."""
        return get_backend(self.device).operations(observed, team, rank, solver_memory(self.solver))

    def _columns(self) -> Columns:
        shifts = self._shifts() if self._has_bias else None
        return Columns(
            self.column_factors_,
            self.loss_,
            self.reg_,
            self.reg_by_count,
            shifts,
            self.scale_,
            self.bias_unit_,
        )

    def _shifts(self) -> Array:
        """What a column's prediction has before any row is known."""
        return self.column_bias_ + self.column_bias_.dtype.type(self.center_)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_) + int(self._has_bias)

    def inverse_transform(self, T: ArrayLike) -> Array:
        """The rows that the factors T (as :meth:`transform` gives them) predict, dense; not clipped to ``bounds``."""
        self._require_factors()
        factors = np.asarray(T)
        if factors.ndim != 2 or factors.shape[1] != self._n_features_out:
            raise ValueError(
                f"T must have shape (rows, {self._n_features_out}), got shape {factors.shape}"
            )
        if factors.dtype.kind not in "iuf":
            raise TypeError(f"T must hold real numbers, got dtype {factors.dtype}")
        return self._columns().predict(
            factors.astype(np.result_type(factors, self.components_), copy=False)
        )

    def score(self, X: Any, y: None = None, *, rows: Literal["new", "fitted"] = "new") -> float:
        """Minus the mean absolute error over the observed entries of X: larger is better.

        The rows of X are new ones, whatever their number, as in :meth:`transform` and as cross-validation over rows wants it: each entry
        is predicted from the other entries of its row, with a fifth of these left out at a time. With ``rows="fitted"`` they are the
        rows of ``fit``, with the factors found there, and X holds entries of that matrix: those of the fit, or others that were held out.
        """
        self._require_factors()
        if rows == "fitted":
            return -float(np.abs(self._residuals(X)).mean(dtype=np.float64))
        if rows != "new":
            raise ValueError(f"rows must be 'new' or 'fitted', got rows={rows!r}")
        observed = self._new_rows(X)
        if not observed.n_entries:
            raise ValueError("X must have at least one observed entry to be scored on, got none")
        with Team(self.n_jobs) as team:
            predicted = np.asarray(
                self._columns().left_out(self._operations(observed, team, self._n_features_out))
            )
        return -float(
            np.abs(observed.to_host().rows.values - self._predictor().clip(predicted)).mean(
                dtype=np.float64
            )
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _check_columns(self, X: Any, observed: Observed, *, reset: bool) -> None:
        """Number and names of the columns; columns with ids are found by these instead."""
        if not reset and observed.column_ids is not None:
            if self.column_ids_ is None:
                raise ValueError(
                    "X has ids, but the fit had none; fit with Observed.from_triplets, or give X as an array by column numbers"
                )
            return
        validate_data(
            self,
            np.empty((1, observed.shape[1])) if isinstance(X, Observed) else X,
            skip_check_array=True,
            reset=reset,
        )

    def _fitted_entries(self) -> Observed:
        stored = self.entries_
        if "pointers" not in stored:
            raise ValueError(
                "the entries of this fit stayed on the cluster: give X, use exclude_seen=False, or the functions of robustmf.backends.dask"
            )
        rows = Compressed(stored["pointers"], stored["indices"], stored["values"])
        return Observed(
            rows,
            (len(self.row_factors_), len(self.column_factors_)),
            self.row_ids_,
            self.column_ids_,
        )
