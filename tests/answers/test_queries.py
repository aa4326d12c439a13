"""Queries by id: predictions, recommendations, similar items, and unknown ids."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from robustmf import Observed, RobustMF
from robustmf.data.factorization import Factorization
from robustmf.data.ranking import similar_columns, top_n
from robustmf.exceptions import EmptyRowsWarning, UnknownIdsWarning


@pytest.fixture(scope="module")
def ratings():
    """A table of ratings by 60 users of 25 films, 60 % observed, in random order."""
    rng = np.random.default_rng(0)
    values = (
        3
        + rng.standard_normal((60, 2)) @ rng.standard_normal((25, 2)).T
        + rng.standard_normal((60, 1))
        + 0.1 * rng.standard_normal((60, 25))
    )
    i, j = np.nonzero(rng.random(values.shape) < 0.6)
    order = rng.permutation(len(i))
    i = i[order]
    j = j[order]
    return pd.DataFrame(
        {
            "user": [f"user{k:02}" for k in i],
            "film": [f"film{k:02}" for k in j],
            "stars": values[i, j],
        }
    )


@pytest.fixture(scope="module")
def observed(ratings):
    return Observed.from_triplets(ratings, row="user", col="film", value="stars")


@pytest.fixture(scope="module")
def model(observed):
    return RobustMF(2, bias=True, random_state=0).fit(observed)


@pytest.fixture(scope="module")
def plain(observed):
    return RobustMF(3, bias=False, random_state=0).fit(observed)


def test_predictions_have_the_order_of_the_query(model, ratings):
    some = ratings.sample(50, random_state=0)
    predicted = model.predict(some["user"], some["film"])
    assert np.median(np.abs(predicted - some["stars"])) < 0.15
    for users, films in (
        (list(some["user"]), list(some["film"])),
        (some["user"].to_numpy(), some["film"].to_numpy()),
    ):
        np.testing.assert_array_equal(model.predict(users, films), predicted)
    one = model.predict("user07", "film03")
    assert one.shape == ()
    i = model.row_ids_.index("user07")
    j = model.column_ids_.index("film03")
    assert one == pytest.approx(
        model.center_
        + model.row_bias_[i]
        + model.column_bias_[j]
        + model.row_factors_[i] @ model.column_factors_[j]
    )
    np.testing.assert_allclose(model.predict("user07", ["film03", "film04"])[0], one)
    grid = model.predict(np.array([["user07"], ["user08"]]), np.array(["film03", "film04"]))
    assert grid.shape == (2, 2)
    assert grid[0, 0] == one


def test_unknown_ids_are_predicted_by_the_biases(model, plain):
    i = model.row_ids_.index("user07")
    j = model.column_ids_.index("film03")
    with pytest.warns(UnknownIdsWarning, match="without bias and factors of their own") as warned:
        predictions = model.predict(
            ["nobody", "user07", "nobody"], ["film03", "nothing", "nothing"]
        )
    assert [str(one.message).partition(" are")[0] for one in warned] == [
        "2 of 3 row ids",
        "2 of 3 column ids",
    ]
    np.testing.assert_allclose(
        predictions,
        [model.center_ + model.column_bias_[j], model.center_ + model.row_bias_[i], model.center_],
    )
    with pytest.warns(UnknownIdsWarning, match="1 of 2 row ids are unknown .* 'nobody'"):
        known, unknown = plain.predict(["user07", "nobody"], ["film03", "film03"])
    assert unknown == plain.median_, "without biases, by the median of all values"
    assert known != unknown


def test_indices_out_of_range_are_an_error(observed):
    by_index = RobustMF(2, random_state=0).fit(Observed(observed.rows, observed.shape))
    assert by_index.row_ids_ is None
    with pytest.raises(ValueError, match=r"rows must lie in 0 … 59, got 60"):
        by_index.predict([60], [0])
    with pytest.raises(ValueError, match=r"users must lie in 0 … 59, got -1"):
        by_index.recommend(-1)
    with pytest.raises(TypeError, match="items must be integers"):
        by_index.similar_items("film01")
    for call in (by_index.transform, by_index.entry_weights):
        with pytest.raises(ValueError, match=r"X has (row|column) ids, but the fit had none"):
            call(observed)


@pytest.mark.parametrize(
    ("users", "error", "message"),
    [
        (
            [7],
            TypeError,
            r"row ids were of type str in fit \(such as 'user00'\), got 7 of type int at",
        ),
        (["user01", np.nan], ValueError, "row ids must not be missing, got nan at position 1"),
        (["user01", None], ValueError, "row ids must not be missing, got None"),
        (pd.Series(["user01", pd.NA]), ValueError, "row ids must not be missing"),
        (["user01", pd.NA], ValueError, "row ids must not be missing, got <NA> at position 1"),
        (["user01", pd.NaT], ValueError, "row ids must not be missing"),
        ([["user01"]], TypeError, "row ids must be hashable"),
        ([b"user01"], TypeError, "of type bytes"),
        (
            {"user01"},
            TypeError,
            "row ids must be a list, an array or a column of a table, got a set",
        ),
    ],
)
def test_bad_ids_are_refused_by_name(model, users, error, message):
    with pytest.raises(error, match=message):
        model.predict(users, ["film01"] * len(users))


def test_ids_of_any_type():
    ids = [("a", 1), "a", 7, 2.5]
    i, j = np.divmod(np.arange(12), 3)
    value = np.outer([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0]).ravel()
    entries = Observed.from_triplets(
        row=[ids[k] for k in i], col=list(j.astype(float)), value=value
    )
    model = RobustMF(1, random_state=0, reg=1e-6).fit(entries)
    np.testing.assert_allclose(model.predict(ids, [0, 0, 0, 0]), [1, 2, 3, 4], rtol=1e-3)
    assert model.predict(("a", 1), 2) == pytest.approx(3, rel=1e-3)
    assert model.predict([("a", 1)], [2.0]) == pytest.approx(3, rel=1e-3)
    assert model.predict([np.int64(7)], [1]) == pytest.approx(6, rel=1e-3)


def test_shapes_that_do_not_broadcast_are_refused(model):
    with pytest.raises(
        ValueError,
        match=r"must be paired one to one, or broadcast; got shapes \(2,\) and \(3,\)",
    ):
        model.predict(["user01", "user02"], ["film01", "film02", "film03"])


def test_scores_of_new_rows_are_those_of_clipped_predictions():
    rng = np.random.default_rng(0)
    X = 0.1 * rng.standard_normal((20, 1)) @ rng.standard_normal((1, 8))
    model = RobustMF(1, bias=False, bounds=(2, 3), random_state=0, n_jobs=1).fit(X)
    assert model.score(X[:5], rows="new") == pytest.approx(-np.abs(X[:5] - 2).mean())


def test_bounds_clip_predictions_only(observed, ratings):
    free = RobustMF(2, bias=True, random_state=0).fit(observed)
    bound = RobustMF(2, bias=True, random_state=0, bounds=(2, 4)).fit(observed)
    all_free, all_bound = (m.predict(ratings["user"], ratings["film"]) for m in (free, bound))
    assert all_free.min() < 2
    assert all_free.max() > 4
    np.testing.assert_array_equal(all_bound, np.clip(all_free, 2, 4))
    np.testing.assert_array_equal(bound.row_factors_, free.row_factors_)
    assert bound.inverse_transform(bound.fit_transform(observed)).max() > 4
    np.testing.assert_array_equal(bound.recommend("user03").items, free.recommend("user03").items)
    assert bound.recommend("user03").scores.max() <= 4


@pytest.mark.parametrize(
    ("bounds", "error"),
    [
        ((5, 1), ValueError),
        ((1, 1), ValueError),
        ((np.nan, 1), ValueError),
        (3, TypeError),
        (("a", "b"), TypeError),
    ],
)
def test_bad_bounds_are_refused(bounds, error, observed):
    with pytest.raises(error, match="bounds must be"):
        RobustMF(2, bounds=bounds).fit(observed)


@pytest.mark.parametrize("seen_too", [False, True])
def test_recommendations_are_the_sorted_predictions(model, ratings, seen_too):
    users = ["user11", "user03", "user42"]
    items, scores = model.recommend(users, n=5, exclude_seen=not seen_too)
    assert items.shape == scores.shape == (3, 5)
    for user, films, stars in zip(users, items, scores, strict=True):
        seen = set() if seen_too else set(ratings.loc[ratings["user"] == user, "film"])
        open_films = [film for film in model.column_ids_ if film not in seen]
        predicted = model.predict(user, open_films)
        order = np.argsort(-predicted, kind="stable")[:5]
        assert list(films) == [open_films[k] for k in order]
        np.testing.assert_allclose(stars, predicted[order])
    one = model.recommend("user03", n=5, exclude_seen=not seen_too)
    assert list(one.items) == list(items[1])


def test_recommendations_do_not_depend_on_blocks(model, monkeypatch):
    users = model.row_ids_
    at_once = model.recommend(users, n=7)
    monkeypatch.setattr("robustmf.data.ranking._SCORES_PER_BLOCK", 60)  # two users at a time
    blocks = model.recommend(users, n=7)
    assert np.array_equal(at_once.items, blocks.items)
    np.testing.assert_allclose(at_once.scores, blocks.scores, rtol=1e-12)


def test_missing_recommendations_are_none_and_nan():
    dense = np.random.default_rng(0).standard_normal((6, 4))
    dense[0, 2] = np.nan
    by_index = RobustMF(1, random_state=0).fit(dense)
    items, scores = by_index.recommend([0, 1], n=10)
    assert items.tolist() == [[2] + [-1] * 9, [-1] * 10]
    assert np.isnan(scores[1]).all()
    assert scores[0, 0] == pytest.approx(by_index.predict(0, 2))
    i, j = np.nonzero(~np.isnan(dense))
    entries = Observed.from_triplets(
        row=["abcdef"[k] for k in i], col=["wxyz"[k] for k in j], value=dense[i, j]
    )
    by_id = RobustMF(1, random_state=0).fit(entries)
    assert by_id.recommend("a").items.tolist() == ["y"] + [None] * 9


def test_ties_are_broken_by_column_index():
    """Columns 1 to 5 are equal, and n may separate them."""
    model = RobustMF(1, random_state=0).fit(np.outer(np.arange(1.0, 9.0), [3, 2, 2, 2, 2, 2, 1]))
    model.column_factors_[2:6] = model.column_factors_[1]
    for n in range(1, 8):
        assert model.recommend(4, n=n, exclude_seen=False).items.tolist() == list(range(n))


def test_ties_of_many_columns_are_broken_by_column_index():
    """Columns that are not in order after the selection of the largest scores."""
    scores = np.random.default_rng(0).integers(0, 4, 400).astype(float)
    found = top_n(np.ones((1, 1)), scores[:, None], np.zeros(400), 300, None)
    expected = np.argsort(-scores, kind="stable")[:300]
    assert found.items[0].tolist() == expected.tolist()


def test_similarities_are_at_most_one():
    """Proportional columns, whose cosine may be larger by rounding."""
    rng = np.random.default_rng(0)
    V = rng.standard_normal((1, 3)) * rng.uniform(0.5, 2, (200, 1))
    found = similar_columns(rng.standard_normal((50, 3)), V, np.arange(200), 199)
    assert found.scores.max() == 1
    assert found.scores.min() == pytest.approx(1)


def test_unknown_users_are_recommended_the_items_with_the_highest_biases(model):
    with pytest.warns(
        UnknownIdsWarning, match="1 of 2 row ids .* 'nobody'; the columns with the highest"
    ):
        items, scores = model.recommend(["nobody", "user03"], n=4)
    best = np.argsort(-model.column_bias_, kind="stable")[:4]
    assert list(items[0]) == [model.column_ids_[k] for k in best]
    with pytest.warns(UnknownIdsWarning, match="1 of 1 row ids .* 'nobody'; they are predicted"):
        np.testing.assert_allclose(scores[0], model.predict("nobody", list(items[0])))


def test_without_biases_only_known_users_have_recommendations(plain):
    with pytest.warns(
        UnknownIdsWarning,
        match="1 of 2 users are unknown, and a model without biases cannot rank",
    ):
        items, scores = plain.recommend(["nobody", "user03"], n=4)
    assert items[0].tolist() == [None] * 4
    assert np.isnan(scores[0]).all()
    alone = plain.recommend("user03", n=4)
    assert items[1].tolist() == alone.items.tolist()
    np.testing.assert_allclose(scores[1], alone.scores, rtol=1e-12)
    with pytest.raises(ValueError, match=r"2 of 2 users are unknown.*fit with bias=True"):
        plain.recommend(["nobody", "no one"])


def test_similar_items_have_proportional_predictions(plain, observed):
    """Compared with cosines of the predicted columns; invariant to the basis of the factors."""
    predicted = plain.row_factors_ @ plain.components_
    unit = predicted / np.linalg.norm(predicted, axis=0)
    cosines = unit.T @ unit
    j = plain.column_ids_.index("film05")
    order = [k for k in np.argsort(-cosines[j], kind="stable") if k != j]
    items, scores = plain.similar_items("film05", n=6)
    assert list(items) == [plain.column_ids_[k] for k in order[:6]]
    np.testing.assert_allclose(scores, cosines[j, order[:6]])
    A = np.random.default_rng(0).standard_normal((3, 3)) + 3 * np.eye(3)
    other = RobustMF(3, random_state=0).fit(observed)
    factors = Factorization.without_biases(
        plain.row_factors_ @ A, plain.column_factors_ @ np.linalg.inv(A).T
    )
    other.model_ = replace(other.model_, factors=factors)
    assert list(other.similar_items("film05", n=6).items) == list(items)
    everything = plain.similar_items(["film05", "film01"], n=30).items
    assert set(everything[0]) == {*plain.column_ids_, None} - {"film05"}
    assert plain.recommend([]).items.shape == (0, 10)
    assert plain.predict([], []).shape == (0,)


def test_invalid_queries_are_refused_by_name(model):
    with pytest.raises(ValueError, match=r"items must be known to the fit, got 'nothing'$"):
        model.similar_items(["film01", "nothing"])
    for query in (model.recommend, model.similar_items):
        for n in (0, -1):
            with pytest.raises(ValueError, match=f"n must be an integer >= 1, got n={n}"):
                query("user01" if query == model.recommend else "film01", n=n)
        with pytest.raises(TypeError, match="n must be an integer"):
            query("user01" if query == model.recommend else "film01", n=2.5)
    for call in (
        lambda m: m.recommend(0),
        lambda m: m.similar_items(0),
        lambda m: m.predict(np.ones((2, 2))),
        lambda m: m.score([[1.0]]),
    ):
        with pytest.raises(NotFittedError):
            call(RobustMF())
    empty = np.arange(12.0).reshape(4, 3)
    empty[:, 1] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptyRowsWarning)
        numbered = RobustMF(1, bias=False, random_state=0).fit(empty)
    with pytest.raises(ValueError, match="items must have entries in the fit"):
        numbered.similar_items(1)


def test_a_dictionary_of_keys_of_scipy_is_a_matrix():
    """It is a mapping of positions to values, too, and was taken for a mapping of columns."""
    X = np.outer(np.arange(1.0, 9), np.arange(1.0, 7))
    model = RobustMF(rank=1, random_state=0).fit(X)
    for kind in (sp.dok_array, sp.dok_matrix):
        same = kind(X)
        np.testing.assert_array_equal(model.transform(same), model.transform(X))
        assert model.score(same) == model.score(X)
        np.testing.assert_array_equal(model.outlier_scores(same), model.outlier_scores(X).ravel())
        found = model.recommend(ratings=same[:2], exclude_seen=False)
        expected = model.recommend(ratings=X[:2], exclude_seen=False)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_columns_of_new_rows_are_found_by_id(model, ratings):
    """Some of the films in another order; the same fold-in as in the order of the fit."""
    some = ratings[ratings["user"].isin(["user03", "user04"])].iloc[::-1]
    new = Observed.from_triplets(some, row="user", col="film", value="stars")
    assert new.shape[1] < 25
    dense = np.full((2, 25), np.nan)
    for user, film, stars in some.itertuples(index=False):
        dense[["user03", "user04"].index(user), model.column_ids_.index(film)] = stars
    np.testing.assert_allclose(model.transform(new), model.transform(dense), atol=1e-8)
    assert model.score(new) == pytest.approx(model.score(dense))
    extra = pd.concat(
        [some, pd.DataFrame({"user": ["user03"], "film": ["never seen"], "stars": [5.0]})]
    )
    with pytest.warns(
        UnknownIdsWarning,
        match="1 of .* columns are unknown to the fit, such as 'never seen'; their 1 entries are",
    ):
        T = model.transform(Observed.from_triplets(extra, row="user", col="film", value="stars"))
    np.testing.assert_allclose(T, model.transform(new), atol=1e-8)
    with pytest.warns(UnknownIdsWarning):
        T = model.transform(Observed.from_triplets(row=["x"], col=["never seen"], value=[5.0]))
    assert np.all(T == 0)


def test_residuals_of_the_fitted_rows_are_found_by_id(model, ratings):
    few = ratings.iloc[:30]
    part = Observed.from_triplets(few, row="user", col="film", value="stars")
    expected = np.abs(few["stars"] - model.predict(few["user"], few["film"])).mean()
    assert model.score(part, rows="fitted") == pytest.approx(-expected)
    assert model.entry_weights(part).shape == (30,)


@pytest.mark.parametrize("name", ["position", "item", "prediction"])
def test_answers_whose_columns_would_have_one_name_are_refused(name):
    X = np.random.default_rng(0).normal(size=(8, 6))
    model = RobustMF(1, random_state=0).fit(pd.DataFrame(X, columns=list("abcdef")))
    with pytest.raises(ValueError, match="rename the column of ids"):
        model.recommend(pd.Series([0, 1], name=name), exclude_seen=False)
