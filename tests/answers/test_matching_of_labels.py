"""Labels of tables, weights and ratings are matched with those of the fit, never by position."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.model_selection import GridSearchCV

from robustmf import Observed, RobustMF
from robustmf.exceptions import FittedRowsWarning, RatingScaleWarning, UnknownIdsWarning


@pytest.fixture(scope="module")
def truth():
    rng = np.random.default_rng(0)
    return rng.normal(size=(40, 2)) @ rng.normal(size=(2, 12))


@pytest.fixture(scope="module")
def frame(truth):
    rng = np.random.default_rng(1)
    noisy = truth + 0.05 * rng.normal(size=truth.shape)
    return pd.DataFrame(noisy).mask(rng.random(truth.shape) < 0.1)


def fitted(X, **options):
    return RobustMF(2, random_state=0).fit(X, **options)


def test_the_default_index_is_matched_with_integer_labels(frame, truth):
    shuffled = frame.sample(frac=1, random_state=0)
    model = fitted(shuffled)
    assert np.abs(model.impute(frame) - truth).max(axis=None) < 0.5
    assert model.clean(frame).mask.sum(axis=None) < 10
    for answer in (model.outlier_scores, model.entry_weights, model.impute):
        pd.testing.assert_frame_equal(answer(frame), answer(shuffled).loc[frame.index])
    of_labels = model.score(shuffled, rows="fitted")
    assert model.score(frame, rows="fitted") == pytest.approx(of_labels)
    pd.testing.assert_series_equal(model.row_scores(frame), model.row_scores())


def test_scores_of_fitted_rows_have_the_labels_of_the_fit(frame):
    named = frame.set_axis([f"r{k}" for k in range(40)])
    model = fitted(named)
    reversed_rows = model.row_scores(named.iloc[::-1])
    np.testing.assert_allclose(reversed_rows[named.index], model.row_scores())


def test_default_columns_are_matched_with_integer_labels(frame):
    permuted = frame[np.random.default_rng(0).permutation(12)]
    model = fitted(permuted)
    pd.testing.assert_frame_equal(model.predict(frame)[permuted.columns], model.predict(permuted))
    np.testing.assert_allclose(model.transform(frame), model.transform(permuted))
    scores = model.outlier_scores(frame, rows="new")
    expected = model.outlier_scores(permuted, rows="new")
    pd.testing.assert_frame_equal(scores[permuted.columns], expected)


@pytest.mark.parametrize("number", [-5, 40])
def test_numbers_beyond_the_rows_of_the_fit_are_unknown(frame, number):
    """In particular, negative ones do not count from the end."""
    model = fitted(frame)
    some = frame.iloc[[0, 1]].set_axis([number, 1])
    with pytest.warns(UnknownIdsWarning):
        scores = model.outlier_scores(some)
    assert scores.loc[number].isna().all()
    pd.testing.assert_series_equal(scores.loc[1], model.outlier_scores().loc[1])


def test_default_labels_that_the_fit_does_not_know_are_refused(frame):
    model = fitted(frame.iloc[10:])
    for answer in (model.impute, model.outlier_scores, model.clean):
        with pytest.raises(ValueError, match=r"10 of these labels are unknown .* with set_index"):
            answer(frame.head(30))
    from_one = fitted(frame.set_axis(range(1, 13), axis=1))
    with pytest.raises(ValueError, match=r"1 of these labels are unknown .* with set_axis"):
        from_one.transform(frame)
    by_position = model.impute(frame.iloc[10:].to_numpy())
    np.testing.assert_array_equal(by_position, model.impute(frame.iloc[10:]))


def test_the_first_rows_of_a_table_without_labels(frame):
    model = fitted(frame)
    pd.testing.assert_frame_equal(model.impute(frame.head()), model.impute(frame).head())
    part = frame.iloc[:7, :5]
    pd.testing.assert_frame_equal(model.outlier_scores(part), model.outlier_scores().iloc[:7, :5])
    with pytest.raises(ValueError, match="40 of these labels are unknown"):
        model.outlier_scores(pd.concat([frame, frame], ignore_index=True))


def labelled(frame):
    return frame.set_axis([f"r{k}" for k in range(40)]).add_prefix("c")


@pytest.fixture(scope="module")
def weights(frame):
    return pd.DataFrame(np.random.default_rng(2).uniform(0.1, 5, frame.shape))


@pytest.mark.parametrize("names", [labelled, lambda frame: frame], ids=["text", "default"])
def test_weights_are_matched_by_label(frame, weights, names):
    X = names(frame)
    W = names(weights)
    expected = fitted(X, weights=W.to_numpy()).row_factors_
    for given in (W, W.sample(frac=1, random_state=0), W[W.columns[::-1]]):
        np.testing.assert_array_equal(fitted(X, weights=given).row_factors_, expected)
    of_cells = fitted(X.to_numpy(), weights=W.sample(frac=1, random_state=0))
    assert (of_cells.row_factors_ != expected).any(), "an array has no labels to match"
    for wrong in (W.rename(index={W.index[3]: "other"}), W.iloc[:, 1:]):
        with pytest.raises(ValueError, match=r"weights must have the labels of the .*to_numpy\(\)"):
            fitted(X, weights=wrong)


def test_weights_of_lines_are_matched_by_index(frame, weights):
    X = labelled(frame)
    lines = X.stack().dropna().rename("v").rename_axis(["r", "c"]).reset_index()
    names = {"row": "r", "col": "c", "value": "v"}
    of_lines = pd.Series(np.random.default_rng(3).uniform(0.1, 5, len(lines)), index=lines.index)
    expected = fitted(lines, weights=of_lines.to_numpy(), **names).row_factors_
    shuffled = of_lines.sample(frac=1, random_state=0)
    np.testing.assert_array_equal(fitted(lines, weights=shuffled, **names).row_factors_, expected)
    for wrong in (of_lines.set_axis(of_lines.index + 1), of_lines.set_axis([0] * len(lines))):
        with pytest.raises(ValueError, match="weights must have the labels of the index of X"):
            fitted(lines, weights=wrong, **names)


@pytest.mark.parametrize("rows", ["new", "fitted"])
def test_weights_of_rows_are_matched_by_label(frame, rows):
    of_rows = np.random.default_rng(4).uniform(0, 1, 40)
    for X in (labelled(frame), frame, labelled(frame).reset_index(names="name")):
        model = fitted(X)
        expected = model.score(X, rows=rows, sample_weight=of_rows)
        for labels in {tuple(X.index), tuple(model.row_ids_ or range(40))}:
            given = pd.Series(of_rows, list(labels)).sample(frac=1, random_state=0)
            assert model.score(X, rows=rows, sample_weight=given) == pytest.approx(expected)
        with pytest.raises(ValueError, match="sample_weight must have the labels of the rows of X"):
            model.score(X, rows=rows, sample_weight=pd.Series(of_rows, np.arange(40) + 0.5))
        more = pd.Series(np.append(of_rows, 1.0), [*(model.row_ids_ or range(40)), "more"])
        with pytest.raises(ValueError, match="sample_weight must have the labels of the rows of X"):
            model.score(X, rows=rows, sample_weight=more)


def shuffled_lines(frame):
    """The cells of a frame as lines, whose rows appear in another order than that of their ids."""
    lines = frame.stack().dropna().rename("v").rename_axis(["r", "c"]).reset_index()
    return lines.sample(frac=1, random_state=5)


LONG = {"row": "r", "col": "c", "value": "v"}


def test_new_rows_of_a_long_table_are_answered_in_their_order(frame):
    lines = shuffled_lines(labelled(frame))
    appearance = list(dict.fromkeys(lines["r"]))
    assert appearance != sorted(appearance)
    model = fitted(lines, **LONG)
    one_by_one = [model.transform(lines[lines["r"] == name])[0] for name in appearance]
    np.testing.assert_allclose(model.transform(lines), one_by_one)
    several = model.recommend(ratings=lines, n=3, exclude_seen=False)
    assert several["r"].tolist() == np.repeat(appearance, 3).tolist()
    alone = [
        model.recommend(ratings=lines[lines["r"] == name], n=3, exclude_seen=False)
        for name in appearance
    ]
    assert several["c"].tolist() == pd.concat(alone)["c"].tolist()
    entries = Observed.from_triplets(lines, **LONG)
    by_row = model.recommend(ratings=entries, n=3, exclude_seen=False)
    of_first = several.loc[several["r"] == entries.row_ids[0], "c"]
    assert by_row.items[0].tolist() == of_first.tolist()


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_tables_of_factors_have_the_ids_of_the_rows(frame, library, output):
    lines = shuffled_lines(labelled(frame))
    appearance = list(dict.fromkeys(lines["r"]))
    table = lines if library == "pandas" else pl.from_pandas(lines)
    expected = fitted(lines, **LONG).transform(lines)
    model = RobustMF(2, random_state=0).set_output(transform=output)
    for factors in (model.fit_transform(table, **LONG), model.transform(table)):
        if output == "pandas":
            assert factors.index.tolist() == appearance
            assert factors.columns.tolist() == ["robustmf0", "robustmf1"]
        else:
            assert factors.columns == ["r", "robustmf0", "robustmf1"]
            assert factors["r"].to_list() == appearance
            factors = factors.drop("r")
    np.testing.assert_allclose(factors.to_numpy(), expected)


def test_ratings_of_a_table_are_matched_by_name(frame):
    for X in (labelled(frame), frame.set_axis(range(1, 13), axis=1)):
        model = fitted(X)
        expected = model.recommend(ratings=X.iloc[3:5], n=3, exclude_seen=False)
        reordered = model.recommend(ratings=X.iloc[3:5, ::-1], n=3, exclude_seen=False)
        pd.testing.assert_frame_equal(reordered, expected)
        some = X.iloc[3:5, :5]
        found = model.recommend(ratings=some, n=3, exclude_seen=False)
        alone = model.recommend(ratings=some.iloc[0], n=3, exclude_seen=False)
        assert found["item"].tolist()[:3] == alone.items.tolist()
    named = labelled(frame)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted(named).transform(named.iloc[:, :5])


def test_unknown_ids_are_named(frame):
    model = fitted(frame.set_axis(range(1, 41)).set_axis(range(1, 13), axis=1))
    with pytest.warns(UnknownIdsWarning, match="1 of 1 row ids are unknown .* 0; .* by the median"):
        assert model.predict(0, 4) == model.median_
    with pytest.warns(
        UnknownIdsWarning, match="2 of 3 column ids are unknown to the fit, such as 13"
    ):
        model.predict(1, [4, 13, 14])
    with pytest.warns(UnknownIdsWarning, match="1 of 2 columns are unknown to the fit, such as 77"):
        model.recommend(ratings={77: 1.0, 3: 1.0})


@pytest.mark.parametrize("value", [500.0, -500.0])
def test_ratings_outside_of_the_scale_are_reported(frame, value):
    model = RobustMF(2, bounds=(-5, 5), random_state=0).fit(frame)
    with pytest.warns(
        RatingScaleWarning, match=rf"1 of 2 ratings, such as {value:g}, .* bounds_=\(-5, 5\)"
    ):
        model.recommend(ratings={3: value, 4: 1.0})


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.EmptyRowsWarning")
def test_nothing_is_imputed_without_entries(frame):
    X = labelled(frame)
    X["c3"] = np.nan
    X.loc["r7"] = np.nan
    for bias in (False, True):
        model = RobustMF(2, bias=bias, random_state=0).fit(X)
        for rows in ("fitted", "new"):
            filled = model.impute(X, rows=rows)
            assert filled["c3"].isna().all()
            others = filled.drop(columns="c3")
            assert others.loc["r7"].isna().all() == (not bias)
            assert others.drop(index="r7").notna().all(axis=None)
    extended = X.assign(c3=1.0).assign(new=np.nan)
    assert model.impute(extended)["new"].isna().all()


def test_lines_of_fitted_rows_are_not_scored_as_new_without_a_warning(frame):
    lines = shuffled_lines(labelled(frame))
    names = {"row": "r", "col": "c", "value": "v"}
    search = GridSearchCV(RobustMF(random_state=0), {"rank": [1, 2]}, cv=2)
    with pytest.warns(FittedRowsWarning, match=r"40 of 40 rows .* Observed.from_triplets"):
        search.fit(lines, **names)
    search.fit(Observed.from_triplets(lines, **names))
    model = fitted(lines[lines["r"] < "r3"], **names)
    model.score(lines[lines["r"] >= "r3"])
    with pytest.warns(FittedRowsWarning, match="rows='fitted' for entries of fitted rows"):
        model.score(lines[lines["r"] < "r3"])


@pytest.mark.parametrize("name", ["id", "time", "Year"])
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_first_column_of_numbers_with_the_name_of_a_label(frame, name, library):
    numbers = np.random.default_rng(0).permutation(40) + 100
    X = frame.add_prefix("c")
    X.insert(0, name, numbers)
    table = X if library == "pandas" else pl.from_pandas(X, nan_to_null=True)
    model = fitted(table)
    assert model.row_ids_ == numbers.tolist()
    assert list(model.feature_names_in_) == [f"c{k}" for k in range(12)]
    if library == "pandas":
        part = fitted(X.sample(frac=0.5, random_state=0))
        assert part.row_ids_ == X[name].sample(frac=0.5, random_state=0).tolist()
        pd.testing.assert_frame_equal(model.impute(X.iloc[5:9]), model.impute(X).iloc[5:9])
        repeated = X.assign(**{name: 1})
        with pytest.raises(ValueError, match=f"drop column '{name}' if .* holds values"):
            fitted(repeated)
        assert Observed.from_dense(repeated.rename(columns={name: "level"})).row_ids is None
