"""Tables of every supported library, and errors in tables and columns."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from robustmf import Observed
from robustmf.exceptions import DuplicateEntryError

COLUMNS = {"user": [30, 10, 10, -5], "item": ["b", "a", "b", "ü"], "stars": [1.0, 2.0, 3.0, 0.0]}

TABLES = {
    "pandas": pd.DataFrame,
    "pandas nullable": lambda c: pd.DataFrame(c).convert_dtypes(),
    "pandas Arrow": lambda c: pd.DataFrame(c).convert_dtypes(dtype_backend="pyarrow"),
    "pandas categories": lambda c: pd.DataFrame(c).astype({"user": "category", "item": "category"}),
    "pandas objects": lambda c: pd.DataFrame(c).astype({"user": object, "item": object}),
    "pandas any index": lambda c: pd.DataFrame(c, index=[7, 7, 3, 1]),
    "polars": pl.DataFrame,
    "polars lazy": pl.LazyFrame,
    "polars categories": lambda c: pl.DataFrame(c).with_columns(
        pl.col("item").cast(pl.Categorical)
    ),
    "Arrow": pa.table,
    "Arrow chunks": lambda c: pa.concat_tables([pa.table(c).slice(0, 1), pa.table(c).slice(1)]),
    "Arrow dictionaries": lambda c: pa.table(
        {**c, "item": pa.array(c["item"]).dictionary_encode()}
    ),
    "dict of lists": dict,
    "dict of arrays": lambda c: {name: np.array(values) for name, values in c.items()},
    "dict of Arrow arrays": lambda c: {name: pa.array(values) for name, values in c.items()},
    "dict of series": lambda c: {name: pl.Series(values) for name, values in c.items()},
    "structured array": lambda c: np.array(
        list(zip(*c.values(), strict=True)), [("user", "i8"), ("item", "U1"), ("stars", "f8")]
    ),
}


@pytest.mark.parametrize("kind", TABLES)
def test_every_table_gives_the_same_entries(kind):
    observed = Observed.from_triplets(TABLES[kind](COLUMNS), row="user", col="item", value="stars")
    assert observed.row_ids == [-5, 10, 30]
    assert observed.column_ids == ["a", "b", "ü"]
    assert [type(one) for one in observed.row_ids] == [int] * 3
    np.testing.assert_array_equal(observed.to_sparse().toarray(), [[0, 0, 0], [2, 3, 0], [0, 1, 0]])
    assert observed.n_entries == 4, "a rating of 0 is a rating"


def test_columns_without_a_table():
    frame = pl.DataFrame(COLUMNS)
    observed = Observed.from_triplets(
        row=frame["user"], col=pd.Series(COLUMNS["item"]), value=pa.array(COLUMNS["stars"])
    )
    assert observed.column_ids == ["a", "b", "ü"]
    assert Observed.from_triplets(row=range(4), col=iter("abca"), value=[1, 2, 3, 4]).row_ids == [
        0,
        1,
        2,
        3,
    ]


def frame(**changed):
    return pd.DataFrame({**COLUMNS, **changed})


@pytest.mark.parametrize(
    ("data", "names", "error", "message"),
    [
        (
            frame(),
            ("user", "movie", "stars"),
            ValueError,
            r"col='movie' is not a column of the data; it has \['user', 'item', 'stars'\]",
        ),
        (
            pl.DataFrame(COLUMNS),
            ("user", "item", 3),
            ValueError,
            "value=3 is not a column of the data",
        ),
        (
            pl.LazyFrame(COLUMNS),
            ("user", "movie", "stars"),
            ValueError,
            r"col='movie' is not a column of the data; it has \['user', ",
        ),
        (
            frame(),
            ("user", np.array([1, 2]), "stars"),
            TypeError,
            "col must be the name of a column of the data, got ndarray",
        ),
        (
            frame(user=[1, None, 2, 3]),
            None,
            ValueError,
            "row ids must not be missing, got None at position 1; drop these entries",
        ),
        (
            frame(item=["a", "b", None, "c"]),
            None,
            ValueError,
            "column ids must not be missing, got None at position 2",
        ),
        (
            pl.DataFrame({**COLUMNS, "item": ["a", "b", "c", None]}),
            None,
            ValueError,
            "column ids must not be missing, got None at position 3",
        ),
        (
            {**COLUMNS, "user": np.array([1, 2, np.nan, 3])},
            None,
            ValueError,
            r"row ids must not be missing, got .*nan.* at position 2",
        ),
        (
            {**COLUMNS, "user": ["a", "b", float("nan"), "c"]},
            None,
            ValueError,
            "row ids must not be missing, got nan at position 2",
        ),
        (
            frame(user=[7, "7", 8, 9]),
            None,
            ValueError,
            "row ids hold both 7 and '7', an id of mixed types; convert the column to one type",
        ),
        (frame(user=[[1], [2], [3], [4]]), None, TypeError, "row ids must be hashable"),
        (
            pl.DataFrame({**COLUMNS, "user": [[1], [2], [3], [4]]}),
            None,
            TypeError,
            "row ids must be hashable",
        ),
        (
            pl.DataFrame({**COLUMNS, "stars": [None] * 4}, schema_overrides={"stars": pl.Float64}),
            None,
            ValueError,
            "values must not all be missing, but 4 of them are",
        ),
        (
            frame().set_index("user"),
            None,
            ValueError,
            r"row='user' is not a column .* level of the index: give X.reset_index\(\)",
        ),
        (frame(stars=[1.0, np.inf, 2, 3]), None, ValueError, "values must be finite, got inf"),
        (
            frame(stars=["good", "bad", "ugly", "x"]),
            None,
            TypeError,
            "values must hold real numbers",
        ),
        ({**COLUMNS, "stars": [1.0]}, None, ValueError, "of the same length"),
        (
            [1, 2, 3],
            None,
            TypeError,
            "data must be a table .* or a mapping of columns, got list; without a table pass",
        ),
        (
            pd.DataFrame(np.ones((2, 3)), columns=["user", "user", "stars"]),
            None,
            ValueError,
            "must have distinct names.*'user' 2",
        ),
        (
            frame(user=[10, 10, 10, 10], item=["a", "b", "a", "c"]),
            None,
            DuplicateEntryError,
            "at row 10, column 'a' .values 1.0 and 3.0",
        ),
        (pd.DataFrame({"user": [], "item": [], "stars": []}), None, ValueError, "0 sample"),
    ],
)
def test_bad_tables_are_refused_by_name(data, names, error, message):
    row, col, value = names or ("user", "item", "stars")
    with pytest.raises(error, match=message):
        Observed.from_triplets(data, row=row, col=col, value=value)


def test_columns_without_their_table_have_no_missing_values():
    with pytest.raises(ValueError, match="values must not be missing, but 1 of 3 are"):
        Observed.from_triplets(row=[1, 2, 3], col=[1, 2, 3], value=pd.Series([1.0, None, 2.0]))


def test_categories_without_entries_are_not_ids():
    ids = pd.Categorical(["b", "c"], categories=["a", "b", "c", "d"])
    for column in (pd.Series(ids), pl.Series(["b", "c"], dtype=pl.Enum(["a", "b", "c", "d"]))):
        assert Observed.from_triplets(row=column, col=[1, 2], value=[1.0, 2.0]).row_ids == [
            "b",
            "c",
        ]


@pytest.mark.parametrize(
    ("row", "error", "message"),
    [
        (
            "user",
            TypeError,
            "row must be a column of numbers or ids, got 'user'; "
            "names of columns require the table as data",
        ),
        (5, TypeError, "row must be a column of numbers or ids, got 5"),
        (np.ma.masked_equal([1, 2], 2), ValueError, "row has masked values"),
        (np.ones((2, 2), int), ValueError, r"row ids must be one column, got shape \(2, 2\)"),
        (
            pd.Series([1, pd.NA], dtype=object),
            ValueError,
            "row ids must not be missing, got <NA> at position 1",
        ),
    ],
)
def test_bad_columns_are_refused_by_name(row, error, message):
    with pytest.raises(error, match=message):
        Observed.from_triplets(row=row, col=[1, 2], value=[1.0, 2.0])


def test_integers_of_128_bits_become_python_objects():
    data = pl.DataFrame({"r": [10**30, 0], "c": [1, 2], "v": [1.0, 2.0]})
    assert Observed.from_triplets(data, row="r", col="c", value="v").row_ids == [0, 10**30]


def test_foreign_byte_order_becomes_python_objects():
    data = pd.DataFrame({"r": np.array([2, 1], ">i4"), "c": [1, 2], "v": [1.0, 2.0]})
    assert Observed.from_triplets(data, row="r", col="c", value="v").row_ids == [1, 2]


def test_the_error_of_a_duplicate_can_be_pickled():
    error = pickle.loads(pickle.dumps(DuplicateEntryError("u", 3, (1.0, 2.0))))
    assert (error.row, error.column, error.values) == ("u", 3, (1.0, 2.0))
    assert "duplicate entry at row 'u', column 3" in str(error)


def test_duplicates_by_policy_with_ids():
    twice = {"user": ["u", "v", "u"], "item": [1, 1, 1], "stars": [1.0, 5.0, 4.0]}
    for policy, expected in (("last", [4.0, 5.0]), ("mean", [2.5, 5.0])):
        observed = Observed.from_triplets(
            pl.DataFrame(twice), row="user", col="item", value="stars", duplicates=policy
        )
        assert observed.rows.values.tolist() == expected
        assert observed.row_ids == ["u", "v"]


def test_arrays_require_no_table_library():
    code = (
        "import sys; import numpy as np; from robustmf.data.observed import Observed;"
        "Observed.from_triplets("
        "row=np.array([3, 1]), col=np.array([1, 2]), value=np.array([1.0, 2.0]));"
        "print([m for m in ('pyarrow', 'narwhals', 'pandas', 'polars') if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )
