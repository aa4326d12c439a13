"""Data with their bad entries replaced or removed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from robustmf.data.observed import Observed
from robustmf.model import FittedModel
from robustmf.outliers.scores import Rows, scores_and_predictions
from robustmf.validation import require_flag, require_positive


class Cleaned(NamedTuple):
    """Cleaned data, and which of their entries were changed.

    Attributes
    ----------
    data : as given
        The data with bad entries replaced or removed.
    mask : as given
        True where an entry was changed.
    """

    data: Any
    mask: Any


def bad_entries(
    model: FittedModel, entries: Any, *, rows: Rows, at_most: float, attacks: bool
) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Which entries have a score of at most ``at_most``, and the predictions of all of them.

    Entries with unknown ids have no score, and are not bad.
    """
    require_positive("at_most", at_most)
    found, predicted = scores_and_predictions(model, entries, rows=rows, attacks=attacks)
    return found <= at_most, predicted


def clean(
    model: FittedModel,
    X: Any,
    entries: Any,
    *,
    rows: Rows,
    at_most: float,
    attacks: bool,
    replace: bool,
) -> Cleaned:
    """Clean X with these entries; see :meth:`robustmf.RobustMF.clean`."""
    require_flag("replace", replace)
    observed = model.backend.observe(entries).to_host()
    is_bad, predicted = bad_entries(model, observed, rows=rows, at_most=at_most, attacks=attacks)
    values = observed.rows.values.copy()
    values[is_bad] = predicted[is_bad] if replace else np.nan
    if isinstance(X, Observed) or sp.issparse(X):
        kept = observed.with_values(values) if replace else observed.select(~is_bad)
        return Cleaned(kept.to_sparse() if sp.issparse(X) else kept, is_bad)
    form = observed.form
    if form is None:
        return Cleaned(observed.to_dense(values), observed.to_dense(is_bad))
    mask = form.mask(is_bad, observed)
    if form.is_long:
        return Cleaned(form.with_values(X, form.per_line(values)), mask)
    return Cleaned(form.entries(values, "value", observed), mask)
