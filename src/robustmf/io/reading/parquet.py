"""Parquet, by Arrow: only the three columns are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from robustmf.io.reading.layout import column_names
from robustmf.io.reading.plausible import require_plausible
from robustmf.io.reading.source import Source

#: Two ids and a value.
_ROW_BYTES = 24


def parquet_columns(
    source: Source, row: str | int | None, col: str | int | None, value: str | int | None
) -> tuple[str, str, str]:
    """The names of the three columns, guessed as for text where they are not given."""
    with opened(source) as file:
        return column_names(source, tuple(file.schema_arrow.names), row, col, value)


def read_parquet(
    source: Source, row: str | int | None, col: str | int | None, value: str | int | None
) -> tuple[Any, tuple[str, str, str]]:
    """The three columns as an Arrow table, and their names in it."""
    names = parquet_columns(source, row, col, value)
    with opened(source) as file:
        return file.read(columns=list(names)), names


@contextmanager
def opened(source: Source) -> Iterator[Any]:
    """The file, to read from within this context: what is damaged shows only there."""
    if not source.path.is_file():
        raise FileNotFoundError(f"{source.path} not found")
    try:
        with pq.ParquetFile(source.path) as file:
            require_plausible(
                source, _ROW_BYTES * file.metadata.num_rows, "bytes of ids and values"
            )
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise source.fault(
            f"not a Parquet file that can be read ({' '.join(str(error).split())}); write it again"
        ) from None
