"""Fits on a Dask cluster of worker processes equal those of one machine."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pandas as pd
import pytest
from clusters import NAMES, Own, assert_same, in_pieces, table

from robustmf import Observed, RobustMF
from robustmf.backends.dask import Triplets
from robustmf.data.holdout import Holdout
from robustmf.datasets import make_synthetic
from robustmf.distributed import fitting, initialization
from robustmf.distributed.fitting import ClusterFit
from robustmf.distributed.initialization import SampleOptions
from robustmf.exceptions import DuplicateEntryError, NotConvergedWarning


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"loss": "lsp"},
        {"loss": "l2", "bias": True, "reg": 0.3},
        {"loss": "huber", "bias": True, "reg_by_count": True, "reg": 0.02},
        {"loss": "l1", "init": "ridge", "tol": 1e-2},
        {"loss": Own(0.4), "reg": 0.5},
    ],
    ids=lambda settings: (
        "-".join(f"{key}={getattr(value, 'name', value)}" for key, value in settings.items())
        or "defaults"
    ),
)
def test_fit_equals_one_machine(client, ratings, observed, settings, initial_points):
    model = RobustMF(2, random_state=0, **settings).fit(
        Triplets(in_pieces(ratings), **NAMES), client=client
    )
    assert_same(model, initial_points[0].fit_alone(observed, **settings))


def test_weights_are_a_column(client, ratings, observed, initial_points):
    weights = Observed.from_triplets(ratings, row="user", col="item", value="trust").rows.values
    model = RobustMF(2, random_state=0).fit(
        Triplets(in_pieces(ratings), weight="trust", **NAMES), client=client
    )
    assert_same(model, initial_points[0].fit_alone(observed, weights))
    with pytest.raises(ValueError, match="weight=name"):
        RobustMF(2).fit(in_pieces(ratings), weights=weights, client=client)


def test_blocks_receive_only_the_rows_they_need(client, initial_points):
    """Two disjoint sets of users and items: blocks need few rows of the others."""
    frame = pd.concat(
        [
            table(seed=1),
            table(seed=2).assign(user=lambda f: "v" + f.user, item=lambda f: f.item + 1),
        ],
        ignore_index=True,
    )
    frame = frame[frame.index % 4 == 0]
    loaded = ClusterFit(
        client, Triplets(in_pieces(frame), blocks=9, **NAMES), None, None, np.random.default_rng(0)
    )
    needed = [
        positions
        for side in loaded.matrix.sides
        for of_block in side.needed
        for positions in of_block
    ]
    assert any(positions is not None for positions in needed)
    assert any(positions is None for positions in needed)
    model = RobustMF(2, loss="huber", reg=0.5, random_state=0).fit(
        Triplets(in_pieces(frame), blocks=9, **NAMES), client=client
    )
    assert_same(
        model,
        initial_points[0].fit_alone(Observed.from_triplets(frame, **NAMES), loss="huber", reg=0.5),
    )


def test_more_blocks_than_columns(client, initial_points):
    frame = table(30, 3, 1, 0.9)
    model = RobustMF(1, random_state=0).fit(Triplets([frame], blocks=7, **NAMES), client=client)
    assert_same(model, initial_points[0].fit_alone(Observed.from_triplets(frame, **NAMES), rank=1))


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")
def test_initialization_on_a_sample_of_the_rows(client, monkeypatch):
    """The rows outside the sample are folded in; the fit ends where one machine's does."""
    frame = table(400, 60, 2, 0.3)
    for bias in (False, True):
        settings = {"bias": bias, "random_state": 0, "tol": 1e-7, "max_iter": 30}
        observed = Observed.from_triplets(frame, **NAMES)
        learned = RobustMF(2, solver="irls", **settings).fit(observed)
        settings |= {"theta": learned.theta_, "reg": learned.reg_}
        one = RobustMF(2, solver="irls", **settings).fit(observed)
        with monkeypatch.context() as patched:
            options = replace(initialization.SAMPLING, max_entries=2500)
            patched.setattr(initialization, "SAMPLING", options)
            some = RobustMF(2, **settings).fit(in_pieces(frame), client=client)
        rows = frame.user.tolist()
        columns = frame.item.tolist()
        np.testing.assert_allclose(
            some.predict(rows, columns), one.predict(rows, columns), atol=0.02
        )


def test_learned_scales_of_rows_and_columns_are_not_used(client):
    """With rank 3 instead of 5 the residuals differ by row: one machine divides by their scales."""
    data = make_synthetic(120, random_state=0)
    rows = data.train.rows
    frame = {"user": rows.group_of_entry(), "item": rows.indices, "rating": rows.values}
    model = RobustMF(3, random_state=0).fit(Triplets([frame], **NAMES, blocks=2), client=client)
    predicted = model.predict(frame["user"], frame["item"])
    assert np.median(np.abs(predicted - rows.values)) < 0.7 * np.median(np.abs(rows.values))


