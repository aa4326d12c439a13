"""The rounded tip of a kinked loss: what is measured with it, and when it is narrowed."""

from __future__ import annotations

import numpy as np
import pytest

from robustmf.losses import make_loss
from robustmf.solvers.smoothing import Measured, Tip


def measured(tip, loss, residuals, weights=None, penalty=0.0, ahead=True):
    """As an objective would have it: sums over the entries of the loss with each tip."""
    weights = np.ones(len(residuals)) if weights is None else weights
    sums = [float(weights @ each.value(np.abs(residuals))) for each in tip.measured_losses(ahead)]
    return tip.measured(sums, float(weights.sum()), int((weights > 0).sum()), penalty)


def found(values, crowds, entries=100):
    return Measured(values, crowds, entries)


def test_the_objective_falls_with_the_tip_to_that_of_the_loss_itself():
    loss, residuals = make_loss("lsp", 0.7), np.random.default_rng(0).standard_normal(50)
    tip = Tip(loss, 1.0)
    values = measured(tip, loss, residuals, penalty=3.0).values
    assert np.all(np.diff(values) < 0)
    assert values[-1] == pytest.approx(loss.value(np.abs(residuals)).sum() + 3, rel=1e-2)
    assert measured(tip, loss, residuals, penalty=3.0, ahead=False).values == values[:1]


@pytest.mark.parametrize("weighted", [False, True])
def test_entries_within_the_tip_are_counted_and_those_far_away_are_not(weighted):
    loss = make_loss("l1")
    tip = Tip(loss, 1.0)
    near, far = np.zeros(30), np.full(70, 1000.0)
    weights = np.concatenate([np.full(100, 7.0), np.zeros(50)]) if weighted else None
    residuals = (
        np.concatenate([near, far, np.zeros(50)]) if weighted else np.concatenate([near, far])
    )
    crowds = measured(tip, loss, residuals, weights).crowds
    assert crowds == pytest.approx([30.0] * len(crowds), abs=0.1)
    halfway = measured(tip, loss, np.full(100, tip.width)).crowds[0]
    assert 40 < halfway < 75


def test_a_loss_without_a_kink_is_measured_as_it_is():
    loss = make_loss("welsch", 1.0)
    tip = Tip(loss, 1.0)
    assert tip.loss is loss
    one = measured(tip, loss, np.ones(5), penalty=1.0)
    assert one.values == [pytest.approx(5 * float(loss.value(np.ones(1))[0]) + 1)]
    assert tip.steps_to_narrow(0.0, one, 10) == 0


def test_the_first_tip_waits_for_the_valley_then_goes_to_where_entries_do_not_crowd_it():
    tip = Tip(make_loss("l1"), 1.0)
    falling = [100.0, 60.0, 40.0, 30.0, 28.0]
    crowded = found(falling, [99.0, 80.0, 50.0, 30.0])
    assert tip.first
    assert tip.steps_to_narrow(50.0, crowded, 40) == 0
    assert tip.steps_to_narrow(0.1, crowded, 40) == 1
    assert tip.steps_to_narrow(0.1, crowded, 15) == 2
    assert tip.steps_to_narrow(0.1, crowded, 8) == 3
    assert tip.steps_to_narrow(0.1, crowded, 2) == 4
    before = tip.width
    tip.narrow(2)
    assert tip.width == pytest.approx(before * 0.16)
    assert not tip.first


def test_with_plenty_of_entries_the_valley_is_found_sooner():
    values, crowds = [100.0, 60.0, 40.0, 30.0, 28.0], [99.0, 80.0, 50.0, 30.0]
    assert Tip(make_loss("l1"), 1.0).steps_to_narrow(10.0, found(values, crowds, 1000), 1000) == 0
    assert Tip(make_loss("l1"), 1.0).steps_to_narrow(10.0, found(values, crowds, 10_000), 1000) > 0


def test_a_tip_is_kept_while_sweeps_have_more_left_to_gain():
    """The same gain, after gains that fell fast and after gains that fell slowly."""
    fast, slow = Tip(make_loss("l1"), 1.0), Tip(make_loss("l1"), 1.0)
    offered = found([100.0, 50.0], [10.0])
    for tip, before in ((fast, 20.0), (slow, 5.0)):
        tip.narrow(1)
        assert tip.steps_to_narrow(before, offered, 40) == 0
    assert fast.steps_to_narrow(4.0, offered, 40) == 1
    assert slow.steps_to_narrow(4.0, offered, 40) == 0
    # a sweep that gained nothing, or lost by rounding
    assert slow.steps_to_narrow(0.0, offered, 40) == 1
    assert slow.steps_to_narrow(-1e-9, offered, 40) == 1


def test_the_last_tip_is_not_narrowed_and_a_state_goes_on_where_it_was():
    loss = make_loss("l1")
    tip = Tip(loss, 1.0)
    for _ in range(60):
        looked = measured(tip, loss, np.linspace(-1, 1, 101))
        tip.narrow(tip.steps_to_narrow(0.0, looked, 10))
    assert 1e-5 < tip.width <= 1e-4
    assert len(looked.values) == 1
    one, other = Tip(loss, 1.0), Tip(loss, 1.0)
    one.narrow(1)
    one.steps_to_narrow(20.0, found([100.0, 50.0], [10.0]), 40)
    other.restore(one.state())
    assert [tip.steps_to_narrow(4.0, found([100.0, 50.0], [10.0]), 40) for tip in (one, other)] == [
        1,
        1,
    ]
    assert one.state() == other.state()
