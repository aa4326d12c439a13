"""Selection of the entries that are held out of a fit."""

from __future__ import annotations

import numpy as np

from robustmf.data.holdout import hold_out, holdout_seed, select_by_hash
from robustmf.data.observed import Observed


def test_every_row_and_column_retains_an_entry():
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((40, 30)) < 0.08, 1.0, np.nan)
    dense[np.arange(40), rng.integers(30, size=40)] = 1.0
    dense[rng.integers(40, size=30), np.arange(30)] = 1.0
    observed = Observed.from_dense(dense)
    weights = np.where(rng.random(observed.n_entries) < 0.3, 0.0, 2.0)
    for seed in range(5):
        kept, _, held_out = hold_out(observed, None, select_by_hash(observed, None, 0.5, seed))
        assert kept.rows.counts.min() >= 1
        assert kept.columns.counts.min() >= 1
        assert (
            0
            < len(held_out.values)
            == observed.n_entries - kept.n_entries
            <= round(observed.n_entries / 2)
        )
        kept, kept_weights, held_out = hold_out(
            observed, weights, select_by_hash(observed, weights, 0.5, seed)
        )
        assert np.all(held_out.weights == 2)
        assert len(kept_weights) == kept.n_entries
    few = hold_out(observed, None, select_by_hash(observed, None, 0.1, 0))[2]
    assert len(few.values) == round(0.1 * observed.n_entries)


def test_short_and_long_rows_are_sampled_equally():
    """Entries of rows with at least three entries are held out equally often."""
    rng = np.random.default_rng(0)
    lengths = np.repeat([3, 10, 100], [400, 120, 12])
    rows = np.repeat(np.arange(len(lengths)), lengths)
    columns = np.concatenate([rng.choice(300, length, replace=False) for length in lengths])
    observed = Observed.from_indices(rows, columns, np.ones(len(rows)))
    fractions = []
    for seed in range(30):
        selected = select_by_hash(observed, None, 0.1, seed)
        assert selected.sum() == round(0.1 * len(rows))
        fractions.append(
            [
                selected[lengths[observed.rows.group_of_entry()] == length].mean()
                for length in (3, 10, 100)
            ]
        )
    np.testing.assert_allclose(np.mean(fractions, axis=0), 0.1, atol=0.006)


def test_the_selection_by_hash_depends_on_ids_only():
    rng = np.random.default_rng(1)
    i, j = np.nonzero(rng.random((30, 20)) < 0.4)
    names = rng.permutation([f"user {k}" for k in range(30)])

    def held_out_ids(order, row):
        entries = Observed.from_triplets(
            row=row[order].tolist(),
            col=(3 * j[order]).tolist(),
            value=rng.normal(size=len(i)).tolist(),
        )
        selected = select_by_hash(entries, None, 0.2, 5)
        indices = zip(
            entries.rows.group_of_entry()[selected], entries.rows.indices[selected], strict=True
        )
        return {(entries.row_ids[a], entries.column_ids[b]) for a, b in indices}

    expected = held_out_ids(np.arange(len(i)), names[i])
    assert expected == held_out_ids(rng.permutation(len(i)), names[i])
    # without ids, rows are identified by their indices
    without_ids = Observed.from_indices(i, j, np.ones(len(i)))
    with_ids = Observed.from_triplets(row=i.tolist(), col=j.tolist(), value=np.ones(len(i)))
    assert with_ids.row_ids == list(range(30))
    assert np.array_equal(
        select_by_hash(without_ids, None, 0.2, 5), select_by_hash(with_ids, None, 0.2, 5)
    )
    assert not np.array_equal(
        select_by_hash(without_ids, None, 0.2, 5), select_by_hash(without_ids, None, 0.2, 6)
    )


def test_the_selection_by_indices_does_not_depend_on_ids():
    rng = np.random.default_rng(2)
    i, j = np.nonzero(rng.random((30, 20)) < 0.4)
    values = np.ones(len(i))
    with_ids, with_others = (
        Observed.from_triplets(row=[f"{prefix}{k:02}" for k in i], col=j.tolist(), value=values)
        for prefix in ("user ", "reader ")
    )
    by_indices = select_by_hash(with_ids, None, 0.2, 5, by_ids=False)
    assert np.array_equal(by_indices, select_by_hash(with_others, None, 0.2, 5, by_ids=False))
    without_ids = Observed.from_indices(i, j, values)
    assert np.array_equal(by_indices, select_by_hash(without_ids, None, 0.2, 5))
    assert not np.array_equal(by_indices, select_by_hash(with_ids, None, 0.2, 5))


def test_the_seed_of_the_selection_does_not_advance_the_generator():
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    seed = holdout_seed(rng)
    assert rng.bit_generator.state == before
    assert seed == holdout_seed(np.random.default_rng(0))
    assert seed != holdout_seed(np.random.default_rng(1))
