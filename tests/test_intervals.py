"""Conformal intervals have nominal coverage of clean values, with outliers among the holdout."""

from __future__ import annotations

import numpy as np
import pytest

from robustmf import Observed, RobustMF
from robustmf.datasets import make_synthetic
from robustmf.intervals import ConformalIntervals


def calibrated(m, outliers, seed, **parameters):
    data = make_synthetic(m, outliers=outliers, random_state=seed)
    model = RobustMF(5, random_state=seed, n_jobs=1, **parameters).fit(data.train)
    return data, model, ConformalIntervals(model, data.validation)


def new_values(data, seed):
    """Clean values with noise at entries that were not observed."""
    rng = np.random.default_rng(1000 + seed)
    i, j = np.nonzero(data.test_mask)
    chosen = rng.choice(len(i), 20_000)
    i = i[chosen]
    j = j[chosen]
    return i, j, data.clean[i, j] + 0.1 * rng.standard_normal(len(i))


@pytest.mark.parametrize(
    ("outliers", "seed"),
    [(0.0, 0), (0.05, 0), (0.05, 1), (0.05, 2), (0.1, 0), (0.1, 1), (0.1, 2), (0.2, 0)],
)
def test_coverage_of_clean_values_is_within_two_points_of_nominal(outliers, seed):
    data, _, intervals = calibrated(250, outliers, seed)
    i, j, values = new_values(data, seed)
    for level in (0.8, 0.9, 0.95):
        lower, upper = intervals.predict(i, j, level)
        assert ((lower <= values) & (values <= upper)).mean() == pytest.approx(level, abs=0.02)
        assert (upper - lower).mean() < 0.8  # outliers of ±5 do not widen the intervals
    assert intervals.clean_share_ == pytest.approx(1 - outliers, abs=0.02)


def two_noise_levels(seed):
    """A model of data whose noise has two levels, and values that were not fitted."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((200, 2)) @ rng.standard_normal((150, 2)).T
    level = np.where(rng.random(truth.shape) < 0.2, 1.0, 0.1)
    X = truth + level * rng.standard_normal(truth.shape)
    part = rng.choice(3, X.shape, p=[0.5, 0.2, 0.3])
    model = RobustMF(2, bias=False, random_state=0, n_jobs=1).fit(np.where(part == 0, X, np.nan))
    i, j = np.nonzero(part == 2)
    return model, np.where(part == 1, X, np.nan), i, j, X[i, j]


def test_coverage_without_an_estimated_share_is_nominal_for_any_noise():
    """An estimated share counts entries with the higher noise level as outliers."""
    model, held_out, i, j, values = two_noise_levels(0)
    coverage = {}
    for share in ("auto", 1.0):
        lower, upper = ConformalIntervals(model, held_out, clean_share=share).predict(i, j, 0.9)
        coverage[share] = ((lower <= values) & (values <= upper)).mean()
    assert coverage[1.0] == pytest.approx(0.9, abs=0.02)
    assert coverage["auto"] < 0.88


def test_the_share_of_clean_entries_can_be_given():
    data, model, intervals = calibrated(250, 0.1, 0)
    given = ConformalIntervals(model, data.validation, clean_share=intervals.clean_share_)
    assert given.predict(0, 0) == intervals.predict(0, 0)
    everything = ConformalIntervals(model, data.validation, clean_share=1)
    assert everything.predict(0, 0).upper > intervals.predict(0, 0).upper
    for share, message in ((0, "> 0"), (1.5, "at most 1"), ("all", "> 0 or 'auto'")):
        with pytest.raises((TypeError, ValueError), match=f"clean_share must be.*{message}"):
            ConformalIntervals(model, data.validation, clean_share=share)


def test_intervals_are_wider_for_rows_with_fewer_entries():
    data, _, intervals = calibrated(250, 0.05, 0)
    counts = data.train.rows.counts
    few, many = np.argsort(counts)[[0, -1]]
    columns = np.arange(250)
    width_few, width_many = (
        np.subtract(*intervals.predict(row, columns)[::-1]).mean() for row in (few, many)
    )
    assert width_few > 1.05 * width_many
    together = intervals.predict([few, many], [0, 0])
    width = together.upper - together.lower
    apart = [intervals.predict(row, 0) for row in (few, many)]
    np.testing.assert_allclose(width, [one.upper - one.lower for one in apart])


def test_unknown_ids_are_refused():
    rng = np.random.default_rng(0)
    values = np.outer(rng.standard_normal(30), rng.standard_normal(20))
    i, j = (index.ravel() for index in np.indices(values.shape))
    fitted = rng.random(len(i)) < 0.7
    fitted[:20] = True
    fitted[j == 0] = True
    rows = [f"r{k}" for k in i]
    columns = [f"c{k}" for k in j]

    def chosen(which):
        return Observed.from_triplets(
            row=[rows[k] for k in np.flatnonzero(which)],
            col=[columns[k] for k in np.flatnonzero(which)],
            value=values.ravel()[which],
        )

    model = RobustMF(1, bias=False, random_state=0, n_jobs=1).fit(chosen(fitted))
    intervals = ConformalIntervals(model, chosen(~fitted))
    intervals.predict(["r0"], ["c1"])
    for pair in ((["r99"], ["c1"]), (["r0"], ["c99"])):
        with pytest.raises(ValueError, match="rows and columns must be known to the fit"):
            intervals.predict(*pair)


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
def test_intervals_stay_within_the_bounds_of_the_model():
    _, _, intervals = calibrated(250, 0.05, 0, bounds=(-1.0, 1.0))
    lower, upper = intervals.predict(np.arange(250), np.arange(250))
    assert lower.min() >= -1
    assert upper.max() <= 1
    assert (lower <= upper).all()


def test_too_few_entries_give_unbounded_intervals():
    data, model, _ = calibrated(250, 0.05, 0)
    few = data.validation.select(np.arange(data.validation.n_entries) < 5)
    lower, upper = ConformalIntervals(model, few).predict(0, 0, 0.95)
    assert (lower, upper) == (-np.inf, np.inf)


def test_bad_use_is_refused_by_name():
    data, model, intervals = calibrated(250, 0.05, 0)
    with pytest.raises(ValueError, match="not fitted to, but 6902 of 6902 were"):
        ConformalIntervals(model, data.train)
    for level, message in (
        (0.0, "level must be a finite number > 0"),
        (1.0, "level must be below 1"),
    ):
        with pytest.raises(ValueError, match=message):
            intervals.predict(0, 0, level)
    with pytest.raises(ValueError, match="shape of the fitted matrix"):
        ConformalIntervals(model, np.ones((2, 2)))
    with pytest.raises(ValueError, match="rows must lie in 0 … 249"):
        intervals.predict(250, 0)
