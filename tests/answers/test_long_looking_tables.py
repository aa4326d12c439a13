"""Long tables given without the names of their columns are refused; wide ones are not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from robustmf import RobustMF
from robustmf.data.tables import wide_table


def ratings(n_users, n_items, n_lines, seed=0):
    """Distinct pairs of integers with ratings."""
    rng = np.random.default_rng(seed)
    pairs = rng.choice(n_users * n_items, n_lines, replace=False)
    return pd.DataFrame(
        {"a": pairs // n_items, "b": pairs % n_items, "c": rng.integers(1, 6, n_lines)}
    )


LOOK_LONG = {
    "one duplicated pair": lambda d: pd.concat([d, d.iloc[:1]]),
    "few lines per id": lambda d: ratings(400, 60, 500),
    "few lines, many items": lambda d: ratings(400, 200, 500),
    "float ids": lambda d: d.astype(float),
    "value first": lambda d: d[["c", "a", "b"]],
    "value between": lambda d: d[["a", "c", "b"]],
    "film": lambda d: d.head(5).set_axis(["customer", "film", "stars"], axis=1),
    "four columns": lambda d: d.assign(t=np.arange(len(d)) + 881250949),
    "text, value first": lambda d: d.astype({"a": str, "b": str})[["c", "a", "b"]],
}


@pytest.mark.parametrize("case", LOOK_LONG)
def test_tables_that_look_long_are_refused(case):
    table = LOOK_LONG[case](ratings(50, 40, 600))
    names = ("customer", "film", "stars") if case == "film" else ("a", "b", "c")
    expected = "row={!r}, col={!r}, value={!r} to fit".format(*names)
    with pytest.raises(ValueError, match="got one that looks long") as caught:
        RobustMF(1).fit(table)
    assert expected in str(caught.value)


def test_an_index_of_pairs_is_refused_with_the_remedy():
    table = ratings(50, 40, 600).set_index(["a", "b"])
    with pytest.raises(ValueError, match=r"X.reset_index\(\) with row='a', col='b', value='c'"):
        RobustMF(1).fit(table)


@pytest.mark.parametrize("n_columns", [3, 4])
@pytest.mark.parametrize("n_values", [4, 10, 50, 200, 1000])
@pytest.mark.parametrize("n_rows", [10, 40, 200, 1000])
def test_integers_of_a_wide_table_are_not_ids(n_columns, n_values, n_rows):
    """Measurements that are rounded to integers: independent ones, and correlated ones."""
    rng = np.random.default_rng(n_values + n_rows)
    refused = 0
    for noise in (1.0, 0.1):
        for _ in range(20):
            common = (1 - noise) * rng.random((n_rows, 1))
            cells = (n_values * (common + noise * rng.random((n_rows, n_columns)))).astype(int)
            try:
                wide_table(pd.DataFrame(cells, columns=list("abcd")[:n_columns]))
            except ValueError:
                refused += 1
    assert refused <= 1


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"user": [1, 1, 2, 2], "item": [1, 2, 1, 2], "rating": [5, 4, 3, 2]}),
        pl.DataFrame({"u": [1, 1, 2, 2], "i": [7, 8, 7, 8], "x": [0.5, 1, 2, 3]}),
        pa.table({"place": ["a", "a", "b"], "time": ["t", "s", "t"], "x": [0.5, 1, 2]}),
        pd.DataFrame({"userId": [1], "movieId": [2], "rating": [3.0], "timestamp": [9]}),
    ],
    ids=["names", "integers", "text", "four columns"],
)
def test_a_long_table_without_names_is_refused_with_the_remedy(table):
    names = list(table.column_names if isinstance(table, pa.Table) else table.columns)
    expected = f"row='{names[0]}', col='{names[1]}', value='{names[2]}' to fit"
    with pytest.raises(ValueError, match="got one that looks long") as caught:
        RobustMF(1).fit(table)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"a": [1, 2, 3, 4], "b": [1, 2, 3, 4], "c": [1.0, 2, 3, 4]}),
        pd.DataFrame({"a": [1, 1, 2, 2], "b": [1, 1, 1, 2], "c": [1.0, 2, 3, 4]}),
        pd.DataFrame({"name": ["x", "y", "z"], "b": [1.5, 2, 3], "c": [1.0, 2, 3]}),
    ],
    ids=["distinct values", "repeated pairs", "a column of labels"],
)
def test_wide_tables_of_three_columns_are_fitted(table):
    assert RobustMF(1, random_state=0).fit(table).row_factors_.shape == (len(table), 1)
