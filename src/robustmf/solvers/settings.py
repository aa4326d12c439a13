"""What to fit and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from robustmf.initialization.initial_point import Init, Warm
from robustmf.losses import Loss
from robustmf.solvers.base import Callback
from robustmf.solvers.mm import InnerRule

#: θ = √2 · (95 %-efficiency constant) · σ̂, which is 98.7 % efficient: gross outliers lie far beyond either.
_GENEROUS = float(np.sqrt(2))

#: θ/σ̂ of a kinked loss, which no θ makes efficient: the paper's θ = 1 at noise 0.1.
_KINKED_THETA = 10.0


@dataclass(frozen=True)
class Settings:
    """What to fit and how; see :class:`robustmf.RobustMF` for each."""

    rank: int
    loss: Loss
    auto_theta: bool
    reg: float
    auto_reg: bool
    reg_by_count: bool
    bias: bool | Literal["auto"]
    bias_unit: float
    solver: str
    inner: str
    rule: InnerRule
    init: Init | Warm
    n_init: int
    certify: bool
    max_iter: int
    tol: float
    callbacks: Sequence[Callback]
    validation_fraction: float | None
    patience: int
    bounds: tuple[float, float]

    def deciding(self) -> dict[str, Any]:
        """What decides the result: all but the callbacks, which may end a fit but not turn it."""
        return {
            part.name: getattr(self, part.name)
            for part in fields(self)
            if part.name not in ("callbacks", "rule")
        } | {f"inner_{part.name}": getattr(self.rule, part.name) for part in fields(self.rule)}

    def loss_at(self, sigma: float) -> Loss:
        """The loss, with the θ that goes with this noise where θ is open."""
        loss = self.loss
        if not self.auto_theta or not loss.has_scale or loss.degree is None:
            return loss
        return loss.at_scale(
            sigma
            * (_KINKED_THETA if loss.efficient_theta is None else _GENEROUS * loss.efficient_theta)
        )
