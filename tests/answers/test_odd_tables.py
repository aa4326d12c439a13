"""Tables as programs hand them over: clock changes, dates as objects, text, codes, labels."""

from __future__ import annotations

import datetime
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from robustmf import RobustMF, load
from robustmf.exceptions import DuplicateEntryError, MissingCodeWarning

NAMES = [f"s{k}" for k in range(8)]
BAD = (5, 3)


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    cells = np.outer(rng.uniform(1, 3, 24), rng.uniform(2, 8, 8))
    cells += 0.05 * rng.standard_normal(cells.shape)
    cells[BAD] = 90.0
    return pd.DataFrame(cells.round(3), columns=NAMES)


def model():
    return RobustMF(1, random_state=0)


@pytest.fixture
def clocks_set_back(frame):
    times = pd.date_range("2024-10-26 22:00", periods=24, freq="15min", tz="UTC")
    return frame.set_index(times.tz_convert("Europe/Berlin"))


def test_hours_that_clocks_show_twice_are_two_labels(clocks_set_back, tmp_path):
    index = clocks_set_back.index
    assert [str(one) for one in index[[8, 12]]] == [
        "2024-10-27 02:00:00+02:00",
        "2024-10-27 02:00:00+01:00",
    ]
    fitted = model().fit(clocks_set_back)
    assert len(set(fitted.row_ids_)) == 24
    expected = model().fit(clocks_set_back.to_numpy())
    fitted.save(tmp_path / "model.rmf")
    for one in (fitted, load(tmp_path / "model.rmf")):
        for k in (8, 12):
            known = one.predict(index[k], "s0")
            assert known == pytest.approx(expected.predict(k, 0))
            assert one.predict(index[k].to_pydatetime(), "s0") == known
    shuffled = clocks_set_back.sample(frac=1, random_state=0)
    scores = fitted.outlier_scores(shuffled)
    assert scores.index.equals(shuffled.index)
    assert scores.stack().idxmin() == (index[BAD[0]], "s3")


@pytest.mark.parametrize("kind", ["dates", "times"])
def test_dates_of_python_are_labels(frame, kind):
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(k) for k in range(24)]
    labels = days if kind == "dates" else [datetime.time(hour) for hour in range(24)]
    frame.insert(0, "when", labels)
    fitted = model().fit(frame)
    assert list(fitted.row_ids_) == labels
    assert fitted.clean(frame).data["when"].tolist() == labels


def test_an_index_of_pandas_in_an_arrow_table(frame):
    frame.index = [f"r{k}" for k in range(24)]
    fitted = model().fit(pa.Table.from_pandas(frame))
    assert fitted.row_ids_ == frame.index.tolist()


@pytest.mark.parametrize(
    "labels",
    [
        pd.Categorical([f"x{k}" for k in range(24)]),
        pd.date_range("2024", periods=24).astype("datetime64[s]"),
        pd.array(range(100, 124), "Int32"),
    ],
    ids=["categories", "seconds", "integers"],
)
def test_columns_of_labels_keep_their_type(frame, labels):
    frame.insert(0, "id", labels)
    fitted = model().fit(frame)
    for table in (fitted.outlier_scores(), fitted.clean(frame).data, fitted.impute(frame[::-1])):
        assert table["id"].dtype == frame["id"].dtype
    assert fitted.impute(frame[::-1])["id"].tolist() == frame["id"].tolist()[::-1]
    assert fitted.impute(frame[::-1]).index.equals(frame[::-1].index)


def test_columns_of_categories_keep_their_type_in_polars(frame):
    frame.insert(0, "site", [f"x{k}" for k in range(24)])
    table = pl.from_pandas(frame).with_columns(pl.col("site").cast(pl.Categorical))
    assert model().fit(table).outlier_scores()["site"].dtype == pl.Categorical


def test_numbers_as_text_in_all_columns_are_refused(frame):
    """The first column would have been the labels of the others."""
    text = frame.astype(str)
    with pytest.raises(TypeError, match=r"'s0', holds numbers, too: convert X .*astype\(float\)"):
        model().fit(text)
    text.insert(0, "station", [f"{k:04}" for k in range(24)])
    assert model().fit(text).row_ids_[1] == "0001"
    assert model().fit(text.drop(columns="station"), row="s0").row_ids_[0] == str(frame.iloc[0, 0])


def test_decimal_commas_of_text_are_named(frame):
    text = frame.astype(str).map(lambda cell: cell.replace(".", ","))
    with pytest.raises(TypeError, match="decimal=','"):
        model().fit(text)


def test_a_column_of_repeated_labels_is_named_with_the_remedy(frame):
    frame.insert(0, "site", list("abcd") * 6)
    with pytest.raises(ValueError, match="drop column 'site' if it does not identify the rows"):
        model().fit(frame)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_code_for_missing_values_is_reported(frame, library):
    coded = frame.mask(np.random.default_rng(0).random(frame.shape) < 0.1, -999.0)
    table = coded if library == "pandas" else pl.from_pandas(coded)
    with pytest.warns(MissingCodeWarning, match=r"-999 occurs \d+ times"):
        model().fit(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error", MissingCodeWarning)
        model().fit(frame)


def test_duplicates_of_a_long_table_are_named_with_a_remedy_that_keeps_it():
    table = pd.DataFrame({"user": [1, 1, 2], "film": ["a", "a", "b"], "stars": [3.0, 4.0, 5.0]})
    with pytest.raises(DuplicateEntryError, match=r"X\.drop_duplicates\(\['user', 'film'\]\)"):
        model().fit(table, row="user", col="film", value="stars")


def test_a_column_with_an_index_of_two_levels_is_refused_with_the_remedy():
    pairs = pd.MultiIndex.from_product([["ann", "bob"], ["x", "y"]], names=["user", "item"])
    column = pd.Series([1.0, 2.0, 3.0, 4.0], pairs, name="stars")
    with pytest.raises(ValueError, match=r"give X.unstack\(\), or X.reset_index\(\) with row="):
        RobustMF().fit(column)
