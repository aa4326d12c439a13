"""The input of a fit on a cluster: triplets in pieces that the workers read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from robustmf.data.columns import open_table
from robustmf.data.compressed import Duplicates
from robustmf.data.table_form import NO_NAMES, ColumnNames, TableForm
from robustmf.data.tables import is_table, long_form
from robustmf.io.reading.layout import column_names
from robustmf.io.reading.source import Source


@dataclass(frozen=True)
class LoadingOptions:
    """How entries are loaded into blocks.

    Attributes
    ----------
    piece_bytes : int
        Consecutive row groups of a Parquet file are read as one piece up to this size.
    piece_lines : int
        Lines of a piece of a table in memory. It is sent to a worker by the scheduler, which takes
        messages of some megabytes.
    max_blocks : int
        The largest number of blocks per side: loading creates tasks for every pair of a row block
        and a column block.
    whole_share : float
        A block that needs more than this share of another block's factors receives all of them.
    prefix_bits : int
        Bits of the prefix by which hash keys are counted. Keys are uniform, so one prefix in 2¹⁶
        leaves few of them.
    """

    piece_bytes: int = 1 << 27
    piece_lines: int = 100_000
    max_blocks: int = 256
    whole_share: float = 0.5
    prefix_bits: int = 16


LOADING = LoadingOptions()


@dataclass(frozen=True)
class Triplets:
    """Entries as (row id, column id, value) in pieces, for ``RobustMF.fit(…, client=client)``.

    Parameters
    ----------
    data : table, Dask DataFrame, path, or list
        A table (pandas, polars, Arrow, …) is sent to the workers in pieces, and its columns are
        named. A path is a Parquet file or a folder of Parquet files that every worker can read. A
        list holds tables, paths, or delayed objects and futures of tables.
    row, col, value : str, default=None
        Names of the columns, required for a table. Otherwise they are guessed by default as for
        files ("userId", "movie_id", "rating", …, otherwise the first three columns).
    weight : str, default=None
        Name of a column by which the loss of each entry is multiplied.
    duplicates : {"error", "last", "mean"}, default="error"
        Treatment of several values for one entry, as in
        :meth:`Observed.from_triplets <robustmf.Observed.from_triplets>`.
    blocks : int, default=None
        Number of blocks into which rows, and columns, are partitioned, at most 256; by default one
        per thread of the cluster. With more than one block no task receives all entries (unless
        they come as one piece); a worker holds the entries of all its blocks.
    shards : path, default=None
        Folder into which the workers write the factors, one Parquet file per block, instead of
        sending them to the client: for factors that are too large for the client. Every worker
        must be able to write there; a relative path is relative to the client's working
        directory. Shards of an earlier fit in the folder are replaced.
    """

    data: Any
    row: Any = None
    col: Any = None
    value: Any = None
    weight: Any = None
    duplicates: Duplicates = "error"
    blocks: int | None = None
    shards: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.duplicates not in ("error", "last", "mean"):
            raise ValueError(
                f"duplicates must be 'error', 'last' or 'mean', got duplicates={self.duplicates!r}"
            )
        if self.blocks is not None and not (
            isinstance(self.blocks, int) and 1 <= self.blocks <= LOADING.max_blocks
        ):
            raise ValueError(
                f"blocks must be None or an integer from 1 to {LOADING.max_blocks} (each pair of "
                f"blocks is a task), got blocks={self.blocks!r}"
            )
        given = [name for name in self.names if name is not None]
        if len(set(given)) < len(given):
            raise ValueError(
                "row, col, value and weight must be different columns, "
                f"got {', '.join(map(repr, self.names))}"
            )

    @property
    def names(self) -> tuple[Any, Any, Any, Any]:
        """The names of the columns of rows, columns, values and weights."""
        return self.row, self.col, self.value, self.weight

    @property
    def form(self) -> TableForm | None:
        """The form of a table with these columns; None unless they are named."""
        names = ColumnNames(*self.names[:3])
        if None in names:
            return None
        is_local = isinstance(self.data, Mapping) or is_table(self.data)
        known = long_form(self.data, names, None) if is_local else None
        return TableForm("pandas", names) if known is None else known.without_order()


def as_triplets(data: Any, names: ColumnNames = NO_NAMES) -> Triplets:
    """Convert the argument of ``fit`` to triplets, with the names of its columns if given."""
    if not isinstance(data, Triplets):
        return Triplets(data, *names)
    if names != NO_NAMES:
        raise ValueError(
            "row, col and value must be given either to Triplets or to fit, "
            f"got row={names.row!r}, col={names.col!r}, value={names.value!r} and {data!r}"
        )
    return data


def pieces_of(triplets: Triplets) -> tuple[list[Any], Triplets]:
    """Return the pieces, and the triplets with the names of all columns and without data."""
    data = triplets.data
    paths = data if isinstance(data, (list, tuple)) else [data]
    if paths and isinstance(paths[0], (str, os.PathLike)):
        data = _read_parquet([Path(path).resolve() for path in paths])
    if hasattr(data, "to_delayed") and hasattr(data, "columns"):
        named = _named(triplets, tuple(data.columns))
        return data[[name for name in named.names if name is not None]].to_delayed(), named
    if isinstance(data, Mapping) or is_table(data):
        data = _pieces_of_table(data, triplets)
    if not isinstance(data, (list, tuple)):
        raise TypeError(
            "data must be a table, a Dask DataFrame, the path of a Parquet file or folder, or a "
            f"list of tables, got {type(data).__name__}; fit entries in the memory of this machine "
            "without client="
        )
    if not data:
        raise ValueError("data must have at least one table, got an empty list")
    if not (hasattr(data[0], "dask") or hasattr(data[0], "key")):
        return list(data), _named(triplets, _table_columns(data[0]))
    if None in triplets.names[:3]:
        raise ValueError(
            "column names are required for delayed tables and futures: "
            "Triplets(data, row=…, col=…, value=…)"
        )
    return list(data), replace(triplets, data=None)


def _pieces_of_table(table: Any, triplets: Triplets) -> list[dict[Any, Any]]:
    """The named columns of a long table in the memory of this machine, in pieces of lines."""
    names, take = open_table(table)
    if None in triplets.names[:3]:
        raise ValueError(
            "data must be a long table whose columns are named by row=, col= and value=, got one "
            f"with the columns {names}; a wide table is fitted without client="
        )
    wanted = [name for name in triplets.names if name is not None]
    for name in wanted:
        if name not in names:
            raise ValueError(f"{name!r} is not a column of the data; it has {names}")
    columns = take(wanted)
    return [
        {
            name: column[low : low + LOADING.piece_lines]
            for name, column in zip(wanted, columns, strict=True)
        }
        for low in range(0, max(1, len(columns[0])), LOADING.piece_lines)
    ]


def _read_parquet(paths: list[Path]) -> Any:
    """Files and folders as a Dask DataFrame; absolute paths, as workers have other folders."""
    import dask.dataframe as dd  # noqa: PLC0415 - Dask is an extra

    for path in paths:
        if not path.is_file() and not any(path.glob("**/*.parquet")):
            raise FileNotFoundError(
                f"{path} is neither a Parquet file nor a folder of *.parquet files"
            )
    names = list(map(str, paths))
    return dd.read_parquet(names, index=False, blocksize=LOADING.piece_bytes)


def _named(triplets: Triplets, names: tuple[Any, ...]) -> Triplets:
    """Check the given names against those of the data and guess the others."""
    given = triplets.names
    for role, name in zip(("row", "col", "value", "weight"), given, strict=True):
        if name is not None and name not in names:
            raise ValueError(f"{role}={name!r} is not a column of the data; it has {list(names)}")
    text = tuple(map(str, names))
    positions = [None if name is None else names.index(name) for name in given[:3]]
    available = tuple(
        "" if name == triplets.weight else one for name, one in zip(names, text, strict=True)
    )
    guessed = column_names(Source(Path("data")), available, *positions)
    row, col, value = (names[text.index(name)] for name in guessed)
    return replace(triplets, data=None, row=row, col=col, value=value)


def _table_columns(table: Any) -> tuple[Any, ...]:
    try:
        return tuple(open_table(table)[0])
    except TypeError:
        raise TypeError(
            "data must be a list of tables (pandas, polars, Arrow, …), "
            f"got one of {type(table).__name__}"
        ) from None
