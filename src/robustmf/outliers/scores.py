"""Outlier scores of entries, rows and columns, and the audit that lists the worst of them.

A score is a tail probability: the share of clean entries (rows, columns) that would look as bad or
worse. All functions take a :class:`~robustmf.model.FittedModel` and leave it as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from robustmf import phases
from robustmf.data.checks import new_rows
from robustmf.data.factorization import UNKNOWN
from robustmf.data.sampling import EntrySample, evenly_spaced
from robustmf.data.table_form import ids_or_numbers
from robustmf.exceptions import UnknownIdsWarning, warn_user
from robustmf.model import FittedModel
from robustmf.outliers.audit import Audit, suspect_entries, suspect_groups
from robustmf.outliers.evidence import Groups, combined, group_evidence
from robustmf.outliers.noise import OPTIONS, NoiseModel, Totals
from robustmf.validation import require_integer, require_positive

Array = NDArray[np.floating[Any]]
Rows = Literal["fitted", "new"]

#: The ± of an audit's reasons contains this share of clean entries: one standard deviation.
_ONE_SIGMA = 0.6827


@dataclass(frozen=True)
class ScoredEntries:
    """Entries with predictions and the standard deviations of their residuals.

    Attributes
    ----------
    n_rows : int
        Number of rows of X.
    known : array of bool over the entries of X
        Entries in known rows and columns; the arrays below hold these only.
    i, j : array of int
        Row and column indices.
    values, predicted : array
        Observed and predicted values.
    deviations : array
        Standard deviations of the residuals of clean entries, relative to the noise.
    """

    n_rows: int
    known: NDArray[np.bool_]
    i: NDArray[Any]
    j: NDArray[Any]
    values: NDArray[np.float64]
    predicted: Array
    deviations: NDArray[np.float64]

    @property
    def standardized(self) -> NDArray[np.float64]:
        """Residuals divided by their standard deviations."""
        return np.asarray((self.values - self.predicted) / self.deviations)

    def for_all(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """One score per entry of X, NaN in unknown rows and columns."""
        if self.known.all():
            return scores
        filled = np.full(len(self.known), np.nan)
        filled[self.known] = scores
        return filled


def outlier_scores(
    model: FittedModel, X: Any, *, rows: Rows, attacks: bool, noise: NoiseModel | None = None
) -> NDArray[np.float64]:
    """Scores of the entries of X; see :meth:`robustmf.RobustMF.outlier_scores`.

    ``noise`` is :func:`noise_model` of the fit, where it is known already.
    """
    return scores_and_predictions(model, X, rows=rows, attacks=attacks, noise=noise)[0]


def scores_and_predictions(
    model: FittedModel, X: Any, *, rows: Rows, attacks: bool, noise: NoiseModel | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scores of the entries of X, and the values expected there; NaN for unknown ids."""
    noise = noise or noise_model(model)
    entries = _scored_entries(model, X, rows, noise)
    scores = noise.distribution.two_sided(entries.standardized)
    if attacks:
        by_row, by_column = _group_scores(model, entries, noise, rows)
        i = entries.i + (model.shape[0] if rows == "new" else 0)
        kinds = {"entry": scores, "row": by_row[i], "column": by_column[entries.j]}
        scores = combined(kinds)
    return entries.for_all(scores), entries.for_all(entries.predicted.astype(np.float64))


def row_scores(model: FittedModel, X: Any, *, rows: Rows) -> NDArray[np.float64]:
    """Scores of rows; see :meth:`robustmf.RobustMF.row_scores`."""
    noise = noise_model(model)
    scores = _group_scores(model, _scored_entries(model, X, rows, noise), noise, rows)[0]
    return scores[model.shape[0] :] if rows == "new" else scores


def column_scores(model: FittedModel, X: Any, *, rows: Rows) -> NDArray[np.float64]:
    """Scores of columns; see :meth:`robustmf.RobustMF.column_scores`."""
    noise = noise_model(model)
    return _group_scores(model, _scored_entries(model, X, rows, noise), noise, rows)[1]


def audit(model: FittedModel, X: Any, *, rows: Rows, top: int, at_most: float) -> Audit:
    """The most suspicious entries, rows and columns; see :meth:`robustmf.RobustMF.audit`."""
    require_integer("top", top, 1)
    require_positive("at_most", at_most)
    phases.begin("audit, noise")
    noise = noise_model(model)
    phases.begin("audit, entries")
    entries = _scored_entries(model, X, rows, noise)
    groups = _groups(model, entries, noise, rows)
    first = model.shape[0] if rows == "new" else 0
    row_evidence, column_evidence = group_evidence(groups)
    row_ids = getattr(X, "row_ids", None) if rows == "new" else model.row_ids
    row_labels = ids_or_numbers(row_ids, groups.m - first)
    column_labels = ids_or_numbers(model.column_ids, groups.n)
    return Audit(
        suspect_entries(
            entries,
            (row_labels, column_labels),
            entries.predicted,
            noise.distribution.quantile(_ONE_SIGMA) * entries.deviations,
            noise.distribution.two_sided(entries.standardized),
            top,
            at_most,
        ),
        suspect_groups(groups, row_evidence, row_labels, ("row", "column"), top, at_most, first),
        suspect_groups(
            groups.transposed, column_evidence, column_labels, ("column", "row"), top, at_most
        ),
        noise.distribution.share,
    )


