"""Warnings and errors of our own."""

from __future__ import annotations

import sys
import warnings


class RobustMFWarning(UserWarning):
    """Anything the package warns about."""


class EmptyRowsWarning(RobustMFWarning):
    """Rows or columns without a single observed entry: their factors are zero."""


class NotConvergedWarning(RobustMFWarning):
    """A fit stopped at its iteration limit."""


class InterruptedFitWarning(RobustMFWarning):
    """A fit was interrupted and returned what it had."""


class UnknownIdsWarning(RobustMFWarning):
    """New rows have entries in columns that the fit did not know: these say nothing, and are left out."""


class NumericalError(ArithmeticError):
    """A promise of the mathematics did not hold in the arithmetic: a defect to report."""


#: Frames of these packages stand between a user's line and what we have to say about it.
_OURS = ("robustmf", "sklearn", "joblib")


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line that called the package, however deep inside it the reason was found."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
