"""Entries to be factorized at one rank and λ: their scales, and the passes over them that a start is made of."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.data.observed import Observed
from robustmf.data.sampling import evenly_spaced
from robustmf.initialization.scales import FAR, TUNING, Held, Scales, least_noise
from robustmf.losses import L2, Welsch
from robustmf.solvers.objective import Objective, paper_reg

Array = NDArray[np.floating[Any]]

#: Scales are estimated on at most this many entries.
SAMPLE = 1 << 18

#: Noise above this share of the spread: the signal is weak.
_WEAK = 1 / 3

#: A ridge of this share of a row's normal matrix pulls its factors in by as much; on small matrices the paper's λ is more.
_LITTLE_OF_A_ROW = 0.01


def interpolated_sigma(residual: Array, spent: float) -> float:
    """σ̂ of a fit with a kinked loss, which makes as many residuals zero as it has parameters: the median of the others."""
    kept = np.sort(np.abs(residual))[int(spent * len(residual)) :]
    return max(1.4826 * float(np.median(kept)), least_noise(residual.dtype))


class Problem(Scales):
    """One set of entries to be factorized at one rank and λ, with its scales."""

    def __init__(
        self, operations: EntryOperations, rank: int, reg: float, degree: int | None = 2
    ) -> None:
        self.operations = operations
        self._sample = sampled_entries(operations.observed)
        self._near: EntryOperations | None = None
        super().__init__(
            Held(self._sample[2]),
            operations.observed.shape,
            operations.observed.n_entries,
            rank,
            reg,
            degree,
        )

    def firmer(self) -> Problem:
        """The same with λ raised to the paper's, in units of the data, where that is little beside what the entries of a row say."""
        firm = copy(self)
        paper = paper_reg(self.shape) * self.paper_unit
        firm.reg = max(self.reg, min(paper, _LITTLE_OF_A_ROW * self.prior * self.entries_a_row))
        return firm

    def on_host(self) -> Problem:
        """The same problem in the memory of the host."""
        host = self.operations.host()
        return (
            self if host is self.operations else Problem(host, self.rank, self.reg)
        )  # λ is a ridge already

    @property
    def near(self) -> EntryOperations:
        """The entries whose values are not outliers by themselves; computed on first use."""
        if self._near is None:
            kept = self._is_near(self.operations.observed.rows.values)
            self._near = (
                self.operations
                if kept.all()
                else self.operations.on(self.operations.observed.select(kept))
            )
        return self._near

    def residuals(self, U: Array, V: Array) -> Array:
        """Residuals of the entries that stand for all: every one of them, up to ``SAMPLE``."""
        i, j, values = self._sample
        return values - np.einsum("tq,tq->t", U[i], V[j])

    def sigma(self, residual: Array, reg: float | None = None) -> float:
        """Noise level of a fit with these residuals."""
        return self.noise(Held(residual), reg)

    def is_weak(self, sigma: float) -> bool:
        """Whether noise is much of what the entries say, or there are too few of them to see how much: factors then fit mostly noise."""
        return sigma > _WEAK * self.spread or not self.has_enough_entries

    def random_factors(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Small Gaussian factors."""
        observed = self.operations.observed
        size = 0.3 * np.sqrt(self.prior)
        U, V = (
            (size * rng.standard_normal((k, self.rank))).astype(observed.dtype)
            for k in observed.shape
        )
        return self.operations.array(U), self.operations.array(V)

    def ridge_start(self, rng: np.random.Generator, sweeps: int) -> tuple[Array, Array]:
        """Least squares on clipped values, with a ridge so strong that single outliers cannot shape the factors."""
        U, V = self.random_factors(rng)
        ridge = min(
            3 * self.spread * self.spread / self.prior, 0.5 * self.prior * self.entries_a_row
        )
        clip = (self.middle - 2 * self.spread, self.middle + 2 * self.spread)
        observed = self.operations.observed
        by_row, by_column = (
            self._near_weights(observed.rows.values),
            self._near_weights(observed.columns.values),
        )
        for _ in range(sweeps):
            self.operations.half_step(L2(), ridge, U, V, by_row, clip=clip)
            self.operations.transposed.half_step(L2(), ridge, V, U, by_column, clip=clip)
        return U, V

    def _is_near(self, values: Array) -> NDArray[np.bool_]:
        return np.abs(values - values.dtype.type(self.middle)) <= FAR * self.spread

    def _near_weights(self, values: Array) -> Array | None:
        """Weight 0 for outliers on their face, 1 for the rest; None where there are none."""
        far = FAR * self.spread
        if values.min() >= self.middle - far and values.max() <= self.middle + far:
            return None
        return self._is_near(values).astype(values.dtype)

    def sweep(
        self,
        U: Array,
        V: Array,
        ridge: float,
        sigma: float,
        operations: EntryOperations | None = None,
    ) -> None:
        """One sweep of reweighted least squares with the Welsch loss at noise level σ, in place."""
        operations, loss = operations or self.operations, Welsch(TUNING * sigma)
        operations.half_step(loss, ridge, U, V)
        operations.transposed.half_step(loss, ridge, V, U)

    def explained(self, U: Array, V: Array, sigma: float) -> float:
        """Mean Welsch weight of the entries that are not outliers on their face: the share of them that the fit explains."""
        near = self._is_near(self._sample[2])
        return float(
            Welsch(TUNING * sigma).weight(self.residuals(U, V)[near]).mean(dtype=np.float64)
        )

    def objective(self, U: Array, V: Array, sigma: float) -> float:
        """The objective with the Welsch loss at noise level σ."""
        objective = Objective(Welsch(TUNING * sigma), self.reg)
        return self.operations.loss_sum(objective.loss, U, V) + objective.penalty(U, V)


def sampled_entries(observed: Observed) -> tuple[NDArray[np.int32], NDArray[np.int32], Array]:
    """Coordinates and values of all entries, or of ``SAMPLE`` spread evenly over them."""
    rows = observed.rows
    if observed.n_entries <= SAMPLE:
        return rows.group_of_entry(), rows.indices, rows.values
    chosen = evenly_spaced(observed.n_entries, SAMPLE)
    row = np.searchsorted(rows.pointers, chosen, side="right") - 1
    return row.astype(np.int32), rows.indices[chosen], rows.values[chosen]
