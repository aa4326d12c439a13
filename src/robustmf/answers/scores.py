"""Scores in the form of the table that they are about."""

from __future__ import annotations

from typing import Any

from robustmf.answers.tables import per_column, per_entry, per_row
from robustmf.model import FittedModel
from robustmf.outliers import scores
from robustmf.outliers.scores import Rows


def outlier_scores(model: FittedModel, entries: Any, *, rows: Rows, attacks: bool) -> Any:
    """See :meth:`robustmf.RobustMF.outlier_scores`."""
    found = scores.outlier_scores(model, entries, rows=rows, attacks=attacks)
    return per_entry(model, entries, found, "outlier_score")


def row_scores(model: FittedModel, entries: Any, *, rows: Rows) -> Any:
    """See :meth:`robustmf.RobustMF.row_scores`."""
    return per_row(model, entries, scores.row_scores(model, entries, rows=rows), "row_score", rows)


def column_scores(model: FittedModel, entries: Any, *, rows: Rows) -> Any:
    """See :meth:`robustmf.RobustMF.column_scores`."""
    found = scores.column_scores(model, entries, rows=rows)
    return per_column(model, entries, found, "column_score")
