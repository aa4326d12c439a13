"""The noise distribution of the search for factors, and the noise levels of rows and columns."""

from __future__ import annotations

import numpy as np
import pytest

from robustmf.initialization.noise_mixture import (
    OPTIONS as NOISE,
)
from robustmf.initialization.noise_mixture import (
    NoiseLevels,
    NoiseMixture,
    NoiseModel,
    _slope,
)
from robustmf.losses import SCAD


def test_imposed_and_released_shares():
    mixture = NoiseMixture(1.0, 100.0)
    mixture.impose(2.0, 2.0)
    assert mixture.variance == 2.0
    assert mixture.shares[:2].tolist() == pytest.approx(
        [1 - NOISE.outlier_share, NOISE.outlier_share]
    )
    mixture.impose(1.0, 16.0)
    assert np.flatnonzero(mixture.shares).tolist() == [0, 2]  # standard deviations 1 and 4
    mixture.impose(1e-30, 1.0)
    assert mixture.shares[NOISE.scales[1] - 1] == NOISE.outlier_share
    mixture.release(1.0)
    assert mixture.shares.sum() == pytest.approx(1)
    assert mixture.shares[0] > 1 - NOISE.outlier_share
    large = np.maximum(mixture.centers**2, mixture.variances) >= 100
    assert large.any()
    assert (mixture.shares[large] == 0).all()
    assert (mixture.shares[~large] > 0).all()


def test_a_component_that_was_not_used_can_return():
    mixture = NoiseMixture(1.0, 100.0)
    mixture.learn(np.array([0]), np.array([[50.0], [0.0], [0.0]]), 25.0)
    assert mixture.variance == pytest.approx(0.5)
    assert mixture.shares.sum() == pytest.approx(1)
    assert (mixture.shares[1:4] > 0).all()


def test_outliers_do_not_count_for_the_variance():
    mixture = NoiseMixture(1.0, 1e4)
    outlier = int(np.flatnonzero(mixture.centers)[0])
    mixture.learn(np.array([0, outlier]), np.array([[80.0, 20.0], [0, 70.0], [0, 250.0]]), 80.0)
    assert mixture.variance == pytest.approx(1.0)
    assert mixture.centers[outlier] == mixture.first_centers[outlier]


def test_free_components_of_outliers_are_learned_within_bounds():
    mixture = NoiseMixture(4.0, 1e6)
    mixture.is_free = True
    near, far = np.flatnonzero(mixture.first_centers > 0)[[0, 8]]
    negative = int(np.flatnonzero(mixture.first_centers < 0)[8])
    used = np.array([0, near, far, negative])
    counts = np.array([70.0, 10.0, 10.0, 10.0])
    means = np.array([0.0, 2.0, 50.0, -60.0])
    squares = means**2 + np.array([0.0, 0.1, 1e4, 36.0])
    mixture.learn(used, np.array([counts, counts * means, counts * squares]), 70.0)
    assert mixture.variance == pytest.approx(4.0)
    # in units of the noise; not nearer than the first, neither narrower nor wider than the bounds
    np.testing.assert_allclose(mixture.centers[used], [0, 3, 25, -30])
    np.testing.assert_allclose(mixture.variances[used], [1, 0.36, 25, 9])
    mixture.release(4.0)
    assert np.array_equal(mixture.centers, mixture.first_centers)
    assert np.array_equal(mixture.variances, mixture.first_variances)


def test_components_with_a_small_share_are_not_learned():
    mixture = NoiseMixture(1.0, 1e6)
    mixture.is_free = True
    outlier = int(np.flatnonzero(mixture.first_centers > 0)[4])
    moments = np.array([[999.0, 1.0], [0.0, 500.0], [0.0, 250_001.0]])
    mixture.learn(np.array([0, outlier]), moments, 999.0)
    assert mixture.centers[outlier] == mixture.first_centers[outlier]


def test_log_density_is_that_of_the_mixture():
    mixture = NoiseMixture(3.0, 1e4)
    mixture.release(3.0)
    log_energy = np.array([-2.0, 0.0, 3.0])
    e = np.exp(log_energy / 2)[:, None]
    density = mixture.shares * np.exp(-0.5 * (e - mixture.centers) ** 2 / mixture.variances)
    expected = np.log((density / np.sqrt(mixture.variances)).sum(axis=1))
    found = mixture.log_density(log_energy, mixture.shares > 0)
    np.testing.assert_allclose(found, expected)


