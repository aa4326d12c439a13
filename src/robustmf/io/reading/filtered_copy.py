"""Copies of data files with some entries removed or replaced; all else is not changed."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from robustmf.data.factorization import UNKNOWN
from robustmf.data.ids import Side, Vocabulary
from robustmf.data.observed import Observed
from robustmf.data.table_form import ColumnNames
from robustmf.io.atomic import replacing
from robustmf.io.csv_records import csv_records
from robustmf.io.reading.layout import Layout, quote_stays_open
from robustmf.io.reading.options import OPTIONS
from robustmf.io.reading.source import Source
from robustmf.io.reading.wide import WideLayout

#: Row index · number of columns + column index of entries.
FlatIndices = NDArray[np.int64]

#: Endings of formats without lines or columns.
_MATRIX_FORMATS = (".npz", ".mtx")

#: Endings of compressed files, and Arrow's names of their compression.
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


@dataclass(frozen=True)
class Changes:
    """New values of some entries of a matrix of n columns; NaN removes an entry.

    Attributes
    ----------
    positions : ndarray of int64
        Row index · n + column index, ascending.
    values : ndarray
        The values.
    """

    positions: FlatIndices
    values: NDArray[np.floating[Any]]

    @classmethod
    def of(cls, rows: NDArray[Any], columns: NDArray[Any], values: NDArray[Any], n: int) -> Changes:
        """Changes at pairs of indices, in any order."""
        positions = rows.astype(np.int64) * n + columns
        order = np.argsort(positions)
        return cls(positions[order], values[order])

    def at(self, positions: FlatIndices) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Which positions are changed, and the values there."""
        if not len(self.positions):
            return np.zeros(len(positions), bool), np.zeros(len(positions))
        found = np.minimum(np.searchsorted(self.positions, positions), len(self.positions) - 1)
        return self.positions[found] == positions, self.values[found]


def copy_without_entries(
    path: Path,
    layout: Layout | WideLayout | None,
    columns: ColumnNames | tuple[str, str, str] | None,
    entries: Observed,
    marked: NDArray[np.bool_],
    out: Path,
) -> int:
    """Copy a file without the marked entries; see :func:`copy_with_changes`.

    Parameters
    ----------
    path, layout, columns, entries, out
        As in :func:`copy_with_changes`.
    marked : ndarray of bool, shape (n_entries,)
        Which entries to omit, in row order.

    Returns
    -------
    int
        Number of lines, or of cells of a wide file, that were changed.
    """
    rows = entries.rows
    removed = np.full(int(marked.sum()), np.nan)
    i = rows.group_of_entry()[marked]
    changes = Changes.of(i, rows.indices[marked], removed, entries.shape[1])
    return copy_with_changes(path, layout, columns, entries, changes, out)


def copy_with_changes(
    path: Path,
    layout: Layout | WideLayout | None,
    columns: ColumnNames | tuple[str, str, str] | None,
    entries: Observed,
    changes: Changes,
    out: Path,
) -> int:
    """Copy a file with changed entries; everything else stays as it is.

    Parameters
    ----------
    path : Path
        The file.
    layout : Layout, WideLayout or None
        The layout of a text file.
    columns : ColumnNames or None
        The columns of a Parquet file: three names if it is long, at most that of row ids if it is
        wide.
    entries : Observed
        The entries of the file.
    changes : Changes
        The changes. An entry that is removed loses its line; its cell in a wide file becomes empty,
        or the number that stands for missing values, where there is one. If several lines have the
        same row and column, all of them are changed. A field that counts the values of its line is
        updated.
    out : Path
        The copy, in the format of ``path``; a previous file is replaced atomically.

    Returns
    -------
    int
        Number of lines, or of cells of a wide file, that were changed.
    """
    require_same_format(path, out)
    source = Source(path)
    n = entries.shape[1]
    with replacing(out) as new:
        if layout is not None:
            with _compressed(out, new) as kept:
                if isinstance(layout, WideLayout):
                    return _copy_cells(source, layout, changes, n, kept)
                return _copy_lines(source, layout, changes, entries, kept)
        if columns is not None:
            names = ColumnNames(*columns)
            if not names.are_long:
                return _copy_wide_parquet(source, names.row, changes, n, new)
            return _copy_parquet(source, names, changes, entries, new)
        with _compressed(out, new) as kept:
            _save_matrix(_changed_matrix(entries, changes), _format(path), kept)
        return len(changes.positions)


