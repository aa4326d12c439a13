"""Tables given to the estimator: labels are ids, and answers have the form of the table."""

from __future__ import annotations

import datetime
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from robustmf import Observed, RobustMF, load
from robustmf.data.tables import wide_table
from robustmf.exceptions import UnknownIdsWarning

ROWS = [f"r{i}" for i in range(20)]
COLUMNS = [f"c{j}" for j in range(12)]
MISSING = (2, 3)
BAD = (5, 7)


@pytest.fixture(scope="module")
def cells():
    """A rank-1 matrix with noise, a missing and a bad cell."""
    rng = np.random.default_rng(0)
    X = np.outer(np.arange(1.0, 21), np.arange(1.0, 13)) + 0.01 * rng.standard_normal((20, 12))
    X[MISSING] = np.nan
    X[BAD] += 50
    return X


def wide(cells, library):
    """The cells as a table of a library; row labels are an index or the first column."""
    frame = pd.DataFrame(cells, index=ROWS, columns=COLUMNS)
    if library == "pandas":
        return frame
    if library == "pandas column":
        return frame.rename_axis("row name").reset_index()
    table = pl.from_pandas(frame.reset_index(names="row name"), nan_to_null=True)
    return {"polars": table, "lazy": table.lazy(), "arrow": table.to_arrow()}[library]


LIBRARIES = ["pandas", "pandas column", "polars", "lazy", "arrow"]


def long(cells, library="pandas"):
    """The observed cells as a shuffled long table with an index that is not 0, 1, …."""
    i, j = np.nonzero(~np.isnan(cells))
    frame = pd.DataFrame(
        {"user": [ROWS[k] for k in i], "film": [COLUMNS[k] for k in j], "stars": cells[i, j]}
    )
    frame = frame.set_index(np.arange(len(frame)) + 1000).sample(frac=1, random_state=0)
    if library == "pandas":
        return frame
    table = pl.from_pandas(frame)
    return table if library == "polars" else table.to_arrow()


LONG = {"row": "user", "col": "film", "value": "stars"}


def fitted(X, **options):
    return RobustMF(1, random_state=0).fit(X, **options)


def cell(table, row, column):
    """One cell of a wide answer of any library."""
    if isinstance(table, pd.DataFrame):
        if "row name" in table:
            table = table.set_index("row name")
        return table.loc[row, column]
    table = pl.DataFrame(table)
    return table.filter(pl.col("row name") == row)[column].item()


def test_integer_labels_are_not_positions():
    X = np.outer(np.arange(1.0, 21), np.arange(1.0, 13))
    W = pd.DataFrame(X, index=range(1, 21), columns=range(1, 13))
    model = fitted(W)
    assert model.predict(3, 4) == pytest.approx(12, rel=1e-4)
    assert model.recommend(20, n=1, exclude_seen=False).items.tolist() == [12]
    assert model.row_ids_ == list(range(1, 21))


@pytest.mark.parametrize("library", LIBRARIES)
def test_labels_of_a_wide_table_are_ids(cells, library):
    X = wide(cells, library)
    model = fitted(X)
    assert (model.row_ids_, model.column_ids_) == (ROWS, COLUMNS)
    assert list(model.feature_names_in_) == COLUMNS
    assert model.predict("r2", "c3") == pytest.approx(12, rel=0.01)
    assert model.recommend("r2", n=1).items.tolist() == ["c3"]
    assert set(model.similar_items("c0", n=11).items) == set(COLUMNS[1:])
    worst = model.audit().entries[0]
    assert (worst.row, worst.column) == ("r5", "c7")
    np.testing.assert_array_equal(model.transform(X), fitted(cells).transform(cells))


@pytest.mark.parametrize("library", LIBRARIES)
def test_answers_about_a_wide_table_are_wide_tables(cells, library):
    X = wide(cells, library)
    model = fitted(X)
    kind = pl.DataFrame if library == "lazy" else type(X)
    given = model.outlier_scores(X)
    for scores in (model.outlier_scores(), given, model.entry_weights(X), model.predict(X)):
        assert isinstance(scores, kind)
        names = scores.column_names if library == "arrow" else list(scores.columns)
        assert names == ([] if library == "pandas" else ["row name"]) + COLUMNS
    assert cell(given, "r5", "c7") < 1e-6
    assert pd.isna(cell(given, "r2", "c3"))
    flat = fitted(cells).outlier_scores()
    expected = np.full(cells.shape, np.nan)
    expected[~np.isnan(cells)] = flat
    found = [[cell(given, row, column) for column in COLUMNS] for row in ROWS]
    np.testing.assert_array_equal(np.array(found, float), expected)


