"""Ids of rows and columns: numbers 0, 1, … for ids of any hashable kind.

Ids that can be compared are numbered in their order, others in order of appearance. Ids that Python holds equal (1 and 1.0) are one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.kernels.numbering import look_up, number_present

Numbers = NDArray[np.int32] | NDArray[np.int64]


def number_ids(ids: Any, role: str) -> tuple[Numbers, Sequence[Hashable]]:
    """The number of every id, and the ids by their numbers.

    ``ids`` is a NumPy array, an Arrow array or any sequence; ``role`` ("row", "col") names it in errors.
    """
    if isinstance(ids, (list, tuple)):
        return _python_column(ids, role)
    if not isinstance(ids, np.ndarray):
        return _arrow_column(ids, role)
    if ids.ndim != 1:
        raise ValueError(f"{role} ids must be one column, got shape {ids.shape}")
    kind = ids.dtype.kind
    if kind in "fMm":
        missing = np.isnan(ids) if kind == "f" else np.isnat(ids)
        if missing.any():
            raise _missing_id(role, ids[missing][0].item(), int(np.argmax(missing)))
    if kind in "iu" and ids.size:
        return _integers(ids)
    if kind in "Mm":
        unique, numbers = np.unique(ids, return_inverse=True)
        return numbers, unique.tolist()
    if kind in "fUSb":
        import pyarrow as pa  # noqa: PLC0415 - only those who number ids pay for it

        # + 0.0 makes one id of 0.0 and -0.0
        return _by_hashing(pa.array(ids + 0.0 if kind == "f" else ids))
    return _by_dictionary(ids.tolist(), role)


def _python_column(ids: Sequence[Hashable], role: str) -> tuple[Numbers, Sequence[Hashable]]:
    """A list; only of one type it becomes an array: NumPy would turn 7 into "7" beside a string."""
    types = {type(key) for key in ids}
    try:
        if types in ({int}, {float}):
            return number_ids(np.array(ids, np.int64 if types == {int} else np.float64), role)
        if types == {str}:
            import pyarrow as pa  # noqa: PLC0415 - only those who number ids pay for it

            return _by_hashing(pa.array(ids, pa.large_string()))
    except (OverflowError, UnicodeEncodeError):
        pass  # integers beyond 64 bits, text that is not Unicode
    return _by_dictionary(ids, role)


def _integers(ids: NDArray[np.integer[Any]]) -> tuple[Numbers, Sequence[Hashable]]:
    low, high = int(ids.min()), int(ids.max())
    if high - low > 2 * len(ids) + 65_536 or high > np.iinfo(np.int64).max:
        import pyarrow as pa  # noqa: PLC0415 - only those who number ids pay for it

        return _by_hashing(pa.array(ids))
    values = ids if ids.dtype in (np.int32, np.int64) else ids.astype(np.int64)
    number, out = np.zeros(high - low + 1, np.int32), np.empty(len(ids), np.int32)
    number_present(values, low, number)
    look_up(values, low, number, out)
    return out, (np.flatnonzero(number >= 0) + low).tolist()


def _arrow_column(ids: Any, role: str) -> tuple[Numbers, Sequence[Hashable]]:
    """An Arrow array, whole or in chunks."""
    import pyarrow as pa  # noqa: PLC0415 - whoever passes one has imported it

    if ids.null_count:
        position = ids.is_null().index(pa.scalar(True)).as_py()
        raise _missing_id(role, None, position)
    if pa.types.is_dictionary(ids.type):
        ids = ids.cast(ids.type.value_type)
    if pa.types.is_integer(ids.type) or pa.types.is_floating(ids.type):
        return number_ids(np.asarray(ids), role)
    try:
        return _by_hashing(ids)
    except pa.ArrowNotImplementedError:
        return _by_dictionary(ids.to_pylist(), role)


def _by_hashing(ids: Any) -> tuple[Numbers, Sequence[Hashable]]:
    """Arrow's hash table, then the few different ids sorted."""
    import pyarrow as pa  # noqa: PLC0415 - whoever comes here has imported it
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    encoded = ids.dictionary_encode()
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    order = np.asarray(pc.sort_indices(encoded.dictionary))
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order))
    return place[np.asarray(encoded.indices)], encoded.dictionary.take(pa.array(order)).to_pylist()


def _by_dictionary(ids: Sequence[Hashable], role: str) -> tuple[Numbers, Sequence[Hashable]]:
    """Ids of mixed or unusual types, one by one."""
    seen: dict[Hashable, int] = {}
    try:
        numbers = np.fromiter(
            (seen.setdefault(key, len(seen)) for key in ids), np.int64, count=len(ids)
        )
    except TypeError as error:
        raise TypeError(f"{role} ids must be hashable: {error}") from None
    for key, number in seen.items():
        if _is_missing(key):
            raise _missing_id(role, key, int(np.argmax(numbers == number)))
    _refuse_twins(seen, role)
    try:
        ordered = sorted(seen)  # type: ignore[type-var]
    except TypeError:
        return numbers, list(seen)
    place = np.empty(len(seen), np.int64)
    place[[seen[key] for key in ordered]] = np.arange(len(seen))
    return place[numbers], ordered


def _refuse_twins(seen: dict[Hashable, int], role: str) -> None:
    """7 and "7" in one column are one id read in two ways, not two ids."""
    for key in seen:
        if not isinstance(key, str) and str(key) in seen:
            raise ValueError(
                f"{role} ids hold both {key!r} and {str(key)!r}, an id of mixed types; convert the column to one type"
            )


def _is_missing(key: Hashable) -> bool:
    try:
        return key is None or bool(key != key)
    except TypeError:  # pandas.NA does not say whether it equals itself
        return True


def _missing_id(role: str, value: Any, position: int) -> ValueError:
    return ValueError(
        f"{role} ids must not be missing, got {value!r} at position {position}; drop or name these entries"
    )
