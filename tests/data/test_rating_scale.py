"""Bounded discrete scales are recognized, other data are not."""

from __future__ import annotations

import numpy as np
import pytest

import robustmf
from robustmf import RMFNL, RobustMF
from robustmf.data.rating_scale import rating_scale
from robustmf.validation import UNBOUNDED


def stars(rng, low, high, step, size=5000, center=0.7):
    """Ratings on a scale: latent values that are rounded and clipped, as people rate."""
    latent = low + (high - low) * (center + 0.3 * rng.standard_normal(size))
    return np.clip(low + step * np.rint((latent - low) / step), low, high)


@pytest.mark.parametrize("scale", [(1, 5, 1), (0.5, 5, 0.5), (1, 10, 1), (-1, 1, 0.5)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_rating_scale_is_recognized(scale, dtype):
    values = stars(np.random.default_rng(0), *scale).astype(dtype)
    assert rating_scale(values) == scale[:2]


@pytest.mark.parametrize("share", [0.0001, 0.01, 0.03])
@pytest.mark.parametrize("stray", [99.0, 0.5, -1.0])
def test_outliers_do_not_define_the_scale(share, stray):
    rng = np.random.default_rng(1)
    values = stars(rng, 1, 5, 1, 20_000)
    values[: int(share * len(values))] = stray
    assert rating_scale(values) in ((1, 5), (-np.inf, 5), UNBOUNDED)
    if stray == 99.0:
        assert rating_scale(values) == (1, 5)


def test_the_scale_is_where_most_entries_are():
    ratings = np.repeat([1.0, 2.0, 3.0], [3000, 4000, 3000])
    codes = np.repeat(np.arange(51.0, 57), 50)  # more levels, with half a percent each
    assert rating_scale(np.concatenate([ratings, codes])) == (1, 3)


def test_continuous_outliers_do_not_hide_the_scale():
    rng = np.random.default_rng(2)
    values = stars(rng, 1, 5, 1, 20_000)
    values[:600] = 10 * rng.standard_normal(600)
    assert rating_scale(values) == (1, 5)


def test_a_scale_that_a_tenth_of_the_entries_leave_is_not_one():
    rng = np.random.default_rng(3)
    values = stars(rng, 1, 5, 1, 20_000)
    values[:2000] = 99.0
    assert rating_scale(values) == UNBOUNDED


def test_half_stars_have_an_upper_end_where_few_are_low():
    """Frequencies of 0.5, 1, …, 5 in MovieLens latest-small."""
    shares = np.array([1370, 2811, 1791, 7551, 5550, 20047, 13136, 26818, 8551, 13211])
    stars = np.arange(0.5, 5.5, 0.5)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        assert rating_scale(rng.choice(stars, 1000, p=shares / shares.sum())) == (-np.inf, 5)
    assert rating_scale(np.repeat(stars, shares)) == (0.5, 5)


@pytest.mark.parametrize("negated", [False, True])
def test_counts_have_no_upper_end(negated):
    """Their lower end is 0; with the sign changed it is the upper end."""
    for seed in range(10):
        counts = np.random.default_rng(seed).poisson(0.7, 2000).astype(float)
        expected = (-np.inf, 0) if negated else (0, np.inf)
        assert rating_scale(-counts if negated else counts) == expected


def test_noise_of_the_last_counts_is_no_end():
    """Eighteen entries are extrapolated beyond the last level, but they may well be thirteen."""
    counts = np.array([20, 100, 1000, 1000, 40, 18, 18])
    assert rating_scale(np.repeat(np.arange(7.0), counts)) == UNBOUNDED
    assert rating_scale(np.repeat(np.arange(7.0), 4 * counts))[1] == 6


@pytest.mark.parametrize("size", [300, 20_000, 1_000_000])
@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, size: rng.standard_normal(size),
        lambda rng, size: rng.uniform(0, 1, size),
        lambda rng, size: np.rint(rng.standard_normal(size)),
        lambda rng, size: np.rint(3 * rng.standard_normal(size)),
        lambda rng, size: np.rint(rng.standard_normal(size) * rng.standard_normal(size)),
        lambda rng, size: np.rint(2 * rng.standard_t(3, size)),
        lambda rng, size: 2.0 ** rng.integers(0, 5, size),
        lambda rng, size: rng.integers(0, 2, size),
        lambda rng, size: np.full(size, 4.0),
    ],
)
def test_other_data_have_no_scale(draw, size):
    for seed in range(3 if size == 1_000_000 else 10):
        assert rating_scale(draw(np.random.default_rng(seed), size)) == UNBOUNDED


@pytest.mark.parametrize("size", [300, 20_000, 1_000_000])
@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, size: rng.poisson(0.5, size),
        lambda rng, size: rng.poisson(3, size),
        lambda rng, size: rng.geometric(0.3, size),
        lambda rng, size: rng.negative_binomial(2, 0.3, size),
    ],
)
def test_counts_are_not_clipped_above(draw, size):
    for seed in range(3 if size == 1_000_000 else 10):
        counts = draw(np.random.default_rng(seed), size)
        low, high = rating_scale(counts)
        assert high == np.inf
        assert low in (counts.min(), -np.inf)


def ratings(rng):
    """A table of stars from 1 to 5 with strong tastes, so that some predictions are beyond it."""
    latent = 3 + 1.6 * np.outer(rng.standard_normal(60), rng.standard_normal(50))
    return np.clip(np.rint(latent + 0.7 * rng.standard_normal((60, 50))), 1, 5)


def test_predictions_of_ratings_are_clipped(tmp_path):
    X = ratings(np.random.default_rng(5))
    i, j = np.indices(X.shape)
    found = RobustMF(2, random_state=0, n_jobs=1).fit(X)
    assert found.bounds_ == (1, 5)
    predicted = found.predict(i, j)
    assert predicted.min() == 1
    assert predicted.max() == 5
    found.save(tmp_path / "model.rmf")
    loaded = robustmf.load(tmp_path / "model.rmf")
    assert loaded.bounds_ == (1, 5)
    np.testing.assert_array_equal(loaded.predict(i, j), predicted)
    found.set_params(bounds=None)
    assert found.bounds_ is None
    unclipped = found.predict(i, j)
    assert unclipped.max() > 5
    np.testing.assert_array_equal(np.clip(unclipped, 1, 5), predicted)
    assert found.set_params(bounds=(2, 4)).bounds_ == (2, 4)


def test_measurements_and_the_settings_of_the_paper_are_not_clipped():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((30, 2)) @ rng.standard_normal((20, 2)).T
    assert RobustMF(2, random_state=0, n_jobs=1).fit(X).bounds_ is None
    assert RMFNL(2, random_state=0, n_jobs=1).fit(ratings(rng)).bounds_ is None


@pytest.mark.parametrize("bounds", ["none", "1,5", (5, 1), 3])
def test_other_bounds_are_refused(bounds):
    with pytest.raises((TypeError, ValueError), match="bounds must be"):
        RobustMF(2, bounds=bounds).fit(np.eye(4))
