"""What a start needs to know of the data: its location and spread, and what follows from them for factors, ridge and noise."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.lazily import cached
from robustmf.losses import L2, Welsch
from robustmf.objective import Objective
from robustmf.observed import Observed
from robustmf.operations import Operations

Array = NDArray[np.floating[Any]]

#: θ/σ of the Welsch loss while looking for the valley: 98.8 % efficient, and blunt to anything beyond 6σ.
TUNING = 2.985

#: Values further than this many spreads from the median are outliers on their face; starts do without them.
_FAR = 8.0

#: Scales are estimated on at most this many entries.
SAMPLE = 1 << 20

#: Noise above this share of the spread: the signal is weak.
_WEAK = 1 / 3

#: σ̂ is taken over the residuals within this many σ̂, so that outliers do not widen it.
_TRIM = 4.0


def interpolated_sigma(residual: Array, spent: float) -> float:
    """σ̂ of a fit with a kinked loss, which makes as many residuals zero as it has parameters: the median of the others."""
    kept = np.sort(np.abs(residual))[int(spent * len(residual)) :]
    return max(1.4826 * float(np.median(kept)), least_noise(residual.dtype))


def robust_sigma(residual: Array, spent: float) -> float:
    """1.4826·median|e| of the residuals within 4σ̂ (three passes), times (1 − spent)^(−1/4), ``spent`` = parameters/entries.

    The power 1/2 is the usual correction for the parameters spent; but where θ follows σ̂ it can run away (σ̂ up, outliers in, σ̂ up).
    1/4 is stable and costs less than 1 % of accuracy.
    """
    size = np.abs(residual)
    kept, sigma = size, 0.0
    for _ in range(3):
        sigma = max(1.4826 * float(np.median(kept)), least_noise(size.dtype))
        kept = size[size <= _TRIM * sigma]
    return sigma * max(1 - spent * len(size) / len(kept), 0.2) ** -0.25


def least_noise(dtype: np.dtype[Any]) -> float:
    """No spread or noise is taken to be less, whatever the unit: the inverse of its square is still a number in this precision."""
    return float(np.finfo(dtype).tiny) ** 0.5 * 1e3


class Problem:
    """One set of entries to be factorized at one rank and λ, with its scales. All else is relative to these.

    Attributes
    ----------
    middle, spread : float
        Median and 1.4826·MAD of the values that are not outliers on their face.
    prior : float
        The variance of a factor's entry that gives values of this size: √((middle² + spread²)/rank).
    reg : float
        λ, given for a loss of this ``degree``, as a ridge on least squares.
    """

    def __init__(self, operations: Operations, rank: int, reg: float, degree: int | None = 2) -> None:
        self.operations, self.rank = operations, rank
        self._sample = _sample(operations.observed)
        values = kept = self._sample[2]
        for _ in range(3):
            self.middle = float(np.median(kept))
            deviation = np.abs(kept - self.middle)
            spread = 1.4826 * float(np.median(deviation)) or float(deviation.mean(dtype=np.float64)) or abs(self.middle) or 1.0
            self.spread = max(spread, least_noise(values.dtype))
            kept = values[np.abs(values - self.middle) <= _FAR * self.spread]
        self.prior = float(np.sqrt((self.middle**2 + self.spread**2) / rank))
        self.reg = self.reg_for(2, reg, degree)
        m, n = operations.observed.shape
        self.free_parameters = rank * (m + n - rank)

    @property
    def paper_unit(self) -> float:
        """The unit of the data beside that of the paper's own problem, which has values of size 2."""
        return float(np.hypot(self.middle, self.spread)) / 2

    def reg_for(self, wanted: int, reg: float, degree: int | None) -> float:
        """λ for a loss of this degree as one for a loss of the wanted degree: the two have different units, and agree in the paper's."""
        return reg if degree is None else reg * self.paper_unit ** (wanted - degree)

    def on_host(self) -> Problem:
        """The same problem in the memory of the host."""
        host = self.operations.host()
        return self if host is self.operations else Problem(host, self.rank, self.reg)  # λ is a ridge already

    @cached
    def near(self) -> Operations:
        """The entries without outliers on their face."""
        kept = self._is_near(self.operations.observed.rows.values)
        return self.operations if kept.all() else self.operations.on(self.operations.observed.select(kept))

    def residuals(self, U: Array, V: Array) -> Array:
        """Residuals of the entries that stand for all: every one of them, up to a million."""
        i, j, values = self._sample
        return values - np.einsum("tq,tq->t", U[i], V[j])

    @property
    def entries_a_row(self) -> float:
        """Entries of an average row or column, of the side that has fewer."""
        observed: Observed = self.operations.observed
        return observed.n_entries / max(observed.shape)

    def ridge(self, sigma: float) -> float:
        """The ridge of the posterior mode at this noise, not below λ."""
        return max(self.reg, sigma**2 / self.prior)

    def sigma(self, residual: Array, reg: float | None = None) -> float:
        """Noise level of a fit, not below where the ridge (λ unless given) would outweigh a bounded loss and pull the best fit to zero."""
        floor = np.sqrt(4 * (self.reg if reg is None else reg) * self.prior * self.rank / self.entries_a_row) / TUNING
        spent = self.free_parameters / self.operations.observed.n_entries
        return max(robust_sigma(residual, spent), float(floor))

    def is_weak(self, sigma: float) -> bool:
        """Whether noise is much of what the entries say, or there are too few of them to see how much: factors then fit mostly noise."""
        return sigma > _WEAK * self.spread or not self.has_enough_entries

    @property
    def has_enough_entries(self) -> bool:
        """Whether there are at least twice as many entries as parameters, so that residuals tell the noise."""
        return self.free_parameters < 0.5 * self.operations.observed.n_entries

    def random_factors(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Small Gaussian factors."""
        observed = self.operations.observed
        size = 0.3 * np.sqrt(self.prior)
        U, V = ((size * rng.standard_normal((k, self.rank))).astype(observed.dtype) for k in observed.shape)
        return self.operations.array(U), self.operations.array(V)

    def ridge_start(self, rng: np.random.Generator, sweeps: int) -> tuple[Array, Array]:
        """Least squares on clipped values, with a ridge so strong that single outliers cannot shape the factors."""
        U, V = self.random_factors(rng)
        ridge = min(3 * self.spread**2 / self.prior, 0.5 * self.prior * self.entries_a_row)
        clip = (self.middle - 2 * self.spread, self.middle + 2 * self.spread)
        observed = self.operations.observed
        by_row, by_column = self._near_weights(observed.rows.values), self._near_weights(observed.columns.values)
        for _ in range(sweeps):
            self.operations.half_step(L2(), ridge, U, V, by_row, clip=clip)
            self.operations.transposed.half_step(L2(), ridge, V, U, by_column, clip=clip)
        return U, V

    def _is_near(self, values: Array) -> NDArray[np.bool_]:
        return np.abs(values - values.dtype.type(self.middle)) <= _FAR * self.spread

    def _near_weights(self, values: Array) -> Array | None:
        """Weight 0 for outliers on their face, 1 for the rest; None where there are none."""
        far = _FAR * self.spread
        if values.min() >= self.middle - far and values.max() <= self.middle + far:
            return None
        return self._is_near(values).astype(values.dtype)

    def sweep(self, U: Array, V: Array, ridge: float, sigma: float, operations: Operations | None = None) -> None:
        """One sweep of reweighted least squares with the Welsch loss at noise level σ, in place."""
        operations, loss = operations or self.operations, Welsch(TUNING * sigma)
        operations.half_step(loss, ridge, U, V)
        operations.transposed.half_step(loss, ridge, V, U)

    def explained(self, U: Array, V: Array, sigma: float) -> float:
        """Mean Welsch weight of the entries that are not outliers on their face: the share of them that the fit explains."""
        near = self._is_near(self._sample[2])
        return float(Welsch(TUNING * sigma).weight(self.residuals(U, V)[near]).mean(dtype=np.float64))

    def objective(self, U: Array, V: Array, sigma: float) -> float:
        """The objective with the Welsch loss at noise level σ."""
        objective = Objective(Welsch(TUNING * sigma), self.reg)
        return self.operations.loss_sum(objective.loss, U, V) + objective.penalty(U, V)


def _sample(observed: Observed) -> tuple[NDArray[np.int32], NDArray[np.int32], Array]:
    """Coordinates and values of all entries, or of a million spread evenly over them."""
    rows = observed.rows
    if observed.n_entries <= SAMPLE:
        return rows.group_of_entry(), rows.indices, rows.values
    chosen = np.linspace(0, observed.n_entries - 1, SAMPLE).astype(np.int64)
    row = np.searchsorted(rows.pointers, chosen, side="right") - 1
    return row.astype(np.int32), rows.indices[chosen], rows.values[chosen]