def test_noise_has_the_level_of_the_row_and_outliers_do_not():
    mixture = NoiseMixture(1.0, 1e4)
    mixture.release(1.0)
    energies = np.arange(-2.0, 6.0, 0.25)
    offsets = 0.25 * np.arange(-8, 9)
    table = mixture.level_table(energies, offsets, 1e-5)
    assert table.shape == (len(energies), len(offsets))
    is_noise = (mixture.centers == 0) & (mixture.variances <= 10)
    around = (np.arange(8) + 0.5) / 8 * 0.25 - 0.125

    def density(log_energy, used):
        e = np.exp((log_energy + around) / 2)[:, None]
        z = (e - mixture.centers[used]) ** 2 / mixture.variances[used]
        parts = mixture.shares[used] * np.exp(-0.5 * z) / np.sqrt(mixture.variances[used])
        return parts.sum(axis=1).mean()

    for k, a in ((0, 8), (10, 0), (20, 16), (31, 3)):
        of_noise = density(energies[k] - offsets[a], is_noise) * np.exp(-0.5 * offsets[a])
        others = density(energies[k], ~is_noise) + 1e-5 * np.exp(-0.5 * energies[k])
        assert table[k, a] == pytest.approx(np.log(of_noise + others))


def noise_model(row_scales, column_scales, outliers=0.0):
    mixture = NoiseMixture(1.0, 1e4)
    bump = int(np.argmin(np.abs(mixture.centers - 4)))
    mixture.shares[[0, bump]] = 1 - outliers, outliers
    return NoiseModel(np.asarray(row_scales), np.asarray(column_scales), mixture)


def test_scales_that_are_nearly_equal_are_not_used():
    equal = noise_model(np.exp([-0.05, 0.05]), np.ones(3))
    assert equal.scales is None
    different = noise_model(np.ones(2), np.exp([-0.5, 0.0, 0.5]))
    rows, columns = different.scales
    assert len(rows) == 2
    assert len(columns) == 3
    assert len(different.transposed.row_scales) == 3


def test_theta_stays_in_the_domain_of_the_loss():
    theta = noise_model(np.ones(2), np.ones(2), outliers=0.3).theta(SCAD(), 2.6)
    assert 2 < theta <= 2.6


def test_levels_are_relative_to_the_median_row():
    levels = NoiseLevels(np.zeros(5))
    likelihoods = -0.5 * (levels.offsets - np.array([[0], [2], [4], [6], [8]])) ** 2 * 10.0
    levels.learn(likelihoods, np.full(5, 10), common=False)
    assert np.median(levels.values) == pytest.approx(1)
    ratios = np.log(levels.values) / NOISE.level_step
    np.testing.assert_allclose(ratios, [-4, -2, 0, 2, 4], atol=0.2)


def test_common_levels_are_on_the_regression_line():
    log_scale = np.linspace(-2, 2, 9)
    levels = NoiseLevels(log_scale)
    wanted = np.rint(-2 * log_scale / NOISE.level_step)
    likelihoods = -np.abs(levels.offsets - wanted[:, None])
    levels.learn(likelihoods, np.full(9, 10), common=True)
    np.testing.assert_allclose(np.log(levels.values), -2 * log_scale, atol=0.2)
    assert np.array_equal(levels.base, levels.values)


@pytest.mark.parametrize(("true", "found"), [(-1.5, -1.5), (-7.0, -2.0), (3.0, 0.0)])
def test_slopes_are_between_those_of_equal_and_proportional_noise(true, found):
    x = np.linspace(-1, 1, 7)
    assert _slope(x, 4 + true * x, np.arange(1, 8)) == pytest.approx(found)
    assert _slope(np.ones(7), x, np.arange(1, 8)) == 0


def test_points_of_the_regression_are_weighted_by_entries():
    x = np.array([0.0, 1.0, 2.0])
    y = np.array([0.0, -1.0, 50.0])
    assert _slope(x, y, np.array([10, 10, 0])) == pytest.approx(-1)