def test_scores_of_rows_and_columns_have_labels(cells):
    arrays = fitted(cells)
    of_rows = fitted(wide(cells, "pandas")).row_scores()
    np.testing.assert_array_equal(of_rows.index, ROWS)
    np.testing.assert_array_equal(of_rows, arrays.row_scores())
    of_columns = fitted(long(cells), **LONG).column_scores()
    assert sorted(of_columns.index) == sorted(COLUMNS)
    in_polars = fitted(wide(cells, "polars")).row_scores()
    assert in_polars.columns == ["row name", "row_score"]
    assert in_polars["row name"].to_list() == ROWS
    in_arrow = fitted(long(cells, "arrow"), **LONG).column_scores()
    assert in_arrow.column_names == ["film", "column_score"]


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_scores_of_a_long_table_are_in_its_order(cells, library):
    """By fit(table, row=, …), by Observed.from_triplets, and for a table given later."""
    table = long(cells, library)
    frame = long(cells)
    reference = fitted(cells)
    expected = np.full(cells.shape, np.nan)
    expected[~np.isnan(cells)] = reference.outlier_scores()
    for model in (fitted(table, **LONG), fitted(Observed.from_triplets(table, **LONG))):
        for scores in (model.outlier_scores(), model.outlier_scores(table)):
            values = [
                expected[ROWS.index(row), COLUMNS.index(column)]
                for row, column in zip(frame["user"], frame["film"], strict=True)
            ]
            np.testing.assert_allclose(np.asarray(scores), values, rtol=1e-6, atol=1e-12)
    if library == "pandas":
        table["score"] = model.outlier_scores()
        worst = table.loc[table["score"].idxmin()]
        assert (worst["user"], worst["film"]) == ("r5", "c7")
        assert model.outlier_scores().index.equals(table.index)
        assert model.entry_weights(table).index.equals(table.index)


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_columns_of_a_table_are_answered_by_columns_and_tables(cells, library):
    table = long(cells, library)
    model = fitted(table, **LONG)
    predictions = model.predict(table["user"], table["film"])
    assert isinstance(predictions, type(table["user"]))
    frame = long(cells)
    expected = model.predict(frame["user"].tolist(), frame["film"].tolist())
    np.testing.assert_array_equal(np.asarray(predictions), expected)
    if library == "pandas":
        assert predictions.index.equals(table.index)
    ranked = model.recommend(["r7", "r1"], n=2, exclude_seen=False)
    users = {"pandas": pd, "polars": pl}.get(library)
    users = pa.chunked_array([["r7", "r1"]]) if users is None else users.Series(["r7", "r1"])
    best = model.recommend(users, n=2, exclude_seen=False)
    assert isinstance(best, type(table))
    best = pl.DataFrame(best)
    assert best.columns == ["user", "position", "film", "prediction"]
    assert best["user"].to_list() == ["r7", "r7", "r1", "r1"]
    assert best["film"].to_list() == ranked.items.ravel().tolist()
    assert best["prediction"].to_list() == ranked.scores.ravel().tolist()
    unseen = pl.DataFrame(model.recommend(pd.Series(["r2", "r0"]), n=3))
    assert unseen["user"].to_list() == ["r2"], "positions without an item are left out"
    similar = pl.DataFrame(model.similar_items(pd.Series(["c1", "c2"], name="film"), n=2))
    assert similar.columns == ["film", "position", "similar film", "similarity"]
    assert (
        similar["similar film"].to_list()
        == model.similar_items(["c1", "c2"], n=2).items.ravel().tolist()
    )


def test_weights_of_a_long_table_are_in_its_order(cells):
    frame = long(cells)
    is_bad = ((frame["user"] == "r5") & (frame["film"] == "c7")).to_numpy()
    weights = np.where(is_bad, 0.0, 1.0)
    model = RobustMF(1, loss="l2", reg=1e-6, random_state=0).fit(frame, weights=weights, **LONG)
    assert model.predict("r5", "c7") == pytest.approx(48, rel=0.01)


