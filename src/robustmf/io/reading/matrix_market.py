"""Matrix Market files (Boisvert, Pozo and Remington, NISTIR 5935), read line by line: a damaged one is an error with its line.

SciPy's reader is quicker, but follows a file that is cut short or damaged out of bounds (seen with SciPy 1.17: the process dies).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.observed import Observed
from robustmf.io.reading.layout import shown
from robustmf.io.reading.plausible import require_plausible, require_plausible_shape
from robustmf.io.reading.source import Source

_FORMS, _FIELDS, _KINDS = (
    ("coordinate", "array"),
    ("real", "double", "integer", "pattern"),
    ("general", "symmetric", "skew-symmetric"),
)
_BANNER = "%%MatrixMarket matrix coordinate real general"


@dataclass(frozen=True)
class _Header:
    """What the lines above the numbers say; ``line`` is the last of them."""

    form: str
    field: str
    kind: str
    shape: tuple[int, int]
    claimed: int
    line: int

    @property
    def wanted(self) -> int:
        """Lines of numbers: those announced, or all values of an array, of a symmetric one the lower half."""
        (m, n), half = self.shape, 0 if self.kind == "symmetric" else 1
        if self.form == "coordinate":
            return self.claimed
        return m * n if self.kind == "general" else (m - half) * (m - half + 1) // 2

    @property
    def fields(self) -> int:
        """Numbers in each of them."""
        return 1 if self.form == "array" else 2 + (self.field != "pattern")


def read_matrix_market(source: Source) -> Observed:
    """A Matrix Market file: the entries of a coordinate file, all entries of an array file (NaN is missing)."""
    lines = ((number, line) for number, line in enumerate(source.text(), 1))
    header = _header(source, lines)
    # the shortest line of an entry is "1 1" with its newline, of an array "1"
    require_plausible(
        source, 2 * header.fields * header.wanted, "bytes of text", source.path.suffix != ".mtx"
    )
    require_plausible_shape(source, header.shape, header.wanted)
    numbers = _numbers(source, header, lines)
    return (
        _coordinates(source, header, numbers)
        if header.form == "coordinate"
        else _dense(header, numbers[:, 0])
    )


def _header(source: Source, lines: Iterator[tuple[int, str]]) -> _Header:
    words = next(lines, (0, ""))[1].lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise source.fault(f"not a Matrix Market file; expected {_BANNER!r}", 1)
    for word, allowed in zip(words[2:], (_FORMS, _FIELDS, _KINDS), strict=True):
        if word not in allowed:
            raise source.fault(
                f"{word!r} is not one of {', '.join(allowed)}; convert the matrix", 1
            )
    form, field, kind = words[2:]
    number, line = next(_content(lines), (1, ""))
    sizes = line.split()
    if len(sizes) != (3 if form == "coordinate" else 2) or not all(
        size.isascii() and size.isdecimal() for size in sizes
    ):
        raise source.fault(
            f"expected rows, columns{' and entries' if form == 'coordinate' else ''}, got {shown(line)}",
            number,
        )
    if max(map(len, sizes)) > 18:
        raise source.fault(
            f"the size {shown(line)} is beyond all measure; the file is damaged or a trap", number
        )
    m, n, claimed = (*map(int, sizes), 0)[:3]
    if kind != "general" and m != n:
        raise source.fault(f"a {kind} matrix must be square, got {m} x {n}", number)
    if form == "array" and field == "pattern":
        raise source.fault("an array file has values; 'pattern' is for coordinate files", 1)
    return _Header(form, field, kind, (m, n), claimed, number)


def _content(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Lines that are neither comments nor empty."""
    return ((number, line) for number, line in lines if line.strip() and not line.startswith("%"))


def _numbers(
    source: Source, header: _Header, lines: Iterator[tuple[int, str]]
) -> NDArray[np.float64]:
    """The numbers, one line each; not a line more is read than was announced."""
    wanted = header.wanted
    body = (line for _, line in islice(_content(lines), wanted + 1))
    first = next(body, None)  # NumPy warns of nothing
    try:
        numbers = (
            np.empty((0, header.fields))
            if first is None
            else np.loadtxt(chain([first], body), np.float64, comments=None, ndmin=2)
        )
    except ValueError:
        numbers = np.empty((0, 0))
    if numbers.shape != (wanted, header.fields):
        raise _first_fault(source, header)
    return numbers


def _first_fault(source: Source, header: _Header) -> Exception:
    """The first line that is not as the header says."""
    body = ((number, line) for number, line in enumerate(source.text(), 1) if number > header.line)
    count = 0
    for number, line in _content(body):
        count += 1
        if count > header.wanted:
            return source.fault(
                f"more lines than the {header.wanted} that the header announces, {shown(line)} is the first",
                number,
            )
        if len(line.split()) != header.fields or not all(map(_is_number, line.split())):
            return source.fault(
                f"expected {header.fields} number(s), got {shown(line)}; correct or remove the line",
                number,
            )
    return source.fault(
        f"the header announces {header.wanted} lines of numbers, but {count} follow; the file is cut short"
    )


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return word.isascii() and "_" not in word


def _coordinates(source: Source, header: _Header, numbers: NDArray[np.float64]) -> Observed:
    i, j = numbers[:, 0] - 1, numbers[:, 1] - 1
    values = numbers[:, 2] if header.fields == 3 else np.ones(len(numbers))
    (m, n), places = header.shape, numbers[:, :2]
    wrong = ~((i >= 0) & (i < m) & (j >= 0) & (j < n) & (places == np.floor(places)).all(axis=1))
    if wrong.any():
        k = int(np.argmax(wrong))
        raise source.fault(
            f"entry {k + 1} is at row {places[k, 0]:g}, column {places[k, 1]:g}, which are not from 1 to {m} and {n}"
        )
    if header.kind != "general":
        apart = i != j
        sign = 1 if header.kind == "symmetric" else -1
        i, j = np.concatenate([i, j[apart]]), np.concatenate([j, i[apart]])
        values = np.concatenate([values, sign * values[apart]])
    return Observed.from_indices(i.astype(np.int64), j.astype(np.int64), values, header.shape)


def _dense(header: _Header, values: NDArray[Any]) -> Observed:
    m, n = header.shape
    if header.kind == "general":
        return Observed.from_dense(values.reshape(n, m).T)
    # column by column, the lower half; np.triu_indices counts the same places row by row of the transposed matrix
    out, (columns, rows) = (
        np.zeros((m, m)),
        np.triu_indices(m, 0 if header.kind == "symmetric" else 1),
    )
    out[columns, rows] = values if header.kind == "symmetric" else -values
    out[rows, columns] = values
    return Observed.from_dense(out)
