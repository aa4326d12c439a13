"""Errors and weights of entries under a fitted model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from robustmf.answers.tables import per_entry
from robustmf.data.alignment import align_rows
from robustmf.data.checks import row_weights
from robustmf.data.factorization import UNKNOWN
from robustmf.data.observed import Observed
from robustmf.exceptions import FittedRowsWarning, warn_user
from robustmf.kernels.team import Team
from robustmf.model import FittedModel


def mean_absolute_error(
    model: FittedModel, X: Any, rows: str, sample_weight: ArrayLike | None = None
) -> float:
    """Mean absolute error on X, whose rows are "fitted" or "new", weighted by row.

    An entry of a new row is predicted from the other entries of its row.
    """
    if sample_weight is not None:
        sample_weight = align_rows(sample_weight, X)
    if rows == "fitted":
        errors = np.abs(model.residuals(X))
        observed = model.backend.observe(model.read(X)) if sample_weight is not None else X
    elif rows == "new":
        observed = model.new_rows(X)
        if not observed.n_entries:
            raise ValueError("X must have at least one observed entry, got none")
        with Team(model.n_jobs) as team:
            predicted = np.asarray(model.columns.left_out(model.operations(observed, team)))
        errors = np.abs(observed.to_host().rows.values - model.clip(predicted))
    else:
        raise ValueError(f"rows must be 'new' or 'fitted', got rows={rows!r}")
    if sample_weight is None:
        return float(errors.mean(dtype=np.float64))
    weights = row_weights(sample_weight, observed.to_host())
    return float(np.average(errors.astype(np.float64), weights=weights))


def warn_of_fitted_rows(model: FittedModel, X: Any, observed: Any, rows: str) -> None:
    """Warn if lines of a long table X that are scored as new rows belong to rows of the fit."""
    if rows != "new" or X is None or isinstance(X, Observed):
        return
    lookup = model.vocabulary("row")
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


def score(
    model: FittedModel, X: Any, entries: Any, rows: str, sample_weight: ArrayLike | None
) -> float:
    """Negative mean absolute error on the ``entries`` of X; see :meth:`robustmf.RobustMF.score`."""
    warn_of_fitted_rows(model, X, entries, rows)
    return -mean_absolute_error(model, entries, rows, sample_weight)


def entry_weights(model: FittedModel, X: Any) -> Any:
    """Weights of the entries of X in the fit; see :meth:`robustmf.RobustMF.entry_weights`."""
    entries = model.read(X)
    return per_entry(model, entries, model.entry_weights(entries), "weight")
