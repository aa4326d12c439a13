"""Entries from arrays, sparse matrices and triplets of every kind: correct, or a named error."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from robustmf import Observed
from robustmf.data.checks import new_rows
from robustmf.data.observed import as_observed
from stress.generated import explore
from stress.matrices import Plan, fingerprint, plans
from stress.tally import Tally

TITLE = "entries from anything: the right ones or a named error, input untouched"
CASES = 6000
FEW = 200

#: Columns of ids: of one type or several, duplicate, extreme, missing.
_IDS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "numbers": lambda rng, k: rng.integers(0, 5, k),
    "int64 extremes": lambda rng, k: rng.choice(np.array([-(2**63), 2**63 - 1, 0]), k),
    "uint64": lambda rng, k: rng.choice(np.array([2**64 - 1, 2**63, 0], np.uint64), k),
    "uint8": lambda rng, k: rng.integers(0, 256, k).astype(np.uint8),
    "big-endian": lambda rng, k: rng.integers(0, 5, k).astype(">i4"),
    "python integers beyond 64 bits": lambda rng, k: [
        int(one) * 10**30 for one in rng.integers(0, 3, k)
    ],
    "floats": lambda rng, k: rng.choice([0.0, -0.0, 1.5, np.inf], k),
    "NaN": lambda rng, k: rng.choice([0.0, np.nan], k),
    "text": lambda rng, k: rng.choice(["a", "b", ""], k).tolist(),
    "unicode": lambda rng, k: rng.choice(
        ["é", "e\u0301", "\U0001f600", "\u202e", "x\x00y", "漢"], k
    ).tolist(),
    "lone surrogates": lambda rng, k: [("\ud800", "ok")[one] for one in rng.integers(0, 2, k)],
    "bytes": lambda rng, k: [(b"a", b"\xff")[one] for one in rng.integers(0, 2, k)],
    "tuples": lambda rng, k: [((1, "a"), (2, "b"))[one] for one in rng.integers(0, 2, k)],
    "dates": lambda rng, k: [date(2020, 1, 1 + int(one)) for one in rng.integers(0, 5, k)],
    "datetime64": lambda rng, k: rng.integers(0, 5, k).astype("M8[ns]"),
    "NaT": lambda rng, k: np.array(["NaT", "2020-01-01"], "M8[D]")[rng.integers(0, 2, k)],
    "bool": lambda rng, k: rng.random(k) < 0.5,
    "mixed": lambda rng, k: [(1, "a", 2.5, None)[one] for one in rng.integers(0, 3, k)],
    "number and text": lambda rng, k: [(7, "7")[one] for one in rng.integers(0, 2, k)],
    "None": lambda rng, k: [("a", None)[one] for one in rng.integers(0, 2, k)],
    "lists": lambda rng, k: [["a"] for _ in range(k)],
    "objects": lambda rng, k: np.array([("a", 1)[one] for one in rng.integers(0, 2, k)], object),
    "every second": lambda rng, k: rng.integers(0, 5, 2 * k)[::2],
}


@dataclass(frozen=True)
class Triplets:
    """Columns of ids and values, as lists, arrays or tables."""

    rows: str
    cols: str
    count: int
    held: str
    duplicates: str
    seed: int

    def make(self) -> tuple[Any, Any, Any]:
        """The three columns."""
        rng = np.random.default_rng(self.seed)
        return (
            _IDS[self.rows](rng, self.count),
            _IDS[self.cols](rng, self.count),
            rng.standard_normal(self.count).round(2),
        )


def examples() -> st.SearchStrategy[Plan | Triplets]:
    """Matrices and triplets."""
    kinds = st.sampled_from(list(_IDS))
    return plans() | st.builds(
        Triplets,
        rows=kinds,
        cols=kinds,
        count=st.integers(0, 12),
        held=st.sampled_from(("columns", "mapping", "pandas", "polars", "arrow")),
        duplicates=st.sampled_from(("error", "last", "mean")),
        seed=st.integers(0, 2**32 - 1),
    )


def check(example: Plan | Triplets) -> None:
    """Make entries and compare them with a dictionary of the same data."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if isinstance(example, Plan):
            _check_matrix(example)
        else:
            _check_triplets(example)


