"""The line search of accelerated steps on the dual, and the point from which they begin."""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest

from robustmf.solvers.mm import MM, acceleration
from robustmf.solvers.mm.acceleration import Step, WarmStartedAPG, accelerated


class RecordedSteps:
    """Steps on a dual whose curvature is this share of its upper bound."""

    def __init__(self, curvature):
        self.curvature = curvature
        self.scales = []

    def step(self, scale):
        self.scales.append(scale)
        return Step(dual=0.0, curved=self.curvature, allowed=scale, turning=0.0)

    def accept(self, momentum):
        self.scales.append("accepted")


@pytest.mark.parametrize(
    ("curvature", "tried"),
    [(0.3, [0.5]), (0.7, [0.5, 0.75]), (0.9, [0.5, 0.75, 1.0]), (2.0, [0.5, 0.75, 1.0])],
)
def test_a_step_is_repeated_until_its_length_is_safe(curvature, tried):
    steps = RecordedSteps(curvature)
    list(islice(accelerated(steps), 2))
    assert steps.scales == [*tried, "accepted", tried[-1], "accepted"]


def test_the_last_dual_point_is_projected_onto_the_new_box(monkeypatch):
    begun = []
    found = SimpleNamespace(dual_point=np.array([3.0, -3.0, 0.5]))
    monkeypatch.setattr(acceleration, "minimize_surrogate", lambda *_: found)

    class Inner(WarmStartedAPG):
        make_steps = staticmethod(lambda surrogate, x: begun.append(x))

    inner = Inner()
    for w in (3.0, 1.0):
        inner.solve(SimpleNamespace(weights=np.full(3, w)), MM())
    assert begun[0].tolist() == [0, 0, 0]
    assert begun[1].tolist() == [1, -1, 0.5]
