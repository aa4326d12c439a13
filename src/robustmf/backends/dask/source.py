"""What a fit on a cluster is made to: triplets in pieces, which workers read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from robustmf.backends.dask.parts import Columns
from robustmf.data.compressed import Duplicates
from robustmf.io.reading.layout import column_names
from robustmf.io.reading.source import Source

#: Row groups of a file are read together up to so many entries.
_PIECE = 5_000_000

#: Loading makes some tasks for each pair of a row block and a column block.
_MOST_BLOCKS = 256


@dataclass(frozen=True)
class Triplets:
    """Entries as (row id, column id, value) in pieces, for ``RobustMF.fit(…, client=client)``.

    Parameters
    ----------
    data : Dask DataFrame, path, or list
        A path is a Parquet file, or a folder of them, which every worker must see. A list holds tables (pandas, polars, Arrow, …), paths,
        or delayed objects and futures of tables.
    row, col, value : str, optional
        Names of the columns; guessed as for files where they are not given ("userId", "movie_id", "rating", …, else the first three).
    weight : str, optional
        Name of a column that each entry's loss is multiplied by.
    duplicates : {"error", "last", "mean"}
        What to do with several values for one place, as in :meth:`Observed.from_triplets <robustmf.Observed.from_triplets>`.
    blocks : int, optional
        Blocks that rows, and columns, are cut into; by default one for each thread of the cluster. Up to 256. With more than one, no task
        is given all entries (unless they come as one piece); a worker holds those of all its blocks.
    shards : path, optional
        Write the factors there, one Parquet file a block, and leave them out of the model: for factors that are too large for the client.
        Every worker must see the folder; a relative path is the client's. Shards of an earlier fit there are replaced.
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
            isinstance(self.blocks, int) and 1 <= self.blocks <= _MOST_BLOCKS
        ):
            raise ValueError(
                f"blocks must be None or an integer from 1 to {_MOST_BLOCKS} (each pair of blocks is a task), got blocks={self.blocks!r}"
            )
        given = [name for name in (self.row, self.col, self.value, self.weight) if name is not None]
        if len(set(given)) < len(given):
            raise ValueError(
                f"row, col, value and weight must be different columns, got {self.row!r}, {self.col!r}, {self.value!r}, {self.weight!r}"
            )


@dataclass(frozen=True)
class ParquetPiece:
    """Some row groups of a Parquet file."""

    path: str
    groups: tuple[int, ...]

    def read(self, columns: Sequence[str]) -> Any:
        """The columns as an Arrow table."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - in the worker

        with pq.ParquetFile(self.path) as file:
            return file.read_row_groups(list(self.groups), columns=list(columns))


def as_triplets(data: Any) -> Triplets:
    """What ``fit`` was given, as triplets."""
    return data if isinstance(data, Triplets) else Triplets(data)


def pieces_of(triplets: Triplets) -> tuple[list[Any], Columns]:
    """The pieces, and the names of their columns."""
    data = triplets.data
    if hasattr(data, "to_delayed") and hasattr(data, "columns"):
        columns = _named(triplets, tuple(data.columns))
        wanted = list(dict.fromkeys(name for name in vars(columns).values() if name is not None))
        return data[wanted].to_delayed(), columns
    if isinstance(data, (str, os.PathLike)):
        data = _parquet_files(Path(data))
    if not isinstance(data, (list, tuple)):
        raise TypeError(
            f"data must be a Dask DataFrame, the path of a Parquet file or folder, or a list of tables, got {type(data).__name__}; "
            "entries in the memory of this machine are fitted without client="
        )
    if not data:
        raise ValueError("data must have at least one table, got an empty list")
    first = data[0]
    if isinstance(first, (str, os.PathLike)):
        return [piece for path in data for piece in _row_groups(Path(path))], _named(
            triplets, _schema_names(Path(first))
        )
    if _is_remote(first):
        if None in (triplets.row, triplets.col, triplets.value):
            raise ValueError(
                "tables that are not here yet need the names of their columns: Triplets(data, row=…, col=…, value=…)"
            )
        return list(data), Columns(triplets.row, triplets.col, triplets.value, triplets.weight)
    return list(data), _named(triplets, _names_of(first))


def _is_remote(piece: Any) -> bool:
    return hasattr(piece, "dask") or hasattr(piece, "key")


def _named(triplets: Triplets, names: tuple[Any, ...]) -> Columns:
    given = (triplets.row, triplets.col, triplets.value, triplets.weight)
    for role, name in zip(("row", "col", "value", "weight"), given, strict=True):
        if name is not None and name not in names:
            raise ValueError(f"{role}={name!r} is not a column of the data; it has {list(names)}")
    if None not in given[:3]:
        return Columns(*given)
    text = tuple(map(str, names))
    places = [None if name is None else names.index(name) for name in given[:3]]
    free = tuple(
        "" if name == triplets.weight else one for name, one in zip(names, text, strict=True)
    )
    found = column_names(Source(Path("data")), free, *places)
    row, col, value = (names[text.index(name)] for name in found)
    return Columns(row, col, value, triplets.weight)


def _names_of(table: Any) -> tuple[Any, ...]:
    if isinstance(table, Mapping):
        return tuple(table)
    import narwhals as nw  # noqa: PLC0415 - only those who pass a table pay for it

    try:
        return tuple(nw.from_native(table).columns)
    except TypeError:
        raise TypeError(
            f"data must be a list of tables (pandas, polars, Arrow, …), got one of {type(table).__name__}"
        ) from None


def _parquet_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = sorted(path.glob("**/*.parquet")) if path.is_dir() else []
    if not found:
        raise FileNotFoundError(
            f"{path} is neither a Parquet file nor a folder with *.parquet files in it"
        )
    return found


def _schema_names(path: Path) -> tuple[str, ...]:
    with _opened(path) as file:
        return tuple(file.schema_arrow.names)


def _row_groups(path: Path) -> list[ParquetPiece]:
    """A file in pieces of neighbouring row groups."""
    with _opened(path) as file:
        sizes = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
    pieces: list[ParquetPiece] = []
    entries = 0
    for k, size in enumerate(sizes):
        if pieces and entries + size <= _PIECE:
            pieces[-1] = replace(pieces[-1], groups=(*pieces[-1].groups, k))
            entries += size
        else:
            pieces.append(
                ParquetPiece(str(path.resolve()), (k,))
            )  # workers may have another working directory
            entries = size
    return pieces


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    import pyarrow as pa  # noqa: PLC0415 - only those who read files pay for it
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise Source(path).fault(
            f"not a Parquet file that can be read ({' '.join(str(error).split())}); write it again"
        ) from None
