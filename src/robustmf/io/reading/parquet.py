"""Reader of Parquet files; only the three columns are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from robustmf.data.observed import Observed
from robustmf.data.tables import index_columns, wide_table
from robustmf.io.reading.layout import column_names, known_names, not_ids
from robustmf.io.reading.options import OPTIONS
from robustmf.io.reading.size_checks import require_plausible_size
from robustmf.io.reading.source import Source
from robustmf.io.reading.wide import looks_wide, wide_entries


def parquet_columns(
    source: Source, row: str | int | None, col: str | int | None, value: str | int | None
) -> tuple[str, str, str]:
    """The names of the three columns; those not given are guessed as for text.

    An index of pandas precedes the other columns, as it does in text, unless positions are given.
    """
    with open_parquet(source) as file:
        schema = file.schema_arrow
    names = tuple(schema.names)
    given = (row, col, value)
    if not any(isinstance(one, int) for one in given):
        names = tuple(_index_first(schema))
    chosen = column_names(source, names, *given)
    for name in chosen:
        if names.count(name) > 1:
            raise source.fault(f"has {names.count(name)} columns {name!r}; rename one of them")
    if given == (None, None, None) and not known_names(*chosen):
        for name in chosen[:2]:
            if pa.types.is_floating(schema.field(name).type):
                raise source.fault(not_ids(name, "decimal numbers"))
    return chosen


def _index_first(schema: pa.Schema) -> list[str]:
    """The names of the columns; those of an index of pandas, which are the last, first."""
    of_index = index_columns(schema.names, schema.metadata)
    return of_index + [name for name in schema.names if name not in of_index]


def read_parquet(
    source: Source, row: str | int | None, col: str | int | None, value: str | int | None
) -> tuple[Any, tuple[str, str, str]]:
    """The three columns as an Arrow table, and their names."""
    names = parquet_columns(source, row, col, value)
    return read_table(source, list(names)), names


def parquet_is_wide(source: Source, col: str | int | None, value: str | int | None) -> bool:
    """Whether a file is wide, from the names and types of its columns as for text."""
    if col is not None or value is not None:
        return False
    with open_parquet(source) as file:
        schema = file.schema_arrow
    names = _index_first(schema)
    if len(set(names)) < len(names):
        return looks_wide(names, [[_example_of(field.type) for field in schema]])
    return looks_wide(names, [[_example_of(schema.field(name).type) for name in names]])


def _example_of(kind: pa.DataType) -> str:
    """A text of the kind that :func:`looks_wide` distinguishes."""
    if pa.types.is_integer(kind):
        return "1"
    return "0.5" if pa.types.is_floating(kind) or pa.types.is_decimal(kind) else "text"


def read_wide_parquet(source: Source, row: str | int | None, missing: Sequence[float]) -> Observed:
    """The entries of a wide file; its labels are the ids."""
    table = read_table(source)
    found = wide_table(table, table.column_names[row] if isinstance(row, int) else row)
    return wide_entries(found.values, found.row_labels, found.column_labels, missing)


def read_table(
    source: Source, columns: list[str] | None = None, groups: list[int] | None = None
) -> Any:
    """Read columns as an Arrow table, in memory that the size of the file bounds.

    Repeated strings are stored once in a file. They are read in this form, and expanded only if
    their total length is plausible.

    Parameters
    ----------
    source : Source
        The file.
    columns : list of str, default=None
        The names of the columns; None reads all.
    groups : list of int, default=None
        The row groups; None reads all.
    """
    with open_parquet(source) as file:
        schema = file.schema_arrow
        times = Counter(schema.names)
        names = list(times) if columns is None else columns
        strings = [
            name for name in names if times[name] == 1 and _is_string(schema.field(name).type)
        ]
    with open_parquet(source, strings) as file:
        if groups is None:
            table = file.read(columns=columns)
        else:
            table = file.read_row_groups(groups, columns=columns)
        length = sum(
            _expanded_bytes(chunk)
            for column in table.columns
            if pa.types.is_dictionary(column.type)
            for chunk in column.chunks
        )
        require_plausible_size(source, length, "bytes of text")
        if columns is None:
            return table.cast(schema)
        return table.cast(pa.schema([schema.field(name) for name in names], schema.metadata))


def _is_string(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
        )
    )


def _expanded_bytes(column: pa.DictionaryArray) -> int:
    """Length of all strings of a column in which repeated ones are stored once."""
    if not _is_string(column.dictionary.type) or not len(column.dictionary):
        return 0
    lengths = np.asarray(pc.binary_length(column.dictionary).fill_null(0), np.int64)
    return int(lengths[np.asarray(column.indices.drop_null())].sum())


@contextmanager
def open_parquet(source: Source, dictionaries: Sequence[str] = ()) -> Iterator[Any]:
    """The open file; errors while it is read in this context are attributed to the file.

    Parameters
    ----------
    source : Source
        The file.
    dictionaries : sequence of str, default=()
        Columns of strings to read as arrays of distinct values and indices.
    """
    if not source.path.is_file():
        raise FileNotFoundError(f"{source.path} not found")
    try:
        with pq.ParquetFile(source.path, read_dictionary=list(dictionaries)) as file:
            require_plausible_size(
                source, OPTIONS.row_bytes * file.metadata.num_rows, "bytes of ids and values"
            )
            require_plausible_size(source, _page_bytes(file.metadata), "bytes of pages")
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise source.fault(
            f"not a readable Parquet file ({' '.join(str(error).split())}); write it again"
        ) from None


def _page_bytes(metadata: Any) -> int:
    """Size of all columns before compression, as the file states it.

    The sizes of single columns are not used: Arrow ends the process if their statistics are
    damaged.
    """
    return sum(metadata.row_group(k).total_byte_size for k in range(metadata.num_row_groups))