def test_lines_of_a_repeated_pair_have_the_score_of_their_entry(cells):
    frame = long(cells)
    twice = pd.concat([frame, frame.iloc[:3]])
    model = fitted(Observed.from_triplets(twice, **LONG, duplicates="last"))
    scores = model.outlier_scores()
    assert scores.index.equals(twice.index)
    np.testing.assert_array_equal(scores.iloc[-3:], scores.iloc[:3])
    with pytest.raises(ValueError, match="several values for one row and column"):
        RobustMF(1).fit(
            Observed.from_triplets(twice, **LONG, duplicates="last"), weights=np.ones(len(twice))
        )


def test_unknown_ids_of_a_table_have_no_score(cells):
    model = fitted(long(cells), **LONG)
    frame = pd.concat(
        [long(cells).iloc[:4], pd.DataFrame({"user": ["x"], "film": ["c1"], "stars": [1.0]})]
    )
    with pytest.warns(UnknownIdsWarning, match="1 of 5 entries"):
        scores = model.outlier_scores(frame)
    assert scores.isna().tolist() == [False] * 4 + [True]
    np.testing.assert_array_equal(scores.iloc[:4], model.outlier_scores().iloc[:4])


def test_rows_are_matched_by_label_and_not_by_position(cells):
    X = wide(cells, "pandas")
    model = fitted(X)
    some = X.iloc[[7, 5, 2], [9, 7, 3]]
    expected = model.outlier_scores().loc[some.index, some.columns]
    pd.testing.assert_frame_equal(model.outlier_scores(some), expected)
    numbered = fitted(X.reset_index(drop=True))
    assert numbered.row_ids_ is None
    part = X.reset_index(drop=True).iloc[5:7]
    np.testing.assert_array_equal(numbered.outlier_scores(part), model.outlier_scores().iloc[5:7])
    with pytest.warns(UnknownIdsWarning, match="12 of 24 entries"):
        scores = numbered.outlier_scores(part.set_axis([5, 20]))
    assert scores.loc[20].isna().all()


def test_new_rows_of_a_table_are_answered_with_their_labels(cells):
    X = wide(cells, "pandas")
    model = fitted(X.iloc[:15])
    scores = model.outlier_scores(X.iloc[15:], rows="new")
    assert scores.index.equals(X.index[15:])
    assert model.row_scores(X.iloc[15:], rows="new").index.tolist() == ROWS[15:]
    repeated = X.iloc[[16, 16]]
    assert model.predict(repeated).index.equals(repeated.index)
    with pytest.raises(ValueError, match=r"row ids of a wide table must be distinct, got 'r16' 2"):
        RobustMF(1).fit(repeated)


def test_default_index_and_columns_are_not_labels(cells):
    model = fitted(pd.DataFrame(cells))
    assert model.row_ids_ is None
    assert model.column_ids_ is None
    assert not hasattr(model, "feature_names_in_")
    assert model.outlier_scores().shape == cells.shape
    model.partial_fit(pd.DataFrame(cells[:3]))
    assert model.row_factors_.shape == (23, 1), "rows without labels are new"


def test_labelled_rows_of_partial_fit_are_matched(cells):
    X = wide(cells, "pandas")
    model = fitted(X.iloc[:15]).partial_fit(X.iloc[13:])
    assert model.row_ids_ == ROWS
    assert model.outlier_scores().index.tolist() == ROWS
    of_lines = RobustMF(1, random_state=0).partial_fit(long(cells), **LONG)
    of_lines.partial_fit(long(cells).iloc[:2].assign(user="new"))
    assert "new" in of_lines.row_ids_
    scores = of_lines.outlier_scores()
    assert scores.columns.tolist() == ["user", "film", "outlier_score"]
    assert (scores["user"] == "new").sum() == 2


