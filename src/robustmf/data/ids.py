"""Identifiers of rows and columns.

A :class:`Vocabulary` maps ids of any hashable type to the indices 0, 1, … and back. Ids that can be
ordered are indexed in ascending order, others in order of appearance. Ids that are equal in Python
(1 and 1.0) are one id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from robustmf.data.factorization import UNKNOWN
from robustmf.kernels.numbering import look_up, number_present

Indices = NDArray[np.int32] | NDArray[np.int64]

#: Compact form of ids: an array if all of them are integers of at most 64 bits, otherwise a list.
Ids = NDArray[np.int64] | list[Any]

#: What ids identify; named in error messages.
Side = Literal["row", "column"]
SIDE_NAMES: tuple[Side, Side] = ("row", "column")


class Vocabulary:
    """The ids of the rows, or of the columns, of a matrix.

    The table for look-ups is built when it is first needed and is not pickled, so that a vocabulary
    costs no more than its list of ids until then.

    Parameters
    ----------
    ids : sequence of hashable
        The id of every index, each id once.
    side : {"row", "column"}
        What the ids identify, for error messages.

    Examples
    --------
    >>> from robustmf.data.ids import Vocabulary
    >>> indices, films = Vocabulary.encode(["Dune", "Alien", "Dune"], "column")
    >>> indices.tolist(), films.ids
    ([1, 0, 1], ['Alien', 'Dune'])
    >>> films.indices(["Dune", "Solaris"]).tolist()
    [1, -1]
    """

    def __init__(self, ids: Sequence[Hashable], side: Side) -> None:
        self.ids = ids
        self.side = side
        self._index_of: dict[Hashable, int] | None = None
        self._types: set[type] = set()

    def __len__(self) -> int:
        return len(self.ids)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_index_of": None, "_types": set()}

    @classmethod
    def encode(cls, column: Any, side: Side) -> tuple[Indices, Vocabulary]:
        """Index the ids of one column of a table.

        Parameters
        ----------
        column : ndarray, Arrow array or sequence
            One id per entry.
        side : {"row", "column"}
            What the ids identify, for error messages.

        Returns
        -------
        indices : ndarray of int32 or int64
            The index of the id of every entry.
        vocabulary : Vocabulary
            The distinct ids.
        """
        indices, ids = _encode(column, side)
        return indices, cls(ids, side)

    def indices(self, ids: Any) -> NDArray[np.intp]:
        """Indices of ids, in the given order and shape; ``UNKNOWN`` (-1) if an id is unknown.

        A string, a number or anything else that is not a list, an array or a column is one id. So
        is a tuple if the ids of the vocabulary are tuples.
        """
        index_of = self._look_up_table()
        keys, shape = self._keys(ids)
        try:
            found = np.fromiter(
                (index_of.get(_unambiguous(key), UNKNOWN) for key in keys),
                np.intp,
                count=len(keys),
            )
        except TypeError as error:
            raise TypeError(f"{self.side} ids must be hashable: {error}") from None
        for k in np.flatnonzero(found == UNKNOWN).tolist():
            key = _as_read(keys[k])
            found[k] = index_of.get(key, UNKNOWN)
            if found[k] == UNKNOWN:
                self._require_valid_unknown(key, k)
        return found.reshape(shape)

    @property
    def has_numbers(self) -> bool:
        """Whether some of the ids are numbers."""
        self._look_up_table()
        return float in self._types

    def _look_up_table(self) -> dict[Hashable, int]:
        if self._index_of is None:
            self._types = {id_type(key) for key in self.ids}
            self._index_of = {key: k for k, key in enumerate(self.ids)}
        return self._index_of

    def keys(self, ids: Any) -> Sequence[Any]:
        """The ids that :meth:`indices` looks up, one after the other."""
        return self._keys(ids)[0]

    def extended(self, ids: Sequence[Hashable]) -> tuple[NDArray[np.int64], Vocabulary]:
        """Append the unknown ids; returns the indices of ``ids`` and the new vocabulary."""
        index_of = {key: k for k, key in enumerate(self.ids)}
        indices = np.fromiter(
            (index_of.setdefault(key, len(index_of)) for key in ids), np.int64, count=len(ids)
        )
        return indices, Vocabulary(list(index_of), self.side)

    def _require_valid_unknown(self, key: Any, position: int) -> None:
        """Refuse a missing id, and an id of a type that no id of the vocabulary has."""
        if is_missing(key):
            raise ValueError(
                f"{self.side} ids must not be missing, got {key!r} at position {position}"
            )
        if id_type(key) not in self._types:
            known = self.ids[0]
            raise TypeError(
                f"{self.side} ids were of type {type(known).__name__} in fit (such as {known!r}), "
                f"got {key!r} of type {type(key).__name__} at position {position}; "
                "convert them to the type used in fit"
            )

    def _keys(self, ids: Any) -> tuple[Sequence[Any], tuple[int, ...]]:
        """The ids as a flat sequence of Python objects, and the shape of the result."""
        tuple_is_id = isinstance(ids, tuple) and tuple in self._types
        if isinstance(ids, (list, tuple)) and not tuple_is_id:
            if any(isinstance(one, np.datetime64) for one in ids):
                ids = [
                    self._keys(one)[0][0] if isinstance(one, np.datetime64) else one for one in ids
                ]
            return ids, (len(ids),)
        if isinstance(ids, (np.ndarray, np.datetime64)) and ids.dtype.kind == "M":
            times = _arrow_times(np.ravel(ids), "s" if datetime in self._types else "D")
            return times.to_pylist(), ids.shape
        if isinstance(ids, (str, bytes, tuple)) or not isinstance(ids, Iterable):
            return [_as_read(ids)], ()
        array = np.asarray(ids)
        if array.ndim == 0 and not isinstance(ids, np.ndarray):
            if type(ids) not in self._types:
                raise TypeError(
                    f"{self.side} ids must be a list, an array or a column of a table, "
                    f"got a {type(ids).__name__}"
                )
            return [ids], ()
        if array.dtype.kind == "M":
            return self._keys(array)
        return _python_durations(array).ravel().tolist(), array.shape


def listed_ids(column: Any, side: Side) -> list[Hashable]:
    """The ids of a column of labels in the given order, as :meth:`Vocabulary.encode` reads them."""
    indices, ids = _encode(column, side)
    return [ids[k] for k in indices.tolist()]


def require_distinct(ids: Sequence[Hashable] | None, side: Side, column: Any = None) -> None:
    """Raise if an id occurs twice; ``column`` is the name of the column of ids, if any."""
    if ids is None or len(set(ids)) == len(ids):
        return
    repeated, times = Counter(ids).most_common(1)[0]
    remedy = (
        "drop them, as X.reset_index(drop=True) of pandas does"
        if column is None
        else f"drop column {column!r} if it does not identify the {side}s, or rename it if it "
        "holds values"
    )
    raise ValueError(
        f"the {side} ids of a wide table must be distinct, got {repeated!r} {times} times; name "
        f"them apart, or {remedy}"
    )


def _arrow_times(times: NDArray[np.datetime64], days: str = "D") -> Any:
    """Times of NumPy as an Arrow array: dates, or times in microseconds, which Python has.

    Arrow has fewer units. That of ``days`` and longer ones is "D" for dates, "s" for times.
    """
    import pyarrow as pa  # noqa: PLC0415 - import deferred until ids have to be encoded

    unit = np.datetime_data(times.dtype)[0]
    unit = {**dict.fromkeys("YMWD", days), "h": "s", "m": "s", "generic": "s"}.get(unit, unit)
    return _in_microseconds(pa.array(times.astype(f"M8[{unit}]")))


def _in_microseconds(times: Any) -> Any:
    """Times of an Arrow array in microseconds, where these are exact."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    if pa.types.is_timestamp(times.type) and times.type.unit == "ns":
        with suppress(pa.ArrowInvalid):
            return times.cast(pa.timestamp("us", times.type.tz))
    return times


