"""Warnings and errors of our own."""

from __future__ import annotations


class RobustMFWarning(UserWarning):
    """Anything the package warns about."""


class EmptyRowsWarning(RobustMFWarning):
    """Rows or columns without a single observed entry: their factors are zero."""


class NotConvergedWarning(RobustMFWarning):
    """A fit stopped at its iteration limit."""


class InterruptedFitWarning(RobustMFWarning):
    """A fit was interrupted and returned what it had."""


class NumericalError(ArithmeticError):
    """A promise of the mathematics did not hold in the arithmetic: a defect to report."""


class ModelFileError(ValueError):
    """A model file that is damaged, truncated, of another version, or no model file at all."""


class NotSavableError(TypeError):
    """A model that holds what a file of plain data cannot: code, or values of an unknown kind."""
