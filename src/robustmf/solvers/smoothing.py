"""The smoothing width ε of a nonsmooth loss in ``irls``: its schedule from wide to narrow.

A loss φ that is nonsmooth at 0 is replaced by the smoothed loss φ(√(a² + ε²)) − φ(ε). Sweeps with a
small ε from the beginning would stall: large weights at the nonsmooth point tie rows and columns to
each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robustmf.backends.base import Measurement
from robustmf.losses import Loss, smoothed


@dataclass(frozen=True)
class SmoothingOptions:
    """Constants of the schedule.

    Attributes
    ----------
    initial, final : float
        The width at first, and the width below which it is not reduced further, in units of the
        noise level σ̂ at the initial point.
    factor : float
        One reduction multiplies the width by this.
    patience : float
        The width is reduced when the decrease that further sweeps promise is less than this share
        of the decrease by the reduction itself.
    rates : (float, float)
        Bounds on the rate at which the decrease falls from sweep to sweep, by which the decrease of
        further sweeps is extrapolated.
    located : float
        The initial width is kept until a sweep decreases the objective by less than this share of
        what the first reduction offers: the basin of attraction is then located.
    entries_per_unknown : float
        With more entries per unknown than this, ``located`` grows with the square of their ratio.
    max_steps : int
        The first change of the width is by at most this many reductions at once.
    near_zero_per_unknown : float
        The first change stops at the width at which no more than this many residuals per unknown
        are near zero.
    """

    initial: float = 0.3
    final: float = 1e-4
    factor: float = 0.4
    patience: float = 0.03
    rates: tuple[float, float] = (0.1, 0.65)
    located: float = 0.04
    entries_per_unknown: float = 3.5
    max_steps: int = 4
    near_zero_per_unknown: float = 4.0


OPTIONS = SmoothingOptions()


@dataclass(frozen=True)
class ObjectiveByWidth:
    """The objective at one point for several smoothing widths.

    Attributes
    ----------
    values : list of float
        The objective with each of the widths, the current one first.
    near_zero : list of float
        For each width but the last, the effective number of residuals near zero: an entry counts by
        the slope of its loss on the way to the next width, relative to that of a zero residual (1
        for residuals well below the width, 0 far above it).
    n_entries : int
        The number of entries with a positive weight.
    """

    values: list[float]
    near_zero: list[float]
    n_entries: int


class SmoothingSchedule:
    """The current smoothing width of a loss, and the decision when to reduce it.

    A smooth loss is used as it is.

    Parameters
    ----------
    loss : Loss
    sigma : float
        The noise level at the initial point.
    """

    def __init__(self, loss: Loss, sigma: float) -> None:
        self._base = loss
        self._initial = OPTIONS.initial * sigma
        self._final = OPTIONS.final * sigma
        self.width = self._initial
        # The decrease by the last sweep with this width (0: there was none), and the last ratio of
        # two.
        self._decrease = 0.0
        self._rate = 0.5

    def state(self) -> tuple[float, float, float]:
        """Everything that decides when the width will be reduced."""
        return self.width, self._decrease, self._rate

    def restore(self, state: Sequence[float]) -> None:
        """Continue from a :meth:`state`."""
        self.width, self._decrease, self._rate = state

    @property
    def is_initial(self) -> bool:
        """Whether the width has not been reduced yet."""
        return self.width == self._initial

    @property
    def loss(self) -> Loss:
        """The loss with the current width."""
        return smoothed(self._base, self.width)

    def losses(self, look_ahead: bool) -> list[Loss]:
        """The loss with the current width; looking ahead, also with those that may be next."""
        if not self._base.concave:
            return [self._base]
        return [smoothed(self._base, width) for width in self._widths(look_ahead)]

    def _widths(self, look_ahead: bool) -> list[float]:
        steps = 0
        if look_ahead and self.width > self._final:
            steps = OPTIONS.max_steps if self.is_initial else 1
        return [self.width * OPTIONS.factor**k for k in range(steps + 1)]

    def objective(self, measured: Measurement) -> ObjectiveByWidth:
        """The objective by width, from what was measured with :meth:`losses`."""
        if not self._base.concave:
            value = measured.loss_sums[0] + measured.penalty
            return ObjectiveByWidth([value], [], measured.n_weighted)
        # A smoothed loss is lowered to be 0 at 0. The lowering depends on the width and would hide
        # the descent, so it is added again.
        lowering = self._base.value(np.array(self._widths(len(measured.loss_sums) > 1)))
        values = np.array(measured.loss_sums) + measured.weight * lowering + measured.penalty
        with np.errstate(divide="ignore", invalid="ignore"):
            near_zero = (
                measured.n_weighted * np.diff(values) / (measured.weight * np.diff(lowering))
            )
        return ObjectiveByWidth(values.tolist(), near_zero.tolist(), measured.n_weighted)

    def reductions(self, decrease: float, at: ObjectiveByWidth, n_unknowns: int) -> int:
        """How many times to reduce the width after a sweep with this decrease."""
        values = at.values
        if len(values) == 1:
            return 0
        offered = values[0] - values[1]
        if self._decrease > 0:
            low, high = OPTIONS.rates
            self._rate = min(max(decrease / self._decrease, low), high)
        self._decrease = decrease
        if not self.is_initial:
            return int(decrease * self._rate / (1 - self._rate) < OPTIONS.patience * offered)
        density = max(1.0, at.n_entries / (OPTIONS.entries_per_unknown * n_unknowns))
        if not decrease < OPTIONS.located * density * density * offered:
            return 0
        few = OPTIONS.near_zero_per_unknown * n_unknowns
        counts = at.near_zero
        return next((k for k in range(1, len(counts)) if counts[k] <= few), len(counts))

    def reduce(self, times: int) -> None:
        """Reduce the width this many times."""
        if times > 0:
            self.width *= OPTIONS.factor**times
            self._decrease = 0.0
