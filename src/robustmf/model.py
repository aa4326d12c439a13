"""``FittedModel``: what a fit leaves behind, and the questions it answers.

Nothing here changes the model: every method is a function of its fields and arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from robustmf.backends.base import EntryOperations, LocalBackend, SolverMemory
from robustmf.backends.cpu.blas import one_blas_thread
from robustmf.backends.registry import get_backend
from robustmf.data.alignment import align_rows
from robustmf.data.checks import match_columns, new_rows, require_magnitude, row_weights
from robustmf.data.factorization import UNKNOWN, Factorization
from robustmf.data.ids import Side, Vocabulary, is_missing
from robustmf.data.observed import Compressed, Observed, nothing_observed, read_table
from robustmf.data.ranking import Ranked, observed_pairs, similar_columns, top_n
from robustmf.data.sampling import EntrySample, strided
from robustmf.data.statistics import MAD_TO_SIGMA
from robustmf.data.table_form import NO_NAMES, TableForm
from robustmf.data.tables import has_columns
from robustmf.exceptions import (
    FittedRowsWarning,
    ModelFileError,
    RatingScaleWarning,
    UnknownIdsWarning,
    warn_user,
)
from robustmf.initialization.candidates import ModelCandidate
from robustmf.io.model_state import check_state
from robustmf.kernels.team import Team
from robustmf.losses import Loss
from robustmf.solvers.fold_in import Columns
from robustmf.validation import require_indices, require_integer

Array = NDArray[np.floating[Any]]
Ids = Sequence[Hashable] | None

#: Converts new rows to entries, and checks their columns.
ReadRows = Callable[[Any], Observed]

UNBOUNDED = (-np.inf, np.inf)

#: The median and the scale of the values are taken over about this many of them at most.
_VALUES_FOR_STATISTICS = 1_000_000


@dataclass(frozen=True)
class FitSummary:
    """How a fit was made and how it ended."""

    solver: str
    solver_reason: str
    history: dict[str, list[float]]
    n_iter: int
    converged: bool
    stop_reason: str
    best_iteration: int
    criticality: float
    candidates: tuple[ModelCandidate, ...] = ()
    failed_checks: tuple[str, ...] = ()

    def to_state(self) -> dict[str, Any]:
        """Plain values by the names of the estimator's attributes."""
        plain = vars(self) | {
            "candidates": [vars(candidate) for candidate in self.candidates],
            "failed_checks": list(self.failed_checks),
        }
        return {f"{name}_": value for name, value in plain.items()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> FitSummary:
        """The inverse of :meth:`to_state`; raises ModelFileError for an invalid candidate."""
        names = [name for name in cls.__dataclass_fields__ if f"{name}_" in state]
        plain = {name: state[f"{name}_"] for name in names}
        try:
            found = [ModelCandidate.from_plain(one) for one in plain.get("candidates", ())]
        except ValueError as error:
            raise ModelFileError(str(error)) from None
        failed = tuple(plain.get("failed_checks", ()))
        if not all(isinstance(check, str) for check in failed):
            raise ModelFileError("failed_checks_ must be texts")
        return cls(**plain | {"candidates": tuple(found), "failed_checks": failed})


@dataclass(frozen=True)
class FittedModel:
    """Factors with biases, the loss they were fitted with, and the entries they were fitted to.

    Attributes
    ----------
    factors : Factorization
        Factors, biases and center.
    loss : Loss
        The loss at the scale θ of the fit.
    reg : float
        The regularization λ.
    reg_by_count : bool
        Whether λ is multiplied by the number of entries of each row and column.
    bias_unit : float
        Biases are regularized by λ/bias_unit².
    median, scale : float
        Median of the fitted values, and of their absolute values.
    row_ids, column_ids : sequence or None
        Identifiers of rows and columns; None where they are numbered.
    entries : mapping
        The fitted entries by rows (pointers, indices, values, weights); of a fit on a cluster a
        sample of them (rows, columns, values) with row_counts and column_counts.
    n_entries_initialized : int
        Number of entries when factors were last initialized; ``partial_fit`` initializes again
        when they have doubled.
    summary : FitSummary
        How the fit ended.
    bounds : (low, high), default=(-inf, inf)
        Predictions are clipped to this interval.
    device : str, default="cpu"
        Where fold-in and residuals are computed.
    n_jobs : int or None, default=None
        Number of threads; None uses all cores.
    form : TableForm or None, default=None
        The form of the fitted table, in which answers are returned; None if it was not a table.
    scales : (array of shape (m,), array of shape (n,)) or None, default=None
        Scales of rows and columns: the noise of an entry is that of the fit times both. The
        entries were divided by them in the fit. None where all are 1.
    sigma : float, default=0.0
        The noise level of an entry of scale 1, where there are scales; 0 where it is not known.
    nonnegative : bool, default=False
        Whether factors are constrained to be non-negative, also those of new rows.
    """

    factors: Factorization
    loss: Loss
    reg: float
    reg_by_count: bool
    bias_unit: float
    median: float
    scale: float
    row_ids: Ids
    column_ids: Ids
    entries: Mapping[str, Any]
    n_entries_initialized: int
    summary: FitSummary
    bounds: tuple[float, float] = UNBOUNDED
    device: str = "cpu"
    n_jobs: int | None = None
    form: TableForm | None = None
    scales: tuple[Array, Array] | None = None
    sigma: float = 0.0
    nonnegative: bool = False
    _vocabularies: dict[str, Vocabulary] = field(default_factory=dict, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Vocabulary tables are not pickled: they are rebuilt from the ids when needed."""
        return self.__dict__ | {"_vocabularies": {}}

    # --- Rows and columns -------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the fitted matrix."""
        return self.factors.shape

    @property
    def n_outputs(self) -> int:
        """Number of columns of :meth:`fold_in`: the rank, and one for the bias."""
        return self.factors.rank + int(self.factors.has_bias)

    @property
    def constant_regressor(self) -> float:
        """The regressor of the biases, which are in units of it; 0 for a model without biases."""
        return self.bias_unit if self.factors.has_bias else 0.0

    @property
    def row_outputs(self) -> Array:
        """The factors of the rows as :meth:`fold_in` returns those of new ones."""
        factors = self.factors
        if not factors.has_bias:
            return factors.row_factors
        return np.hstack([factors.row_factors, factors.row_bias[:, None]])

    @property
    def backend(self) -> LocalBackend:
        """Where fold-in and residuals are computed."""
        return get_backend(self.device)

    def vocabulary(self, side: Side) -> Vocabulary | None:
        """The indices of row or column ids; None where rows and columns are numbered."""
        ids = self.row_ids if side == "row" else self.column_ids
        if ids is None:
            return None
        if side not in self._vocabularies:
            self._vocabularies[side] = Vocabulary(ids, side)
        return self._vocabularies[side]

    def indices(self, side: Side, given: Any, argument: str) -> NDArray[np.integer[Any]]:
        """Row or column indices of the ids, or numbers, that a caller gave in ``argument``."""
        lookup = self.vocabulary(side)
        if lookup is not None:
            return lookup.indices(given)
        return require_indices(argument, given, self.shape[0 if side == "row" else 1])

    def read(self, X: Any, *, new: bool = False) -> Any:
        """The entries of a table; anything else as it is.

        A table is long if the fitted one was and it has the same three columns, otherwise wide.
        ``new`` rows may all be empty.
        """
        names = NO_NAMES if self.form is None else self.form.names
        entries = read_table(X, names if has_columns(X, names) else NO_NAMES, allow_empty=new)
        if not isinstance(entries, Observed) or entries.column_ids is not None:
            return entries
        labels = self._default_labels("column", entries)
        if labels is None or self.column_ids is None:
            return entries
        labelled = copy(entries)
        labelled.column_ids = labels
        return labelled

    def locate(self, X: Any) -> tuple[Observed, NDArray[Any], NDArray[Any]]:
        """X as entries of the fitted matrix, with the indices of their rows and columns.

        They are matched by id where X and the fit have ids; unknown ids have index ``UNKNOWN``.
        """
        observed = self.backend.observe(self.read(X)).to_host()
        require_magnitude(observed, new=True)
        rows = self._match("row", observed)
        columns = self._match("column", observed)
        return observed, rows[observed.rows.group_of_entry()], columns[observed.rows.indices]

    def _default_labels(self, side: Side, observed: Observed) -> list[int] | None:
        """The labels 0, 1, … of a table with the default index (or columns) of pandas.

        They are labels where those of the fit are numbers, or where the fit has none; then unknown
        ones are refused. None otherwise: rows and columns without labels are matched by position.
        """
        form = observed.form
        lookup = self.vocabulary(side)
        if form is None or form.is_long or not form.has_index:
            return None
        if lookup is not None and not lookup.has_numbers:
            return None
        labels = list(range(observed.shape[0 if side == "row" else 1]))
        n_known = self.shape[0 if side == "row" else 1]
        unknown = (
            max(len(labels) - n_known, 0)
            if lookup is None
            else int((lookup.indices(labels) == UNKNOWN).sum())
        )
        if unknown:
            index, method = ("index", "set_index") if side == "row" else ("columns", "set_axis")
            raise ValueError(
                f"the {side}s of X have the default {index} of pandas, 0 … {len(labels) - 1}, and "
                f"{unknown} of these labels are unknown to the fit: give X the labels of the fit "
                f"with {method}, or, to match by position, X.to_numpy() with all {n_known} "
                f"{side}s of the fit"
            )
        return labels

    def _match(
        self, side: Side, observed: Observed, new_rows: bool = False
    ) -> NDArray[np.integer[Any]]:
        """The indices of the rows or columns of a matrix; ``UNKNOWN`` for unknown ids.

        Without ids they must be those of the fit, unless they have the default labels of pandas.
        The columns of ``new_rows`` may have any number of rows.
        Where the rows of a fitted table are numbered, the integers that label those of another
        table are these numbers.
        """
        n_known = self.shape[0 if side == "row" else 1]
        size = observed.shape[0 if side == "row" else 1]
        ids: Ids = observed.row_ids if side == "row" else observed.column_ids
        if ids is None:
            labels = self._default_labels(side, observed)
            lookup = self.vocabulary(side)
            if labels is not None:
                return np.asarray(labels) if lookup is None else lookup.indices(labels)
            if observed.row_ids is None and observed.column_ids is None and not new_rows:
                self._require_shape(observed)
            if size != n_known:
                raise ValueError(
                    f"X must have the {n_known} {side}s of the fit or {side} ids, "
                    f"got {size} {side}s without ids"
                )
            return np.arange(size)
        lookup = self.vocabulary(side)
        if lookup is not None:
            return lookup.indices(ids)
        numbers = np.asarray(ids)
        if self.form is None or self.form.is_long or numbers.dtype.kind not in "iu":
            raise ValueError(f"X has {side} ids, but the fit had none; give X by {side} numbers")
        return np.where((numbers >= 0) & (numbers < n_known), numbers, UNKNOWN)

    def _require_shape(self, observed: Observed) -> None:
        if observed.shape != self.shape:
            raise ValueError(
                f"X must have the shape of the fitted matrix, {self.shape}, got {observed.shape}"
            )

    @property
    def has_all_entries(self) -> bool:
        """Whether the model has the entries of the fit; those of a cluster stayed there."""
        return "pointers" in self.entries

    def sampled_entries(self, at_most: int) -> EntrySample:
        """Evenly spaced entries of the fit."""
        if self.has_all_entries:
            return self.fitted_entries().sampled(at_most)
        return EntrySample.from_kept(self.entries, at_most)

    def fitted_entries(self) -> Observed:
        """The entries of the fit; raises for a fit on a cluster, where they stayed."""
        stored = self.entries
        if not self.has_all_entries:
            raise ValueError(
                "the entries of this fit stayed on the cluster: give X, use exclude_seen=False, "
                "or the functions of robustmf.backends.dask"
            )
        rows = Compressed(stored["pointers"], stored["indices"], stored["values"])
        return Observed(rows, self.shape, self.row_ids, self.column_ids, self.form)

    # --- Answers in the form of a table -----------------------------------------------------

    def _form_for(self, entries: Any) -> TableForm | None:
        """The form of answers about these entries; None is those of the fit."""
        form: TableForm | None = getattr(self if entries is None else entries, "form", None)
        return form

    def per_entry(self, entries: Any, values: NDArray[Any], name: str) -> Any:
        """An answer per entry (None: of the fit): in the form of their table, or in row order."""
        form = self._form_for(entries)
        if form is None:
            return values
        observed = self.fitted_entries() if entries is None else entries.to_host()
        return form.entries(values, name, observed)

    def per_row(self, entries: Any, values: NDArray[Any], name: str, rows: str) -> Any:
        """An answer per row, which is one of the fit or of the entries ("new")."""
        form = self._form_for(entries)
        if form is None:
            return values
        if rows == "new":
            return form.groups(values, name, "row", entries.row_ids)
        if entries is not None:  # whose rows may be others, or in another order
            form = form.without_order()
        return form.groups(values, name, "row", self.row_ids)

    def per_column(self, entries: Any, values: NDArray[Any], name: str) -> Any:
        """An answer per column of the fit."""
        form = self._form_for(entries)
        return values if form is None else form.groups(values, name, "column", self.column_ids)

    # --- Scales of the noise ----------------------------------------------------------------

    @property
    def row_scales(self) -> Array:
        """The noise of each row relative to the others; ones where all are the same."""
        return np.ones(self.shape[0]) if self.scales is None else self.scales[0]

    @property
    def column_scales(self) -> Array:
        """The noise of each column relative to the others; ones where all are the same."""
        return np.ones(self.shape[1]) if self.scales is None else self.scales[1]

    def scales_for(self, shape: tuple[int, int]) -> tuple[Array, Array] | None:
        """The scales for a larger matrix: those of new rows and columns are 1."""
        if self.scales is None:
            return None
        rows, columns = (
            np.concatenate([of_side, np.ones(size - len(of_side))])
            for of_side, size in zip(self.scales, shape, strict=True)
        )
        return rows, columns

    @property
    def equilibrated(self) -> FittedModel:
        """The model of the matrix divided by the scales, whose own scales are all 1."""
        if self.scales is None:
            return self
        dtype = self.factors.row_factors.dtype
        inverses = ((1 / of_side).astype(dtype) for of_side in self.scales)
        return replace(self, factors=self.factors.scaled(*inverses), scales=None)

    def entry_scales(self, i: NDArray[np.integer[Any]], j: NDArray[np.integer[Any]]) -> Array:
        """The noise of entries relative to a typical one; 1 for an unknown row or column."""
        rows = np.where(i == UNKNOWN, 1.0, self.row_scales[i])
        return np.asarray(rows * np.where(j == UNKNOWN, 1.0, self.column_scales[j]))

    # --- Predictions ------------------------------------------------------------------------

    def clip(self, values: Array) -> Array:
        """Predictions clipped to ``bounds``, in place."""
        if self.bounds == UNBOUNDED:
            return values
        return np.asarray(np.clip(values, *self.bounds, out=values))

    def predict_pairs(self, i: NDArray[np.integer[Any]], j: NDArray[np.integer[Any]]) -> Array:
        """Predictions for pairs of indices; see :meth:`Factorization.predict_pairs`."""
        return self.clip(self.factors.predict_pairs(i, j, fallback=self.median))

    def predict(self, rows: Any, columns: Any) -> Array:
        """Predictions for pairs of ids, or of numbers where the fit had no ids."""
        i = self.indices("row", rows, "rows")
        j = self.indices("column", columns, "columns")
        self._warn_of_unknown(rows, i, "row")
        self._warn_of_unknown(columns, j, "column")
        return self.predict_pairs(i, j)

    def _warn_of_unknown(self, ids: Any, found: NDArray[np.integer[Any]], side: Side) -> None:
        """Warn of ids for which a model without biases has no prediction, and name the first."""
        unknown = np.flatnonzero(found == UNKNOWN)
        lookup = self.vocabulary(side)
        if not len(unknown) or lookup is None or self.factors.has_bias:
            return
        first = lookup.keys(ids)[int(unknown[0])]
        warn_user(
            f"{len(unknown)} of {found.size} {side} ids are unknown to the fit, such as {first!r}; "
            f"they are predicted by the median of the fitted values",
            UnknownIdsWarning,
        )

    def complete(self, X: Any) -> Array:
        """All entries of new rows, predicted from the observed ones; dense."""
        return self.clip(self.reconstruct(self.fold_in(X)))

    def predict_matrix(self, X: Any, read: ReadRows) -> Any:
        """All cells of new rows, predicted from their own entries; a table if X is one."""
        entries = None if _is_sparse(X) else read(X)
        if entries is None or (entries.form is not None and entries.form.is_long):
            raise TypeError(
                "predict of a whole sparse matrix would be a dense one; request pairs with "
                "predict(rows, columns), or some rows at a time with "
                "inverse_transform(transform(X))"
            )
        completed = self.complete(entries)
        form = entries.form
        if form is None:
            return completed
        if entries.column_ids != self.column_ids:  # matched by id
            form = replace(form, columns=None)
        return form.cells(completed, entries.row_ids, self.column_ids)

    def impute(self, X: Any, rows: str, read: ReadRows) -> Any:
        """The cells of a matrix, gaps filled; see :meth:`robustmf.RobustMF.impute`."""
        if rows not in ("fitted", "new"):
            raise ValueError(f"rows must be 'fitted' or 'new', got rows={rows!r}")
        if _is_sparse(X):
            raise TypeError(
                "X must be a wide table or a dense array, since the result is dense, "
                f"got a {type(X).__name__}"
            )
        observed = (read(X) if rows == "new" else new_rows(self.read(X, new=True))).to_host()
        if observed.form is not None and observed.form.is_long:
            raise TypeError(
                "X must be a wide table: a long one has no missing cells; "
                "predict(rows, columns) fills in values of pairs"
            )
        cells = observed.to_dense()
        i, j = np.nonzero(np.isnan(cells))
        columns = self._match("column", observed, rows == "new")
        is_known = (columns != UNKNOWN) & self._has_entries("column")[columns]
        if rows == "new":
            completed = self.complete(observed)
            is_predicted = self.factors.has_bias | (observed.rows.counts > 0)
            known = is_known[j] & is_predicted[i]
            cells[i[known], j[known]] = completed[i[known], columns[j[known]]]
        else:
            of_rows = self._match("row", observed)
            unknown = int((of_rows == UNKNOWN).sum())
            if unknown:
                raise ValueError(
                    f"X must have rows of the fit, got {unknown} of {len(of_rows)} with unknown "
                    "ids; fill new rows with rows='new'"
                )
            is_predicted = self.factors.has_bias | self._has_entries("row")[of_rows]
            known = is_known[j] & is_predicted[i]
            cells[i[known], j[known]] = self.predict_pairs(of_rows[i[known]], columns[j[known]])
        if observed.form is None:
            return cells
        return observed.form.cells(cells, observed.row_ids, observed.column_ids)

    def _has_entries(self, side: Side) -> NDArray[np.bool_]:
        """Which rows or columns had entries in the fit; all, where these stayed on a cluster."""
        size = self.shape[0 if side == "row" else 1]
        stored = self.entries
        if "pointers" not in stored:
            return np.asarray(stored.get(f"{side}_counts", np.ones(size))) > 0
        if side == "row":
            return np.diff(stored["pointers"]) > 0
        return np.bincount(stored["indices"], minlength=size) > 0

    def recommend_for(self, ratings: Any, n: int, read: ReadRows, *, exclude_seen: bool) -> Ranked:
        """The same for the ratings of one new row (a mapping or a Series), or of several rows."""
        if getattr(ratings, "ndim", None) == 1 and hasattr(ratings, "to_dict"):
            ratings = ratings.to_dict()
        if not isinstance(ratings, Mapping):
            observed = read(ratings)
            ranked = self.recommend_new(observed, n, exclude_seen=exclude_seen)
            order, ids = rows_in_order(ratings, observed.to_host())
            return Ranked(*(of_rows[order] for of_rows in ranked)).with_row_ids(ids)
        items, scores = self.recommend_new(self.rated(ratings), n, exclude_seen=exclude_seen)
        return Ranked(items[0], scores[0])

    @one_blas_thread()
    def recommend_new(self, X: Any, n: int, *, exclude_seen: bool) -> Ranked:
        """The n columns with the highest predictions for each of some new rows."""
        require_integer("n", n, 1)
        observed = self.new_rows(X)
        with Team(self.n_jobs) as team:
            T = np.asarray(self.columns.fold_in(self.operations(observed, team)))
        entries = observed.to_host().rows
        self._warn_of_bounds(entries.values)
        rank = self.factors.rank
        every = np.arange(len(T))
        seen = observed_pairs(entries, every) if exclude_seen else None
        offsets = self.factors.column_offsets
        indices, scores = top_n(T[:, :rank], self.factors.column_factors, offsets, int(n), seen)
        if self.factors.has_bias:
            scores += T[:, rank:]
        else:
            unranked = entries.counts == 0
            if unranked.any():
                self._warn_of_unranked(int(unranked.sum()), len(T), "have no known rating")
            indices[unranked] = UNKNOWN
            scores[unranked] = np.nan
        return self._labelled(indices, self.clip(scores), (len(T),))

    def _warn_of_bounds(self, ratings: Array) -> None:
        """Warn of ratings outside of the scale of the fit."""
        low, high = self.bounds
        outside = ratings[(ratings < low) | (ratings > high)]
        if len(outside):
            warn_user(
                f"{len(outside)} of {len(ratings)} ratings, such as {outside[0]:g}, are outside of "
                f"bounds_, {low:g} … {high:g}: give them on the scale of the fit",
                RatingScaleWarning,
            )

    @one_blas_thread()
    def recommend(self, users: Any, n: int, *, exclude_seen: bool) -> Ranked:
        """The n columns with the highest predictions for each of the given rows."""
        require_integer("n", n, 1)
        i = self.indices("row", users, "users")
        flat = i.ravel()
        unknown = flat == UNKNOWN
        unranked = np.zeros_like(unknown) if self.factors.has_bias else unknown
        if unranked.any():
            self._warn_of_unranked(int(unranked.sum()), len(flat), "are unknown")
        zero = self.factors.row_factors.dtype.type(0)
        U = np.where(unknown[:, None], zero, self.factors.row_factors[flat])
        seen = observed_pairs(self.fitted_entries().rows, flat) if exclude_seen else None
        offsets = self.factors.column_offsets
        indices, scores = top_n(U, self.factors.column_factors, offsets, int(n), seen)
        scores += np.where(unknown, zero, self.factors.row_bias[flat])[:, None]
        indices[unranked] = UNKNOWN
        scores[unranked] = np.nan
        return self._labelled(indices, self.clip(scores), i.shape)

    @staticmethod
    def _warn_of_unranked(unranked: int, total: int, reason: str) -> None:
        message = (
            f"{unranked} of {total} users {reason}, and a model without biases cannot rank "
            "columns for them"
        )
        if unranked == total:
            raise ValueError(f"{message}; fit with bias=True, or give users of the fit")
        warn_user(
            f"{message}: their recommendations are empty; fit with bias=True, or leave them out",
            UnknownIdsWarning,
        )

    @one_blas_thread()
    def similar_items(self, items: Any, n: int) -> Ranked:
        """The n columns most similar to each of the given ones."""
        require_integer("n", n, 1)
        j = self.indices("column", items, "items")
        flat = j.ravel()
        unknown = np.flatnonzero(flat == UNKNOWN)
        lookup = self.vocabulary("column")
        if len(unknown) and lookup is not None:
            first = lookup.keys(items)[int(unknown[0])]
            others = "" if len(unknown) == 1 else f" and {len(unknown) - 1} more unknown id(s)"
            raise ValueError(f"items must be known to the fit, got {first!r}{others}")
        V = self.factors.column_factors
        if not V.any():
            raise ValueError(
                "the model has no factors: it consists of a center and biases, so that no "
                "similarity is defined"
            )
        if not V[flat].any(axis=1).all():
            raise ValueError(
                "items must have entries in the fit: the factors of one of them are zero, "
                "so that no similarity is defined"
            )
        indices, scores = similar_columns(self.factors.row_factors, V, flat, int(n))
        return self._labelled(indices, scores, j.shape)

    def _labelled(self, indices: NDArray[np.intp], scores: Array, shape: tuple[int, ...]) -> Ranked:
        """Columns by their ids, where there are any, in the shape of the query."""
        labels: NDArray[Any] = indices
        if self.column_ids is not None:
            ids = np.empty(len(self.column_ids) + 1, object)
            ids[:-1] = self.column_ids  # the last element is None, where UNKNOWN = −1 points
            labels = ids[indices]
        n = indices.shape[1]
        return Ranked(labels.reshape(*shape, n), scores.reshape(*shape, n))

    # --- New rows ---------------------------------------------------------------------------

    @property
    def columns(self) -> Columns:
        """The columns as regressors of new rows."""
        return Columns(
            self.factors.column_factors,
            self.loss,
            self.reg,
            self.reg_by_count,
            self.factors.column_offsets if self.factors.has_bias else None,
            self.scale,
            self.bias_unit,
            None if self.scales is None else self.scales[1],
            self._row_noise,
            self.nonnegative,
        )

    @property
    def _row_noise(self) -> tuple[float, float] | None:
        """The noise of a typical row, and the standard deviation of its logarithm between rows."""
        if self.scales is None or self.sigma <= 0:
            return None
        logs = np.log(self.scales[0])
        middle = float(np.median(logs))
        deviation = MAD_TO_SIGMA * float(np.median(np.abs(logs - middle)))
        return self.sigma * float(np.exp(middle)), deviation

    def new_rows(self, X: Any) -> Observed:
        """Rows to fold in, on the backend, their columns matched by id where X has ids."""
        observed = new_rows(X, self.backend.observe)
        if observed.column_ids is not None and self.column_ids is None:
            raise ValueError(
                "X has column ids, but the fit had none; fit a table or Observed.from_triplets, "
                "or give X as an array by column numbers"
            )
        require_magnitude(observed, new=True)
        lookup = self.vocabulary("column")
        if observed.column_ids is not None and lookup is not None:
            observed = match_columns(observed.to_host(), lookup)
        return self.backend.observe(observed)

    def rated(self, ratings: Mapping[Hashable, float]) -> Observed:
        """One new row with these values, by column ids, or by numbers where the fit had no ids.

        Missing values, as in a row of a wide table, are left out.
        """
        ratings = {key: value for key, value in ratings.items() if not is_missing(value)}
        if not ratings:
            return nothing_observed((1, self.shape[1]), self.factors.row_factors.dtype)
        values = list(ratings.values())
        if self.column_ids is not None:
            return Observed.from_triplets(row=[0] * len(values), col=list(ratings), value=values)
        j = require_indices("ratings", np.asarray(list(ratings)), self.shape[1])
        return Observed.from_indices(np.zeros_like(j), j, values, (1, self.shape[1]))

    def operations(self, observed: Observed, team: Team) -> EntryOperations:
        """The backend's operations on these entries."""
        return self.backend.operations(observed, team, self.n_outputs, SolverMemory())

    def fold_in(self, X: Any) -> Array:
        """Factors of new rows by robust regression on the columns; the bias is the last column."""
        observed = self.new_rows(X)
        with Team(self.n_jobs) as team:
            return np.asarray(self.columns.fold_in(self.operations(observed, team)))

    def fold_in_with_scales(self, X: Any) -> tuple[Array, Array]:
        """Factors of new rows, and the scales of their noise relative to that of the fit."""
        observed = self.new_rows(X)
        with Team(self.n_jobs) as team:
            T, scales = self.columns.fold_in_with_scales(self.operations(observed, team))
        middle = float(np.exp(np.median(np.log(self.row_scales))))
        return np.asarray(T), middle * scales

    def reconstruct(self, T: ArrayLike) -> Array:
        """The rows predicted by factors as :meth:`fold_in` returns them, not clipped."""
        factors = np.asarray(T)
        if factors.ndim != 2 or factors.shape[1] != self.n_outputs:
            raise ValueError(f"T must have shape (rows, {self.n_outputs}), got {factors.shape}")
        if factors.dtype.kind not in "iuf":
            raise TypeError(f"T must hold real numbers, got dtype {factors.dtype}")
        dtype = np.result_type(factors, self.factors.column_factors)
        return self.columns.predict(factors.astype(dtype, copy=False))

    # --- Errors -----------------------------------------------------------------------------

    def residuals(self, X: Any) -> Array:
        """Values minus predictions at the entries of X, entries of the fitted matrix."""
        observed = self.backend.observe(X)
        is_labelled = observed.column_ids is not None or observed.form is not None
        if self.backend.capabilities.host_arrays or is_labelled:
            observed, i, j = self.locate(observed)
            return np.asarray(observed.rows.values - self.predict_pairs(i, j))
        self._require_shape(observed)
        left, right = (A.astype(observed.dtype, copy=False) for A in self.factors.predictors())
        with Team(self.n_jobs) as team:
            operations = self.operations(observed, team)
            residual = operations.residuals(operations.array(left), operations.array(right))
        if self.bounds != UNBOUNDED:
            values = observed.rows.values
            residual = values - np.clip(values - residual, *self.bounds)
        return np.asarray(residual)

    def scaled_residuals(self, X: Any) -> Array:
        """Residuals divided by the scales of the entries; not clipped, as in the fit."""
        residual = replace(self, bounds=UNBOUNDED).residuals(X)
        if self.scales is None:
            return residual
        _, i, j = self.locate(X)
        return np.asarray(residual / self.entry_scales(i, j), residual.dtype)

    def mean_absolute_error(
        self, X: Any, rows: str, sample_weight: ArrayLike | None = None
    ) -> float:
        """Mean absolute error on X, whose rows are "fitted" or "new", weighted by row.

        An entry of a new row is predicted from the other entries of its row.
        """
        if sample_weight is not None:
            sample_weight = align_rows(sample_weight, X)
        if rows == "fitted":
            errors = np.abs(self.residuals(X))
            observed = self.backend.observe(self.read(X)) if sample_weight is not None else X
        elif rows == "new":
            observed = self.new_rows(X)
            if not observed.n_entries:
                raise ValueError("X must have at least one observed entry, got none")
            with Team(self.n_jobs) as team:
                predicted = np.asarray(self.columns.left_out(self.operations(observed, team)))
            errors = np.abs(observed.to_host().rows.values - self.clip(predicted))
        else:
            raise ValueError(f"rows must be 'new' or 'fitted', got rows={rows!r}")
        if sample_weight is None:
            return float(errors.mean(dtype=np.float64))
        weights = row_weights(sample_weight, observed.to_host())
        return float(np.average(errors.astype(np.float64), weights=weights))

    def warn_of_fitted_rows(self, observed: Observed) -> None:
        """Warn if lines of a long table that are scored as new rows belong to rows of the fit."""
        lookup = self.vocabulary("row")
        form = observed.form
        if lookup is None or form is None or not form.is_long or observed.row_ids is None:
            return
        known = {lookup.ids[k] for k in lookup.indices(observed.row_ids) if k != UNKNOWN}
        if known:
            warn_user(
                f"{len(known)} of {len(observed.row_ids)} rows of X were in the fit, and are "
                "scored as new ones: give rows='fitted' for entries of fitted rows; in "
                "cross-validation with scikit-learn, which splits the lines of a long table, give "
                "Observed.from_triplets(X, row=, col=, value=), whose rows it splits",
                FittedRowsWarning,
            )

    def entry_weights(self, X: Any) -> Array:
        """The weight of each entry of X in the fit, relative to that of an exact entry."""
        residual = self.scaled_residuals(X)
        weight = self.loss.derivative if self.loss.concave else self.loss.weight
        return np.asarray(weight(residual) / weight(np.zeros(1, residual.dtype)))

    # --- Files ------------------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """Plain values and arrays by the names of the estimator's attributes."""
        factors = self.factors
        return {
            "row_factors_": factors.row_factors,
            "column_factors_": factors.column_factors,
            "_has_bias": factors.has_bias,
            "center_": factors.center or 0.0,
            "row_bias_": factors.row_bias,
            "column_bias_": factors.column_bias,
            "bias_unit_": self.bias_unit,
            "loss_": self.loss,
            "theta_": self.loss.theta,
            "reg_": self.reg,
            "reg_by_count": self.reg_by_count,
            "median_": self.median,
            "scale_": self.scale,
            "row_ids_": self.row_ids,
            "column_ids_": self.column_ids,
            "entries_": dict(self.entries),
            "n_entries_initialized": self.n_entries_initialized,
            "noise_scales": self.scales,
            "sigma_": self.sigma,
            "nonnegative_factors": self.nonnegative,
            "bounds_": None if self.bounds == UNBOUNDED else self.bounds,
            **self.summary.to_state(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> FittedModel:
        """The inverse of :meth:`to_state`; raises ModelFileError for an inconsistent state."""
        check_state(state)
        center = state["center_"] if state["_has_bias"] else None
        return cls(
            factors=Factorization(
                state["row_factors_"],
                state["column_factors_"],
                center,
                state["row_bias_"],
                state["column_bias_"],
            ),
            loss=state["loss_"],
            reg=state["reg_"],
            reg_by_count=state["reg_by_count"],
            bias_unit=state["bias_unit_"],
            median=state["median_"],
            scale=state["scale_"],
            row_ids=state["row_ids_"],
            column_ids=state["column_ids_"],
            entries=state["entries_"],
            n_entries_initialized=state["n_entries_initialized"],
            scales=state.get("noise_scales"),
            sigma=state.get("sigma_", 0.0),
            nonnegative=state.get("nonnegative_factors", False),
            bounds=state.get("bounds_") or UNBOUNDED,
            summary=FitSummary.from_state(state),
        )


def rows_in_order(X: Any, observed: Observed) -> tuple[Any, Ids]:
    """The order in which answers about the rows of X are returned, and the ids in this order.

    ``observed`` has the entries of X. The rows of a long table are in the order in which its lines
    name them first, all others in their own.
    """
    form = observed.form
    is_long = form is not None and form.is_long and form.lines is not None
    if form is None or not is_long or isinstance(X, Observed) or observed.row_ids is None:
        return slice(None), observed.row_ids
    order = form.rows_by_appearance(observed)
    return order, [observed.row_ids[k] for k in order.tolist()]


def _is_sparse(X: Any) -> bool:
    """Whether all cells of X together may be too many for a dense result."""
    return isinstance(X, Observed) or sp.issparse(X)


def value_statistics(observed: Any) -> tuple[float, float]:
    """Median of the values, and of their absolute values."""
    values = strided(observed.rows.values, _VALUES_FOR_STATISTICS)
    return float(np.median(values)), float(np.median(np.abs(values)))
