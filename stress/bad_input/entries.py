"""Constructors of ``Observed``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from robustmf import Observed
from robustmf.exceptions import DuplicateEntryError
from stress.bad_input.cell import Answers, Cell, Raises
from stress.bad_input.matrices import MATRICES
from stress.bad_input.samples import NotATable, table


def _triplets(data: Any = None, **changed: Any) -> Callable[[], Observed]:
    return lambda: Observed.from_triplets(
        data, **{"row": ["a", "b"], "col": ["x", "y"], "value": [1.0, 2.0]} | changed
    )


def entry_cells() -> Iterator[Cell]:
    """Observed's constructors."""
    columns = {"user": ["a", "b"], "item": ["x", "y"], "rating": [1.0, 2.0]}
    by_name = {"row": "user", "col": "item", "value": "rating"}

    def pandas() -> Any:
        import pandas as pd  # noqa: PLC0415 - a test of tables

        return pd.DataFrame(columns)

    def polars() -> Any:
        import polars as pl  # noqa: PLC0415 - a test of tables

        return pl.DataFrame({**columns, "rating": [1.0, None]})

    twice = {"row": ["a", "a"], "col": ["x", "x"]}
    one_entry = Answers("one entry, the mean", lambda made: made.rows.values.tolist() == [1.5])
    both = Answers("entries in the order of the ids", lambda made: list(made.row_ids) == ["a", "b"])
    yield from (
        Cell("Observed.from_triplets", kind, call, expected)
        for kind, call, expected in (
            (
                "ids of mixed types",
                _triplets(row=["7", 7]),
                Raises(ValueError, "an id of mixed types"),
            ),
            (
                "NaN id",
                _triplets(row=[1.0, float("nan")]),
                Raises(ValueError, "row ids must not be missing, got nan at position 1"),
            ),
            (
                "missing id",
                _triplets(col=["x", None]),
                Raises(ValueError, "column ids must not be missing, got None at position 1"),
            ),
            (
                "id that cannot be one",
                _triplets(row=[["a"], ["b"]]),
                Raises(TypeError, "row ids must be hashable"),
            ),
            (
                "column missing from the frame",
                _triplets(columns, **by_name | {"row": "who"}),
                Raises(ValueError, "row='who' is not"),
            ),
            (
                "values of text",
                _triplets(value=["1", "x"]),
                Raises(TypeError, "values must hold real numbers, got dtype <U1"),
            ),
            (
                "values missing",
                lambda: Observed.from_triplets(polars(), **by_name),
                Answers("the other entries", lambda made: made.rows.values.tolist() == [1.0]),
            ),
            (
                "NaN values",
                _triplets(value=[1.0, float("nan")]),
                Raises(ValueError, "values must be finite, got nan"),
            ),
            ("unsorted rows", _triplets(row=["b", "a"]), both),
            (
                "duplicate entries",
                _triplets(**twice),
                Raises(DuplicateEntryError, "duplicate entry at row 'a', column 'x'"),
            ),
            (
                "duplicate entries, duplicates='mean'",
                _triplets(**twice, duplicates="mean"),
                one_entry,
            ),
            (
                "wrong policy",
                _triplets(duplicates="sum"),
                Raises(ValueError, "duplicates must be 'error', 'last' or 'mean'"),
            ),
            (
                "not a table",
                _triplets(data=NotATable(), **by_name),
                Raises(TypeError, "data must be a table .pandas, polars, Arrow"),
            ),
            (
                "names without a table",
                _triplets(row="user"),
                Raises(TypeError, "names of columns require the table as data"),
            ),
            ("frame of any library", lambda: Observed.from_triplets(pandas(), **by_name), both),
            (
                "columns of different lengths",
                _triplets(value=[1.0]),
                Raises(ValueError, "must be 1-dimensional and of the same length"),
            ),
            (
                "nothing",
                _triplets(row=[], col=[], value=[]),
                Raises(ValueError, "X must have rows and columns"),
            ),
        )
    )
    indices: dict[str, tuple[tuple[Any, ...], Raises]] = {
        "numbers of the wrong type": (
            ([0.0], [0], [1.0]),
            Raises(TypeError, "rows must be an array of integers, got dtype float64"),
        ),
        "negative numbers": (([-1], [0], [1.0]), Raises(ValueError, "rows must lie in 0 …")),
        "numbers beyond the shape": (
            ([5], [0], [1.0], (2, 2)),
            Raises(ValueError, "rows must lie in 0 … 1 for shape"),
        ),
        "numbers beyond 32 bits": (
            ([2**40], [0], [1.0]),
            Raises(ValueError, "at most 2147483647 rows and columns"),
        ),
        "values of text": (([0], [0], ["x"]), Raises(TypeError, "values must hold real numbers")),
        "duplicate entries": (
            ([0, 0], [0, 0], [1.0, 2.0]),
            Raises(DuplicateEntryError, "duplicate entry at row 0, column 0"),
        ),
        "wrong shape": (([0], [0], [1.0], (2, 2, 2)), Raises(ValueError, "shape must be a pair")),
        "shape of text": (([0], [0], [1.0], "ab"), Raises(TypeError, "shape must be a pair")),
    }
    for kind, (given, expected) in indices.items():
        yield Cell(
            "Observed.from_indices",
            kind,
            lambda given=given: Observed.from_indices(*given),
            expected,
        )
    for kind in (
        "no rows",
        "one dimension",
        "text",
        "objects",
        "complex",
        "infinity",
        "all missing",
        "not a table",
        "None",
    ):
        make, expected = MATRICES[kind]
        yield Cell(
            "Observed.from_dense", kind, lambda make=make: Observed.from_dense(make()), expected
        )
    for kind in ("sparse with duplicate entries", "sparse with padding (dia)"):
        make, expected = MATRICES[kind]
        yield Cell(
            "Observed.from_sparse", kind, lambda make=make: Observed.from_sparse(make()), expected
        )
    yield Cell(
        "Observed.from_sparse",
        "not sparse",
        lambda: Observed.from_sparse(np.ones((2, 2))),
        Raises(TypeError, "X must be a SciPy sparse"),
    )
    yield Cell(
        "Observed.with_values",
        "wrong length",
        lambda: table().with_values([1.0]),
        Raises(ValueError, "values must have one number per entry"),
    )
    yield Cell(
        "Observed.select",
        "mask of the wrong length",
        lambda: table().select(np.ones(3, bool)),
        Raises(ValueError, "mask must be one bool per entry"),
    )
    yield Cell(
        "Observed.select",
        "mask of the wrong type",
        lambda: table().select(np.arange(table().n_entries)),
        Raises(TypeError, "mask must be one bool per entry"),
    )
