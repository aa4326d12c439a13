"""Reader of delimited text, based on Arrow; the first malformed line is found and named."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from robustmf.exceptions import MalformedFileError
from robustmf.io.reading.layout import Layout, header_lines, quoted, records, split
from robustmf.io.reading.options import OPTIONS
from robustmf.io.reading.source import Source
from robustmf.io.reading.wide import MISSING, WideLayout, with_point

#: Position of a field, what it holds, and a function that returns a remedy if it is malformed.
Check = tuple[int, str, Callable[[str], str | None]]

#: Integers that Arrow reads are below this in magnitude. Python converts up to 4300 digits.
_INTEGER_LIMIT = 2**63
_INTEGER = re.compile(r"[ \t]*-?[0-9]{1,1000}[ \t]*")


def read_delimited(
    source: Source, layout: Layout, dtype: str = "float64"
) -> tuple[pa.Table, tuple[str, str, str]]:
    """The three columns as an Arrow table, and their names; missing values are null."""
    # Arrow splits at one character; with "::" every second field is the empty one between colons
    step = len(layout.delimiter)
    n_fields = step * (layout.n_fields - 1) + 1
    names = [str(k) for k in range(n_fields)]
    row, col, value = (str(step * position) for position in (layout.row, layout.col, layout.value))
    types = {name: pa.null() for k, name in enumerate(names) if k % step} if step > 1 else {}
    for name, text in zip((row, col), layout.text_ids, strict=True):
        types[name] = pa.string() if text else pa.int64()
    types[value] = pa.type_for_alias(dtype)
    table = read_fields(source, layout, names, types, layout.missing_texts)
    chosen = table.select([row, col, value])
    if (
        any(chosen[name].null_count or _has_empty(chosen[name]) for name in (row, col))
        or not pc.all(pc.is_finite(chosen[value]), min_count=0).as_py()
    ):
        raise locate_fault(source, layout) or source.fault(
            "an id is missing or a value is not finite; remove such lines"
        )
    return chosen, (row, col, value)


def _has_empty(ids: pa.ChunkedArray) -> bool:
    """Whether some of the ids are empty texts."""
    if not pa.types.is_string(ids.type):
        return False
    return bool(pc.any(pc.equal(pc.binary_length(ids), 0), min_count=0).as_py())


def read_fields(
    source: Source,
    layout: Layout | WideLayout,
    names: list[str],
    types: dict[str, Any],
    missing: Sequence[str],
) -> pa.Table:
    """The fields of a text file of these types; those not listed are left out.

    Parameters
    ----------
    source : Source
        The file.
    layout : Layout or WideLayout
        Its layout.
    names : list of str
        Names of all fields, separated by the first character of the delimiter.
    types : dict
        Arrow's types of the fields to read.
    missing : sequence of str
        Texts of numbers that are null.
    """
    simple = len(layout.delimiter) == 1
    convert = pacsv.ConvertOptions(
        column_types=types,
        include_columns=list(types),
        null_values=list(missing),
        strings_can_be_null=False,
        decimal_point=layout.decimal,
    )
    read_options = pacsv.ReadOptions(column_names=names, skip_rows=header_lines(source, layout))
    parse_options = pacsv.ParseOptions(
        delimiter=layout.delimiter[0], quote_char='"' if simple else False
    )
    try:
        with source.open() as stream:
            table = pacsv.read_csv(stream, read_options, parse_options, convert)
    except pa.ArrowInvalid:
        # a block may have ended within a quoted field of several lines, for which Arrow is slower,
        # or a line may be longer than a block
        parse_options.newlines_in_values = simple
        size = OPTIONS.max_compression * source.path.stat().st_size
        read_options.block_size = max(OPTIONS.arrow_bytes, min(OPTIONS.max_arrow_bytes, size))
        try:
            with source.open() as stream:
                table = pacsv.read_csv(stream, read_options, parse_options, convert)
        except pa.ArrowInvalid as error:
            raise locate_fault(source, layout) or source.fault(
                f"{' '.join(str(error).split())}"
            ) from None
    if not table.num_rows:
        raise source.fault("there are no lines after the header; expected lines of ids and values")
    return table


def locate_fault(source: Source, layout: Layout | WideLayout) -> MalformedFileError | None:
    """The error of the first line that does not have the layout."""
    checks = _wide_checks(layout) if isinstance(layout, WideLayout) else _long_checks(layout)
    missing = MISSING if isinstance(layout, WideLayout) else layout.missing_texts
    header = header_lines(source, layout)
    for number, line in records(source.text(), layout.delimiter):
        if number <= header or not line.strip("\r\n"):
            continue
        fields = split(line, layout.delimiter)
        if len(fields) != layout.n_fields:
            return source.fault(
                f"expected {layout.n_fields} fields, as in the first line, got {len(fields)} in "
                f"{quoted(line)}; correct or remove the line",
                number,
            )
        for position, what, check in checks:
            field = fields[position]
            if check is _check_value:
                if field in missing:
                    continue
                if layout.decimal == ",":
                    field = with_point(field)
            if (remedy := check(field)) is not None:
                return source.fault(f"{what} {quoted(fields[position])} {remedy}", number)
    return None


def _long_checks(layout: Layout) -> list[Check]:
    return [
        (layout.row, "row id", _check_text_id if layout.text_ids[0] else _check_integer),
        (layout.col, "column id", _check_text_id if layout.text_ids[1] else _check_integer),
        (layout.value, "value", _check_value),
    ]


def _wide_checks(layout: WideLayout) -> list[Check]:
    checks: list[Check] = [(k, "value", _check_value) for k in layout.value_positions]
    if layout.row is not None:
        checks.append((layout.row, "row id", _check_text if layout.text_ids else _check_integer))
    return checks


def _check_integer(field: str) -> str | None:
    # Arrow does not accept "+5" and "1_000", which Python does
    valid = _INTEGER.fullmatch(field) is not None and -_INTEGER_LIMIT <= int(field) < _INTEGER_LIMIT
    if valid:
        return None
    return "is not an integer as the first ids are; correct the line, or pass text_ids=True"


def _check_text(field: str) -> str | None:
    try:
        field.encode()
    except UnicodeEncodeError:
        return "is not UTF-8; convert the file, e.g. with iconv"
    return None


def _check_text_id(field: str) -> str | None:
    return _check_text(field) if field else "is missing; correct or remove the line"


def _check_value(field: str) -> str | None:
    try:
        finite = math.isfinite(float(field)) and field.isascii() and "_" not in field
    except ValueError:
        finite = False
    return None if finite else f"is not a finite number; {_remedy(field)}"


def _remedy(field: str) -> str:
    """The remedy for a value that is not a number; often the whole file has another notation."""
    if "\0" in field:
        return "the file looks like UTF-16: convert it, e.g. with iconv -f UTF-16 -t UTF-8"
    if "," in field and field.strip().lstrip("+-").replace(",", "").replace(".", "").isdigit():
        return (
            "write numbers without thousands separators, with one decimal mark (decimal=',' or "
            "--decimal , if it is a comma), as 1234.5"
        )
    if field.strip().endswith("%"):
        return "write numbers without the percent sign"
    return "correct or remove the line"
