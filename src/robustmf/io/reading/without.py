"""The same file without some of its entries: lines, columns and order stay as they were."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import compress
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from robustmf.data.ids import Vocabulary
from robustmf.data.observed import Observed
from robustmf.io.reading.layout import Layout
from robustmf.io.reading.source import Source

Places = NDArray[np.int64]

_BYTES_AT_ONCE = 1 << 22
_MATRICES = (".npz", ".mtx")


def copy_without(
    path: Path,
    layout: Layout | None,
    columns: tuple[str, str, str] | None,
    entries: Observed,
    marked: NDArray[np.bool_],
    out: Path,
) -> int:
    """Write the file at ``path`` to ``out`` without the ``marked`` ones (in row order) of its entries; how many lines went.

    ``layout`` is that of a text file, ``columns`` are the names of a Parquet file's. Where a place has several lines, all go.
    The kind of ``out`` is that of ``path``; an older file is replaced all at once or not at all.
    """
    require_same_kind(path, out)
    source = Source(path)
    rows, n = entries.rows, entries.shape[1]
    bad = (rows.group_of_entry().astype(np.int64) * n + rows.indices)[marked]
    with _replaced(out) as new:
        if layout is not None:
            return _copy_lines(source, layout, bad, n, new)
        if columns is not None:
            return _copy_parquet(source, columns, bad, n, new)
        _save_matrix(entries.select(~marked), _kind(path), new)
        return len(bad)


def require_same_kind(path: Path, out: Path) -> None:
    """Refuse a copy of another kind: it would not be a copy."""
    if _kind(out) != _kind(path):
        ending = _kind(path) or path.suffix or "of a text file"
        raise ValueError(
            f"{out} must be a file of the same kind as {path}: give it the ending {ending}"
        )


def _kind(path: Path) -> str:
    """The ending that says how a file is read; "" for text of any kind."""
    plain = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    suffix = plain.suffix.lower()
    return suffix if suffix in (*_MATRICES, ".parquet") else ""


@contextmanager
def _replaced(out: Path) -> Iterator[Path]:
    """A name beside ``out`` to write to, with the same endings, put in its place when all is written."""
    new = out.with_name(f".{os.getpid()}-{out.name}")
    try:
        yield new
        os.replace(new, out)
    finally:
        new.unlink(missing_ok=True)


def _marked(rows: Any, cols: Any, bad: Places, n: int) -> NDArray[np.bool_]:
    """Which of the entries with these ids, in the order of the file, are at bad places (row number · n + column number)."""
    i = Vocabulary.encode(rows, "row")[0]
    j = Vocabulary.encode(cols, "col")[0]
    return np.isin(i.astype(np.int64) * n + j, bad)


def _copy_lines(source: Source, layout: Layout, bad: Places, n: int, out: Path) -> int:
    import pyarrow as pa  # noqa: PLC0415 - only those who write files pay for it

    from robustmf.io.reading.delimited import read_delimited  # noqa: PLC0415 - as above

    table, (row, col, _) = read_delimited(source, layout)
    marked = _marked(table[row], table[col], bad, n)
    header, place = bool(layout.names), 0
    with (
        source.open() as stream,
        cast("BinaryIO", pa.output_stream(str(out), compression="detect")) as kept,
    ):
        for lines in _blocks(stream):
            # the reader skips the header, and lines with nothing in them
            is_entry = [len(line) > 2 or bool(line.strip(b"\r\n")) for line in lines]
            if header:
                is_entry[0] = header = False
            gone = np.zeros(len(lines), bool)
            entries = np.flatnonzero(is_entry)
            gone[entries] = marked[place : place + len(entries)]
            place += len(entries)
            kept.write(b"".join(compress(lines, (~gone).tolist())))
    return int(marked.sum())


def _blocks(stream: BinaryIO) -> Iterator[list[bytes]]:
    """The lines of a stream with their ends, many at a time."""
    rest = b""
    while block := stream.read(_BYTES_AT_ONCE):
        *lines, rest = (rest + block).splitlines(
            keepends=True
        )  # it may end between "\r" and "\n", so the last line waits
        if lines:
            yield lines
    if rest:
        yield rest.splitlines(keepends=True)


def _copy_parquet(
    source: Source, columns: tuple[str, str, str], bad: Places, n: int, out: Path
) -> int:
    import pyarrow as pa  # noqa: PLC0415 - only those who write files pay for it
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    from robustmf.data.tables import triplet_columns  # noqa: PLC0415 - as above

    table = pq.read_table(source.path)
    rows, cols, _ = triplet_columns(table, *columns)
    marked = _marked(rows, cols, bad, n)
    pq.write_table(table.filter(pa.array(~marked)), out)
    return int(marked.sum())


def _save_matrix(kept: Observed, kind: str, out: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415 - only those who write files pay for it
    import scipy.io  # noqa: PLC0415 - as above
    import scipy.sparse as sp  # noqa: PLC0415 - as above

    if kind == ".npz":
        sp.save_npz(out, kept.to_sparse())
    else:
        text = io.BytesIO()
        scipy.io.mmwrite(text, sp.coo_array(kept.to_sparse()))
        with cast("BinaryIO", pa.output_stream(str(out), compression="detect")) as stream:
            stream.write(text.getvalue())
