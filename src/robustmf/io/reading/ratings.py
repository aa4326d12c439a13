"""``read_ratings``: observed entries from a file in any of the supported formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from robustmf.data.observed import Duplicates, Observed
from robustmf.exceptions import DuplicateEntryError, MalformedFileError
from robustmf.io.reading.layout import Layout, guess_layout
from robustmf.io.reading.source import Source
from robustmf.io.reading.wide import WideLayout, read_wide


def require_precision(dtype: str) -> None:
    """Refuse a precision other than float64 and float32."""
    if dtype not in ("float64", "float32"):
        raise ValueError(f"dtype must be 'float64' or 'float32', got dtype={dtype!r}")


def read_ratings(
    path: str | Path | Source,
    layout: Layout | WideLayout | None = None,
    *,
    row: str | int | None = None,
    col: str | int | None = None,
    value: str | int | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    text_ids: bool | None = None,
    duplicates: Duplicates = "error",
    dtype: str = "float64",
    wide: bool | None = None,
    missing: Sequence[float] = (),
    omit: Sequence[str | int] | None = None,
    decimal: str | None = None,
) -> Observed:
    """Read ratings or measurements with their ids from a file.

    Parameters
    ----------
    path : path or Source
        The format is given by the ending: ``.parquet``; ``.npz`` as written by
        :func:`scipy.sparse.save_npz`; ``.mtx`` (Matrix Market). All other files are delimited
        text in UTF-8, which may be compressed (gzip, bzip2, zstd, lz4).
    layout : Layout or WideLayout, default=None
        The layout of a text file, e.g. that of :func:`guess_layout`; None guesses it.
    row, col, value : str or int, default=None
        Names or positions of the columns of a text or Parquet file; None guesses them.
    delimiter : str, default=None
        The delimiter of a text file; None guesses it.
    header : bool, default=None
        Whether a text file has a header; None guesses it.
    text_ids : bool, default=None
        Whether the ids of a text file are text; None guesses it. See :func:`guess_layout`.
    duplicates : {"error", "last", "mean"}, default="error"
        How several values for the same row and column are treated.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the values.
    wide : bool, default=None
        Whether a text or Parquet file has a column for every column of the matrix; None guesses it.
        See :func:`guess_layout`.
    missing : sequence of float, default=()
        Numbers that stand for missing values, besides empty fields and words such as "NA". A line
        of a long file whose value is missing is no entry.
    omit : sequence of str or int, default=None
        Fields of a wide text file that are not columns of the matrix; None guesses them. See
        :func:`guess_layout`.
    decimal : {".", ","}, default=None
        The decimal mark of a text file; None guesses it.

    Returns
    -------
    Observed

    Raises
    ------
    MalformedFileError
        With the file, the line number and the remedy.

    Examples
    --------
    >>> from robustmf.io import guess_layout, read_ratings
    >>> with open("ratings.csv", "w") as file:
    ...     for line in ("user,film,stars", "ann,Dune,5", "bob,Dune,4", "bob,Alien,3"):
    ...         print(line, file=file)
    >>> print(guess_layout("ratings.csv"))
    comma-separated, header; row=user (text), col=film (text), value=stars
    >>> read_ratings("ratings.csv")
    Observed(2 x 2, 3 entries, 75.00 % observed, float64)
    """
    require_precision(dtype)
    source = path if isinstance(path, Source) else Source(Path(path))
    kind = Path(source.member or source.path).suffix.lower()
    is_text = kind not in (".npz", ".mtx", ".parquet") and not _is_matrix_market(source)
    if not is_text and (omit or decimal):
        raise ValueError(f"{source}: omit and decimal must be given for text files only")
    if kind in (".npz", ".mtx") or _is_matrix_market(source):
        matrix = _read_matrix(source, kind)
        return _with_precision(matrix, dtype)
    if kind == ".parquet":
        from robustmf.io.reading.parquet import (  # noqa: PLC0415 - needs pyarrow
            parquet_is_wide,
            read_parquet,
            read_wide_parquet,
        )

        if parquet_is_wide(source, col, value) if wide is None else wide:
            return _with_precision(_attributed(source, read_wide_parquet, row, missing), dtype)
        table, names = read_parquet(source, row, col, value)
    else:
        from robustmf.io.reading.delimited import read_delimited  # noqa: PLC0415 - needs pyarrow

        given = {
            "row": row,
            "col": col,
            "value": value,
            "delimiter": delimiter,
            "header": header,
            "text_ids": text_ids,
            "wide": wide,
            "missing": missing,
            "omit": omit,
            "decimal": decimal,
        }
        layout = layout or guess_layout(source, **given)  # type: ignore[arg-type]
        if isinstance(layout, WideLayout):
            return _attributed(source, read_wide, layout, dtype)
        table, names = read_delimited(source, layout, dtype)
        missing = layout.missing
    try:
        table = _with_values(table, names[2], missing)
        row_ids, column_ids, values = (table[name] for name in names)
        ratings = Observed.from_triplets(
            row=row_ids, col=column_ids, value=values, duplicates=duplicates
        )
    except DuplicateEntryError as error:
        raise source.fault(
            f"duplicate entry (row id {error.row!r}, column id {error.column!r}, "
            f"values {error.values[0]!r} and {error.values[1]!r}); "
            "pass duplicates='last' or 'mean'"
        ) from None
    except (ValueError, TypeError) as error:
        raise source.fault(str(error)) from None
    return _with_precision(ratings, dtype)


def _with_values(table: Any, value: str, missing: Sequence[float]) -> Any:
    """The lines of an Arrow table whose value is not missing."""
    import pyarrow as pa  # noqa: PLC0415 - import deferred until a file is read
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    values = table[value]
    is_missing = pc.is_null(values, nan_is_null=True)
    if missing:
        if not pa.types.is_floating(values.type):
            values = values.cast(pa.float64())
        is_missing = pc.or_(is_missing, pc.is_in(values, pa.array(missing).cast(values.type)))
    if not pc.any(is_missing, min_count=0).as_py():
        return table
    if pc.all(is_missing).as_py():
        raise ValueError("no line has a value; a table needs at least one entry")
    return table.filter(pc.invert(is_missing))


def _is_matrix_market(source: Source) -> bool:
    return source.path.name.lower().endswith(".mtx.gz")


def _with_precision(ratings: Observed, dtype: str) -> Observed:
    if ratings.dtype == dtype:
        return ratings
    return ratings.with_values(ratings.rows.values.astype(dtype))


def _read_matrix(source: Source, kind: str) -> Observed:
    """Read a matrix in npz or Matrix Market format; only the reader in use is imported."""
    if kind == ".npz":
        from robustmf.io.reading.npz import read_npz as read  # noqa: PLC0415
    else:
        from robustmf.io.reading.matrix_market import read_matrix_market as read  # noqa: PLC0415
    return _attributed(source, read)


def _attributed(source: Source, read: Callable[..., Observed], *arguments: Any) -> Observed:
    """The entries of a file; errors about them name the file."""
    try:
        return read(source, *arguments)
    except (MalformedFileError, FileNotFoundError):
        raise
    except (ValueError, TypeError) as error:
        raise source.fault(str(error)) from None
