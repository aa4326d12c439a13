"""The rounded tip of a kinked loss in ``irls``: how wide it is, and when it is narrowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robustmf.losses import Loss, smoothed

#: Half-width of the tip at first, and what it is not narrowed below, in units of σ̂. Alternation at once with a narrow tip would stall:
#: weights at the kink lock rows and columns to each other.
_FIRST, _LAST = 0.3, 1e-4

#: A tip is narrowed to this share of itself.
_NARROWING = 0.4

#: That is done when what sweeps have left to gain is less than this share of what narrowing it will gain. What is left is told by the
#: rate at which gains fall from sweep to sweep, taken to be within these bounds.
_PATIENCE, _RATES = 0.03, (0.1, 0.65)

#: The first tip is as wide as the start was bad. Once a sweep gains less than ``_FOUND`` of that the valley is found, the sooner the more
#: than ``_PLENTY`` entries there are for an unknown. Then the tip is narrowed at once, by up to ``_STEPS`` steps, until no more than
#: ``_CROWD`` entries for each unknown are at it.
_FOUND, _PLENTY, _STEPS, _CROWD = 0.04, 3.5, 4, 4.0


@dataclass(frozen=True)
class Measured:
    """The objective with each of the tips, and how many of the entries are at each but the last.

    An entry counts as its slope on the way to the next tip, beside that of one without a residual: 1 within the tip, 0 far away.
    """

    values: list[float]
    crowds: list[float]
    entries: int


class Tip:
    """The tip of this loss. One without a kink has none, and is measured as it is."""

    def __init__(self, loss: Loss, sigma: float) -> None:
        self._base = loss
        self._first, self._last = _FIRST * sigma, _LAST * sigma
        self.width = self._first
        #: what the last sweep with this tip gained (0: there was none), and the rate at which gains fell last
        self._gained, self._rate = 0.0, 0.5

    def state(self) -> tuple[float, float, float]:
        """All that decides when it will be narrowed."""
        return self.width, self._gained, self._rate

    def restore(self, state: Sequence[float]) -> None:
        """Go on from there."""
        self.width, self._gained, self._rate = state

    @property
    def first(self) -> bool:
        """It was not narrowed yet."""
        return self.width == self._first

    @property
    def loss(self) -> Loss:
        """The loss with this tip."""
        return smoothed(self._base, self.width)

    def measured_losses(self, ahead: bool) -> list[Loss]:
        """The loss with this tip and, where one looks ahead, with those it may be narrowed to."""
        return (
            [smoothed(self._base, width) for width in self._widths(ahead)]
            if self._base.concave
            else [self._base]
        )

    def _widths(self, ahead: bool) -> list[float]:
        steps = 0 if not ahead or self.width <= self._last else _STEPS if self.first else 1
        return [self.width * _NARROWING**k for k in range(steps + 1)]

    def measured(
        self, sums: Sequence[float], weight: float, entries: int, penalty: float
    ) -> Measured:
        """The objective, from the sums of :meth:`measured_losses`, of all entries' weights, and of the penalties.

        ``entries`` counts those with any weight.
        """
        if not self._base.concave:
            return Measured([sums[0] + penalty], [], entries)
        # a rounded loss starts at 0; what it is lowered by for that changes with the width, and would hide the descent
        lowered = self._base.value(np.array(self._widths(len(sums) > 1)))
        values = np.array(sums) + weight * lowered + penalty
        with np.errstate(divide="ignore", invalid="ignore"):
            crowds = entries * np.diff(values) / (weight * np.diff(lowered))
        return Measured(values.tolist(), crowds.tolist(), entries)

    def steps_to_narrow(self, gained: float, measured: Measured, unknowns: int) -> int:
        """By how many steps to narrow it after a sweep that gained this much and found this."""
        values, crowds = measured.values, measured.crowds
        if len(values) == 1:
            return 0
        offered = values[0] - values[1]
        if self._gained > 0:
            self._rate = min(max(gained / self._gained, _RATES[0]), _RATES[1])
        self._gained = gained
        if not self.first:
            return int(gained * self._rate / (1 - self._rate) < _PATIENCE * offered)
        plenty = max(1.0, measured.entries / (_PLENTY * unknowns))
        if not gained < _FOUND * plenty * plenty * offered:
            return 0
        return next(
            (k for k in range(1, len(crowds)) if crowds[k] <= _CROWD * unknowns), len(crowds)
        )

    def narrow(self, steps: int) -> None:
        """Narrow it by so many steps."""
        if steps > 0:
            self.width *= _NARROWING**steps
            self._gained = 0.0
