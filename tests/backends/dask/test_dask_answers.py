"""Predictions, scores and recommendations of models fitted on a Dask cluster."""

from __future__ import annotations

from functools import partial

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import NAMES, in_pieces
from sklearn.exceptions import NotFittedError

import robustmf
from robustmf import Observed, RobustMF
from robustmf.backends.dask import ShardedModel, Triplets, outlier_scores, predict, recommend
from robustmf.exceptions import UnknownIdsWarning


def test_model_on_the_client(client, ratings, observed, tmp_path, initial_points):
    model = RobustMF(2, random_state=0).fit(in_pieces(ratings), client=client)
    one = initial_points[0].fit_alone(observed)
    model.save(tmp_path / "model.rmf")
    loaded = robustmf.load(tmp_path / "model.rmf")
    assert np.array_equal(loaded.row_factors_, model.row_factors_)
    mine, theirs = (np.log(each.outlier_scores(observed)) for each in (loaded, one))
    # one in twenty is an outlier; the order of scores near 1e-35 is that of rounding
    worst, their_worst = (set(np.argsort(scores)[:40]) for scores in (mine, theirs))
    assert worst == their_worst
    # the noise distribution of a sample of the entries determines the smallest scores
    usual = theirs > np.log(1e-4)
    np.testing.assert_allclose(mine[usual], theirs[usual], rtol=0.25, atol=0.05)
    assert (mine[~usual] < np.log(1e-3)).all()
    np.testing.assert_allclose(
        loaded.recommend("u001", exclude_seen=False)[1],
        one.recommend("u001", exclude_seen=False)[1],
        rtol=1e-6,
    )
    with pytest.raises(ValueError, match="stayed on the cluster"):
        loaded.recommend("u001")
    with pytest.raises(
        ValueError,
        match=r"partial_fit needs the entries.*fit old and new ones together with client=",
    ):
        loaded.partial_fit(observed)


def test_dask_collections(client, ratings, initial_points):
    model = RobustMF(2, random_state=0).fit(Triplets(in_pieces(ratings), **NAMES), client=client)
    frame = dd.from_pandas(ratings, npartitions=3)
    found = predict(model, frame, row="user", col="item").compute()
    np.testing.assert_allclose(found, model.predict(ratings.user.tolist(), ratings.item.tolist()))
    assert found.index.equals(ratings.index)
    scores = outlier_scores(model, frame, **NAMES).compute()
    entries = Observed.from_triplets(ratings, **NAMES)
    pd.testing.assert_series_equal(scores, model.outlier_scores(entries), rtol=1e-9)
    users = dd.from_pandas(pd.DataFrame({"user": ["u003", "u007", "u011"]}), npartitions=2)
    best = recommend(model, users, 3, row="user").compute()
    assert (
        best[best.user == "u007"].item.tolist()
        == model.recommend("u007", 3, exclude_seen=False)[0].tolist()
    )
    unseen = recommend(model, users, 4, row="user", seen=frame, col="item").compute()
    one = initial_points[0].fit_alone(entries)
    for user in ("u003", "u007", "u011"):
        assert unseen[unseen.user == user].item.tolist() == one.recommend(user, 4)[0].tolist()
    with pytest.raises(ValueError, match="col='film' is not a column"):
        predict(model, frame, row="user", col="film")
    with pytest.raises(TypeError, match="Dask DataFrame is required"):
        predict(model, ratings, row="user", col="item")
    with pytest.raises(NotFittedError):
        outlier_scores(RobustMF(2), frame, **NAMES)


@pytest.fixture(scope="module")
def large_ids(client, ratings, tmp_path_factory):
    """Items whose ids a float rounds, and models without biases: on the client, and as shards."""
    frame = ratings.assign(item=ratings.item + 2**60)
    folder = tmp_path_factory.mktemp("large") / "shards"
    settings = {"bias": False, "random_state": 0}
    whole = RobustMF(2, **settings).fit(Triplets(in_pieces(frame), **NAMES), client=client)
    RobustMF(2, **settings).fit(Triplets(in_pieces(frame), shards=folder, **NAMES), client=client)
    return frame, whole, ShardedModel(folder)


def of_users(*users, npartitions=1):
    return dd.from_pandas(pd.DataFrame({"user": list(users)}), npartitions=npartitions)


def test_seen_items_with_large_ids_are_excluded(client, large_ids):
    frame, whole, sharded = large_ids
    every = sorted(set(frame.user))
    without = set(every[::3])  # so many that each partition of a join has some
    seen = dd.from_pandas(frame[~frame.user.isin(without)], npartitions=2)
    for function in (partial(recommend, whole), sharded.recommend):
        best = function(of_users(*every), 40, row="user", seen=seen, col="item").compute()
        assert best.item.dtype == np.int64
        for user in every:
            out = set() if user in without else set(frame.item[frame.user == user])
            ranked = whole.recommend(user, 40, exclude_seen=False)[0].tolist()
            assert best[best.user == user].sort_values("position").item.tolist() == [
                item for item in ranked if item not in out
            ]


@pytest.mark.parametrize("npartitions", [1, 3])
def test_unknown_users_of_a_model_without_biases(client, large_ids, npartitions):
    """Three partitions: one of unknown users, one mixed, one of known users."""
    frame, whole, sharded = large_ids
    users = of_users("nobody", "no one", "u003", "other", "u007", "u011", npartitions=npartitions)
    for function in (partial(recommend, whole), sharded.recommend):
        for more in ({}, {"seen": dd.from_pandas(frame, npartitions=2), "col": "item"}):
            found = function(users, 3, row="user", **more).compute()
            assert sorted(found.user) == [
                user for user in ("u003", "u007", "u011") for _ in range(3)
            ]
            assert found.item.dtype == np.int64
        with pytest.warns(UnknownIdsWarning, match="users of a partition are unknown") as warnings:
            function(users, 3, row="user").compute(scheduler="sync")
        assert sum(int(str(one.message).split()[0]) for one in warnings) == 3
        assert function(of_users("nobody"), 3, row="user").compute().empty
