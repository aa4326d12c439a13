"""The readings of the ten tasks are those that their page describes."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import ten_tasks


def test_readings_are_those_of_the_page():
    sensors = ten_tasks.make_sensors(np.random.default_rng(0))
    cells = sensors.table.to_numpy()
    assert cells.shape == (480, 30)
    assert np.linalg.matrix_rank(sensors.truth) == 4
    assert np.isnan(cells).mean() == pytest.approx(0.24, abs=0.01)
    assert np.isnan(cells[300:340, 5]).all()
    off = np.abs(cells - sensors.truth)
    assert sensors.errors.sum() == 204
    assert off[sensors.errors].min() > 3
    assert np.sqrt(np.mean(off[sensors.clean] ** 2)) == pytest.approx(0.3, abs=0.01)
    wrong = list(ten_tasks.WRONG_HOURS)
    assert not (sensors.errors | sensors.clean)[wrong].any()
    stuck = cells[ten_tasks.STUCK]
    assert np.nanmin(stuck) == np.nanmax(stuck)
