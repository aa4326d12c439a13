"""What to fit and how: the checked parameters of an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from robustmf.data.factorization import Factorization
from robustmf.losses import Loss
from robustmf.solvers.base import Callback
from robustmf.solvers.mm.options import MM

#: The parameter ``init``: a name, or a pair (U, V).
Init = str | tuple[ArrayLike, ArrayLike]


@dataclass(frozen=True)
class ThetaOptions:
    """Constants of the choice of the loss's scale θ from the noise level σ̂.

    Attributes
    ----------
    efficiency : float
        θ of a smooth loss is this times the constant of 95 % efficiency times σ̂. √2 is 98.7 %
        efficient; gross outliers lie far beyond either.
    nonsmooth : float
        θ of a nonsmooth loss in units of σ̂, which no θ makes efficient: the paper's θ = 1 at noise
        0.1.
    """

    efficiency: float = float(np.sqrt(2))
    nonsmooth: float = 10.0


OPTIONS = ThetaOptions()


@dataclass(frozen=True)
class Settings:
    """What to fit and how; see :class:`robustmf.RobustMF` for each parameter.

    With ``auto_rank`` the rank is to be found; ``rank`` is then one that is assumed where memory
    is estimated. ``init`` may also be a :class:`~robustmf.data.factorization.Factorization`, an
    earlier fit to continue from. ``mm`` are the options of the solver ``mm``. ``certify`` are the
    options of the MM iterations that certify a critical point at the end, or None.
    """

    rank: int
    auto_rank: bool
    loss: Loss
    auto_theta: bool
    reg: float
    auto_reg: bool
    reg_by_count: bool
    bias: bool | Literal["auto"]
    bias_unit: float
    nonnegative: bool
    solver: str
    mm: MM
    init: Init | Factorization
    n_init: int
    certify: MM | None
    max_iter: int
    tol: float
    callbacks: Sequence[Callback]
    validation_fraction: float | None
    patience: int
    bounds: tuple[float, float]

    @property
    def max_rank(self) -> int | None:
        """The largest number of factors; None if they are to be found."""
        return None if self.auto_rank else self.rank

    def is_plain(self, sample_weights: Any) -> bool:
        """Whether the model is the plain one: no biases, weights or λ by count."""
        return self.bias is not True and sample_weights is None and not self.reg_by_count

    def identity(self) -> dict[str, Any]:
        """The settings that determine the result, as plain values: all but the callbacks."""
        plain = {part.name: getattr(self, part.name) for part in fields(self)}
        del plain["callbacks"]
        plain["mm"] = repr(self.mm)
        plain["certify"] = None if self.certify is None else repr(self.certify)
        return plain

    def loss_at(self, sigma: float) -> Loss:
        """The loss, with θ chosen for this noise level unless θ is given."""
        loss = self.loss
        if not self.auto_theta or not loss.has_scale or loss.degree is None:
            return loss
        if loss.efficient_theta is None:
            return loss.at_scale(sigma * OPTIONS.nonsmooth)
        return loss.at_scale(sigma * (OPTIONS.efficiency * loss.efficient_theta))
