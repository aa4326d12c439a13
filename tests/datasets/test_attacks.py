"""Attacks: the entries that they change or add, and the reported ground truth."""

from __future__ import annotations

import numpy as np
import pytest

from robustmf import Observed
from robustmf.datasets import (
    average_attack,
    bandwagon_attack,
    love_hate,
    random_attack,
    segment_attack,
)

SHILLING = {
    "random": random_attack,
    "average": average_attack,
    "bandwagon": bandwagon_attack,
    "segment": lambda ratings, targets=None, bounds=None, **more: segment_attack(
        ratings, [3, 4, 5], targets, bounds, **more
    ),
}


@pytest.fixture
def ratings():
    rng = np.random.default_rng(1)
    dense = rng.integers(1, 6, (60, 40)).astype(np.float32)
    dense[:, :8] = np.minimum(dense[:, :8] + 1, 5)
    dense[rng.random(dense.shape) > np.linspace(0.9, 0.1, 40)] = np.nan
    return Observed.from_dense(dense)


def same_entries(a, b):
    return all(
        np.array_equal(getattr(a.rows, part), getattr(b.rows, part))
        for part in ("pointers", "indices", "values")
    )


def test_love_hate_is_the_attack_of_the_paper(ratings):
    found = love_hate(ratings, (1, 5), share=0.2, random_state=0)
    j = ratings.rows.indices
    before = ratings.rows.values
    after = found.ratings.rows.values
    assert found.columns.sum() == 8
    assert np.array_equal(found.entries, found.columns[j])
    assert not found.rows.any()
    assert np.array_equal(before[~found.entries], after[~found.entries])
    kinds = {
        float(after[j == column][0])
        for column in np.flatnonzero(found.columns)
        if len(set(after[j == column])) == 1
    }
    assert kinds == {1.0, 5.0}, "all ratings of an item are equal, and both extremes occur"
    assert len(set(ratings.rows.values)) == 5, "the input is unchanged"
    assert found.ratings.dtype == np.float32


def test_love_hate_per_rating_mixes_within_an_item(ratings):
    found = love_hate(ratings, (1, 5), share=0.2, per="rating", random_state=0)
    j = ratings.rows.indices
    after = found.ratings.rows.values
    assert set(after[found.entries]) == {1.0, 5.0}
    frequent = [column for column in np.flatnonzero(found.columns) if (j == column).sum() >= 15]
    assert frequent
    assert all(set(after[j == column]) == {1.0, 5.0} for column in frequent)


def test_love_hate_attacks_three_percent_with_equal_probabilities():
    ratings = Observed.from_indices(
        np.zeros(20_000, int), np.arange(20_000), np.tile([1.0, 3.0, 5.0, 3.0], 5000)
    )
    found = love_hate(ratings, random_state=3)
    assert found.columns.sum() == found.entries.sum() == 600
    high = (found.ratings.rows.values[found.entries] == 5).mean()
    assert abs(high - 0.5) < 4 * 0.5 / np.sqrt(600)


@pytest.mark.parametrize("direction", ["push", "nuke"])
@pytest.mark.parametrize("name", SHILLING)
def test_shilling_profiles_are_new_rows_at_the_end(ratings, name, direction):
    found = SHILLING[name](
        ratings,
        [30, 12],
        (1, 5),
        direction=direction,
        attack_size=0.1,
        filler_size=0.25,
        random_state=0,
    )
    made = found.ratings
    assert made.shape == (66, 40)
    assert np.flatnonzero(found.rows).tolist() == list(range(60, 66))
    assert np.flatnonzero(found.columns).tolist() == [12, 30]
    assert np.array_equal(found.entries, found.rows[made.rows.group_of_entry()])
    for part in ("indices", "values"):
        assert np.array_equal(
            getattr(made.rows, part)[: ratings.n_entries], getattr(ratings.rows, part)
        ), "genuine rows are unchanged"
    for row in range(60, 66):
        part = slice(*made.rows.pointers[row : row + 2])
        columns = made.rows.indices[part]
        values = made.rows.values[part]
        assert np.all(np.diff(columns) > 0)
        assert set(values[np.isin(columns, [12, 30])]) == {5.0 if direction == "push" else 1.0}
        assert len(columns) == 2 + 10 + {"bandwagon": 1, "segment": 3}.get(name, 0)
        assert set(values) <= {1.0, 2.0, 3.0, 4.0, 5.0}, "on the scale of the data"
    assert made.columns.counts.sum() == made.n_entries


