"""The layout of a text file of ratings, given or guessed from its first lines."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import AnyStr

from robustmf.data.tables import COLUMN_IDS, ROW_IDS, VALUES, known_position
from robustmf.io.reading.options import OPTIONS
from robustmf.io.reading.source import Source
from robustmf.io.reading.wide import (
    MISSING,
    WideLayout,
    count_position,
    has_decimal_commas,
    is_header,
    label_position,
    looks_wide,
    with_point,
)

#: Delimiters in the order in which they are tried.
DELIMITERS = ("::", "\t", ",", ";", "|", " ")
_DELIMITER_NAMES = {"\t": "tab", ",": "comma", " ": "space", ";": "semicolon", "|": "bar"}

#: An integer that text_ids=False does not change: without leading zeros.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")


#: A number with a fractional part that is not zero.
_DECIMAL = re.compile(r"[-+]?[0-9]*\.[0-9]*[1-9][0-9]*")


@dataclass(frozen=True)
class Layout:
    """The layout of a text file of ratings.

    Parameters
    ----------
    delimiter : str
        The text between two fields, e.g. "," or the "::" of MovieLens.
    names : tuple of str
        Names of the fields in the header; empty without a header.
    row, col, value : int
        Positions of row id, column id and value, counted from 0.
    n_fields : int
        Number of fields of a line.
    text_ids : tuple of bool
        Whether the row ids and the column ids are text; otherwise they are integers.
    decimal : str, default="."
        The decimal mark of numbers, "." or ",".
    missing : tuple of float, default=()
        Numbers that stand for missing values, besides empty fields. A line without a value is no
        entry.
    """

    delimiter: str
    names: tuple[str, ...]
    row: int
    col: int
    value: int
    n_fields: int
    text_ids: tuple[bool, bool]
    decimal: str = "."
    missing: tuple[float, ...] = ()

    @property
    def missing_texts(self) -> tuple[str, ...]:
        """Texts of missing values; only empty ones if the delimiter is repeated.

        Arrow would accept the others between the characters of the delimiter, too.
        """
        return MISSING if len(self.delimiter) == 1 else ("",)

    @property
    def has_known_names(self) -> bool:
        """Whether at least two of the three columns are known by name."""
        positions = (self.row, self.col, self.value)
        return bool(self.names) and known_names(*(self.names[k] for k in positions))

    def __str__(self) -> str:
        labels = self.names or tuple(f"field {k + 1}" for k in range(self.n_fields))
        kinds = [
            f"{labels[k]} ({'text' if text else 'integer'})"
            for k, text in zip((self.row, self.col), self.text_ids, strict=True)
        ]
        header = "header" if self.names else "no header"
        codes = "".join(f", {code:g} is missing" for code in self.missing)
        return (
            f"{separation(self.delimiter, self.decimal)}, {header}; "
            f"row={kinds[0]}, col={kinds[1]}, value={labels[self.value]}{codes}"
        )


def known_names(row: str, col: str, value: str) -> bool:
    """Whether at least two of three columns have known names of row ids, column ids and values."""
    roles = ((row, ROW_IDS), (col, COLUMN_IDS), (value, VALUES))
    return sum(known_position([name], of_role, -1) >= 0 for name, of_role in roles) > 1


def not_ids(name: str, content: str) -> str:
    """The error about a column that was taken for ids although nothing but its position says so."""
    return (
        f"is neither a wide table nor one with a line per entry: {quoted(name)}, which would be a "
        f"column of ids, holds {content}; in a wide table all columns but the first are numbers: "
        "omit the others (--omit) and name the labels (row=, --row); otherwise name row=, col= and "
        "value="
    )


def split(line: str, delimiter: str) -> list[str]:
    """The fields of a line, unquoted."""
    line = line.rstrip("\r\n")
    if len(delimiter) > 1:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # a field that is too long; the line is reported as malformed
        return []


def quote_stays_open(line: AnyStr, delimiter: AnyStr, quote: AnyStr, inside: bool) -> bool:
    """Whether a line ends within a quoted field, which then continues on the next line.

    As for Arrow, a quote is special at the beginning of a field only, and a doubled one stands for
    the character.

    Parameters
    ----------
    line, delimiter, quote : str or bytes
        The line, and the two characters.
    inside : bool
        Whether it begins within a quoted field.
    """
    position = 0
    while True:
        if inside:
            end = line.find(quote, position)
            if end < 0:
                return True
            if line[end + 1 : end + 2] == quote:
                position = end + 2
                continue
            inside = False
            position = end + 1
        elif line[position : position + 1] == quote:
            inside = True
            position += 1
            continue
        position = line.find(delimiter, position) + 1
        if not position:
            return False


def records(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, str]]:
    """The records of a text with the number of their first line; a quoted field may have several.

    Parameters
    ----------
    lines : iterable of str
        The lines with their line endings.
    delimiter : str
        The text between two fields. If it is longer than a character, quotes are not special.
    """
    parts: list[str] = []
    for number, line in enumerate(lines, 1):
        is_open = bool(parts)
        if len(delimiter) == 1 and (is_open or '"' in line):
            is_open = quote_stays_open(line, delimiter, '"', is_open)
        parts.append(line)
        if not is_open:
            yield number - len(parts) + 1, "".join(parts)
            parts = []
    if parts:
        yield number - len(parts) + 1, "".join(parts)


def header_lines(source: Source, layout: Layout | WideLayout) -> int:
    """The number of lines up to the header, which blank ones may precede; 0 without a header."""
    if not layout.names:
        return 0
    return next((number for number, line in enumerate(source.text(), 1) if line.strip()), 1)


def guess_layout(
    path: str | Path | Source,
    *,
    row: str | int | None = None,
    col: str | int | None = None,
    value: str | int | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    text_ids: bool | None = None,
    wide: bool | None = None,
    missing: Sequence[float] = (),
    omit: Sequence[str | int] | None = None,
    decimal: str | None = None,
) -> Layout | WideLayout:
    """Guess the layout of a text file from its first lines.

    Parameters
    ----------
    path : path or Source
        The file.
    row, col, value : str or int, default=None
        Name of the column in the header, or its position counted from 0. If None, guessed from
        common names ("userId", "movie_id", "rating", …); without these, the first three columns.
    delimiter : str, default=None
        One character, which may be repeated. If None, the first of "::", tab, comma, semicolon, bar
        and space that gives at least three fields; not a comma if a later one gives numbers with a
        decimal comma.
    header : bool, default=None
        Whether the first line names the columns. If None, whether none of its fields is a number,
        or the first one has no name or that of a label ("time", "station", …), or, in a wide file,
        all others are increasing integers such as years, as in no later line.
    text_ids : bool, default=None
        Whether ids are text. If None, this is guessed for each column: the ids are integers if the
        first hundred are, without leading zeros.
    wide : bool, default=None
        Whether a line has a field for every column of the matrix, instead of a row id, a column id
        and a value. If None, this is guessed: no two of the names of these three are there, and
        there are more than five fields, of which each after the first is a number or missing in
        most lines; or all fields after the first are numbers or missing, and the first has no name,
        or that of a label ("time", "id", …) and no value twice, or the second is not always an
        integer. The row ids of a wide file are the column ``row``; if None, the first one, if it is
        not a number or named as a label ("time", "id", …).
    missing : sequence of float, default=()
        Numbers that stand for missing values, besides empty fields, "NA", "NaN", "-" and similar
        words. A line of a long file whose value is missing is no entry.
    omit : sequence of str or int, default=None
        Names or positions of fields of a wide file that are not columns of the matrix. If None, the
        first field of a file without a header, if it is the number of the values of its line, as in
        the files of Jester.
    decimal : {".", ","}, default=None
        The decimal mark of numbers. If None, a comma if it is not the delimiter and some fields are
        numbers with a decimal comma, none with a decimal point.

    Returns
    -------
    Layout or WideLayout

    Raises
    ------
    MalformedFileError
        If the file is empty, or no delimiter gives three fields.
    """
    source = path if isinstance(path, Source) else Source(Path(path))
    if source.path.suffix.lower() in (".xls", ".xlsx"):
        raise source.fault(
            "files of Excel are not read: save it as CSV or Parquet; those of Jester are read by "
            "robustmf.datasets.load_jester"
        )
    lines = _first_lines(source)
    if not lines:
        raise source.fault("the file is empty; expected lines of row id, column id and value")
    if delimiter is None:
        delimiter = _guess_delimiter(lines[0])
    if not delimiter:
        raise source.fault(
            f"no delimiter gives three fields in {quoted(lines[0])}; pass delimiter=", 1
        )
    if len(set(delimiter)) > 1:
        raise ValueError(
            f"delimiter must be one character, which may be repeated, got delimiter={delimiter!r}"
        )
    first = split(lines[0], delimiter)
    if lines[0].startswith("#") and len(split(lines[-1], delimiter)) != len(first):
        raise source.fault(
            f"{quoted(lines[0])} looks like a comment; remove it, so that the first line names the "
            "columns or is a row",
            1,
        )
    if len(first) > OPTIONS.max_fields:
        raise source.fault(
            f"{len(first):,} fields, more than the {OPTIONS.max_fields:,} that are read; "
            "write a line per entry, or Parquet",
            1,
        )
    named = any(isinstance(one, str) for one in (row, col, value, *(omit or ())))
    sampled = [split(one, delimiter) for _, one in records(lines, delimiter)]
    if decimal is None:
        decimal = "," if delimiter != "," and has_decimal_commas(sampled) else "."
    if decimal not in (".", ",") or decimal == delimiter:
        raise ValueError(
            f"decimal must be '.' or ',', and not the delimiter, got decimal={decimal!r}"
        )
    if decimal == ",":
        sampled = [[with_point(field) for field in line] for line in sampled]
    if header is None:
        begin, *later = sampled
        header = named or not any(_is_number(field) for field in begin) or is_header(begin, later)
    names = tuple(name.strip() for name in first) if header else ()
    if named and not header:
        raise ValueError(
            f"row={row!r}, col={col!r}, value={value!r}: columns have names only with "
            "header=True; give positions counted from 0"
        )
    fields = sampled[int(header) :]
    is_guessed = wide is None and text_ids is None and row is col is value is None
    if wide is None:
        wide = col is None and value is None and len(delimiter) == 1 and looks_wide(names, fields)
    if wide:
        found = _wide_layout(
            source, delimiter, names, fields, len(first), (row, col, value), text_ids, missing
        )
        count = count_position(found, fields)
        if omit is None:
            omit = () if count is None else (count,)
        omitted = tuple(_position(source, one, "omit", names, len(first), 0) for one in omit)
        return replace(
            found, omitted=omitted, count=count if count in omitted else None, decimal=decimal
        )
    if omit:
        raise ValueError(
            f"omit={list(omit)} must be given for a wide file only (wide=True); the other columns "
            "of a file with a line per entry are not read"
        )
    i, j, k = _positions(source, names, len(first), row, col, value)
    kinds = (
        (_are_text(fields, i), _are_text(fields, j)) if text_ids is None else (text_ids, text_ids)
    )
    codes = tuple(map(float, missing))
    layout = Layout(delimiter, names, i, j, k, len(first), kinds, decimal, codes)
    if is_guessed and not layout.has_known_names:
        _require_ids(source, layout, fields)
    return layout


def _require_ids(source: Source, layout: Layout, lines: list[list[str]]) -> None:
    """Refuse columns of ids that hold decimal numbers."""
    for position in (layout.row, layout.col):
        if number := _decimal_id(lines, position):
            label = layout.names[position] if layout.names else f"field {position + 1}"
            raise source.fault(not_ids(label, f"decimal numbers such as {number}"))


def _decimal_id(lines: list[list[str]], position: int) -> str | None:
    """One of the fields at a position if most of these are numbers with a fractional part."""
    fields = [line[position].strip() for line in lines if position < len(line)]
    decimals = [one for one in fields if _DECIMAL.fullmatch(one)]
    return decimals[0] if 2 * len(decimals) > len(fields) else None


def _guess_delimiter(line: str) -> str | None:
    """The first delimiter that gives three fields, if any; a comma may be a decimal mark."""
    found = [one for one in DELIMITERS if len(split(line, one)) >= 3]
    if found[:1] == [","]:
        with_commas = [one for one in found[1:] if has_decimal_commas([split(line, one)])]
        return next(iter(with_commas), ",")
    return next(iter(found), None)


def _first_lines(source: Source) -> list[str]:
    """Lines from which the layout is guessed, at least two where there are as many."""
    lines = []
    size = 0
    for line in islice(source.text(), OPTIONS.sampled_lines + 1):
        if line.strip():
            lines.append(line)
            size += len(line)
        if size > OPTIONS.sampled_characters and len(lines) >= 2:
            break
    return lines


def _wide_layout(
    source: Source,
    delimiter: str,
    names: tuple[str, ...],
    lines: list[list[str]],
    n_fields: int,
    given: tuple[str | int | None, str | int | None, str | int | None],
    text_ids: bool | None,
    missing: Sequence[float],
) -> WideLayout:
    """The layout of a wide file."""
    row, col, value = given
    if col is not None or value is not None:
        raise ValueError(
            f"{source}: col and value must not be given for a wide file, "
            f"got col={col!r}, value={value!r}"
        )
    if len(delimiter) > 1:
        raise ValueError(f"{source}: delimiter must be one character for a wide file")
    position = (
        label_position(names, lines)
        if row is None
        else _position(source, row, "row", names, n_fields, 0)
    )
    if text_ids is None:
        text_ids = position is None or _are_text(lines, position)
    return WideLayout(delimiter, names, position, n_fields, text_ids, tuple(map(float, missing)))


def column_names(
    source: Source,
    names: tuple[str, ...],
    row: str | int | None,
    col: str | int | None,
    value: str | int | None,
) -> tuple[str, str, str]:
    """Names of the three columns of a table; those not given are guessed as in guess_layout."""
    i, j, k = _positions(source, names, len(names), row, col, value)
    return names[i], names[j], names[k]


def pair_positions(
    source: Source,
    names: tuple[str, ...],
    n_fields: int,
    row: str | int | None,
    col: str | int | None,
) -> tuple[int, int]:
    """Positions of row id and column id in a file of pairs; those not given are guessed."""
    i = _position(source, row, "row", names, n_fields, known_position(names, ROW_IDS, 0))
    j = _position(source, col, "col", names, n_fields, known_position(names, COLUMN_IDS, 1))
    if i == j:
        raise ValueError(
            f"{source}: row and col must be two columns, got position {i} for both; "
            "pass row= and col="
        )
    return i, j


def separation(delimiter: str, decimal: str = ".") -> str:
    """A delimiter and a decimal mark in words."""
    mark = ", decimal comma" if decimal == "," else ""
    return f"{_DELIMITER_NAMES.get(delimiter, repr(delimiter))}-separated{mark}"


def _positions(
    source: Source,
    names: tuple[str, ...],
    n_fields: int,
    row: str | int | None,
    col: str | int | None,
    value: str | int | None,
) -> list[int]:
    """Positions of row id, column id and value."""
    positions = [
        _position(source, given, role, names, n_fields, known_position(names, known, default))
        for given, role, known, default in (
            (row, "row", ROW_IDS, 0),
            (col, "col", COLUMN_IDS, 1),
            (value, "value", VALUES, 2),
        )
    ]
    if len(set(positions)) < 3:
        raise ValueError(
            f"{source}: row, col and value must be three columns, got positions {positions}; "
            "pass row=, col= and value="
        )
    return positions


def _position(
    source: Source,
    given: str | int | None,
    role: str,
    names: tuple[str, ...],
    n_fields: int,
    default: int,
) -> int:
    """The position of one column: as given, by its name, or the default."""
    if isinstance(given, str):
        if given not in names:
            raise ValueError(
                f"{source}: {role}={given!r} is not a column; the header names {list(names)}"
            )
        return names.index(given)
    position = default if given is None else given
    if not 0 <= position < n_fields:
        raise ValueError(
            f"{source}: {role}={position} is not a position from 0 to {n_fields - 1}; "
            f"the first line has {n_fields} field(s)"
        )
    return position


def _are_text(fields: list[list[str]], position: int) -> bool:
    """Whether the ids at this position are not all integers of 64 bits without leading zeros."""
    ids = [line[position].strip() for line in fields if position < len(line)]
    return not all(_INTEGER.fullmatch(one) and -(2**63) <= int(one) < 2**63 for one in ids)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def quoted(line: str) -> str:
    """A line or a field, abbreviated and quoted, for error messages."""
    text = line.rstrip("\r\n").encode("utf-8", "backslashreplace").decode()
    return repr(text if len(text) <= 60 else text[:57] + "...")
