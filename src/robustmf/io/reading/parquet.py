"""Reader of Parquet files; only the three columns are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from robustmf.io.reading.layout import column_names
from robustmf.io.reading.size_checks import require_plausible_size
from robustmf.io.reading.source import Source

#: Bytes of two ids and a value.
_ROW_BYTES = 24


def parquet_columns(
    source: Source, row: str | int | None, col: str | int | None, value: str | int | None
) -> tuple[str, str, str]:
    """The names of the three columns; those not given are guessed as for text."""
    with open_parquet(source) as file:
        return column_names(source, tuple(file.schema_arrow.names), row, col, value)


def read_parquet(
    source: Source, row: str | int | None, col: str | int | None, value: str | int | None
) -> tuple[Any, tuple[str, str, str]]:
    """The three columns as an Arrow table, and their names."""
    names = parquet_columns(source, row, col, value)
    with open_parquet(source) as file:
        return file.read(columns=list(names)), names


@contextmanager
def open_parquet(source: Source) -> Iterator[Any]:
    """The open file; errors while it is read in this context are attributed to the file."""
    if not source.path.is_file():
        raise FileNotFoundError(f"{source.path} not found")
    try:
        with pq.ParquetFile(source.path) as file:
            require_plausible_size(
                source, _ROW_BYTES * file.metadata.num_rows, "bytes of ids and values"
            )
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise source.fault(
            f"not a readable Parquet file ({' '.join(str(error).split())}); write it again"
        ) from None