def _unambiguous(key: Any) -> Any:
    """A time that clocks show twice, the second one with its offset from UTC instead of its zone.

    Python takes two such times of one zone for equal.
    """
    if isinstance(key, datetime) and key.fold and key.tzinfo is not None:
        return key.astimezone(timezone(key.utcoffset() or timedelta()))
    return key


def _python_durations(ids: Any) -> Any:
    """Durations of NumPy in the unit that it converts to Python's; others as given."""
    return ids.astype("m8[us]") if ids.dtype.kind == "m" else ids


def _as_read(key: Any) -> Any:
    """The id that a column with this key has.

    A period or an interval of pandas is text, a time of NumPy one of Python; others are as given.
    """
    if isinstance(key, np.datetime64):
        return key.astype("M8[us]").item()
    if isinstance(key, np.generic):
        return _python_durations(key).item()
    return str(key) if type(key).__name__ in ("Period", "Interval") else key


def id_type(key: Any) -> type:
    """The class of ids that can equal ``key``: float for all numbers, str, or its own type."""
    if isinstance(key, (bool, int, float, np.number, np.bool_)):
        return float
    return next((kind for kind in (str, datetime) if isinstance(key, kind)), type(key))


def compact_ids(ids: Sequence[Hashable]) -> Ids:
    """Ids in the form that takes the least memory and is the cheapest to send."""
    if isinstance(ids, np.ndarray):
        return ids
    if {type(key) for key in ids} == {int}:
        try:
            return np.array(ids, np.int64)
        except OverflowError:
            pass
    return list(ids)