def test_a_saved_model_answers_with_tables(cells, tmp_path):
    X = wide(cells, "pandas column")
    model = fitted(X)
    model.save(tmp_path / "wide.rmf")
    pd.testing.assert_frame_equal(
        load(tmp_path / "wide.rmf").outlier_scores(), model.outlier_scores()
    )
    frame = long(cells)
    model = fitted(frame, **LONG)
    again = pickle.loads(pickle.dumps(model))
    pd.testing.assert_series_equal(again.outlier_scores(), model.outlier_scores())
    model.save(tmp_path / "long.rmf")
    loaded = load(tmp_path / "long.rmf")
    pd.testing.assert_series_equal(loaded.outlier_scores(frame), model.outlier_scores())


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_scores_of_a_loaded_model_have_the_ids_of_their_lines(cells, tmp_path, library):
    """A file does not hold the order of the lines, and scores in another order would mislead."""
    table = long(cells, library)
    model = fitted(table, **LONG)
    model.save(tmp_path / "long.rmf")
    scores = load(tmp_path / "long.rmf").outlier_scores()
    assert isinstance(scores, type(table))
    found = pl.DataFrame(scores)
    expected = pl.DataFrame(long(cells, "polars")).with_columns(
        outlier_score=np.asarray(model.outlier_scores())
    )
    assert found.columns == ["user", "film", "outlier_score"]
    assert found.equals(expected.select(found.columns).sort("user", "film"))


@pytest.mark.parametrize(
    "labels",
    [
        pd.date_range("2020-01-01", periods=20, freq="h"),
        pd.MultiIndex.from_product([["a", "b"], range(10)]),
        pd.CategoricalIndex(ROWS),
        np.linspace(0, 1, 20),
        pd.date_range("2020-01-01", periods=20, freq="h", tz="UTC"),
        pd.date_range("2020-03-28 12:00", periods=20, freq="h", tz="Europe/Zurich"),
        pd.date_range("2020-01-01", periods=20, freq="h", tz="+01:30"),
    ],
    ids=["times", "levels", "categories", "floats", "UTC", "zone", "offset"],
)
def test_labels_of_any_type(cells, labels, tmp_path):
    X = pd.DataFrame(cells, index=labels, columns=COLUMNS)
    model = fitted(X)
    label = X.index[2]
    assert model.predict(label, "c3") == pytest.approx(12, rel=0.01)
    assert model.outlier_scores().index.equals(X.index)
    if not isinstance(labels, pd.MultiIndex):
        assert model.predict(X.index, "c3")[2] == model.predict(label, "c3")
    model.save(tmp_path / "model.rmf")
    loaded = load(tmp_path / "model.rmf")
    assert loaded.predict(label, "c3") == model.predict(label, "c3")
    assert loaded.row_ids_ == model.row_ids_
    if getattr(labels, "tz", None) is not None:
        assert [one.utcoffset() for one in loaded.row_ids_] == [one.utcoffset() for one in labels]
        assert loaded.row_scores().index.equals(X.index)


@pytest.mark.parametrize(
    ("labels", "third"),
    [
        (pd.period_range("2020-01", periods=20, freq="M"), "2020-03"),
        (pd.interval_range(0, 20), "(2, 3]"),
    ],
    ids=["periods", "intervals"],
)
def test_labels_that_arrow_does_not_have_are_text(cells, labels, third):
    X = pd.DataFrame(cells, index=labels, columns=COLUMNS)
    model = fitted(X)
    assert model.row_ids_[2] == third
    assert model.predict(third, "c3") == pytest.approx(12, rel=0.01)
    assert model.predict(labels[2], "c3") == model.predict(third, "c3")
    pairs = model.predict(labels[:3].to_series(), ["c3"] * 3)
    np.testing.assert_array_equal(pairs, model.predict(list(model.row_ids_[:3]), ["c3"] * 3))
    assert model.outlier_scores().index.equals(X.index)
    np.testing.assert_array_equal(model.impute(X), fitted(cells).impute(cells))


@pytest.mark.parametrize("values", ["text", "times", "nanoseconds"])
def test_a_column_that_does_not_hold_numbers_is_named(cells, values):
    times = pd.date_range("2020-01-01", periods=20)
    column = {"text": "x", "times": times, "nanoseconds": times.as_unit("ns")}[values]
    X = pd.DataFrame(cells, columns=COLUMNS).assign(note=column)
    with pytest.raises(TypeError, match=r"column 'note' does not .*; omit it, or give row='note'"):
        RobustMF(1).fit(X)


