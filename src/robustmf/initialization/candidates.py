"""Models that were compared by how well they predict each entry from the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.observed import Observed

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ModelCandidate:
    """A model that was considered.

    Attributes
    ----------
    model : str
        "center", "biases", "centers", "factors", or one of the first three "and factors". Centers
        are those of the rows, or those of the columns, where these have different units.
    rank : int
        The number of factors.
    error, standard_error : float
        The mean absolute error of entries that are predicted from the others, where errors above
        three noise levels count as that, and the standard error of this mean if errors were
        independent. Differences of models decide, and their standard errors are clustered.
    chosen : bool
        The simplest whose error is the least up to one standard error. Of two models with
        factors the one with more evidence is considered, whatever its error.
    """

    model: str
    rank: int
    error: float
    standard_error: float
    chosen: bool

    @classmethod
    def from_plain(cls, plain: Any) -> ModelCandidate:
        """The candidate with these fields; ValueError unless they are valid."""
        try:
            found = cls(**plain)
        except TypeError:
            found = None
        if (
            found is None
            or not isinstance(found.model, str)
            or not isinstance(found.chosen, bool)
            or not (type(found.rank) is int and found.rank >= 0)
            or not all(
                isinstance(value, float) and 0 <= value < math.inf
                for value in (found.error, found.standard_error)
            )
        ):
            raise ValueError("a candidate of the model choice is invalid")
        return found

    @classmethod
    def from_errors(cls, model: str, rank: int, errors: Array, chosen: bool) -> ModelCandidate:
        """The candidate with these absolute errors."""
        standard_error = float(errors.std() / np.sqrt(len(errors)))
        return cls(model, rank, float(errors.mean()), standard_error, chosen)


def simplest(errors: Sequence[Array], observed: Observed) -> int:
    """The index of the first model whose error is the least, up to one standard error.

    Models are in order of complexity. The standard error is that of the mean difference of the
    errors of the same entries, in which outliers nearly cancel.
    """
    best = min(errors, key=lambda own: float(own.mean()))
    for k, own in enumerate(errors):
        difference = own - best
        if difference.mean() <= standard_error(difference, observed):
            return k
    raise AssertionError("one of the models has the least error")


def standard_error(difference: Array, observed: Observed) -> float:
    """The standard error of the mean of a quantity of the entries.

    Those of one row depend on each other, because they depend on its factors, and so do those of
    one column: the variance is clustered by both (Cameron, Gelbach and Miller 2011), and at least
    that of independent entries.
    """
    centered = difference - difference.mean()
    rows = np.bincount(observed.rows.group_of_entry(), centered, minlength=observed.shape[0])
    columns = np.bincount(observed.rows.indices, centered, minlength=observed.shape[1])
    independent = float(centered @ centered)
    clustered = float(rows @ rows) + float(columns @ columns) - independent
    return math.sqrt(max(clustered, independent)) / len(difference)
