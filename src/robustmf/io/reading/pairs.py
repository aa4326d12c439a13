"""Pairs of a row and a column to predict at, from text or Parquet, and the same file with columns added."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from robustmf.io.reading.layout import DELIMITERS, pair_positions, separation, shown, split
from robustmf.io.reading.source import Source


@dataclass(frozen=True)
class Known:
    """The ids of one side that a model knows: what ids in a file are read as, and what a header is told by."""

    ids: Container[Any]
    integers: bool

    def read(self, field: str) -> Any:
        """The id that a field holds; text stays what it is where it is no integer."""
        if not self.integers:
            return field
        try:
            return int(field)
        except ValueError:
            return field


@dataclass(frozen=True)
class Pairs:
    """Ids of rows and columns in the order of the file.

    ``layout`` says in words how they were read. Of a text file ``lines`` are kept without their ends, ``header`` being the first, if
    any; of a Parquet file the whole ``table``.
    """

    rows: list[Any]
    cols: list[Any]
    layout: str
    delimiter: str = ","
    header: str | None = None
    lines: Sequence[str] = ()
    table: Any = None

    def text_with(self, added: dict[str, list[float | None]]) -> str:
        """The text of the file with columns added; None is an empty field."""
        out = StringIO()
        if self.header is not None:
            out.write(self.delimiter.join([self.header, *added]) + "\n")
        for line, *values in zip(self.lines, *added.values(), strict=True):
            out.write(
                self.delimiter.join(
                    [line, *("" if value is None else f"{value:.7g}" for value in values)]
                )
                + "\n"
            )
        return out.getvalue()

    def table_with(self, added: dict[str, list[float | None]]) -> Any:
        """The Arrow table with columns added."""
        import pyarrow as pa  # noqa: PLC0415 - only those who write Parquet pay for it

        table = self.table
        for name, values in added.items():
            table = table.append_column(name, pa.array(values, pa.float64()))
        return table


def read_pairs(
    path: Path,
    known: tuple[Known, Known],
    *,
    row: str | int | None = None,
    col: str | int | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
) -> Pairs:
    """Pairs from a file; whatever is given is not guessed.

    The first line of a text file is taken for a header unless it could be a pair: where ids are integers, if these are; else, if the
    model knows one of the two.
    """
    source = Source(path)
    if path.suffix.lower() == ".parquet":
        return _from_parquet(source, row, col)
    numbered = [
        (k, line.rstrip("\r\n")) for k, line in enumerate(source.text(), 1) if line.strip("\r\n")
    ]
    if not numbered:
        raise source.fault("the file is empty; expected lines of row id and column id")
    first = numbered[0][1]
    delimiter = delimiter or next((one for one in DELIMITERS if len(split(first, one)) >= 2), None)
    if delimiter is None:
        raise source.fault(f"no delimiter gives two fields in {shown(first)}; pass delimiter=", 1)
    names = tuple(name.strip() for name in split(first, delimiter))
    if header is None:
        header = (
            isinstance(row, str)
            or isinstance(col, str)
            or not _is_pair(source, names, known, row, col)
        )
    i, j = pair_positions(source, names if header else (), len(names), row, col)
    rows: list[Any] = []
    cols: list[Any] = []
    for number, line in numbered[int(header) :]:
        fields = split(line, delimiter)
        if len(fields) != len(names):
            raise source.fault(
                f"expected {len(names)} fields, as in the first line, got {len(fields)} in {shown(line)}",
                number,
            )
        for ids, side, place in ((rows, known[0], i), (cols, known[1], j)):
            ids.append(side.read(fields[place]))
            if side.integers and not isinstance(ids[-1], int):
                raise source.fault(
                    f"the id {shown(fields[place])} is not an integer like those of the model; correct the line",
                    number,
                )
    labels = names if header else tuple(f"field {k + 1}" for k in range(len(names)))
    layout = f"{separation(delimiter)}, {'' if header else 'no '}header; row={labels[i]}, col={labels[j]}"
    return Pairs(
        rows,
        cols,
        layout,
        delimiter,
        first if header else None,
        [line for _, line in numbered[int(header) :]],
    )


def _is_pair(
    source: Source,
    fields: tuple[str, ...],
    known: tuple[Known, Known],
    row: str | int | None,
    col: str | int | None,
) -> bool:
    places = pair_positions(source, (), len(fields), row, col)
    ids = [side.read(fields[place]) for side, place in zip(known, places, strict=True)]
    if any(side.integers for side in known):
        return all(
            isinstance(one, int) for one, side in zip(ids, known, strict=True) if side.integers
        )
    return any(one in side.ids for one, side in zip(ids, known, strict=True))


def _from_parquet(source: Source, row: str | int | None, col: str | int | None) -> Pairs:
    from robustmf.io.reading.parquet import opened  # noqa: PLC0415 - only those who read Parquet pay for it

    with opened(source) as file:
        table = file.read()
        names = tuple(table.column_names)
        i, j = pair_positions(source, names, len(names), row, col)
        return Pairs(
            table[names[i]].to_pylist(),
            table[names[j]].to_pylist(),
            f"Parquet; row={names[i]}, col={names[j]}",
            table=table,
        )