def test_times_are_ids_up_to_microseconds():
    times = pd.DatetimeIndex(["2020-01-01 00:00:00.500", "2020-01-02 00:00:00.000"]).as_unit("ns")
    X = pd.DataFrame([[1.0, 2], [2, 4]], index=times, columns=["a", "b"])
    ids = Observed.from_dense(X).row_ids
    assert ids == [datetime.datetime(2020, 1, 1, 0, 0, 0, 500_000), datetime.datetime(2020, 1, 2)]
    assert {type(one) for one in ids} == {datetime.datetime}


@pytest.mark.parametrize("dtype", ["Float64", "double[pyarrow]", "Float32", "object"])
def test_nullable_columns(cells, dtype):
    X = pd.DataFrame(cells, index=ROWS, columns=COLUMNS).astype(dtype)
    X.iloc[MISSING] = None if dtype == "object" else pd.NA
    np.testing.assert_array_equal(
        wide_table(X).values.astype(float), cells.astype(np.float32 if "32" in dtype else float)
    )
    if dtype != "Float32":
        assert fitted(X).predict("r2", "c3") == fitted(cells).predict(2, 3)


def test_integers_and_booleans_with_missing_values():
    X = pd.DataFrame(
        {"a": pd.array([1, pd.NA], "Int64"), "b": pd.array([True, pd.NA], "boolean"), "c": [1.5, 2]}
    )
    np.testing.assert_array_equal(wide_table(X).values, [[1, 1, 1.5], [np.nan, np.nan, 2]])


def test_names_of_columns_are_checked(cells):
    frame = long(cells)
    with pytest.raises(ValueError, match="row=, col= and value= must all be given"):
        RobustMF(1).fit(frame, row="user", col="film")
    with pytest.raises(ValueError, match="value='rating' is not a column of the data"):
        RobustMF(1).fit(frame, row="user", col="film", value="rating")
    with pytest.raises(ValueError, match="row='nothing' is not a column"):
        RobustMF(1).fit(wide(cells, "pandas"), row="nothing")
    with pytest.raises(TypeError, match="row= must name a column of a table, but X is a ndarray"):
        RobustMF(1).fit(cells, row="user")
    with pytest.raises(TypeError, match=r"its lines with predict\(X\['user'\], X\['film'\]\)"):
        fitted(frame, **LONG).predict(frame)


def test_a_named_column_holds_the_row_ids_of_a_wide_table(cells):
    X = pd.DataFrame(cells, columns=COLUMNS).assign(number=np.arange(20) + 100)
    model = fitted(X, row="number")
    assert model.row_ids_ == list(range(100, 120))
    assert model.predict(102, "c3") == pytest.approx(12, rel=0.01)
    assert list(model.outlier_scores(X).columns) == ["number", *COLUMNS]
    assert model.transform(X).shape == (20, 1)


def test_factors_of_a_long_table_are_indexed_by_its_rows(cells):
    frame = long(cells)
    model = RobustMF(1, random_state=0).set_output(transform="pandas")
    for factors in (model.fit_transform(frame, **LONG), model.transform(frame)):
        assert sorted(factors.index) == sorted(ROWS)
        assert factors.columns.tolist() == ["robustmf0"]
    np.testing.assert_array_equal(factors, model.set_output(transform="default").transform(frame))
    in_polars = model.set_output(transform="polars").transform(frame)
    assert in_polars.columns == ["user", "robustmf0"]