def test_a_few_rows_that_look_noisy_do_not_change_the_slope():
    """Outliers make the scale of a row large, and its level too while its fit is wrong."""
    rng = np.random.default_rng(0)
    x = 0.3 * rng.standard_normal(200)
    y = -1.5 * x + 0.3 * rng.standard_normal(200)
    x[:5] = 1.0
    y[:5] = 7.0
    assert _slope(x, y, np.full(200, 30)) == pytest.approx(-1.5, abs=0.2)


def test_the_variance_stays_above_that_of_an_exact_fit():
    mixture = NoiseMixture(1.0, 100.0, least=0.1)
    mixture.learn(np.array([0]), np.array([[50.0], [0.0], [0.0]]), 1e-9)
    assert mixture.variance == 0.1


def likelihoods_of(levels, wanted):
    """Sharp log likelihoods of these levels, in steps of the grid."""
    return -1e3 * (levels.offsets - np.asarray(wanted)[:, None]) ** 2.0


def test_levels_that_oscillate_take_shorter_steps():
    levels = NoiseLevels(np.zeros(3))
    counts = np.full(3, 10)
    levels.learn(likelihoods_of(levels, [0, 0, 4]), counts, common=False)
    high = np.log(levels.values[2])
    assert high == pytest.approx(4 * NOISE.level_step)
    levels.learn(likelihoods_of(levels, [0, 0, -4]), counts, common=False)
    low = np.log(levels.values[2])
    assert low - high == pytest.approx(-NOISE.level_damping * 8 * NOISE.level_step)
    levels.learn(likelihoods_of(levels, [0, 0, -4]), counts, common=False)
    # in the direction of the last step: all of what is left
    assert np.log(levels.values[2]) == pytest.approx(-4 * NOISE.level_step)


def test_a_row_whose_values_happen_to_be_equal_does_not_outweigh_the_others():
    levels = NoiseLevels(np.zeros(41))
    wanted = np.append(np.tile([-1, 0, 1, 2], 10), -30)
    levels.learn(likelihoods_of(levels, wanted), np.full(41, 10), common=False)
    logs = np.log(levels.values)
    assert logs[:40].min() == pytest.approx(-NOISE.level_step)
    assert -30 * NOISE.level_step < -20 * NOISE.level_step < logs[40] < logs[:40].min()


def test_the_evidence_averages_the_likelihood_over_the_prior_of_levels():
    levels = NoiseLevels(np.zeros(4))
    assert levels.log_marginal == 0
    rng = np.random.default_rng(0)
    likelihoods = -0.1 * (levels.offsets - rng.normal(0, 3, (4, 1))) ** 2
    levels.learn(likelihoods, np.full(4, 10), common=False)
    at = np.log(levels.values) / NOISE.level_step
    of_levels = [np.interp(x, levels.offsets, own) for x, own in zip(at, likelihoods, strict=True)]
    averaged = np.log(np.exp(likelihoods) @ levels.prior)
    assert levels.log_marginal == pytest.approx((averaged - of_levels).sum())
    levels.learn(likelihoods, np.full(4, 10), common=True)
    assert levels.log_marginal == 0


def test_prior_probabilities_of_raised_levels():
    levels = NoiseLevels(np.zeros(3))
    n = len(levels.offsets)
    levels.prior = np.exp(-0.2 * np.abs(np.arange(n) - n // 2))
    levels.values = np.exp([0.0, 1.0, -2.0])
    found = levels.raised_priors(np.array([1, 2]), 2)
    # of a variance four times as large, ln 4 / 0.25 steps higher
    slope = 0.2 / NOISE.level_step
    raised = np.log(4) * np.array([1, 2])
    expected = [-slope * raised, slope * (2 - np.abs(raised - 2))]
    np.testing.assert_allclose(found, expected)
    assert levels.raised_priors(np.array([1]), 0).shape == (1, 0)
    levels.raise_(np.array([0, 2]), np.array([4.0, 1.0]))
    np.testing.assert_allclose(levels.values, [4.0, np.e, np.exp(-2)])
