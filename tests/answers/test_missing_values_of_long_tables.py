"""A line of a long table without a value is no entry; answers have the lines of the table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from robustmf import Observed, RobustMF

NAMES = {"row": "hour", "col": "sensor", "value": "reading"}


@pytest.fixture(scope="module")
def complete():
    rng = np.random.default_rng(0)
    readings = np.outer(rng.uniform(1, 3, 30), rng.uniform(5, 15, 12))
    readings += 0.05 * rng.standard_normal(readings.shape)
    wide = pd.DataFrame(readings, columns=[f"s{k:02}" for k in range(12)])
    wide.iloc[4, 7] = 99.0
    long = wide.rename_axis("hour").reset_index()
    long = long.melt("hour", var_name="sensor", value_name="reading")
    return long.sample(frac=1, random_state=1)


@pytest.fixture(scope="module")
def table(complete):
    holes = np.random.default_rng(2).random(len(complete)) < 0.1
    bad = complete["reading"] == 99
    return complete.assign(reading=complete["reading"].mask(holes & ~bad))


def fitted(table, **settings):
    return RobustMF(rank=1, bias=False, random_state=0).fit(table, **NAMES, **settings)


def test_lines_without_a_value_are_not_entries(table):
    model = fitted(table)
    without = fitted(table.dropna())
    assert np.array_equal(model.row_factors_, without.row_factors_)
    scores = model.outlier_scores()
    assert scores.index.equals(table.index)
    assert scores.isna().equals(table["reading"].isna())
    assert np.array_equal(scores.dropna(), without.outlier_scores())
    observed = Observed.from_triplets(table, **NAMES)
    assert observed.n_entries == table["reading"].notna().sum()


def test_what_clean_returns_is_filled_and_fitted(table, complete):
    model = fitted(table)
    cleaned, mask = model.clean(table)
    assert mask.dtype == bool
    assert mask.sum() == 1
    assert not mask[table["reading"].isna()].any()
    assert cleaned["reading"].isna().sum() == table["reading"].isna().sum() + 1
    filled = model.impute(cleaned)
    assert list(filled.columns) == list(table.columns)
    assert filled.index.equals(table.index)
    observed = cleaned["reading"].notna()
    assert filled["reading"][observed].equals(cleaned["reading"][observed])
    clean = complete["reading"] != 99
    assert (filled["reading"] - complete["reading"])[clean].abs().max() < 0.5
    assert fitted(cleaned).rank_ == 1


def test_missing_values_of_new_rows_are_filled_from_the_others(table, complete):
    model = fitted(table)
    first = table["hour"].isin([1, 2])
    filled = model.impute(table[first].assign(hour=table["hour"][first] + 100), rows="new")
    assert table["reading"][first].isna().any()
    assert (filled["reading"] - complete["reading"][first]).abs().max() < 0.5


def test_gaps_of_unknown_ids(table):
    model = fitted(table)
    missing = table["reading"].isna()
    with pytest.raises(ValueError, match=r"got 1 of \d+ with unknown ids; fill new rows with"):
        model.impute(table.assign(hour=table["hour"].mask(missing & (missing.cumsum() == 1), 7777)))
    unknown = table.assign(sensor=table["sensor"].mask(missing, "s99"))
    assert model.impute(unknown)["reading"].isna().equals(missing)


@pytest.mark.parametrize(
    "dtype", ["float32", "Float32", "Float64", "Int64", "double[pyarrow]", "int64[pyarrow]"]
)
def test_nullable_types(table, dtype):
    rounded = table.assign(reading=table["reading"].round().astype(dtype))
    model = fitted(rounded)
    assert model.outlier_scores().isna().sum() == table["reading"].isna().sum()
    assert model.impute(rounded)["reading"].notna().all()


@pytest.mark.parametrize(
    "convert",
    [
        pl.from_pandas,
        lambda table: pl.from_pandas(table).lazy(),
        pa.Table.from_pandas,
        lambda table: {name: table[name].to_numpy() for name in table},
    ],
    ids=["polars", "lazy polars", "Arrow", "mapping"],
)
def test_other_libraries(table, convert):
    given = convert(table.reset_index(drop=True))
    model = fitted(given)
    expected = fitted(table)
    assert np.array_equal(model.row_factors_, expected.row_factors_)
    missing = table["reading"].isna().to_numpy()
    scores = model.outlier_scores()
    lines = np.array(scores.to_pylist() if isinstance(scores, pa.ChunkedArray) else scores, float)
    assert np.array_equal(np.isnan(lines), missing)
    filled = np.asarray(model.impute(given)["reading"])
    assert np.allclose(filled, expected.impute(table)["reading"])


def test_weights_have_the_lines_of_the_table(table):
    weights = np.where(table["sensor"] == "s03", 2.0, 1.0)
    weights[table["reading"].isna()] = np.nan
    without = table["reading"].notna()
    expected = fitted(table[without], weights=weights[without])
    assert np.array_equal(fitted(table, weights=weights).row_factors_, expected.row_factors_)


def test_order_of_rows_is_that_of_lines_with_values(table):
    model = fitted(table).set_output(transform="pandas")
    assert model.transform(table).index.equals(model.transform(table.dropna()).index)


def test_a_table_of_missing_values_is_refused(table):
    with pytest.raises(ValueError, match="values must not all be missing, but 360 of them are"):
        fitted(table.assign(reading=np.nan))