def as_list(ids: Ids) -> list[Any]:
    """Compact ids as a list of Python objects."""
    return ids.tolist() if isinstance(ids, np.ndarray) else ids


def take_ids(ids: Ids, indices: NDArray[Any]) -> Ids:
    """The ids at the given indices, as ``numpy.take``."""
    return ids[indices] if isinstance(ids, np.ndarray) else [ids[k] for k in indices.tolist()]


def merge_ids(parts: Sequence[Ids], side: Side) -> tuple[NDArray[np.integer[Any]], Ids]:
    """Index the ids of all parts, one part after the other; the indices and the distinct ids."""
    if all(isinstance(part, np.ndarray) for part in parts):
        every = np.concatenate([np.empty(0, np.int64), *parts])
        unique, inverse = np.unique(every, return_inverse=True)
        return inverse, unique
    indices, vocabulary = Vocabulary.encode(list(chain.from_iterable(map(as_list, parts))), side)
    return indices, compact_ids(vocabulary.ids)


def _encode(column: Any, side: Side) -> tuple[Indices, Sequence[Hashable]]:
    """The index of every id, and the distinct ids."""
    if isinstance(column, (list, tuple)):
        return _encode_sequence(column, side)
    if isinstance(column, np.ndarray) and column.dtype.kind == "M" and column.ndim == 1:
        column = _arrow_times(column)
    if not isinstance(column, np.ndarray):
        return _encode_arrow(column, side)
    if column.ndim != 1:
        raise ValueError(f"{side} ids must be one column, got shape {column.shape}")
    kind = column.dtype.kind
    if kind in "fm":
        missing = np.isnan(column) if kind == "f" else np.isnat(column)
        if missing.any():
            raise _missing_id(side, column[missing][0].item(), int(np.argmax(missing)))
    if kind in "iu" and column.size:
        return _encode_integers(column)
    if kind == "m":
        unique, indices = np.unique(column, return_inverse=True)
        return indices, unique.tolist()
    if column.dtype == np.float16:
        column = column.astype(np.float32)  # Arrow cannot sort float16
    if kind in "fUSb":
        import pyarrow as pa  # noqa: PLC0415 - import deferred until ids have to be encoded

        # adding 0.0 turns -0.0 into 0.0, which is the same id
        return _encode_by_hashing(pa.array(column + 0.0 if kind == "f" else column))
    return _encode_objects(column.tolist(), side)


def _encode_sequence(ids: Sequence[Hashable], side: Side) -> tuple[Indices, Sequence[Hashable]]:
    """Ids of one type as an array. NumPy would convert 7 to "7" if they were of several types."""
    types = {type(key) for key in ids}
    try:
        if types in ({int}, {float}):
            return _encode(np.array(ids, np.int64 if types == {int} else np.float64), side)
        if types == {np.datetime64}:
            return _encode(np.array(ids), side)
        if types == {str}:
            import pyarrow as pa  # noqa: PLC0415 - as above

            return _encode_by_hashing(pa.array(ids, pa.large_string()))
    except (OverflowError, UnicodeEncodeError):
        pass  # integers of more than 64 bits, text that is not Unicode
    return _encode_objects(ids, side)


