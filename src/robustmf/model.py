"""``FittedModel``: what a fit leaves behind, and the questions it answers.

Nothing here changes the model: every method is a function of its fields and arguments.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robustmf.backends.base import EntryOperations, LocalBackend, SolverMemory
from robustmf.backends.registry import get_backend
from robustmf.data.checks import match_columns, new_rows, require_magnitude
from robustmf.data.factorization import UNKNOWN, Factorization
from robustmf.data.ids import Side, Vocabulary
from robustmf.data.labels import Labels
from robustmf.data.observed import Compressed, Observed
from robustmf.data.sampling import EntrySample, strided
from robustmf.data.statistics import MAD_TO_SIGMA
from robustmf.data.table_form import NO_NAMES, ColumnNames, TableForm
from robustmf.exceptions import (
    ModelFileError,
    UnknownIdsWarning,
    warn_user,
)
from robustmf.initialization.candidates import ModelCandidate
from robustmf.io.model_state import check_state
from robustmf.kernels.team import Team
from robustmf.losses import Loss
from robustmf.solvers.fold_in import Columns
from robustmf.validation import UNBOUNDED

Array = NDArray[np.floating[Any]]
Ids = Sequence[Hashable] | None

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
    reliability : array of float32 over the entries, or None, default=None
        The probability that an entry is no outlier, which was a factor of its loss; None where
        all factors are 1.
    row_ridge : array of shape (2, k), or None, default=None
        The ridge of each of the k factors of a new row, its bias included, and what it grows by
        with each entry of the row; None for λ.
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
    reliability: NDArray[np.float32] | None = None
    row_ridge: Array | None = None
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
    def center(self) -> float:
        """The center of a model with biases; 0 without biases."""
        return self.factors.center or 0.0

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

    @property
    def labels(self) -> Labels:
        """The ids of rows and columns, by which those of other matrices are matched."""
        return Labels(self.shape, self.row_ids, self.column_ids, self.form, self._vocabularies)

    def vocabulary(self, side: Side) -> Vocabulary | None:
        """See :meth:`Labels.vocabulary`."""
        return self.labels.vocabulary(side)

    def indices(self, side: Side, given: Any, argument: str) -> NDArray[np.integer[Any]]:
        """See :meth:`Labels.indices`."""
        return self.labels.indices(side, given, argument)

    def read(self, X: Any, names: ColumnNames = NO_NAMES, *, new: bool = False) -> Any:
        """See :meth:`Labels.read`."""
        return self.labels.read(X, names, new=new)

    def locate(self, X: Any) -> tuple[Observed, NDArray[Any], NDArray[Any]]:
        """X as entries of the fitted matrix, with the indices of their rows and columns.

        They are matched by id where X and the fit have ids; unknown ids have index ``UNKNOWN``.
        """
        observed = self.backend.observe(self.read(X)).to_host()
        require_magnitude(observed, new=True)
        rows = self.labels.match("row", observed)
        columns = self.labels.match("column", observed)
        return observed, rows[observed.rows.group_of_entry()], columns[observed.rows.indices]

    @property
    def has_all_entries(self) -> bool:
        """Whether the model has the entries of the fit; those of a cluster stayed there."""
        return "pointers" in self.entries

    def sampled_entries(self, at_most: int) -> EntrySample:
        """Evenly spaced entries of the fit."""
        if self.has_all_entries:
            return self.fitted_entries().sampled(at_most, reliability=self.reliability)
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

    @property
    def influence(self) -> Array:
        """The influence of each entry of the fit, from 0 (that of a held-out entry) to 1."""
        if self.reliability is None:
            return np.ones(len(self.entries["values"]))
        return self.reliability

    def fitted_positions(
        self, i: NDArray[Any], j: NDArray[Any], values: Array
    ) -> NDArray[np.int64]:
        """The positions among the entries of the fit; −1 for others, and for changed values."""
        fitted = self.fitted_entries()
        n = fitted.shape[1]
        keys = fitted.rows.group_of_entry().astype(np.int64) * n + fitted.rows.indices
        given = i.astype(np.int64) * n + j
        at = np.minimum(np.searchsorted(keys, given), len(keys) - 1)
        is_fitted = (keys[at] == given) & (fitted.rows.values[at] == values)
        return np.where(is_fitted, at, -1)

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
        consequence = "they are predicted without bias and factors of their own"
        if not self.factors.has_bias:
            consequence = "they are predicted by the median of the fitted values"
        self.warn_of_unknown(rows, i, "row", consequence)
        self.warn_of_unknown(columns, j, "column", consequence)
        return self.predict_pairs(i, j)

    def warn_of_unknown(
        self, ids: Any, found: NDArray[np.integer[Any]], side: Side, consequence: str
    ) -> None:
        """Warn of ids that the fit does not know, and name the first."""
        unknown = np.flatnonzero(found == UNKNOWN)
        lookup = self.vocabulary(side)
        if not len(unknown) or lookup is None:
            return
        first = lookup.keys(ids)[int(unknown[0])]
        warn_user(
            f"{len(unknown)} of {found.size} {side} ids are unknown to the fit, such as {first!r}; "
            f"{consequence}",
            UnknownIdsWarning,
        )

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
            self.row_ridge,
        )

    @property
    def _row_noise(self) -> tuple[float, float] | None:
        """The noise of a typical row, and the standard deviation of its logarithm between rows."""
        if self.scales is None or self.sigma <= 0 or np.any(self.factors.column_bias):
            return None  # centers of columns are not known in units of a new row
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
        self.labels.require_shape(observed)
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

    def entry_weights(self, X: Any) -> Array:
        """The weight of each entry of X in the fit, relative to that of an exact entry.

        Entries of the fit are also weighted by their reliability; others are not known to be
        unreliable.
        """
        residual = self.scaled_residuals(X)
        weight = self.loss.derivative if self.loss.concave else self.loss.weight
        weights = np.asarray(weight(residual) / weight(np.zeros(1, residual.dtype)))
        if self.reliability is None:
            return weights
        observed, i, j = self.locate(X)
        positions = self.fitted_positions(i, j, observed.rows.values)
        factors = np.append(self.reliability, 1.0).astype(weights.dtype)
        return np.asarray(weights * factors[positions])

    # --- Files ------------------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """Plain values and arrays by the names of the estimator's attributes."""
        factors = self.factors
        return {
            "row_factors_": factors.row_factors,
            "column_factors_": factors.column_factors,
            "_has_bias": factors.has_bias,
            "center_": self.center,
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
            "reliability_": self.reliability,
            "row_ridge": self.row_ridge,
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
            reliability=state.get("reliability_"),
            row_ridge=state.get("row_ridge"),
            bounds=state.get("bounds_") or UNBOUNDED,
            summary=FitSummary.from_state(state),
        )


#: Smaller scales have no representable square.
_LEAST_SCALE = 1e-152


def value_statistics(observed: Any) -> tuple[float, float]:
    """Median of the values, and of their absolute values."""
    values = strided(observed.rows.values, _VALUES_FOR_STATISTICS)
    scale = float(np.median(np.abs(values)))
    return float(np.median(values)), max(scale, _LEAST_SCALE) if scale else 0.0
