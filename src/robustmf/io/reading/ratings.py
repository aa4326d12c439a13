"""``read_ratings``: a file of ratings, of whatever kind, as observed entries."""

from __future__ import annotations

from pathlib import Path

from robustmf.data.observed import Duplicates, Observed
from robustmf.exceptions import DuplicateEntryError, MalformedFileError
from robustmf.io.reading.layout import Layout, guess_layout
from robustmf.io.reading.source import Source


def require_precision(dtype: str) -> None:
    """One of the two precisions that entries have, or an error that says so."""
    if dtype not in ("float64", "float32"):
        raise ValueError(f"dtype must be 'float64' or 'float32', got dtype={dtype!r}")


def read_ratings(
    path: str | Path | Source,
    layout: Layout | None = None,
    *,
    row: str | int | None = None,
    col: str | int | None = None,
    value: str | int | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    text_ids: bool | None = None,
    duplicates: Duplicates = "error",
    dtype: str = "float64",
) -> Observed:
    """Ratings from a file, with their ids.

    Parameters
    ----------
    path : path or Source
        By its ending: ``.parquet``; ``.npz`` as written by :func:`scipy.sparse.save_npz`; ``.mtx`` (Matrix Market); anything else is
        delimited text, UTF-8, perhaps compressed (``.gz``, ``.bz2``, ``.zst``).
    layout : Layout, optional
        The layout of a text file, e.g. the one that :func:`guess_layout` returned and ``print`` shows; then nothing is guessed.
    row, col, value, delimiter, header, text_ids
        As in :func:`guess_layout`: what is given is not guessed. Parquet has names of columns; matrices need none of these.
    duplicates : {"error", "last", "mean"}
        What to do with several ratings of one item by one user.
    dtype : {"float64", "float32"}
        Precision of the values.

    Raises
    ------
    MalformedFileError
        With file, line number and remedy.

    Examples
    --------
    >>> from robustmf.io.reading import guess_layout, read_ratings
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
    if kind in (".npz", ".mtx") or source.path.name.lower().endswith(".mtx.gz"):
        matrix = _read_matrix(source, kind)
        return (
            matrix
            if matrix.dtype == dtype
            else matrix.with_values(matrix.rows.values.astype(dtype))
        )
    if kind == ".parquet":
        from robustmf.io.reading.parquet import read_parquet  # noqa: PLC0415 - as above

        table, names = read_parquet(source, row, col, value)
    else:
        from robustmf.io.reading.delimited import read_delimited  # noqa: PLC0415 - as above

        asked = {
            "row": row,
            "col": col,
            "value": value,
            "delimiter": delimiter,
            "header": header,
            "text_ids": text_ids,
        }
        layout = layout or guess_layout(source, **asked)  # type: ignore[arg-type]
        table, names = read_delimited(source, layout, dtype)
    try:
        made = Observed.from_triplets(
            table, row=names[0], col=names[1], value=names[2], duplicates=duplicates
        )
    except DuplicateEntryError as error:
        places = f"row id {error.row!r}, column id {error.column!r}, values {error.values[0]!r} and {error.values[1]!r}"
        raise source.fault(
            f"duplicate entry ({places}); pass duplicates='last' or 'mean'"
        ) from None
    except (ValueError, TypeError) as error:
        raise source.fault(str(error)) from None
    return made if made.dtype == dtype else made.with_values(made.rows.values.astype(dtype))


def _read_matrix(source: Source, kind: str) -> Observed:
    """A reader is imported when used."""
    if kind == ".npz":
        from robustmf.io.reading.npz import read_npz as read  # noqa: PLC0415
    else:
        from robustmf.io.reading.matrix_market import read_matrix_market as read  # noqa: PLC0415
    try:
        return read(source)
    except (MalformedFileError, FileNotFoundError):
        raise
    except (ValueError, TypeError) as error:
        raise source.fault(str(error)) from None