def _encode_integers(ids: NDArray[np.integer[Any]]) -> tuple[Indices, Sequence[Hashable]]:
    """Integers from a range that is not much longer than their number are counted."""
    low = int(ids.min())
    high = int(ids.max())
    if high - low > 2 * len(ids) + 65_536 or high > np.iinfo(np.int64).max:
        import pyarrow as pa  # noqa: PLC0415 - as above

        return _encode_by_hashing(pa.array(ids))
    values = ids if ids.dtype in (np.int32, np.int64) else ids.astype(np.int64)
    index_of = np.zeros(high - low + 1, np.int32)
    out = np.empty(len(ids), np.int32)
    number_present(values, low, index_of)
    look_up(values, low, index_of, out)
    return out, (np.flatnonzero(index_of >= 0) + low).tolist()


def _encode_arrow(ids: Any, side: Side) -> tuple[Indices, Sequence[Hashable]]:
    """An Arrow array or chunked array."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    if ids.null_count:
        position = ids.is_null().index(pa.scalar(True)).as_py()
        raise _missing_id(side, None, position)
    if pa.types.is_dictionary(ids.type):
        ids = ids.cast(ids.type.value_type)
    if pa.types.is_integer(ids.type) or pa.types.is_floating(ids.type):
        return _encode(np.asarray(ids), side)
    if pa.types.is_time64(ids.type):
        try:
            ids = ids.cast(pa.time64("us"))
        except pa.ArrowInvalid:
            raise ValueError(
                f"{side} ids hold times with nanoseconds, which Python does not have; convert "
                "them to text or integers"
            ) from None
    try:
        return _encode_by_hashing(_in_microseconds(ids))
    except pa.ArrowNotImplementedError:
        return _encode_objects(ids.to_pylist(), side)


def _encode_by_hashing(ids: Any) -> tuple[Indices, Sequence[Hashable]]:
    """Use Arrow's hash table, and sort only the distinct ids."""
    import pyarrow as pa  # noqa: PLC0415 - as above
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    encoded = ids.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    order = np.asarray(pc.sort_indices(encoded.dictionary))
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order))
    ordered = encoded.dictionary.take(pa.array(order)).to_pylist()
    if pa.types.is_timestamp(ids.type) and ids.type.tz is not None:
        ordered = list(map(_unambiguous, ordered))
    return rank[np.asarray(encoded.indices)], ordered


def _encode_objects(ids: Sequence[Hashable], side: Side) -> tuple[Indices, Sequence[Hashable]]:
    """Ids of several types, or of types that neither NumPy nor Arrow has."""
    index_of: dict[Hashable, int] = {}
    try:
        indices = np.fromiter(
            (index_of.setdefault(key, len(index_of)) for key in ids), np.int64, count=len(ids)
        )
    except TypeError as error:
        raise TypeError(f"{side} ids must be hashable: {error}") from None
    for key, index in index_of.items():
        if is_missing(key):
            raise _missing_id(side, key, int(np.argmax(indices == index)))
    _require_one_type_per_id(index_of, side)
    try:
        ordered = sorted(index_of)  # type: ignore[type-var]
    except TypeError:
        return indices, list(index_of)
    rank = np.empty(len(index_of), np.int64)
    rank[[index_of[key] for key in ordered]] = np.arange(len(index_of))
    return rank[indices], ordered


def _require_one_type_per_id(index_of: dict[Hashable, int], side: Side) -> None:
    """Refuse 7 and "7" in one column: they are one id that was read with two types."""
    for key in index_of:
        if not isinstance(key, str) and str(key) in index_of:
            raise ValueError(
                f"{side} ids hold both {key!r} and {str(key)!r}, an id of mixed types; "
                "convert the column to one type"
            )


def is_missing(key: Any) -> bool:
    """Whether an id, or a part of it, is None, NaN, NaT or pandas.NA."""
    if isinstance(key, tuple):
        return any(map(is_missing, key))
    try:
        return key is None or bool(key != key)
    except (TypeError, ValueError):  # the truth value of pandas.NA is not defined
        return True


def _missing_id(side: Side, value: Any, position: int) -> ValueError:
    return ValueError(
        f"{side} ids must not be missing, got {value!r} at position {position}; "
        "drop these entries or give them an id"
    )
