"""Warnings and errors that robustmf defines."""

from __future__ import annotations

import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary, finalize


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


class IssuedWarnings:
    """Categories of warnings that were issued during a search, in any of its processes.

    A search in one process keeps them in memory. If it is sent to others, a temporary folder has a
    file per category; a file can be created once. It is removed with the object that made it.
    """

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.folder: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        if self.folder is None:
            with suppress(OSError):  # without a folder each process issues its own warnings
                self.folder = tempfile.mkdtemp(prefix="robustmf-warnings-")
                finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
                for name in self.seen:
                    Path(self.folder, name).touch()
        return {"seen": set(self.seen), "folder": self.folder}

    def is_first(self, category: type[Warning]) -> bool:
        """Whether no warning of this category was issued; from now on it was."""
        name = category.__name__
        is_new = name not in self.seen
        self.seen.add(name)
        if is_new and self.folder is not None:
            try:
                Path(self.folder, name).touch(exist_ok=False)
            except FileExistsError:
                return False
            except OSError:  # on another machine, or after the search
                return True
        return is_new


#: Of the object of a search, such as GridSearchCV, or the estimator that a function such as
#: cross_val_score is given: its last call, as the id of its frame, and the warnings issued during
#: that call; and of the clones that searches fit, the warnings of their search. These are state of
#: the module, because scikit-learn passes nothing on to the fits of a search; weak keys let
#: finished searches be collected.
_of_call: WeakKeyDictionary[Any, tuple[int, IssuedWarnings]] = WeakKeyDictionary()
_of_clone: WeakKeyDictionary[Any, IssuedWarnings] = WeakKeyDictionary()


class WarnsOncePerSearch:
    """Mixin of estimators: in a search their clones warn once together, also in other processes."""

    def __sklearn_clone__(self) -> Any:
        clone = super().__sklearn_clone__()  # type: ignore[misc]
        search = _outermost_search(sys._getframe(1))
        issued = None if search is None else _issued_during(search)
        if issued is not None:
            _of_clone[clone] = issued
        return clone

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()  # type: ignore[assignment]
        if self in _of_clone and "model_" not in state:
            return state | {_ISSUED: _of_clone[self]}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if _ISSUED in state:
            _of_clone[self] = state[_ISSUED]
            state = {name: value for name, value in state.items() if name != _ISSUED}
        super().__setstate__(state)  # type: ignore[misc]


#: The name by which an estimator that is sent to another process refers to its search.
_ISSUED = "_issued_warnings"


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
    frame = sys._getframe(1)
    search = _outermost_search(frame)
    issued = None if search is None else _issued_during(search)
    if issued is None or issued.is_first(category):
        warnings.warn(message, category, stacklevel=2 + sum(1 for _ in _internal_frames(frame)))


def _internal_frames(frame: FrameType) -> Iterator[FrameType]:
    """The frame and those that called it, up to the caller's own code."""
    while (
        frame.f_back is not None
        and frame.f_globals.get("__name__", "").partition(".")[0] in _INTERNAL_PACKAGES
    ):
        yield frame
        frame = frame.f_back


def _outermost_search(frame: FrameType) -> FrameType | None:
    """The outermost of the frames in which scikit-learn searches, if any."""
    search = None
    for one in _internal_frames(frame):
        if one.f_globals["__name__"].startswith(_SEARCHES):
            search = one
    return search


def _issued_during(search: FrameType) -> IssuedWarnings | None:
    """The warnings issued during the search that runs in this frame.

    In another thread or process the frame is that of an internal function, which fits a clone or
    makes it.
    """
    names = search.f_locals
    if search.f_code.co_name.startswith(("_", "<")):
        base: Any = names.get("estimator", names.get("base_estimator"))
        nested = base.get_params().values() if hasattr(base, "get_params") else ()
        for one in (base, *nested):
            if isinstance(one, WarnsOncePerSearch) and one in _of_clone:
                return _of_clone[one]
        return None
    owner = names.get("self", names.get("estimator"))
    if owner is None or type(owner).__hash__ is None:
        return None
    call, issued = _of_call.get(owner, (0, IssuedWarnings()))
    if call != id(search):
        issued = IssuedWarnings()
        _of_call[owner] = (id(search), issued)
    return issued
