"""Copies of data files without some of the entries; other lines and columns are not changed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import compress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from robustmf.data.ids import Vocabulary
from robustmf.data.observed import Observed
from robustmf.io.atomic import replacing
from robustmf.io.reading.layout import Layout, quote_stays_open
from robustmf.io.reading.source import Source

#: Row index · number of columns + column index of entries.
FlatIndices = NDArray[np.int64]

#: Bytes copied at once.
_BLOCK_BYTES = 1 << 22

#: Endings of formats without lines or columns.
_MATRIX_FORMATS = (".npz", ".mtx")

#: Endings of compressed files, and Arrow's names of their compression.
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


def copy_without_entries(
    path: Path,
    layout: Layout | None,
    columns: tuple[str, str, str] | None,
    entries: Observed,
    marked: NDArray[np.bool_],
    out: Path,
) -> int:
    """Copy a file without the marked entries.

    Parameters
    ----------
    path : Path
        The file.
    layout : Layout or None
        The layout of a text file.
    columns : tuple of str or None
        The names of the columns of a Parquet file.
    entries : Observed
        The entries of the file.
    marked : ndarray of bool, shape (n_entries,)
        Which of them to omit, in row order. If several lines have the same row and column, all of
        them are omitted.
    out : Path
        The copy, in the format of ``path``; a previous file is replaced atomically.

    Returns
    -------
    int
        Number of lines omitted.
    """
    require_same_format(path, out)
    source = Source(path)
    rows = entries.rows
    n = entries.shape[1]
    bad = (rows.group_of_entry().astype(np.int64) * n + rows.indices)[marked]
    with replacing(out) as new:
        if layout is not None:
            with _compressed(out, new) as kept:
                return _copy_lines(source, layout, bad, n, kept)
        if columns is not None:
            return _copy_parquet(source, columns, bad, n, new)
        with _compressed(out, new) as kept:
            _save_matrix(entries.select(~marked), _format(path), kept)
        return len(bad)


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


def _marked(rows: Any, cols: Any, bad: FlatIndices, n: int) -> NDArray[np.bool_]:
    """Which of the lines with these ids belong to the ``bad`` entries of a matrix of n columns."""
    i = Vocabulary.encode(rows, "row")[0]
    j = Vocabulary.encode(cols, "column")[0]
    return np.isin(i.astype(np.int64) * n + j, bad)


def _copy_lines(source: Source, layout: Layout, bad: FlatIndices, n: int, out: BinaryIO) -> int:
    from robustmf.io.reading.delimited import read_delimited  # noqa: PLC0415 - needs pyarrow

    table, (row, col, _) = read_delimited(source, layout)
    marked = _marked(table[row], table[col], bad, n)
    header = bool(layout.names)
    position = 0
    with source.open() as stream:
        for lines in _records(stream, layout.delimiter):
            # the header and empty lines are not entries
            is_entry = [len(line) > 2 or bool(line.strip(b"\r\n")) for line in lines]
            if header:
                is_entry[0] = header = False
            omitted = np.zeros(len(lines), bool)
            entries = np.flatnonzero(is_entry)
            omitted[entries] = marked[position : position + len(entries)]
            position += len(entries)
            out.write(b"".join(compress(lines, (~omitted).tolist())))
    return int(marked.sum())


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
    while block := stream.read(_BLOCK_BYTES):
        # the last line is kept back, since the block may end between "\r" and "\n"
        *lines, rest = (rest + block).splitlines(keepends=True)
        if lines:
            yield lines
    if rest:
        yield rest.splitlines(keepends=True)


def _copy_parquet(
    source: Source, columns: tuple[str, str, str], bad: FlatIndices, n: int, out: BinaryIO
) -> int:
    import pyarrow as pa  # noqa: PLC0415 - import deferred until a file is written
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    from robustmf.data.tables import triplet_columns  # noqa: PLC0415 - as above
    from robustmf.io.reading.parquet import read_table  # noqa: PLC0415 - as above

    table = read_table(source)
    rows, cols, _ = triplet_columns(table, *columns)
    marked = _marked(rows, cols, bad, n)
    pq.write_table(table.filter(pa.array(~marked)), out)
    return int(marked.sum())


def _save_matrix(kept: Observed, kind: str, out: BinaryIO) -> None:
    import scipy.io  # noqa: PLC0415 - import deferred until a file is written
    import scipy.sparse as sp  # noqa: PLC0415 - as above

    if kind == ".npz":
        sp.save_npz(out, kept.to_sparse())
    else:
        text = io.BytesIO()
        scipy.io.mmwrite(text, sp.coo_array(kept.to_sparse()))
        out.write(text.getvalue())
