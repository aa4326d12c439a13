"""Parquet, by Arrow: only the three columns are read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from robustmf.reading.layout import column_names
from robustmf.reading.source import Source


def read_parquet(source: Source, row: str | int | None, col: str | int | None, value: str | int | None) -> tuple[Any, tuple[str, str, str]]:
    """The three columns as an Arrow table, and their names in it, guessed as for text where they are not given."""
    if not source.path.is_file():
        raise FileNotFoundError(f"{source.path} not found")
    try:
        with pq.ParquetFile(source.path) as file:
            names = column_names(source, tuple(file.schema_arrow.names), row, col, value)
            return file.read(columns=list(names)), names
    except (pa.ArrowException, OSError) as error:
        raise source.fault(f"not a Parquet file that can be read ({' '.join(str(error).split())}); write it again") from None
