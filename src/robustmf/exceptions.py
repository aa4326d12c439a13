"""Warnings and errors of our own."""

from __future__ import annotations

import sys
import warnings
from typing import Any


class RobustMFWarning(UserWarning):
    """Anything the package warns about."""


class EmptyRowsWarning(RobustMFWarning):
    """Rows or columns without a single observed entry: their factors are zero."""


class NotConvergedWarning(RobustMFWarning):
    """A fit stopped at its iteration limit."""


class InterruptedFitWarning(RobustMFWarning):
    """A fit was interrupted and returned what it had."""


class UnknownIdsWarning(RobustMFWarning):
    """Ids that the fit did not know, of which nothing can be said: columns of new rows, or users of a model without biases."""


class NumericalError(ArithmeticError):
    """A promise of the mathematics did not hold in the arithmetic: a defect to report."""


class MalformedFileError(ValueError):
    """A file that does not hold what it should: which file, which line, what is wrong, what to do."""


class DuplicateEntryError(ValueError):
    """Several values for one place, where nobody said which counts."""

    def __init__(
        self,
        row: Any,
        column: Any,
        values: tuple[float, float],
        made_by: str = "Observed.from_indices or Observed.from_triplets",
    ) -> None:
        self.row, self.column, self.values, self.made_by = row, column, values, made_by
        super().__init__(
            f"duplicate entry at row {row!r}, column {column!r} (values {values[0]!r} and {values[1]!r}); "
            f"make the entries with {made_by} and duplicates='last' or 'mean' to say what it means"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.row, self.column, self.values, self.made_by)

    def named(self, row_id: Any, column_id: Any, made_by: str | None = None) -> DuplicateEntryError:
        """The same with ids in place of numbers, and with what else the entries can be made by."""
        return DuplicateEntryError(row_id, column_id, self.values, made_by or self.made_by)


class ModelFileError(ValueError):
    """A model file that is damaged, truncated, of another version, or no model file at all."""


class NotSavableError(TypeError):
    """A model that holds what a file of plain data cannot: code, or values of an unknown kind."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be gone on from: damaged, missing, of another version, of another fit. It is left as it is."""


class CheckpointWriteError(OSError):
    """A checkpoint could not be written: disk full, folder read-only. The last one that could is intact."""


class ClusterLostError(ConnectionError):
    """The cluster that a fit was made on is gone, or what it alone had; a checkpoint is where to go on from."""


#: Frames of these packages stand between a user's line and what we have to say about it.
_OURS = ("robustmf", "sklearn", "joblib")


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line that called the package, however deep inside it the reason was found."""
    level, frame = 2, sys._getframe(1)
    while (
        frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS
    ):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


class DeviceError(RuntimeError):
    """The device asked for is not there."""
