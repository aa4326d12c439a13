"""Rows, columns and single entries that arrive over time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from robustmf import Observed, RobustMF
from robustmf.data.observed import Compressed
from robustmf.datasets import make_synthetic
from robustmf.initialization.noise_mixture import OPTIONS as NOISE


def rows_from(observed, low, high):
    rows = observed.rows
    start, stop = rows.pointers[[low, high]]
    part = Compressed(
        rows.pointers[low : high + 1] - start, rows.indices[start:stop], rows.values[start:stop]
    )
    return Observed(part, (high - low, observed.shape[1]))


def named(observed, entries):
    rows = observed.rows
    i = rows.group_of_entry()[entries]
    j = rows.indices[entries]
    v = rows.values[entries]
    return Observed.from_triplets(
        pd.DataFrame({"u": [f"u{k}" for k in i], "i": [f"i{k}" for k in j], "v": v}),
        row="u",
        col="i",
        value="v",
    )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2))])
def test_rows_in_batches_predict_as_well_as_one_fit(seed, bias):
    data = make_synthetic(400, 150, observed=0.4, random_state=seed)
    whole = RobustMF(5, random_state=0, bias=bias).fit(data.train)
    model = RobustMF(5, random_state=0, bias=bias)
    for low, high in pairwise([0, 150, 200, 250, 325, 360, 400]):
        assert model.partial_fit(rows_from(data.train, low, high)) is model
        assert model.row_factors_.shape == (high, 5)
        assert model.row_bias_.shape == (high,)
    assert model.model_.n_entries_initialized < data.train.n_entries, "the last batch was folded in"
    i, j = np.indices((400, 150))
    errors = [np.sqrt(np.mean((m.predict(i, j) - data.clean) ** 2)) for m in (model, whole)]
    assert errors[0] < 1.02 * errors[1] < 0.1
    if not bias:
        assert model.reg_ == pytest.approx(whole.reg_, rel=0.1)
        # θ is one of a geometric sequence: at most one step apart
        step = NOISE.least_theta ** (-1 / (NOISE.thetas - 1)) - 1
        assert model.theta_ == pytest.approx(whole.theta_, rel=1.01 * step)


def test_new_rows_with_many_outliers_are_repaired():
    """With 20 % outliers the fold-in of some rows is a local minimum that sweeps keep."""
    data = make_synthetic(400, 150, observed=0.4, outliers=0.2, random_state=0)
    whole = RobustMF(5, random_state=0).fit(data.train)
    model = RobustMF(5, random_state=0)
    for low, high in pairwise([0, 220, 280, 340, 400]):
        model.partial_fit(rows_from(data.train, low, high))
    errors = [data.test_rmse(m.row_factors_, m.column_factors_) for m in (model, whole)]
    assert errors[0] < 1.02 * errors[1] < 0.1


@pytest.mark.parametrize("bias", [False, True])
def test_iterations_continue_from_the_factors_of_a_fold_in(bias):
    """The initial point: known rows unchanged, new rows as transform gives them."""
    data = make_synthetic(100, 60, rank=3, observed=0.8, random_state=0)
    initial = []

    def keep(snapshot):
        if snapshot.iteration == 0:
            initial.append(snapshot.factors)

    # Least squares, for which no outliers are repaired before the first iteration.
    model = RobustMF(3, loss="l2", reg=0.1, bias=bias, random_state=0, solver="irls").fit(
        rows_from(data.train, 0, 80)
    )
    new = rows_from(data.train, 80, 100)
    expected = np.vstack(
        [model.predict(*np.indices((80, 60))), model.inverse_transform(model.transform(new))]
    )
    model.set_params(callbacks=[keep]).partial_fit(new)
    np.testing.assert_allclose(initial[-1][0] @ initial[-1][1].T, expected, rtol=1e-6, atol=1e-6)


def test_factors_are_initialized_again_only_when_the_entries_have_doubled():
    data = make_synthetic(400, 100, rank=3, observed=0.4, random_state=0)
    model = RobustMF(3, random_state=0).fit(rows_from(data.train, 0, 100))
    last = 0
    for low in range(100, 400, 50):
        last = model.model_.n_entries_initialized
        model.partial_fit(rows_from(data.train, low, low + 50))
        entries = int(data.train.rows.pointers[low + 50])
        assert model.model_.n_entries_initialized == (entries if entries >= 2 * last else last)
    assert model.model_.n_entries_initialized < entries


def test_rows_columns_and_entries_are_matched_by_id():
    """A table in random order, a fifth at a time: new rows and columns appear in every batch."""
    data = make_synthetic(120, 90, rank=3, observed=0.6, random_state=0)
    order = np.random.default_rng(0).permutation(data.train.n_entries)
    model = RobustMF(3, random_state=0)
    # Columns 0 to 59 first, then the others with entries of known rows.
    early = data.train.rows.indices[order] < 60
    for part in (*np.array_split(order[early], 3), *np.array_split(order[~early], 2)):
        model.partial_fit(named(data.train, np.sort(part)))
    assert len(model.row_ids_) == 120
    assert len(model.column_ids_) == model.n_features_in_ == 90
    assert set(model.column_ids_[:60]) == {f"i{k}" for k in range(60)}
    i, j = np.indices((120, 90))
    users = np.char.add("u", i.astype(str))
    items = np.char.add("i", j.astype(str))
    whole = RobustMF(3, random_state=0).fit(named(data.train, np.arange(data.train.n_entries)))
    errors = [np.sqrt(np.mean((m.predict(users, items) - data.clean) ** 2)) for m in (model, whole)]
    assert errors[0] < 1.03 * errors[1] < 0.1
    seen = set(data.train.rows.indices[data.train.rows.group_of_entry() == 5])
    assert set(model.recommend("u5", n=90).items) - {None} == {
        f"i{k}" for k in range(90) if k not in seen
    }


def test_a_new_value_replaces_an_old_one():
    grid = np.outer(np.arange(1.0, 7.0), np.arange(1.0, 6.0))
    i, j = (k.ravel().tolist() for k in np.indices(grid.shape))
    wrong = grid.copy()
    wrong[:, 0] = 3.0
    model = RobustMF(1, random_state=0, loss="l2", reg=1e-6).fit(
        Observed.from_triplets(row=i, col=j, value=wrong.ravel())
    )
    assert abs(model.predict(5, 0) - 6) > 1
    model.partial_fit(Observed.from_triplets(row=list(range(6)), col=[0] * 6, value=grid[:, 0]))
    np.testing.assert_allclose(model.predict(np.arange(6), 0 * np.arange(6)), grid[:, 0], rtol=1e-3)
    assert len(model.entries_["values"]) == 30


def test_weights_are_kept_for_later_batches():
    """Bad entries of weight 0, in the first and in the second batch, have no influence."""
    data = make_synthetic(100, 40, rank=2, observed=0.8, outliers=0, random_state=0)
    first, second = (rows_from(data.train, low, low + 50) for low in (0, 50))
    common = {
        "rank": 2,
        "loss": "l2",
        "solver": "irls",
        "random_state": 0,
        "tol": 1e-10,
        "max_iter": 2000,
        "reg": 0.1,
    }
    expected = RobustMF(**common).fit(first).partial_fit(second)
    spoiled = []
    masks = []
    for part in (first, second):
        bad = np.random.default_rng(1).random(part.n_entries) < 0.1
        spoiled.append(part.with_values(np.where(bad, 1e3, part.rows.values)))
        masks.append(~bad)
    weighted = (
        RobustMF(**common)
        .fit(spoiled[0], weights=masks[0].astype(float))
        .partial_fit(spoiled[1], weights=masks[1].astype(float))
    )
    assert np.sqrt(np.mean((weighted.predict(*np.indices((100, 40))) - data.clean) ** 2)) < 0.2
    later = RobustMF(**common).fit(first).partial_fit(spoiled[1], weights=masks[1].astype(float))
    assert later.entries_["weights"][: first.n_entries].min() == 1
    assert (
        np.sqrt(
            np.mean(
                (later.predict(*np.indices((100, 40))) - expected.predict(*np.indices((100, 40))))
                ** 2
            )
        )
        < 0.1
    )


def test_arrays_continue_in_float32():
    X = make_synthetic(60, 20, rank=2, observed=1.0, random_state=0).clean.astype(np.float32)
    model = (
        RobustMF(2, random_state=0)
        .partial_fit(X[:50])
        .partial_fit(X[50:55].astype(np.float64))
        .partial_fit(X[55:])
    )
    assert model.row_factors_.dtype == np.float32
    assert model.row_factors_.shape == (60, 2)
    np.testing.assert_allclose(model.inverse_transform(model.row_factors_), X, atol=0.05)


def test_a_given_init_is_used_for_the_first_batch():
    X = make_synthetic(60, 20, rank=2, observed=1.0, random_state=0).clean
    rng = np.random.default_rng(0)
    model = RobustMF(
        2, random_state=0, init=(rng.standard_normal((20, 2)), rng.standard_normal((20, 2)))
    )
    model.partial_fit(X[:20]).partial_fit(X[20:60])
    np.testing.assert_allclose(model.inverse_transform(model.row_factors_), X, atol=0.05)


@pytest.mark.parametrize(
    ("first", "then"), [({"rank": 1}, {"rank": 2}), ({"rank": 2, "bias": False}, {"bias": True})]
)
def test_another_rank_or_biases_initialize_again(first, then):
    X = make_synthetic(60, 20, rank=2, observed=1.0, random_state=0).clean
    model = RobustMF(**first, random_state=0).partial_fit(X[:50])
    model.set_params(**then).partial_fit(X[50:])
    assert model.model_.n_entries_initialized == X.size
    assert model.model_.factors.rank == 2
    np.testing.assert_allclose(model.predict(*np.indices(X.shape)), X, atol=0.05)


def test_inconsistent_batches_are_refused():
    X = make_synthetic(30, 20, rank=2, observed=1.0, random_state=0).clean
    model = RobustMF(2, random_state=0).partial_fit(X)
    before = model.column_factors_.copy()
    with pytest.raises(ValueError, match="X has 19 features, but RobustMF is expecting 20"):
        model.partial_fit(X[:, 1:])
    with pytest.raises(ValueError, match="by indices so far, by ids in this batch"):
        model.partial_fit(Observed.from_triplets(row=["a"], col=["b"], value=[1.0]))
    with pytest.raises(ValueError, match="at least one observed entry"):
        model.partial_fit(np.full((1, 20), np.nan))
    np.testing.assert_array_equal(model.column_factors_, before)
    by_id = RobustMF(1, random_state=0).fit(
        Observed.from_triplets(row=list("aabb"), col=list("xyxy"), value=[1.0, 2.0, 2.0, 4.0])
    )
    with pytest.raises(
        ValueError,
        match="must identify rows in the same way: by ids so far, by indices in this batch",
    ):
        by_id.partial_fit(np.ones((3, 2)))
