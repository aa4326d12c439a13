"""``impute``, ``clean``, and recommendations for new users."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from robustmf import Observed, RobustMF
from robustmf.exceptions import UnknownIdsWarning

ROWS = [f"r{i}" for i in range(30)]
COLUMNS = [f"c{j}" for j in range(14)]
MISSING = (2, 3)
BAD = (5, 7)
LONG = {"row": "r", "col": "c", "value": "v"}


@pytest.fixture(scope="module")
def truth():
    return np.outer(np.linspace(1, 3, 30), np.linspace(2, 8, 14))


@pytest.fixture(scope="module")
def cells(truth):
    X = truth + 0.01 * np.random.default_rng(0).standard_normal(truth.shape)
    X[MISSING] = np.nan
    X[BAD] += 50
    return X


@pytest.fixture(scope="module")
def frame(cells):
    return pd.DataFrame(cells, index=ROWS, columns=COLUMNS)


@pytest.fixture(scope="module")
def model(frame):
    return RobustMF(1, random_state=0).fit(frame)


def lines(frame):
    stacked = frame.stack().dropna().rename("v").rename_axis(["r", "c"]).reset_index()
    return stacked.assign(note="x").sample(frac=1, random_state=0)


def test_impute_fills_gaps_only(model, frame, cells, truth):
    filled = model.impute(frame)
    assert filled.index.equals(frame.index)
    assert filled.columns.equals(frame.columns)
    assert filled.iloc[MISSING] == pytest.approx(truth[MISSING], abs=0.05)
    assert filled.iloc[MISSING] == model.predict("r2", "c3")
    np.testing.assert_array_equal(filled.where(frame.notna()), frame)
    array = RobustMF(1, random_state=0).fit(cells).impute(cells)
    np.testing.assert_array_equal(array, filled)
    table = pl.from_pandas(frame, nan_to_null=True)
    in_polars = RobustMF(1, random_state=0).fit(table).impute(table)
    np.testing.assert_array_equal(in_polars.to_numpy(), filled)


def test_impute_matches_labels(model, frame):
    some = frame.iloc[[7, 2], [3, 1]]
    pd.testing.assert_frame_equal(model.impute(some), model.impute(frame).iloc[[7, 2], [3, 1]])
    with pytest.raises(ValueError, match=r"got 1 of 30 with unknown ids; .* rows='new'"):
        model.impute(frame.rename(index={"r4": "new"}))


def test_impute_of_new_rows_uses_their_own_entries(model, frame, truth):
    new = (2 * frame.iloc[:4]).set_axis(["w", "x", "y", "z"])
    filled = model.impute(new, rows="new")
    assert filled.loc["y", "c3"] == pytest.approx(2 * truth[MISSING], abs=0.1)
    assert filled.notna().all(axis=None)
    for X in (sp.csr_array(np.eye(3)), Observed.from_dense(frame)):
        with pytest.raises(TypeError, match="X must be a table or a dense array"):
            model.impute(X)


@pytest.mark.parametrize("replace", [True, False])
def test_clean_changes_the_bad_cells_only(model, frame, cells, truth, replace):
    cleaned, mask = model.clean(frame, replace=replace, at_most=1e-6)
    assert mask.dtypes.eq(bool).all()
    assert list(mask.stack()[mask.stack()].index) == [("r5", "c7")]
    expected = (
        pytest.approx(truth[BAD], abs=0.05) if replace else pytest.approx(np.nan, nan_ok=True)
    )
    assert cleaned.loc["r5", "c7"] == expected
    pd.testing.assert_frame_equal(cleaned.mask(mask), frame.mask(mask))
    arrays = RobustMF(1, random_state=0).fit(cells).clean(cells, replace=replace, at_most=1e-6)
    np.testing.assert_array_equal(arrays.data, cleaned)
    np.testing.assert_array_equal(arrays.mask, mask)


def test_the_threshold_itself_is_a_bad_score(model, cells):
    of_cells = np.sort(np.asarray(model.outlier_scores(), float)[~np.isnan(cells)])
    for k in (0, 5):
        assert model.clean(cells, at_most=of_cells[k]).mask.sum() == k + 1


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_the_mask_of_a_table_with_a_column_of_labels_counts_and_selects_cells(frame, library):
    named = frame.rename_axis("place").reset_index().set_axis(np.arange(30) + 100)
    table = {"pandas": named, "polars": pl.from_pandas(named), "arrow": pa.table(dict(named))}[
        library
    ]
    _, mask = RobustMF(1, random_state=0).fit(table).clean(table, at_most=1e-6)
    assert isinstance(mask, type(table))
    marks = pl.DataFrame(mask)
    assert marks.columns == ["place", *COLUMNS]
    assert marks.sum().sum_horizontal().item() == 1
    assert marks["c7"].to_list().index(True) == BAD[0]
    if library == "pandas":
        emptied = table.mask(mask)
        assert emptied.drop(columns="place").isna().sum().sum() == 2
        assert emptied["place"].equals(table["place"])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_clean_of_a_long_table_keeps_its_other_columns(frame, truth, library):
    table = lines(frame) if library == "pandas" else pl.from_pandas(lines(frame))
    model = RobustMF(1, random_state=0).fit(table, **LONG)
    cleaned, mask = model.clean(table, at_most=1e-6, replace=True)
    assert list(cleaned.columns) == ["r", "c", "v", "note"]
    bad = np.asarray(mask)
    assert bad.sum() == 1
    before, after = (np.asarray(one["v"]) for one in (table, cleaned))
    np.testing.assert_array_equal(before[~bad], after[~bad])
    assert after[bad] == pytest.approx(truth[BAD], abs=0.05)
    assert np.asarray(table["r"])[bad] == "r5"
    if library == "pandas":
        assert cleaned.index.equals(table.index)
        assert mask.index.equals(table.index)
        emptied = model.clean(table, at_most=1e-6).data
        assert emptied["v"].isna().tolist() == bad.tolist()


def test_clean_of_entries(frame):
    observed = Observed.from_dense(frame)
    model = RobustMF(1, random_state=0).fit(observed)
    cleaned, mask = model.clean(observed, at_most=1e-6, replace=True)
    assert mask.sum() == 1
    assert cleaned.n_entries == observed.n_entries
    assert model.clean(observed, at_most=1e-6).data.n_entries == len(mask) - 1
    sparse = observed.to_sparse()
    plain = RobustMF(1, random_state=0).fit(sparse)
    assert (plain.clean(sparse, at_most=1e-6, replace=True).data != sparse).nnz == 1
    with pytest.raises(ValueError, match="at_most must be a finite number > 0"):
        model.clean(observed, at_most=0)
    with pytest.raises(TypeError, match="replace must be True or False"):
        model.clean(observed, replace="yes")


def test_recommendations_for_a_new_user(model, frame, truth):
    items, scores = model.recommend(ratings={"c0": 2 * truth[0, 0], "c13": 2 * truth[0, 13]}, n=2)
    assert items.tolist() == ["c12", "c11"]
    np.testing.assert_allclose(scores, 2 * truth[0, [12, 11]], rtol=0.02)
    as_series = pd.Series({"c0": 2 * truth[0, 0], "c13": 2 * truth[0, 13]})
    assert model.recommend(ratings=as_series, n=2).items.tolist() == items.tolist()
    both = model.recommend(ratings={"c0": 4.0}, n=1, exclude_seen=False)
    assert both.items.tolist() == ["c13"]
    several = model.recommend(ratings=frame.iloc[:3].assign(c13=np.nan), n=1)
    assert several["item"].tolist() == ["c13"] * 3
    assert several["row"].tolist() == ROWS[:3]
    model.set_params(bounds=(0, 5))
    assert model.recommend(ratings={"c0": 4.0}, n=1).scores.tolist() == [5.0]
    model.set_params(bounds=None)
    with pytest.raises(ValueError, match="either users or ratings"):
        model.recommend("r1", ratings={"c0": 1.0})
    with pytest.raises(ValueError, match="either users or ratings"):
        model.recommend()


def test_missing_ratings_of_a_new_user_are_left_out(model, frame):
    row = frame.loc["r2"]
    assert row.isna().sum() == 1
    found = model.recommend(ratings=row, n=14)
    assert found.items.tolist()[:1] == ["c3"]
    nullable = model.recommend(ratings={"c0": 4.0, "c1": pd.NA, "c2": None}, n=1)
    assert nullable.items.tolist() == model.recommend(ratings={"c0": 4.0}, n=1).items.tolist()


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
def test_new_users_without_known_ratings(model, cells):
    with (
        pytest.warns(UnknownIdsWarning, match="1 of 1 columns are unknown"),
        pytest.raises(ValueError, match="1 of 1 users have no known rating"),
    ):
        model.recommend(ratings={"other": 1.0})
    with pytest.raises(ValueError, match="1 of 1 users have no known rating"):
        model.recommend(ratings={})
    biased = RobustMF(1, bias=True, random_state=0).fit(cells)
    best = biased.recommend(ratings={}, n=3).items
    np.testing.assert_array_equal(best, np.argsort(-biased.column_bias_)[:3])
    with pytest.raises(ValueError, match="ratings must lie in 0 … 13, got 14"):
        biased.recommend(ratings={14: 1.0})
    numbered = biased.recommend(ratings={0: 2.0, 13: 8.0}, n=1, exclude_seen=False)
    new = np.full((1, 14), np.nan)
    new[0, [0, 13]] = 2.0, 8.0
    predicted = biased.inverse_transform(biased.transform(new))
    assert numbered.items.tolist() == [int(np.argmax(predicted))]


@pytest.mark.parametrize("at_most", [2, -0.1, np.nan, "0.01"])
def test_a_threshold_that_is_no_score_is_refused(model, frame, at_most):
    """clean(at_most=2) removed all cells without a word."""
    for ask in (model.clean, lambda X, at_most: model.audit(at_most=at_most)):
        with pytest.raises((TypeError, ValueError), match="at_most must be a number from 0 to 1"):
            ask(frame, at_most=at_most)