def test_holdout(client, ratings, initial_points):
    seen = []
    model = RobustMF(
        2, validation_fraction=0.1, random_state=3, loss="huber", callbacks=[seen.append]
    )
    model.fit(Triplets(in_pieces(ratings), **NAMES), client=client)
    loaded = ClusterFit(
        client,
        Triplets(in_pieces(ratings), **NAMES),
        None,
        0.1,
        np.random.default_rng(3).spawn(1)[0],
    )
    rows, columns = (client.gather(side.blocks) for side in loaded.matrix.sides)
    held_out = [
        (block.offset + i, block.columns[j], value)
        for block in rows
        for i, j, value in zip(
            block.holdout.rows, block.holdout.columns, block.holdout.values, strict=True
        )
    ]
    assert len(held_out) == round(0.1 * len(ratings))
    assert sum(len(block.holdout.values) for block in columns) == len(held_out)
    for blocks in (rows, columns):
        assert sum(block.observed.n_entries for block in blocks) == len(ratings) - len(held_out)
        assert all((block.observed.rows.counts > 0).all() for block in blocks)
    i, j, values = (np.array(column) for column in zip(*held_out, strict=True))
    U, V = (
        np.asarray(A)[order]
        for A, order in zip(seen[-1].factors, map(loaded.matrix.order, (0, 1)), strict=True)
    )
    error = np.abs(values - np.einsum("tq,tq->t", U[i], V[j])).mean()
    assert model.history_["validation"][-1] == pytest.approx(error, rel=1e-12)
    assert model.best_iteration_ == int(np.argmin(model.history_["validation"]))
    i = loaded.matrix.order(0)[i]
    j = loaded.matrix.order(1)[j]
    observed = Observed.from_triplets(ratings, **NAMES)
    chosen = np.zeros(observed.shape, bool)
    chosen[i, j] = True
    left = observed.select(~chosen[observed.rows.group_of_entry(), observed.rows.indices])
    holdout = Holdout(i.astype(np.int32), j.astype(np.int32), values, None)
    one = initial_points[0].fit_alone(left, holdout=holdout, loss="huber", validation_fraction=0.1)
    assert_same(model, one)
    np.testing.assert_allclose(model.history_["validation"], one.history_["validation"], rtol=1e-5)


def test_callbacks_receive_factors_and_can_stop(client, ratings):
    shapes = []

    def stop(snapshot):
        shapes.append(np.asarray(snapshot.factors[0]).shape)
        return snapshot.iteration == 2

    model = RobustMF(2, loss="lsp", random_state=0, callbacks=[stop]).fit(
        in_pieces(ratings), client=client
    )
    assert shapes == [(60, 2)] * 3
    assert (model.n_iter_, model.stop_reason_) == (2, "stopped by a callback")


@pytest.mark.parametrize("duplicates", ["last", "mean"])
def test_duplicates(client, ratings, duplicates, initial_points):
    twice = pd.concat([ratings, ratings.iloc[:100].assign(rating=1.0)], ignore_index=True)
    pieces = [twice.iloc[:500], twice.iloc[500:]]
    model = RobustMF(2, random_state=0).fit(
        Triplets(pieces, duplicates=duplicates, **NAMES), client=client
    )
    assert_same(
        model,
        initial_points[0].fit_alone(Observed.from_triplets(twice, duplicates=duplicates, **NAMES)),
    )
    user = ratings.user[0]
    item = ratings.item[0]
    with pytest.raises(
        DuplicateEntryError, match=r"row 'u\d+', column \d+.*Triplets and duplicates="
    ):
        RobustMF(2).fit(
            Triplets([ratings, ratings[(ratings.user == user) & (ratings.item == item)]], **NAMES),
            client=client,
        )


@pytest.mark.parametrize(
    "convert",
    [lambda k: k, lambda k: date.fromordinal(700_000 + k), lambda k: (k / 2, "x") if k % 2 else k],
    ids=["integers", "dates", "mixed"],
)
def test_ids_of_any_type(client, convert, initial_points):
    source = table(25, 12, 1, 0.7)
    frame = {
        "user": [convert(int(u[1:])) for u in source.user],
        "item": source.item.tolist(),
        "rating": source.rating.tolist(),
    }
    half = len(source) // 2
    pieces = [
        {name: column[:half] for name, column in frame.items()},
        {name: column[half:] for name, column in frame.items()},
    ]
    model = RobustMF(1, random_state=0).fit(Triplets(pieces, blocks=4, **NAMES), client=client)
    assert set(model.row_ids_) == set(frame["user"])
    i, j = (
        [list(ids).index(key) for key in frame[name]]
        for ids, name in ((model.row_ids_, "user"), (model.column_ids_, "item"))
    )
    one = initial_points[0].fit_alone(Observed.from_indices(i, j, frame["rating"]), rank=1)
    np.testing.assert_allclose(
        model.predict(frame["user"], frame["item"]), one.predict(i, j), rtol=1e-5, atol=1e-5
    )


def test_warning_at_max_iter(client, ratings):
    with pytest.warns(NotConvergedWarning, match="max_iter=1"):
        RobustMF(2, loss="lsp", max_iter=1, random_state=0).fit([ratings], client=client)


def test_factors_too_large_for_the_client(client, ratings, monkeypatch):
    monkeypatch.setattr(fitting, "SAMPLING", SampleOptions(max_client_bytes=1000))
    with pytest.raises(ValueError, match="shards=folder"):
        RobustMF(2).fit(in_pieces(ratings), client=client)
