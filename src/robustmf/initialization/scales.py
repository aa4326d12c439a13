"""Location, scale and noise level of many numbers, by medians alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.data.statistics import MAD_TO_SIGMA

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ScaleOptions:
    """Constants of the estimates.

    Attributes
    ----------
    tuning : float
        θ/σ of the Welsch loss during the initialization: 98.8 % efficient, and insensitive to
        anything beyond 6σ.
    gross_outlier : float
        Values further than this many scales from the median are gross outliers by value;
        initializations do not use them.
    trim : float
        σ̂ is computed from the residuals within this many σ̂, so that outliers do not inflate it.
    passes : int
        Passes of an estimate, each without the outliers of the previous one.
    min_freedom : float
        Lower bound of the share of residual degrees of freedom by which σ̂ is corrected.
    tiny_factor : float
        The smallest scale, in units of the root of the smallest normal number of the precision.
    exact_fit : float
        The noise level of an exact fit, relative to the median absolute value.
    max_parameter_share : float
        With fewer free parameters per entry the residuals show the noise.
    """

    tuning: float = 2.985
    gross_outlier: float = 8.0
    trim: float = 4.0
    passes: int = 3
    min_freedom: float = 0.2
    tiny_factor: float = 1e3
    exact_fit: float = 1e-8
    max_parameter_share: float = 0.5


OPTIONS = ScaleOptions()
TUNING = OPTIONS.tuning
GROSS_OUTLIER = OPTIONS.gross_outlier


def power(unit: float, exponent: int) -> float:
    """unit^exponent by products.

    A unit that is a power of two then changes no digit, which C's ``pow`` does not guarantee.
    """
    product = math.prod([unit] * abs(exponent), start=1.0)
    return product if exponent >= 0 else 1 / product


def least_noise(dtype: np.dtype[Any]) -> float:
    """The smallest scale or noise level in this precision: the inverse of its square is finite."""
    return float(np.finfo(dtype).tiny) ** 0.5 * OPTIONS.tiny_factor


def robust_sigma(residual: Array, parameter_share: float) -> float:
    """A robust standard deviation of residuals.

    1.4826·median|e| of the residuals within 4σ̂ (three passes), times (1 − p)^(−1/4) with p =
    ``parameter_share``, the number of parameters per entry. The usual correction for the degrees of
    freedom has the power 1/2; where θ follows σ̂ it may diverge (σ̂ increases, outliers count, σ̂
    increases). 1/4 is stable and costs less than 1 % of accuracy.
    """
    size = kept = np.abs(residual)
    sigma = 0.0
    for _ in range(OPTIONS.passes):
        sigma = max(MAD_TO_SIGMA * float(np.median(kept)), least_noise(size.dtype))
        kept = size[size <= OPTIONS.trim * sigma]
    freedom = max(1 - parameter_share * len(size) / len(kept), OPTIONS.min_freedom)
    return sigma * freedom**-0.25


def least_sigma(typical: float, dtype: np.dtype[Any]) -> float:
    """The noise level of an exact fit to values whose median |value| is ``typical``."""
    return max(OPTIONS.exact_fit * (typical or 1.0), least_noise(dtype))


class Scales:
    """The scales of data that are factorized with one rank and one λ.

    Parameters
    ----------
    values : array
        A sample of the values.
    shape : (int, int)
    n_entries : int
        The number of all entries.
    rank : int
    reg : float
        λ for a loss of this ``degree``.
    degree : int or None, default=2
        The degree of homogeneity of the loss in the unit of the data.

    Attributes
    ----------
    median, scale : float
        Median and 1.4826·MAD of the values that are not gross outliers by value.
    factor_variance : float
        The variance of a factor's entry that gives values of this size:
        √((median² + scale²)/rank).
    reg : float
        λ as a ridge on least squares.
    free_parameters : int
        The number of free parameters of the model.
    """

    def __init__(
        self,
        values: Array,
        shape: tuple[int, int],
        n_entries: int,
        rank: int,
        reg: float,
        degree: int | None = 2,
    ) -> None:
        self.rank = rank
        self.shape = shape
        self.n_entries = n_entries
        kept = values
        for _ in range(OPTIONS.passes):
            self.median = float(np.median(kept))
            deviation = np.abs(kept - self.median)
            scale = (
                MAD_TO_SIGMA * float(np.median(deviation))
                or float(deviation.mean(dtype=np.float64))
                or abs(self.median)
                or 1.0
            )
            self.scale = max(scale, least_noise(values.dtype))
            before = kept
            kept = values[np.abs(values - self.median) <= GROSS_OUTLIER * self.scale]
            if len(kept) == len(before) == len(values):
                break  # without gross outliers by value another pass gives the same
        size = self.median * self.median + self.scale * self.scale
        self.factor_variance = float(np.sqrt(size / rank))
        self.reg = self.reg_for(2, reg, degree)
        self.free_parameters = rank * (sum(shape) - rank)

    @property
    def paper_unit(self) -> float:
        """The unit of the data relative to the paper's own problem, which has values of size 2."""
        return float(np.hypot(self.median, self.scale)) / 2

    def reg_for(self, wanted: int, reg: float, degree: int | None) -> float:
        """λ for a loss of one degree as λ for a loss of the wanted degree.

        The two have different units, and agree in the paper's unit.
        """
        return reg if degree is None else reg * power(self.paper_unit, wanted - degree)

    @property
    def entries_per_row(self) -> float:
        """Entries of an average row or column, of the side that has fewer."""
        return self.n_entries / max(self.shape)

    def ridge(self, sigma: float) -> float:
        """The ridge of the posterior mode at this noise level, at least λ."""
        return max(self.reg, sigma * sigma / self.factor_variance)

    def noise(self, residual: Array, reg: float | None = None) -> float:
        """The noise level of a fit.

        It is at least the level below which the ridge (λ unless given) would outweigh a bounded
        loss and pull the best fit to zero.
        """
        ridge = self.reg if reg is None else reg
        floor = (
            np.sqrt(4 * ridge * self.factor_variance * self.rank / self.entries_per_row) / TUNING
        )
        return max(robust_sigma(residual, self.free_parameters / self.n_entries), float(floor))

    @property
    def has_enough_entries(self) -> bool:
        """Whether there are two entries per parameter, so that residuals show the noise."""
        return self.free_parameters < OPTIONS.max_parameter_share * self.n_entries