def require_same_format(path: Path, out: Path) -> None:
    """Refuse a name for the copy that stands for another format."""
    if _format(out) != _format(path):
        ending = _format(path) or path.suffix or "of a text file"
        raise ValueError(
            f"{out} must be a file of the same format as {path}: give it the ending {ending}"
        )


def _format(path: Path) -> str:
    """The ending that determines the format; "" for text."""
    plain = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    suffix = plain.suffix.lower()
    return suffix if suffix in (*_MATRIX_FORMATS, ".parquet") else ""


@contextmanager
def _compressed(path: Path, file: BinaryIO) -> Iterator[BinaryIO]:
    """``file``, compressed as the ending of ``path`` requires."""
    codec = _COMPRESSED.get(path.suffix.lower())
    if codec is None:
        yield file
        return
    import pyarrow as pa  # noqa: PLC0415 - import deferred until a file is written

    content = pa.BufferOutputStream()  # closed by the stream, which ``file`` must not be
    with pa.CompressedOutputStream(content, codec) as stream:
        yield stream
    file.write(content.getvalue())


def _changed_lines(
    rows: Any, cols: Any, changes: Changes, entries: Observed
) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Which lines with these ids are changed, and their values."""
    i = _indices(rows, entries.row_ids, "row")
    j = _indices(cols, entries.column_ids, "column")
    changed, values = changes.at(i * entries.shape[1] + j)
    return changed & (i != UNKNOWN) & (j != UNKNOWN), values


def _indices(column: Any, ids: Any, side: Side) -> NDArray[Any]:
    """Indices of the ids of all lines; unknown where an id has no entry."""
    of_line, found = Vocabulary.encode(column, side)
    return Vocabulary(ids, side).indices(list(found.ids)).astype(np.int64)[of_line]


def _copy_lines(
    source: Source, layout: Layout, changes: Changes, entries: Observed, out: BinaryIO
) -> int:
    from robustmf.io.reading.delimited import read_delimited  # noqa: PLC0415 - needs pyarrow

    table, (row, col, _) = read_delimited(source, layout)
    changed, values = _changed_lines(table[row], table[col], changes, entries)

    def edit(line: int, content: bytes) -> bytes:
        if np.isnan(values[line]):
            return b""
        return _edited(content, layout, {layout.value: float(values[line])})

    _copy_edited(source, layout, changed, edit, out)
    return int(changed.sum())


def _copy_cells(source: Source, layout: WideLayout, changes: Changes, n: int, out: BinaryIO) -> int:
    fields = layout.value_positions
    of_row = changes.positions // n
    changed = np.zeros(int(of_row.max(initial=-1)) + 1, bool)
    changed[of_row] = True

    def edit(line: int, content: bytes) -> bytes:
        own = range(*np.searchsorted(of_row, [line, line + 1]).tolist())
        new = {fields[int(changes.positions[t] % n)]: float(changes.values[t]) for t in own}
        return _edited(content, layout, new)

    _copy_edited(source, layout, changed, edit, out)
    return len(changes.positions)


def _copy_edited(
    source: Source,
    layout: Layout | WideLayout,
    changed: NDArray[np.bool_],
    edit: Callable[[int, bytes], bytes],
    out: BinaryIO,
) -> None:
    """Copy a text file with some of its lines edited; the header and empty lines do not count."""
    header = bool(layout.names)
    position = 0
    with source.open() as stream:
        for lines in _records(stream, layout.delimiter):
            # the header and empty lines are not entries
            is_entry = [len(line) > 2 or bool(line.strip(b"\r\n")) for line in lines]
            if header:
                first = next((k for k, line in enumerate(lines) if line.strip()), len(lines) - 1)
                header = not lines[first].strip()
                is_entry[: first + 1] = [False] * (first + 1)
            entries = np.flatnonzero(is_entry)
            of_entries = changed[position : position + len(entries)]
            for k in np.flatnonzero(of_entries).tolist():
                at = int(entries[k])
                lines[at] = edit(position + k, lines[at])
            position += len(entries)
            out.write(b"".join(lines))


def _edited(line: bytes, layout: Layout | WideLayout, new: dict[int, float]) -> bytes:
    """A line with other values of some fields; NaN is missing, and a count of values is updated."""
    delimiter = layout.delimiter
    content = line.rstrip(b"\r\n")
    ending = line[len(content) :]
    text = content.decode("utf-8", "surrogateescape")
    simple = len(delimiter) == 1
    fields = next(csv.reader([text], delimiter=delimiter)) if simple else text.split(delimiter)
    for position, value in new.items():
        fields[position] = f"{value:.7g}".replace(".", layout.decimal)
    if isinstance(layout, WideLayout):
        for position in (k for k, value in new.items() if np.isnan(value)):
            fields[position] = layout.missing_field
        if layout.count is not None:
            observed = [not layout.is_missing(fields[k]) for k in layout.value_positions]
            fields[layout.count] = str(sum(observed))
    text = csv_records([fields], delimiter)[0] if simple else delimiter.join(fields)
    return text.encode("utf-8", "surrogateescape") + ending


def _records(stream: BinaryIO, delimiter: str) -> Iterator[list[bytes]]:
    """The records of a stream with their line endings, in blocks."""
    parts: list[bytes] = []
    for lines in _blocks(stream):
        if len(delimiter) > 1 or not (parts or any(b'"' in line for line in lines)):
            yield lines
            continue
        complete = []
        for line in lines:
            is_open = bool(parts)
            if is_open or b'"' in line:
                is_open = quote_stays_open(line, delimiter.encode(), b'"', is_open)
            parts.append(line)
            if not is_open:
                complete.append(b"".join(parts))
                parts = []
        if complete:
            yield complete
    if parts:
        yield [b"".join(parts)]


def _blocks(stream: BinaryIO) -> Iterator[list[bytes]]:
    """The lines of a stream with their line endings, in blocks."""
    rest = b""
    while block := stream.read(OPTIONS.copied_bytes):
        # the last line is kept back, since the block may end between "\r" and "\n"
        *lines, rest = (rest + block).splitlines(keepends=True)
        if lines:
            yield lines
    if rest:
        yield rest.splitlines(keepends=True)


def _copy_parquet(
    source: Source, names: ColumnNames, changes: Changes, entries: Observed, out: BinaryIO
) -> int:
    import pyarrow as pa  # noqa: PLC0415 - import deferred until a file is written
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    from robustmf.data.columns import selected, triplet_columns  # noqa: PLC0415 - as above
    from robustmf.io.reading.parquet import read_table  # noqa: PLC0415 - as above

    table = read_table(source)
    rows, cols, before = triplet_columns(table, *names, with_missing=True)
    before = np.asarray(before, np.float64)  # decimal numbers are objects
    has_value = ~np.isnan(before)
    changed, values = np.zeros(len(before), bool), np.zeros(len(before))
    changed[has_value], values[has_value] = _changed_lines(
        selected(rows, has_value), selected(cols, has_value), changes, entries
    )
    removed = changed & np.isnan(values)
    if (changed & ~removed).any():
        after = pa.array(np.where(changed & ~removed, values, before), from_pandas=True)
        table = table.set_column(table.column_names.index(names.value), names.value, after)
    pq.write_table(table.filter(pa.array(~removed)), out)
    return int(changed.sum())


def _copy_wide_parquet(
    source: Source, row: str | None, changes: Changes, n: int, out: BinaryIO
) -> int:
    import pyarrow as pa  # noqa: PLC0415 - import deferred until a file is written
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    from robustmf.data.tables import wide_table  # noqa: PLC0415 - as above
    from robustmf.io.reading.parquet import read_table  # noqa: PLC0415 - as above

    table = read_table(source)
    found = wide_table(table, row)
    cells = found.values.astype(np.float64)
    cells.flat[changes.positions] = changes.values
    for j in np.unique(changes.positions % n).tolist():
        name = found.form.columns[j]
        column = pa.array(cells[:, j], from_pandas=True)
        table = table.set_column(table.column_names.index(name), name, column)
    pq.write_table(table, out)
    return len(changes.positions)


def _changed_matrix(entries: Observed, changes: Changes) -> Observed:
    rows = entries.rows
    n = entries.shape[1]
    changed, values = changes.at(rows.group_of_entry().astype(np.int64) * n + rows.indices)
    removed = changed & np.isnan(values)
    return entries.with_values(
        np.where(changed & ~removed, values, rows.values).astype(entries.dtype)
    ).select(~removed)


def _save_matrix(kept: Observed, kind: str, out: BinaryIO) -> None:
    import scipy.io  # noqa: PLC0415 - import deferred until a file is written
    import scipy.sparse as sp  # noqa: PLC0415 - as above

    if kind == ".npz":
        sp.save_npz(out, kept.to_sparse())
    else:
        text = io.BytesIO()
        scipy.io.mmwrite(text, sp.coo_array(kept.to_sparse()))
        out.write(text.getvalue())