def noise_level(model: FittedModel) -> float:
    """The noise of a typical entry: 68 % of the clean ones deviate by less from the truth."""
    return float(noise_model(model).distribution.quantile(_ONE_SIGMA))


def noise_model(
    model: FittedModel, sample: EntrySample | None = None, totals: Totals | None = None
) -> NoiseModel:
    """The noise of the fit, estimated from a sample of its entries.

    ``totals`` are those of the fit where the model has some of its rows and columns only.
    """
    sample = sample or model.sampled_entries(OPTIONS.sample)
    sample = sample.selected(evenly_spaced(len(sample.values), OPTIONS.sample))
    i = sample.i
    j = sample.j
    factors = model.factors
    residuals = sample.values - model.predict_pairs(i, j)
    rounding = np.spacing(np.abs(sample.values))
    return NoiseModel.fit(
        factors.row_factors,
        factors.column_factors,
        model.constant_regressor,
        model.reg,
        model.reg_by_count,
        (sample.row_counts, sample.column_counts),
        np.maximum(np.abs(residuals), rounding),  # sizes alone matter; none is known more exactly
        i,
        j,
        model.scales,
        totals,
        sample.reliability,
    )


def is_fitted(
    model: FittedModel, i: NDArray[Any], j: NDArray[Any], values: Array
) -> NDArray[np.bool_]:
    """Which entries the model was fitted to: those at a fitted position with the fitted value.

    None, as far as is known, where the entries of the fit stayed on a cluster.
    """
    if not model.has_all_entries:
        return np.zeros(len(i), bool)
    return model.fitted_positions(i, j, values) >= 0


def _influence(
    model: FittedModel, i: NDArray[Any], j: NDArray[Any], values: Array
) -> NDArray[np.float64]:
    """The influence of entries on the fit, from 0 (not fitted) to 1.

    All are assumed to be fitted where the entries of the fit stayed on a cluster.
    """
    if not model.has_all_entries:
        return np.ones(len(i))
    return np.append(model.influence, 0.0)[model.fitted_positions(i, j, values)]


def _scored_entries(model: FittedModel, X: Any, rows: Rows, noise: NoiseModel) -> ScoredEntries:
    if rows not in ("fitted", "new"):
        raise ValueError(f"rows must be 'fitted' or 'new', got rows={rows!r}")
    if rows == "new":
        if X is None:
            raise ValueError("rows='new' needs X, the new rows")
        return _new_entries(model, X, noise)
    observed, i, j = model.locate(model.fitted_entries() if X is None else X)
    known = (i != UNKNOWN) & (j != UNKNOWN)
    if not known.all():
        warn_user(
            f"{int((~known).sum())} of {len(known)} entries are in rows or columns that are "
            "unknown to the fit, and have no score (NaN); give new rows with rows='new'",
            UnknownIdsWarning,
        )
        i = i[known]
        j = j[known]
    values = observed.rows.values[known]
    influence = model.influence if X is None else _influence(model, i, j, values)
    return ScoredEntries(
        observed.shape[0],
        known,
        i,
        j,
        values.astype(np.float64),
        model.predict_pairs(i, j),
        noise.deviations(i, j, influence),
    )


def _new_entries(model: FittedModel, X: Any, noise: NoiseModel) -> ScoredEntries:
    """Entries of rows that are not part of the fit, which are folded in."""
    T, row_scales = model.fold_in_with_scales(X)
    observed = new_rows(X, model.backend.observe).to_host()
    index: NDArray[Any] = observed.rows.indices
    vocabulary = model.vocabulary("column")
    if observed.column_ids is not None and vocabulary is not None:
        index = vocabulary.indices(observed.column_ids)[index]
    known = index != UNKNOWN
    i = observed.rows.group_of_entry()[known]
    j = index[known]
    factors = model.factors
    products = np.einsum("tq,tq->t", T[i, : factors.rank], factors.column_factors[j])
    predicted = products + factors.column_offsets[j] + (T[i, -1] if factors.has_bias else 0)
    return ScoredEntries(
        observed.shape[0],
        known,
        i,
        j,
        observed.rows.values[known].astype(np.float64),
        model.clip(np.asarray(predicted)),
        noise.new_row_deviations(i, j, T, row_scales),
    )


def _groups(model: FittedModel, entries: ScoredEntries, noise: NoiseModel, rows: Rows) -> Groups:
    """The entries by rows and columns; new rows come after those of the fit."""
    m, n = model.shape
    z = noise.distribution.in_scales(entries.standardized)
    if rows == "fitted":
        return Groups(entries.i, entries.j, m, n, entries.values, z)
    fitted = _scored_entries(model, None, "fitted", noise)
    return Groups(
        np.concatenate([fitted.i, m + entries.i]),
        np.concatenate([fitted.j, entries.j]),
        m + entries.n_rows,
        n,
        np.concatenate([fitted.values, entries.values]),
        np.concatenate([noise.distribution.in_scales(fitted.standardized), z]),
    )


def _group_scores(
    model: FittedModel, entries: ScoredEntries, noise: NoiseModel, rows: Rows
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    of_rows, of_columns = group_evidence(_groups(model, entries, noise, rows))
    return of_rows.scores, of_columns.scores
