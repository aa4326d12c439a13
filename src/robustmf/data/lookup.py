"""From the ids that rows and columns are called by to their numbers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The number of an id that is not known.
UNKNOWN = -1


class Lookup:
    """Numbers of the ids of one side, rows or columns, which ``name`` calls in errors."""

    def __init__(self, ids: Sequence[Hashable], name: str) -> None:
        self._number = {key: k for k, key in enumerate(ids)}
        self._name = name
        self._kinds = {kind(key) for key in ids}

    def __len__(self) -> int:
        return len(self._number)

    def __call__(self, asked: Any) -> NDArray[np.intp]:
        """The number of each id asked for, in the order and shape given; −1 where it is not known.

        A string, a number or anything else that is not a list, an array or a column is one id, and so is a tuple where the ids
        are tuples.
        """
        keys, shape = self._keys(asked)
        try:
            found = np.fromiter(
                (self._number.get(key, UNKNOWN) for key in keys), np.intp, count=len(keys)
            )
        except TypeError as error:
            raise TypeError(f"{self._name} ids must be hashable: {error}") from None
        for k in np.flatnonzero(found == UNKNOWN).tolist():
            key = keys[k]
            if _is_missing(key):
                raise ValueError(
                    f"{self._name} ids must not be missing, got {key!r} at position {k}"
                )
            if kind(key) not in self._kinds:
                known = next(iter(self._number))
                raise TypeError(
                    f"{self._name} ids were of type {type(known).__name__} in fit (such as {known!r}), "
                    f"got {key!r} of type {type(key).__name__} at position {k}; give them in the type of the fit"
                )
        return found.reshape(shape)

    def _keys(self, asked: Any) -> tuple[Sequence[Any], tuple[int, ...]]:
        if isinstance(asked, (list, tuple)) and not (
            isinstance(asked, tuple) and tuple in self._kinds
        ):
            return asked, (len(asked),)
        if isinstance(asked, (str, bytes, tuple)) or not isinstance(asked, Iterable):
            return [asked.item() if isinstance(asked, np.generic) else asked], ()
        array = np.asarray(asked)
        if array.ndim == 0 and not isinstance(asked, np.ndarray):
            if type(asked) not in self._kinds:
                raise TypeError(
                    f"{self._name} ids must come as a list, an array or a column of a table, got a {type(asked).__name__}"
                )
            return [asked], ()
        return array.ravel().tolist(), array.shape


def _is_missing(key: Any) -> bool:
    try:
        return key is None or bool(key != key)
    except (TypeError, ValueError):  # pandas' NA: neither equal to itself nor not
        return True


def kind(key: Any) -> type:
    """Ids of one kind can be equal: numbers of any type, strings, and everything else by its own type."""
    if isinstance(key, (bool, int, float, np.number, np.bool_)):
        return float
    return str if isinstance(key, str) else type(key)
