"""The smoothing width of a nonsmooth loss: what is measured with it, and when it is reduced."""

from __future__ import annotations

import numpy as np
import pytest

from robustmf.backends.base import Measurement
from robustmf.losses import make_loss
from robustmf.solvers.smoothing import ObjectiveByWidth, SmoothingSchedule


def measured(schedule, residuals, weights=None, penalty=0.0, look_ahead=True):
    """The objective by width, from sums over the entries of the loss with each width."""
    weights = np.ones(len(residuals)) if weights is None else weights
    losses = schedule.losses(look_ahead)
    sums = [float(weights @ loss.value(np.abs(residuals))) for loss in losses]
    n_weighted = int((weights > 0).sum())
    return schedule.objective(Measurement(sums, float(weights.sum()), n_weighted, penalty))


def l1_schedule():
    return SmoothingSchedule(make_loss("l1"), 1.0)


def test_the_objective_falls_with_the_width_to_that_of_the_loss_itself():
    loss = make_loss("lsp", 0.7)
    residuals = np.random.default_rng(0).standard_normal(50)
    schedule = SmoothingSchedule(loss, 1.0)
    values = measured(schedule, residuals, penalty=3.0).values
    assert np.all(np.diff(values) < 0)
    assert values[-1] == pytest.approx(loss.value(np.abs(residuals)).sum() + 3, rel=1e-2)
    assert measured(schedule, residuals, penalty=3.0, look_ahead=False).values == values[:1]


@pytest.mark.parametrize("weighted", [False, True])
def test_residuals_below_the_width_are_counted_and_those_far_above_are_not(weighted):
    schedule = l1_schedule()
    residuals = np.concatenate([np.zeros(30), np.full(70, 1000.0)])
    weights = None
    if weighted:
        residuals = np.concatenate([residuals, np.zeros(50)])
        weights = np.concatenate([np.full(100, 7.0), np.zeros(50)])
    counts = measured(schedule, residuals, weights).near_zero
    assert counts == pytest.approx([30.0] * len(counts), abs=0.1)
    at_the_width = measured(schedule, np.full(100, schedule.width)).near_zero[0]
    assert 40 < at_the_width < 75


def test_a_smooth_loss_is_measured_as_it_is():
    loss = make_loss("welsch", 1.0)
    schedule = SmoothingSchedule(loss, 1.0)
    assert schedule.loss is loss
    one = measured(schedule, np.ones(5), penalty=1.0)
    assert one.values == [pytest.approx(5 * float(loss.value(np.ones(1))[0]) + 1)]
    assert schedule.reductions(0.0, one, 10) == 0


def test_the_first_change_waits_for_the_basin_and_ends_where_few_residuals_are_near_zero():
    schedule = l1_schedule()
    at = ObjectiveByWidth([100.0, 60.0, 40.0, 30.0, 28.0], [99.0, 80.0, 50.0, 30.0], 100)
    assert schedule.is_initial
    assert schedule.reductions(50.0, at, 40) == 0
    assert schedule.reductions(0.1, at, 40) == 1
    assert schedule.reductions(0.1, at, 15) == 2
    assert schedule.reductions(0.1, at, 8) == 3
    assert schedule.reductions(0.1, at, 2) == 4
    before = schedule.width
    schedule.reduce(2)
    assert schedule.width == pytest.approx(before * 0.16)
    assert not schedule.is_initial


def test_with_many_entries_per_unknown_the_basin_is_located_sooner():
    values = [100.0, 60.0, 40.0, 30.0, 28.0]
    counts = [99.0, 80.0, 50.0, 30.0]
    assert l1_schedule().reductions(10.0, ObjectiveByWidth(values, counts, 1000), 1000) == 0
    assert l1_schedule().reductions(10.0, ObjectiveByWidth(values, counts, 10_000), 1000) > 0


def test_a_width_is_kept_while_sweeps_promise_a_larger_decrease():
    """The same decrease, after decreases that fell fast and after decreases that fell slowly."""
    fast = l1_schedule()
    slow = l1_schedule()
    offered = ObjectiveByWidth([100.0, 50.0], [10.0], 100)
    for schedule, before in ((fast, 20.0), (slow, 5.0)):
        schedule.reduce(1)
        assert schedule.reductions(before, offered, 40) == 0
    assert fast.reductions(4.0, offered, 40) == 1
    assert slow.reductions(4.0, offered, 40) == 0
    # a sweep without decrease, or with an increase by rounding
    assert slow.reductions(0.0, offered, 40) == 1
    assert slow.reductions(-1e-9, offered, 40) == 1


def test_the_final_width_is_not_reduced():
    schedule = l1_schedule()
    for _ in range(60):
        at = measured(schedule, np.linspace(-1, 1, 101))
        schedule.reduce(schedule.reductions(0.0, at, 10))
    assert 1e-5 < schedule.width <= 1e-4
    assert len(at.values) == 1


def test_a_restored_schedule_continues_where_it_was():
    offered = ObjectiveByWidth([100.0, 50.0], [10.0], 100)
    one = l1_schedule()
    other = l1_schedule()
    one.reduce(1)
    one.reductions(20.0, offered, 40)
    other.restore(one.state())
    assert [schedule.reductions(4.0, offered, 40) for schedule in (one, other)] == [1, 1]
    assert one.state() == other.state()


def test_after_a_reduction_the_rate_is_not_computed_from_sweeps_with_another_width():
    schedule = SmoothingSchedule(make_loss("l1"), 1.0)
    at = ObjectiveByWidth([10.0, 9.0], [1.0], 100)
    schedule.restore((schedule.width / 2, 1.0, 0.5))
    schedule.reductions(0.2, at, 10)
    assert schedule.state()[1:] == (0.2, 0.2)
    schedule.reduce(1)
    schedule.reductions(0.12, at, 10)
    assert schedule.state()[1:] == (0.12, 0.2)
    schedule.reductions(0.06, at, 10)
    assert schedule.state()[1:] == (0.06, 0.5)


def test_all_of_the_state_is_restored():
    schedule = l1_schedule()
    schedule.restore((0.01, 0.7, 0.2))
    assert schedule.state() == (0.01, 0.7, 0.2)
    assert not schedule.is_initial
