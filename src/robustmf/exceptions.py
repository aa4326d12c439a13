"""Warnings and errors that robustmf defines."""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary


class RobustMFWarning(UserWarning):
    """Base class of all warnings of this package."""


class EmptyRowsWarning(RobustMFWarning):
    """Some rows or columns have no observed entries; their factors are zero."""


class MissingCodeWarning(RobustMFWarning):
    """A number in a table occurs often, far from all others, as a code for missing values does."""


class NotConvergedWarning(RobustMFWarning):
    """A fit stopped at its iteration limit before it converged."""


class InterruptedFitWarning(RobustMFWarning):
    """A fit was interrupted and returned its current iterate."""


class UnreliableFitWarning(RobustMFWarning):
    """A fit fails its own checks; ``failed_checks_`` has them in words."""


class UnknownIdsWarning(RobustMFWarning):
    """Some ids were not part of the fit, and the model has no prediction for them.

    These are columns of new rows, pairs to predict, or users of a model without biases.
    """


class RatingScaleWarning(RobustMFWarning):
    """Ratings of new rows are outside of the scale of the fit."""


class FittedRowsWarning(RobustMFWarning):
    """Rows that are scored as new ones have the ids of rows of the fit."""


class NumericalError(ArithmeticError):
    """A property that the algorithm guarantees does not hold numerically; please report it."""


class DeviceError(RuntimeError):
    """The requested device is not available."""


class MalformedFileError(ValueError):
    """A file does not have the expected content; the message names file, line, cause and remedy."""


class DuplicateEntryError(ValueError):
    """Several values are given for one row and column.

    Parameters
    ----------
    row, column : object
        Indices or ids of the entry.
    values : tuple of two floats
        Two of its values.
    created_by : str, default="Observed.from_indices or Observed.from_triplets"
        The functions that accept ``duplicates``, for the message.
    """

    def __init__(
        self,
        row: Any,
        column: Any,
        values: tuple[float, float],
        created_by: str = "Observed.from_indices or Observed.from_triplets",
    ) -> None:
        self.row = row
        self.column = column
        self.values = values
        self.created_by = created_by
        super().__init__(
            f"duplicate entry at row {row!r}, column {column!r} "
            f"(values {values[0]!r} and {values[1]!r}); "
            f"create the entries with {created_by} and duplicates='last' or 'mean'"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.row, self.column, self.values, self.created_by)

    def with_ids(
        self, row_id: Any, column_id: Any, created_by: str | None = None
    ) -> DuplicateEntryError:
        """The same error with ids instead of indices, and optionally another ``created_by``."""
        return DuplicateEntryError(row_id, column_id, self.values, created_by or self.created_by)


class ModelFileError(ValueError):
    """A file is not a model file, or it is damaged, truncated or of an unsupported version."""


class NotSavableError(TypeError):
    """A model contains objects that a data file cannot hold: code, or values of other types."""


class CheckpointError(ValueError):
    """A checkpoint cannot be resumed: it is damaged, missing, of another version or another fit.

    The file is not modified.
    """


class CheckpointWriteError(OSError):
    """A checkpoint could not be written, e.g. the disk is full; the previous one is intact."""


class ClusterLostError(ConnectionError):
    """The connection to a cluster, or data that only it had, is lost; resume from a checkpoint."""


#: Stack frames of these packages lie between the caller's line and the line that warns; those of
#: contextlib are decorators.
_INTERNAL_PACKAGES = ("robustmf", "sklearn", "joblib", "contextlib")

#: The functions of this package fit many models in one call of the user.
_SEARCHES = "sklearn.model_selection"

#: By the object of a search: its call, as the id of its frame, and the categories of warnings that
#: were issued during that call. It is state of the module, because scikit-learn clones the
#: estimator for each fit and passes nothing on; weak keys let finished searches be collected.
_issued: WeakKeyDictionary[Any, tuple[int, set[type[Warning]]]] = WeakKeyDictionary()


def warn_user(message: str, category: type[Warning]) -> None:
    """Issue a warning that points at the line of the caller's code which called this package.

    During a search of scikit-learn, which fits many models, the first warning of each category is
    issued only.

    Parameters
    ----------
    message : str
        The text.
    category : type
        The class of the warning.
    """
    level = 2
    frame = sys._getframe(1)
    search = None
    while (
        frame.f_back is not None
        and frame.f_globals.get("__name__", "").partition(".")[0] in _INTERNAL_PACKAGES
    ):
        if frame.f_globals["__name__"].startswith(_SEARCHES):
            search = frame
        level += 1
        frame = frame.f_back
    if search is None or _is_first(search, category):
        warnings.warn(message, category, stacklevel=level)


def _is_first(search: FrameType, category: type[Warning]) -> bool:
    """Whether no warning of this category was issued during the search that runs in this frame.

    A search is identified by its object, as GridSearchCV, or by the estimator that a function such
    as cross_val_score is given.
    """
    names = search.f_locals
    owner = names.get("self", names.get("estimator"))
    if owner is None or type(owner).__hash__ is None:
        return True
    call, seen = _issued.get(owner, (0, set()))
    if call != id(search):
        seen = set()
        _issued[owner] = (id(search), seen)
    is_first = category not in seen
    seen.add(category)
    return is_first
