"""Reader of wide files: a line per row, a field per column, empty where nothing was observed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.ids import listed_ids, require_distinct
from robustmf.data.observed import Observed
from robustmf.data.tables import COLUMN_IDS, ROW_IDS, VALUES, is_label_name, known_position
from robustmf.io.reading.options import OPTIONS
from robustmf.io.reading.source import Source

#: Fields that stand for a missing value.
MISSING = (
    *("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "None"),
    *("-", "--", "?"),
)

#: A number with a decimal comma.
_DECIMAL_COMMA = re.compile(r"\s*[-+]?[0-9]+,[0-9]+([eE][-+]?[0-9]+)?\s*")

#: A number with a percent sign or thousands separators, which is not read as a number.
_NOTATION = re.compile(r"\s*[-+]?[0-9][0-9.,' ]*%?\s*")

#: An integer, of at most as many digits as Python converts whatever its settings.
_INTEGER = re.compile(r"\s*-?[0-9]{1,640}\s*")


@dataclass(frozen=True)
class WideLayout:
    """The layout of a wide text file.

    Parameters
    ----------
    delimiter : str
        The character between two fields.
    names : tuple of str
        Names of the fields in the header; empty without a header.
    row : int or None
        Position of the row ids, counted from 0; None if rows are numbered.
    n_fields : int
        Number of fields of a line.
    text_ids : bool, default=True
        Whether the row ids are text; otherwise they are integers.
    missing : tuple of float, default=()
        Numbers that stand for missing values, besides empty fields.
    omitted : tuple of int, default=()
        Positions of fields that are not columns of the matrix.
    count : int or None, default=None
        Position of the field that is the number of the values of its line; None without one.
    decimal : str, default="."
        The decimal mark of numbers, "." or ",".
    """

    delimiter: str
    names: tuple[str, ...]
    row: int | None
    n_fields: int
    text_ids: bool = True
    missing: tuple[float, ...] = ()
    omitted: tuple[int, ...] = ()
    count: int | None = None
    decimal: str = "."

    @property
    def value_positions(self) -> list[int]:
        """Positions of the fields that hold values."""
        return [k for k in range(self.n_fields) if k != self.row and k not in self.omitted]

    @property
    def missing_field(self) -> str:
        """How a missing value is written: as the one number that stands for it, or empty."""
        if len(self.missing) == 1:
            return f"{self.missing[0]:.15g}".replace(".", self.decimal)
        return "NaN" if self.delimiter == " " else ""  # programs take several spaces for one

    def is_missing(self, field: str) -> bool:
        """Whether a field stands for a missing value."""
        if field.strip() in MISSING:
            return True
        try:
            return float(field.replace(self.decimal, ".")) in self.missing
        except ValueError:
            return False

    def __str__(self) -> str:
        from robustmf.io.reading.layout import separation  # noqa: PLC0415 - it imports this module

        labels = self.names or tuple(f"field {k + 1}" for k in range(self.n_fields))
        if self.row is None:
            rows = "rows numbered from 0"
        else:
            name = labels[self.row] or "the first column"
            rows = f"row={name} ({'text' if self.text_ids else 'integer'})"
        header = "header" if self.names else "no header, columns numbered from 0"
        codes = "".join(f", {code:g} is missing" for code in self.missing)
        codes += "".join(f", {labels[k]} is omitted" for k in self.omitted)
        return f"{separation(self.delimiter, self.decimal)}, {header}; wide, {rows}{codes}"


def looks_wide(names: Sequence[str], lines: list[list[str]]) -> bool:
    """Whether a table is wide, from its names and first lines.

    It has no names of row ids, column ids and values (at most one of these). It has more than five
    fields, of which each after the first is a number or missing in most lines; the others are
    errors, which reading it reports. Or all fields after the first are numbers or missing, and the
    first one has no name, as an index that pandas wrote, or that of a label and no value twice, or
    the second one, which would be the column id of a long table, is missing or not an integer
    somewhere.
    """
    roles = (ROW_IDS, COLUMN_IDS, VALUES)
    if sum(known_position(names, known, -1) >= 0 for known in roles) > 1:
        return False
    n_fields = len(lines[0]) if lines else 0
    same = [line for line in lines if len(line) == n_fields]
    if n_fields < 3:
        return False
    if n_fields > OPTIONS.max_long_fields:
        return all(_are_mostly_numbers([line[k] for line in same]) for k in range(1, n_fields))
    if not all(is_number_or_missing(one) for line in same for one in line[1:]):
        return False
    has_index = bool(names) and not names[0].strip()
    labels = [line[0] for line in same]
    has_index = has_index or (
        bool(names)
        and is_label_name(names[0])
        and len(labels) > 2
        and len(set(labels)) == len(labels)
    )
    return has_index or not all(_is_integer(line[1]) for line in same)


def _are_mostly_numbers(fields: Sequence[str]) -> bool:
    """Whether at least half of the fields are numbers in any notation, or missing."""
    n_numbers = sum(
        is_number_or_missing(field) or _NOTATION.fullmatch(field) is not None for field in fields
    )
    return 2 * n_numbers >= len(fields)


def has_decimal_commas(lines: list[list[str]]) -> bool:
    """Whether some fields are numbers with a decimal comma, and none with a decimal point."""
    fields = [field for line in lines for field in line]
    return any(_DECIMAL_COMMA.fullmatch(field) for field in fields) and not any(
        "." in field and is_number_or_missing(field) for field in fields
    )


def with_point(field: str) -> str:
    """A number with a decimal comma as one with a decimal point; other fields as they are."""
    return field.replace(",", ".") if _DECIMAL_COMMA.fullmatch(field) else field


def count_position(layout: WideLayout, lines: list[list[str]]) -> int | None:
    """The position of the first field, if it is the number of the values of its line.

    It is not if a header names it, or if all lines have as many values.
    """
    same = [line for line in lines if len(line) == layout.n_fields]
    if layout.names or layout.row is not None or not all(_is_integer(line[0]) for line in same):
        return None
    counts = [int(line[0]) for line in same]
    values = [sum(not layout.is_missing(field) for field in line[1:]) for line in same]
    return 0 if counts == values and len(set(counts)) > 1 else None


def is_header(first: Sequence[str], lines: list[list[str]]) -> bool:
    """Whether a first line with numbers, such as years, names the columns of a wide file.

    Its first field has no name, as that of an index that pandas wrote, or that of a label; or the
    other fields are strictly increasing integers, as those of no later line, which are the values
    of a wide file. A file of integers alone has no header.
    """
    if is_label_name(first[0]):
        return True
    if not _are_increasing(first[1:]) or not lines:
        return False
    if any(_are_increasing(line[1:]) for line in lines):
        return False
    if _is_integer(first[0]) and all(_is_integer(field) for line in lines for field in line):
        return False  # a matrix of integers
    return looks_wide((), lines)


def _are_increasing(fields: Sequence[str]) -> bool:
    if not all(_is_integer(field) for field in fields):
        return False
    numbers = [int(field) for field in fields]
    return all(low < high for low, high in pairwise(numbers))


def label_position(names: Sequence[str], lines: list[list[str]]) -> int | None:
    """The position of the row labels of a wide file: the first field, or none."""
    has_text = not all(is_number_or_missing(line[0]) for line in lines if line)
    return 0 if has_text or (names and is_label_name(names[0])) else None


def is_number_or_missing(field: str) -> bool:
    """Whether a field is a number or stands for a missing value."""
    try:
        float(field)
    except ValueError:
        return field.strip() in MISSING
    return True


def _is_integer(field: str) -> bool:
    return _INTEGER.fullmatch(field) is not None


def read_wide(source: Source, layout: WideLayout, dtype: str = "float64") -> Observed:
    """The entries of a wide text file; its labels are the ids."""
    columns = [layout.names[k] for k in layout.value_positions] if layout.names else None
    if layout.n_fields > OPTIONS.max_arrow_columns:
        values, labels = _read_lines(source, layout, dtype)
    else:
        values, labels = _read_columns(source, layout, dtype)
    label = None if layout.row is None or not layout.names else layout.names[layout.row]
    return wide_entries(values, labels, columns, layout.missing, label)


def _read_columns(source: Source, layout: WideLayout, dtype: str) -> tuple[NDArray[Any], Any]:
    """The cells and the row labels, from a table with an Arrow column per field."""
    import pyarrow as pa  # noqa: PLC0415 - import deferred until a file is read

    from robustmf.io.reading.delimited import read_fields  # noqa: PLC0415 - as above

    names = [str(k) for k in range(layout.n_fields)]
    types = {names[k]: pa.type_for_alias(dtype) for k in layout.value_positions}
    if layout.row is not None:
        types[names[layout.row]] = pa.string() if layout.text_ids else pa.int64()
    table = read_fields(source, layout, names, types, MISSING)
    values = np.column_stack([table[names[k]].to_numpy() for k in layout.value_positions])
    return values, None if layout.row is None else table[names[layout.row]]


def _read_lines(source: Source, layout: WideLayout, dtype: str) -> tuple[NDArray[Any], Any]:
    """The same line by line: memory is bounded by the size of the text, whatever its fields."""
    import pyarrow as pa  # noqa: PLC0415 - import deferred until a file is read
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    from robustmf.io.reading.delimited import locate_fault  # noqa: PLC0415 - as above
    from robustmf.io.reading.layout import (  # noqa: PLC0415 - it imports this module
        header_lines,
        records,
        split,
    )

    missing = pa.array(MISSING)
    positions = layout.value_positions
    rows = []
    labels: list[str] = []
    header = header_lines(source, layout)
    try:
        for number, line in records(source.text(), layout.delimiter):
            if number <= header or not line.strip("\r\n"):
                continue
            fields = split(line, layout.delimiter)
            if len(fields) != layout.n_fields:
                raise pa.ArrowInvalid(f"line {number} has {len(fields)} fields")
            if layout.row is not None:
                labels.append(fields[layout.row])
            cells = pa.array([fields[k] for k in positions], pa.string())
            if layout.decimal == ",":
                cells = pc.replace_substring(cells, ",", ".")
            cells = pc.if_else(pc.is_in(cells, missing), None, cells)
            numbers = pc.cast(pc.ascii_trim_whitespace(cells), pa.type_for_alias(dtype))
            rows.append(numbers.to_numpy(zero_copy_only=False))
        ids = pa.array(labels, pa.string())
        if not layout.text_ids:
            ids = pc.cast(pc.ascii_trim_whitespace(ids), pa.int64())
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        raise locate_fault(source, layout) or source.fault(" ".join(str(error).split())) from None
    if not rows:
        raise source.fault("there are no lines after the header; expected lines of ids and values")
    return np.vstack(rows), None if layout.row is None else ids


def wide_entries(
    values: NDArray[Any],
    labels: Any,
    columns: list[str] | None,
    missing: Sequence[float],
    label: str | None = None,
) -> Observed:
    """Entries of cells with labels; the numbers ``missing`` are not observed.

    ``label`` is the name of the column of row labels.
    """
    if missing:
        values = np.where(np.isin(values, missing), np.nan, values)
    entries = Observed.from_dense(values)
    row_ids = None if labels is None else listed_ids(labels, "row")
    column_ids = None if columns is None else listed_ids(columns, "column")
    require_distinct(row_ids, "row", label)
    require_distinct(column_ids, "column")
    return Observed(entries.rows, entries.shape, row_ids, column_ids)
