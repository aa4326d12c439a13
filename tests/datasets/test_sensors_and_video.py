"""Synthetic readings of sensors and a synthetic video."""

from __future__ import annotations

import numpy as np

from robustmf.datasets import make_sensors, make_video


def test_readings_are_the_truth_with_noise_except_for_bad_ones():
    made = make_sensors(days=14, sensors=12, random_state=0)
    seen = ~np.isnan(made.readings)
    assert made.readings.shape == made.truth.shape == (14 * 24, 12)
    assert (len(made.times), len(made.names)) == made.truth.shape
    assert np.linalg.matrix_rank(made.truth) == 5
    error = made.readings - made.truth
    assert 0.19 < error[seen & ~made.bad].std() < 0.21
    assert np.abs(error[made.spikes]).min() > 4
    assert len(np.unique(made.readings[made.stuck])) == 1
    assert not (made.bad & ~seen).any()
    assert 0.01 < made.spikes.sum() / seen.sum() < 0.03
    assert 0.1 < 1 - seen.mean() < 0.15
    again = make_sensors(days=14, sensors=12, random_state=0)
    np.testing.assert_array_equal(again.readings, made.readings)


def test_frames_are_the_background_except_where_objects_move():
    made = make_video(20, 18, 24, random_state=0)
    assert made.frames.shape == made.background.shape == made.moving.shape == (20, 18, 24)
    assert np.linalg.matrix_rank(made.background.reshape(20, -1)) == 2
    error = made.frames - made.background
    assert 0.019 < error[~made.moving].std() < 0.021
    assert np.abs(error[made.moving]).mean() > 0.2
    assert 0 < made.background.min() < made.background.max() < 1.2
