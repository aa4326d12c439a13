"""Location, spread and noise of many numbers, by medians alone: how they are found does not depend on where the numbers are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]

#: θ/σ of the Welsch loss while looking for the valley: 98.8 % efficient, and blunt to anything beyond 6σ.
TUNING = 2.985

#: Values further than this many spreads from the median are outliers on their face; starts do without them.
FAR = 8.0

#: σ̂ is taken over the residuals within this many σ̂, so that outliers do not widen it.
_TRIM = 4.0


class Values(Protocol):
    """Numbers, wherever they are: in an array, or in parts on many machines."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Their precision."""

    def __len__(self) -> int: ...

    def median(self) -> float:
        """The middle one, or the mean of the two in the middle."""

    def mean(self) -> float:
        """Their mean."""

    def distances(self, middle: float) -> Self:
        """|x − middle|."""

    def within(self, middle: float, most: float) -> Self:
        """Those no further from ``middle`` than ``most``."""


@dataclass(frozen=True)
class Held:
    """An array of numbers."""

    array: Array

    @property
    def dtype(self) -> np.dtype[Any]:
        """Their precision."""
        return self.array.dtype

    def __len__(self) -> int:
        return len(self.array)

    def median(self) -> float:
        """The middle one, or the mean of the two in the middle."""
        return float(np.median(self.array))

    def mean(self) -> float:
        """Their mean."""
        return float(self.array.mean(dtype=np.float64))

    def distances(self, middle: float) -> Held:
        """|x − middle|."""
        return Held(np.abs(self.array - middle))

    def within(self, middle: float, most: float) -> Held:
        """Those no further from ``middle`` than ``most``."""
        return Held(self.array[np.abs(self.array - middle) <= most])


def power(unit: float, exponent: int) -> float:
    """unit^exponent by products: a unit that is a power of two then changes no digit, which C's ``pow`` does not promise."""
    product = math.prod([unit] * abs(exponent), start=1.0)
    return product if exponent >= 0 else 1 / product


def least_noise(dtype: np.dtype[Any]) -> float:
    """No spread or noise is taken to be less, whatever the unit: the inverse of its square is still a number in this precision."""
    return float(np.finfo(dtype).tiny) ** 0.5 * 1e3


def robust_sigma(residual: Values, spent: float) -> float:
    """1.4826·median|e| of the residuals within 4σ̂ (three passes), times (1 − spent)^(−1/4), ``spent`` = parameters/entries.

    The power 1/2 is the usual correction for the parameters spent; but where θ follows σ̂ it can run away (σ̂ up, outliers in, σ̂ up).
    1/4 is stable and costs less than 1 % of accuracy.
    """
    size = kept = residual.distances(0.0)
    sigma = 0.0
    for _ in range(3):
        sigma = max(1.4826 * kept.median(), least_noise(size.dtype))
        kept = size.within(0.0, _TRIM * sigma)
    return sigma * max(1 - spent * len(size) / len(kept), 0.2) ** -0.25


def least_sigma(typical: float, dtype: np.dtype[Any]) -> float:
    """Where the fit is exact, noise is taken to be this small beside values whose median |value| is ``typical``."""
    return max(1e-8 * (typical or 1.0), least_noise(dtype))


class Scales:
    """What a start needs to know of the data to be factorized at one rank and λ. All else is relative to these.

    Attributes
    ----------
    middle, spread : float
        Median and 1.4826·MAD of the values that are not outliers on their face.
    prior : float
        The variance of a factor's entry that gives values of this size: √((middle² + spread²)/rank).
    reg : float
        λ, given for a loss of this ``degree``, as a ridge on least squares.
    """

    def __init__(
        self,
        values: Values,
        shape: tuple[int, int],
        n_entries: int,
        rank: int,
        reg: float,
        degree: int | None = 2,
    ) -> None:
        """``values`` stand for all of the ``n_entries``."""
        self.rank, self.shape, self.n_entries = rank, shape, n_entries
        kept = values
        for _ in range(3):
            self.middle = kept.median()
            deviation = kept.distances(self.middle)
            spread = 1.4826 * deviation.median() or deviation.mean() or abs(self.middle) or 1.0
            self.spread = max(spread, least_noise(values.dtype))
            before, kept = kept, values.within(self.middle, FAR * self.spread)
            if len(kept) == len(before) == len(values):
                break  # none lies far out: another pass would find the same
        self.prior = float(np.sqrt((self.middle * self.middle + self.spread * self.spread) / rank))
        self.reg = self.reg_for(2, reg, degree)
        self.free_parameters = rank * (sum(shape) - rank)

    @property
    def paper_unit(self) -> float:
        """The unit of the data beside that of the paper's own problem, which has values of size 2."""
        return float(np.hypot(self.middle, self.spread)) / 2

    def reg_for(self, wanted: int, reg: float, degree: int | None) -> float:
        """λ for a loss of this degree as one for a loss of the wanted degree: the two have different units, and agree in the paper's."""
        return reg if degree is None else reg * power(self.paper_unit, wanted - degree)

    @property
    def entries_a_row(self) -> float:
        """Entries of an average row or column, of the side that has fewer."""
        return self.n_entries / max(self.shape)

    def ridge(self, sigma: float) -> float:
        """The ridge of the posterior mode at this noise, not below λ."""
        return max(self.reg, sigma * sigma / self.prior)

    def noise(self, residual: Values, reg: float | None = None) -> float:
        """Noise level of a fit, not below where the ridge (λ unless given) would outweigh a bounded loss and pull the best fit to zero."""
        floor = (
            np.sqrt(
                4 * (self.reg if reg is None else reg) * self.prior * self.rank / self.entries_a_row
            )
            / TUNING
        )
        return max(robust_sigma(residual, self.free_parameters / self.n_entries), float(floor))

    @property
    def has_enough_entries(self) -> bool:
        """Whether there are at least twice as many entries as parameters, so that residuals tell the noise."""
        return self.free_parameters < 0.5 * self.n_entries