def test_distribution_of_the_filler_ratings():
    rng = np.random.default_rng(0)
    centers = np.where(np.arange(60) < 30, 2.0, 8.0)
    ratings = Observed.from_dense(centers + 0.3 * rng.standard_normal((200, 60)))
    many = {"attack_size": 1.0, "filler_size": 0.8, "random_state": 0}

    def fillers(found):
        rows = found.ratings.rows
        j = rows.indices[found.entries]
        values = rows.values[found.entries]
        return values[(j < 30) & ~found.columns[j]], values[(j >= 30) & ~found.columns[j]]

    low, high = fillers(average_attack(ratings, [0], **many))
    assert low.mean() == pytest.approx(2, abs=0.02)
    assert high.mean() == pytest.approx(8, abs=0.02)
    assert low.std() == pytest.approx(0.3, abs=0.02)
    low, high = fillers(random_attack(ratings, [0], (-20, 30), **many))
    assert low.mean() == pytest.approx(5, abs=0.1)
    assert high.std() == pytest.approx(ratings.rows.values.std(), abs=0.1)
    low, high = fillers(segment_attack(ratings, [40, 41], [0], (0, 12), **many))
    assert set(low) == {0.0}
    assert set(high) == {0.0, 12.0}


def test_bandwagon_rates_popular_items(ratings):
    j = ratings.rows.indices
    values = ratings.rows.values
    counts = np.bincount(j, minlength=40)
    target = int(np.argmax(counts))
    push = bandwagon_attack(ratings, target, popular_size=0.05, filler_size=0.05, random_state=0)
    rated = np.bincount(push.ratings.rows.indices[push.entries], minlength=40)
    popular = np.argsort(-np.where(np.arange(40) == target, 0, counts), kind="stable")[:2]
    assert (rated[popular] == 3).all()
    nuke = bandwagon_attack(ratings, 39, direction="nuke", popular_size=0.05, random_state=0)
    rated = np.bincount(nuke.ratings.rows.indices[nuke.entries], minlength=40)
    known = np.argsort(-np.where(np.arange(40) == 39, 0, counts), kind="stable")[:9]
    means = np.array([values[j == column].mean() for column in known])
    disliked = known[np.argsort(means)[:2]]
    assert (rated[disliked] == 3).all()
    part = np.isin(nuke.ratings.rows.indices, disliked) & nuke.entries
    assert set(nuke.ratings.rows.values[part]) == {1.0}


@pytest.mark.parametrize("attack", [love_hate, *SHILLING.values()])
def test_seed_determines_the_attack(ratings, attack):
    one, same, other = (
        attack(ratings, random_state=seed) for seed in (5, np.random.default_rng(5), 6)
    )
    assert same_entries(one.ratings, same.ratings)
    assert np.array_equal(one.columns, same.columns)
    assert not same_entries(one.ratings, other.ratings)


def test_new_rows_get_unused_ids():
    numbered = Observed.from_triplets(row=[10, 20], col=["a", "b"], value=[1.0, 5.0])
    assert random_attack(numbered, [0], attack_size=1.0).ratings.row_ids == [10, 20, 21, 22]
    named = Observed.from_triplets(row=["ann", "profile 1"], col=["a", "b"], value=[1.0, 5.0])
    found = random_attack(named, [0], attack_size=1.0).ratings
    assert found.row_ids == ["ann", "profile 1", "profile 2", "profile 3"]
    assert found.column_ids == ["a", "b"]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda r: love_hate(r, (5, 1)), ValueError, "lowest < highest, got"),
        (
            lambda r: love_hate(r, (2, 5)),
            ValueError,
            "do not contain the ratings, which range from 1.0 to 5.0",
        ),
        (
            lambda r: love_hate(r, share=0),
            ValueError,
            "share must be above 0 and at most 1, got share=0",
        ),
        (
            lambda r: love_hate(r, per="user"),
            ValueError,
            "per must be 'item' or 'rating', got per='user'",
        ),
        (
            lambda r: random_attack(r, direction="up"),
            ValueError,
            "direction must be 'push' or 'nuke'",
        ),
        (lambda r: random_attack(r, attack_size=2), ValueError, "attack_size must be above 0"),
        (lambda r: average_attack(r, filler_size=-1), ValueError, "filler_size must be above 0"),
        (
            lambda r: random_attack(r, [40]),
            ValueError,
            r"targets must be distinct column indices from 0 to 39, got targets=\[40\]",
        ),
        (lambda r: random_attack(r, [1, 1]), ValueError, "distinct column indices"),
        (lambda r: random_attack(r, ["a"]), TypeError, "targets must be column indices"),
        (lambda r: segment_attack(r, []), TypeError, "segment must be column indices"),
        (lambda r: bandwagon_attack(r, popular_size=7), ValueError, "popular_size must be above 0"),
    ],
)
def test_invalid_parameters_are_named(ratings, call, error, message):
    with pytest.raises(error, match=message):
        call(ratings)