def _check_matrix(plan: Plan) -> None:
    X = plan.make()
    before = fingerprint(X)
    try:
        made = as_observed(X)
    except (ValueError, TypeError) as error:
        assert any(name in str(error) for name in ("X", "values", "duplicate entry")), (
            f"no parameter named: {error}"
        )
    else:
        _require_same(made, X)
    try:
        assert new_rows(X).n_entries >= 0
    except (ValueError, TypeError) as error:
        assert any(name in str(error) for name in ("X", "values", "duplicate entry")), (
            f"no parameter named: {error}"
        )
    assert fingerprint(X) == before, "the input was modified"


def _require_same(made: Observed, X: Any) -> None:
    if isinstance(X, Observed):
        return
    if sp.issparse(X):
        stored = X.tocoo()
        expected = {
            (int(i), int(j)): float(v)
            for i, j, v in zip(stored.row, stored.col, stored.data, strict=True)
        }
    else:
        dense = np.ma.asarray(X)
        expected = {
            index: float(value)
            for index, value in np.ndenumerate(dense.data)
            if not np.ma.getmaskarray(dense)[index] and float(value) == float(value)
        }
    rows = made.rows
    found = dict(
        zip(
            zip(rows.group_of_entry().tolist(), rows.indices.tolist(), strict=True),
            rows.values.tolist(),
            strict=True,
        )
    )
    assert found == expected, f"{found} is not {expected}"
    assert made.columns.values.tolist() == rows.values[made.column_order].tolist()


def _check_triplets(example: Triplets) -> None:
    columns = example.make()
    before = repr(columns)
    duplicates: Any = example.duplicates
    try:
        made = Observed.from_triplets(**_held(columns, example.held), duplicates=duplicates)
    except (ValueError, TypeError) as error:
        named = ("row", "col", "value", "X", "data", "duplicate entry")
        assert any(name in str(error) for name in named), f"no parameter named: {error}"
    else:
        _require_triplets(made, columns, example)
    assert repr(columns) == before, "the input was modified"


def _held(columns: tuple[Any, Any, Any], held: str) -> dict[str, Any]:
    """The arguments of ``from_triplets``; columns that a library cannot hold stay columns."""
    data = dict(zip(("r", "c", "v"), columns, strict=True))
    names = {"row": "r", "col": "c", "value": "v"}
    if held == "mapping":
        return {"data": data, **names}
    if held == "columns":
        return dict(zip(("row", "col", "value"), columns, strict=True))
    try:
        if held == "pandas":
            import pandas as pd  # noqa: PLC0415 - one table library at a time

            return {"data": pd.DataFrame(data), **names}
        if held == "polars":
            import polars as pl  # noqa: PLC0415

            return {"data": pl.DataFrame(data), **names}
        import pyarrow as pa  # noqa: PLC0415

        return {
            "data": pa.table({name: pa.array(column) for name, column in data.items()}),
            **names,
        }
    except Exception:  # errors of the table library are not tested
        return {"data": data, **names}


def _require_triplets(made: Observed, columns: tuple[Any, Any, Any], example: Triplets) -> None:
    rows, cols = (
        column.tolist() if isinstance(column, np.ndarray) else column for column in columns[:2]
    )
    pairs: dict[Any, list[float]] = {}
    for i, j, value in zip(rows, cols, columns[2].tolist(), strict=True):
        pairs.setdefault((i, j), []).append(value)
    assert made.n_entries == len(pairs), f"{made.n_entries} entries of {len(pairs)} pairs"
    assert made.shape == (len(set(rows)), len(set(cols))), f"shape {made.shape}"
    if example.held in ("columns", "mapping"):
        assert set(made.row_ids or ()) == set(rows), "the ids came back changed"
        found = made.to_sparse()
        i, j = (
            {key: k for k, key in enumerate(ids or ())} for ids in (made.row_ids, made.column_ids)
        )
        for (row, col), values in pairs.items():
            expected = values[-1] if example.duplicates != "mean" else float(np.mean(values))
            assert abs(float(found[i[row], j[col]]) - expected) < 1e-12


def run(tally: Tally, cases: int, seed: int) -> None:
    """Matrices of up to 7 × 7 and up to 12 triplets."""
    explore(tally, examples(), check, cases, seed)
