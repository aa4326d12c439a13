"""Files of pairs of a row id and a column id, to which columns of predictions are added."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from robustmf.io.reading.layout import (
    DELIMITERS,
    pair_positions,
    quoted,
    records,
    separation,
    split,
)
from robustmf.io.reading.source import Source


@dataclass(frozen=True)
class Known:
    """The ids of the rows or columns of a model.

    They determine the type of the ids in a file, and whether its first line is a header.

    Parameters
    ----------
    ids : container
        The ids.
    integers : bool
        Whether they are integers.
    """

    ids: Container[Any]
    integers: bool

    def read(self, field: str) -> Any:
        """The id in a field: an integer if ids are integers and it is one, otherwise the text."""
        if not self.integers:
            return field
        try:
            return int(field)
        except ValueError:
            return field


@dataclass(frozen=True)
class Pairs:
    """Row ids and column ids in the order of the file.

    Parameters
    ----------
    rows, cols : list
        The ids.
    layout : str
        Description of the layout.
    delimiter : str, default=","
        The delimiter of a text file.
    header : str, default=None
        The first line of a text file, if it is a header.
    lines : sequence of str, default=()
        The other lines of a text file, without line endings.
    table : pyarrow.Table, default=None
        The content of a Parquet file.
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
            fields = ("" if value is None else f"{value:.7g}" for value in values)
            out.write(self.delimiter.join([line, *fields]) + "\n")
        return out.getvalue()

    def table_with(self, added: dict[str, list[float | None]]) -> Any:
        """The Arrow table with columns added."""
        import pyarrow as pa  # noqa: PLC0415 - import deferred until Parquet is written

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
    """Read pairs from a file.

    Parameters
    ----------
    path : Path
        Parquet (by the ending ``.parquet``) or delimited text.
    known : tuple of Known
        The ids of the rows and of the columns of the model.
    row, col : str or int, default=None
        Name or position of the columns; None guesses them.
    delimiter : str, default=None
        The delimiter; None guesses it.
    header : bool, default=None
        Whether the first line is a header. If None, it is one unless it could be a pair: if ids
        are integers, both fields are; otherwise, the model knows one of the two ids.

    Returns
    -------
    Pairs
    """
    source = Source(path)
    if path.suffix.lower() == ".parquet":
        return _from_parquet(source, row, col)
    text = list(source.text())
    first = next((line.rstrip("\r\n") for line in text if line.strip("\r\n")), None)
    if first is None:
        raise source.fault("the file is empty; expected lines of row id and column id")
    delimiter = delimiter or next((one for one in DELIMITERS if len(split(first, one)) >= 2), None)
    if delimiter is None:
        raise source.fault(f"no delimiter gives two fields in {quoted(first)}; pass delimiter=", 1)
    numbered = [
        (number, record.rstrip("\r\n"))
        for number, record in records(text, delimiter)
        if record.strip("\r\n")
    ]
    first = numbered[0][1]
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
                f"expected {len(names)} fields, as in the first line, got {len(fields)} in "
                f"{quoted(line)}",
                number,
            )
        for ids, side, position in ((rows, known[0], i), (cols, known[1], j)):
            ids.append(side.read(fields[position]))
            if side.integers and not isinstance(ids[-1], int):
                raise source.fault(
                    f"the id {quoted(fields[position])} is not an integer as those of the model "
                    "are; correct the line",
                    number,
                )
    labels = names if header else tuple(f"field {k + 1}" for k in range(len(names)))
    header_text = "header" if header else "no header"
    layout = f"{separation(delimiter)}, {header_text}; row={labels[i]}, col={labels[j]}"
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
    """Whether the fields could be a pair of ids of the model."""
    positions = pair_positions(source, (), len(fields), row, col)
    ids = [side.read(fields[position]) for side, position in zip(known, positions, strict=True)]
    if any(side.integers for side in known):
        return all(
            isinstance(one, int) for one, side in zip(ids, known, strict=True) if side.integers
        )
    return any(one in side.ids for one, side in zip(ids, known, strict=True))


def _from_parquet(source: Source, row: str | int | None, col: str | int | None) -> Pairs:
    # import deferred until Parquet is read
    from robustmf.io.reading.parquet import read_table  # noqa: PLC0415

    table = read_table(source)
    names = tuple(table.column_names)
    i, j = pair_positions(source, names, len(names), row, col)
    return Pairs(
        table.column(i).to_pylist(),
        table.column(j).to_pylist(),
        f"Parquet; row={names[i]}, col={names[j]}",
        table=table,
    )
