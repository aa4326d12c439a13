"""Reader of Matrix Market files (Boisvert, Pozo and Remington, NISTIR 5935).

SciPy's reader is faster, but reads out of bounds if the file is truncated or damaged (with SciPy
1.17 the process crashes). This one reports the malformed line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.observed import Observed
from robustmf.io.reading.layout import quoted
from robustmf.io.reading.size_checks import require_plausible_shape, require_plausible_size
from robustmf.io.reading.source import Source

_FORMATS = ("coordinate", "array")
_FIELDS = ("real", "double", "integer", "pattern")
_SYMMETRIES = ("general", "symmetric", "skew-symmetric")
_BANNER = "%%MatrixMarket matrix coordinate real general"


@dataclass(frozen=True)
class _Header:
    """The header; ``line`` is the number of its last line."""

    format: str
    field: str
    symmetry: str
    shape: tuple[int, int]
    n_entries: int
    line: int

    @property
    def n_lines(self) -> int:
        """Number of lines of numbers; the lower triangle for a symmetric array."""
        m, n = self.shape
        if self.format == "coordinate":
            return self.n_entries
        if self.symmetry == "general":
            return m * n
        size = m if self.symmetry == "symmetric" else m - 1
        return size * (size + 1) // 2

    @property
    def n_fields(self) -> int:
        """Numbers per line."""
        return 1 if self.format == "array" else 2 + (self.field != "pattern")


def read_matrix_market(source: Source) -> Observed:
    """Read a Matrix Market file; in an array file, NaN is missing."""
    lines = ((number, line) for number, line in enumerate(source.text(), 1))
    header = _header(source, lines)
    # the shortest line of an entry is "1 1" with its newline, of an array "1"
    require_plausible_size(
        source,
        2 * header.n_fields * header.n_lines,
        "bytes of text",
        packed=source.path.suffix != ".mtx",
    )
    require_plausible_shape(source, header.shape, header.n_lines)
    numbers = _numbers(source, header, lines)
    if header.format == "coordinate":
        return _from_coordinates(source, header, numbers)
    return _from_array(header, numbers[:, 0])


def _header(source: Source, lines: Iterator[tuple[int, str]]) -> _Header:
    words = next(lines, (0, ""))[1].lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise source.fault(f"not a Matrix Market file; expected {_BANNER!r}", 1)
    for word, allowed in zip(words[2:], (_FORMATS, _FIELDS, _SYMMETRIES), strict=True):
        if word not in allowed:
            raise source.fault(
                f"{word!r} is not one of {', '.join(allowed)}; convert the matrix", 1
            )
    matrix_format, field, symmetry = words[2:]
    number, line = next(_content(lines), (1, ""))
    sizes = line.split()
    has_count = matrix_format == "coordinate"
    if len(sizes) != (3 if has_count else 2) or not all(
        size.isascii() and size.isdecimal() for size in sizes
    ):
        raise source.fault(
            f"expected rows, columns{' and entries' if has_count else ''}, got {quoted(line)}",
            number,
        )
    if max(map(len, sizes)) > 18:
        raise source.fault(
            f"the size {quoted(line)} is too large; the file is damaged or malicious", number
        )
    m, n, n_entries = (*map(int, sizes), 0)[:3]
    if symmetry != "general" and m != n:
        raise source.fault(f"a {symmetry} matrix must be square, got {m} x {n}", number)
    if matrix_format == "array" and field == "pattern":
        raise source.fault("an array file has values; 'pattern' is for coordinate files", 1)
    return _Header(matrix_format, field, symmetry, (m, n), n_entries, number)


def _content(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Lines that are neither comments nor empty."""
    return ((number, line) for number, line in lines if line.strip() and not line.startswith("%"))


def _numbers(
    source: Source, header: _Header, lines: Iterator[tuple[int, str]]
) -> NDArray[np.float64]:
    """The numbers, by lines; at most one line more than the header announces is read."""
    body = (line for _, line in islice(_content(lines), header.n_lines + 1))
    first = next(body, None)
    try:
        # numpy.loadtxt warns if there are no lines
        numbers = (
            np.empty((0, header.n_fields))
            if first is None
            else np.loadtxt(chain([first], body), np.float64, comments=None, ndmin=2)
        )
    except ValueError:
        numbers = np.empty((0, 0))
    if numbers.shape != (header.n_lines, header.n_fields):
        raise _first_fault(source, header)
    return numbers


def _first_fault(source: Source, header: _Header) -> Exception:
    """The error of the first line that does not agree with the header."""
    body = ((number, line) for number, line in enumerate(source.text(), 1) if number > header.line)
    count = 0
    for number, line in _content(body):
        count += 1
        if count > header.n_lines:
            return source.fault(
                f"more lines than the {header.n_lines} that the header announces, "
                f"{quoted(line)} is the first",
                number,
            )
        if len(line.split()) != header.n_fields or not all(map(_is_number, line.split())):
            return source.fault(
                f"expected {header.n_fields} number(s), got {quoted(line)}; "
                "correct or remove the line",
                number,
            )
    return source.fault(
        f"the header announces {header.n_lines} lines of numbers, but {count} follow; "
        "the file is truncated"
    )


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return word.isascii() and "_" not in word


def _from_coordinates(source: Source, header: _Header, numbers: NDArray[np.float64]) -> Observed:
    m, n = header.shape
    indices = numbers[:, :2]
    i = numbers[:, 0] - 1
    j = numbers[:, 1] - 1
    values = numbers[:, 2] if header.n_fields == 3 else np.ones(len(numbers))
    integral = (indices == np.floor(indices)).all(axis=1)
    wrong = ~((i >= 0) & (i < m) & (j >= 0) & (j < n) & integral)
    if wrong.any():
        k = int(np.argmax(wrong))
        raise source.fault(
            f"entry {k + 1} is at row {indices[k, 0]:g}, column {indices[k, 1]:g}, "
            f"which are not from 1 to {m} and {n}"
        )
    if header.symmetry != "general":
        off_diagonal = i != j
        sign = 1 if header.symmetry == "symmetric" else -1
        rows = np.concatenate([i, j[off_diagonal]])
        columns = np.concatenate([j, i[off_diagonal]])
        values = np.concatenate([values, sign * values[off_diagonal]])
        return Observed.from_indices(
            rows.astype(np.int64), columns.astype(np.int64), values, header.shape
        )
    return Observed.from_indices(i.astype(np.int64), j.astype(np.int64), values, header.shape)


def _from_array(header: _Header, values: NDArray[Any]) -> Observed:
    m, n = header.shape
    if header.symmetry == "general":
        return Observed.from_dense(values.reshape(n, m).T)
    # the lower triangle by columns is the upper triangle of the transpose by rows
    symmetric = header.symmetry == "symmetric"
    columns, rows = np.triu_indices(m, 0 if symmetric else 1)
    out = np.zeros((m, m))
    out[columns, rows] = values if symmetric else -values
    out[rows, columns] = values
    return Observed.from_dense(out)