@pytest.mark.parametrize("library", ["polars", "lazy", "arrow"])
def test_missing_values_are_null_where_the_library_has_null(cells, library):
    X = wide(cells, library)
    model = fitted(X)
    bad = "c7"
    answers = [model.outlier_scores(X), model.entry_weights(X), model.clean(X, replace=False).data]
    for answer in map(pl.DataFrame, answers):
        assert answer["c3"].null_count() == 1
        assert not answer["c3"].is_nan().any()
    assert pl.DataFrame(answers[-1])[bad].null_count() >= 1
    lines = long(cells, "polars" if library == "lazy" else library)
    of_lines = fitted(lines, **LONG)
    cleaned, mask = of_lines.clean(lines, replace=False, at_most=1e-6)
    assert pl.DataFrame(cleaned).columns == list(LONG.values())
    stars = pl.DataFrame(cleaned)["stars"]
    assert stars.null_count() == np.asarray(mask).sum() == 1
    unknown = pl.DataFrame({"user": ["r1", "x"], "film": ["c1", "c1"], "stars": [2.0, 1.0]})
    table = unknown if library != "arrow" else unknown.to_arrow()
    with pytest.warns(UnknownIdsWarning, match="1 of 2 entries"):
        assert (
            of_lines.outlier_scores(table).to_pylist()[1] is None
            if library == "arrow"
            else (of_lines.outlier_scores(table).null_count() == 1)
        )


def test_a_dict_of_columns_is_a_long_table(cells):
    frame = long(cells)
    columns = {name: frame[name].tolist() for name in frame}
    expected = fitted(frame, **LONG)
    model = fitted(columns, **LONG)
    scores = model.outlier_scores()
    assert isinstance(scores, np.ndarray)
    np.testing.assert_array_equal(scores, expected.outlier_scores())
    np.testing.assert_array_equal(model.outlier_scores(columns), scores)
    np.testing.assert_array_equal(model.transform(columns), expected.transform(frame))
    of_rows = model.row_scores()
    assert of_rows["user"] == model.row_ids_
    np.testing.assert_array_equal(of_rows["row_score"], expected.row_scores())
    cleaned, mask = model.clean(columns, at_most=1e-6)
    assert list(cleaned) == list(columns)
    np.testing.assert_array_equal(mask, expected.clean(frame, at_most=1e-6).mask)
    structured = frame.to_records(index=False, column_dtypes={"user": "U3", "film": "U3"})
    again = fitted(np.array(structured), **LONG)
    assert again.predict("r2", "c3") == model.predict("r2", "c3")


@pytest.mark.parametrize("dtype", ["Float64", "double[pyarrow]"])
def test_nullable_types_and_names_of_columns_are_kept(cells, dtype):
    X = pd.DataFrame(cells, index=ROWS, columns=pd.Index(COLUMNS, name="sensor")).astype(dtype)
    model = fitted(X)
    scores = model.outlier_scores(X)
    cleaned, mask = model.clean(X, replace=False)
    for answer in (model.impute(X), scores, cleaned):
        assert set(answer.dtypes) == set(X.dtypes)
        assert answer.columns.equals(X.columns)
        assert answer.columns.name == "sensor"
    assert scores.iloc[MISSING] is pd.NA
    assert mask.dtypes.eq(bool).all()


@pytest.mark.parametrize(
    "labels",
    [
        pd.date_range("2026-03-01", periods=20, freq="h"),
        pd.date_range("2026-03-01", periods=20, freq="h").astype("datetime64[ns]"),
        pd.to_timedelta(np.arange(20), unit="h"),
        pd.to_timedelta(np.arange(20), unit="h").astype("timedelta64[ns]"),
    ],
    ids=["times", "nanoseconds", "durations", "durations in nanoseconds"],
)
def test_times_of_numpy_are_the_labels_of_pandas(cells, labels):
    model = fitted(pd.DataFrame(cells, index=labels, columns=COLUMNS))
    expected = model.predict(labels[2], "c3")
    assert expected == pytest.approx(12, rel=0.01)
    assert model.predict(labels.to_numpy()[2], "c3") == expected
    np.testing.assert_array_equal(model.predict(labels.to_numpy()[2:4], "c3")[0], expected)
    np.testing.assert_array_equal(model.predict([labels.to_numpy()[2]], "c3"), expected)


def test_an_arrow_table_with_a_named_index_of_pandas():
    cells = np.outer(np.arange(1.0, 21), np.arange(1.0, 7))
    table = pd.DataFrame(cells, index=pd.RangeIndex(5, 25), columns=list("abcdef"))
    table.index = pd.Index([f"r{k}" for k in range(20)], name="station of origin")
    model = RobustMF(1, random_state=0).fit(pa.Table.from_pandas(table))
    assert model.predict("r3", "c") == pytest.approx(12, rel=1e-3)
    assert model.outlier_scores().column_names == ["station of origin", *"abcdef"]
