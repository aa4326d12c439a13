"""What scikit-learn expects of an estimator beside its methods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.utils.validation import validate_data

from robustmf.data.observed import Observed
from robustmf.data.tables import without_column

#: The attribute in which scikit-learn keeps the settings of ``set_output``.
OUTPUT_CONFIG = "_sklearn_output_config"

#: Lines of ``repr`` are wrapped at this number of characters, as in scikit-learn.
_REPR_WIDTH = 78


def check_columns(estimator: Any, X: Any, observed: Observed, *, reset: bool) -> None:
    """Check number and names of the columns of X, whose entries are ``observed``.

    With ``reset`` the estimator remembers them. Columns with ids are matched by these instead,
    unless X and the fitted table are wide and their columns have names, which scikit-learn requires
    to be the same.
    """
    form = None if isinstance(X, Observed) else observed.form
    named = form is not None and not form.is_long and hasattr(estimator, "feature_names_in_")
    if not reset and observed.column_ids is not None and not named:
        return
    if form is not None and not form.is_long:
        columns = without_column(X, form.names.row)
    else:
        has_ids = isinstance(X, Observed) or observed.column_ids is not None
        columns = np.empty((1, observed.shape[1])) if has_ids else X
    validate_data(estimator, columns, skip_check_array=True, reset=reset)


def refuse_arguments(method: str, given: Mapping[str, Any]) -> None:
    """Raise TypeError for unknown arguments, with the remedy for scikit-learn's sample_weight."""
    for name in given:
        remedy = ""
        if name == "sample_weight":
            remedy = (
                "; weights belong to entries: for one weight per row give "
                "weights=np.broadcast_to(sample_weight[:, None], X.shape)"
            )
        raise TypeError(f"{method}() got an unexpected keyword argument {name!r}{remedy}")


def output_library(estimator: Any) -> str:
    """The library of the tables that ``transform`` returns; "default" for arrays."""
    setting = vars(estimator).get(OUTPUT_CONFIG, {})
    library: str = setting.get("transform", get_config()["transform_output"])
    return library


def wrapped(representation: str) -> str:
    """The representation of an estimator, its parameters wrapped to lines.

    scikit-learn wraps the lines of classes that have its own ``__repr__`` only.
    """
    lines = [""]
    indent = " " * (representation.index("(") + 1)
    for part in re.split(r"(?<=,) (?=\w+=)", representation):
        if lines[-1] and len(lines[-1]) + len(part) > _REPR_WIDTH:
            lines.append(indent)
        lines[-1] += f" {part}" if lines[-1].strip() else part
    return "\n".join(lines)
