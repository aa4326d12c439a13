"""Entries to be factorized with one rank and λ: their scales, and the passes of initializations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.data.observed import Observed
from robustmf.data.sampling import evenly_spaced
from robustmf.data.statistics import MAD_TO_SIGMA
from robustmf.initialization.scales import GROSS_OUTLIER, TUNING, Scales, least_noise
from robustmf.losses import L2, Welsch
from robustmf.solvers.objective import Objective

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ProblemOptions:
    """Constants of scales, of initial factors and of the signal's strength.

    Attributes
    ----------
    sample : int
        Scales are estimated from at most this many entries.
    weak_signal : float
        The signal is weak if the noise level is above this share of the values' scale.
    initial_size : float
        Standard deviation of random factors, in units of the one that matches the values.
    strong_ridge : float
        The ridge of least squares on clipped values, in units of scale²/factor variance.
    max_row_ridge : float
        The same ridge is at most this share of a row's normal matrix.
    clip : float
        Values are clipped to this many scales around the median.
    """

    sample: int = 1 << 18
    weak_signal: float = 1 / 3
    initial_size: float = 0.3
    strong_ridge: float = 3
    max_row_ridge: float = 0.5
    clip: float = 2


OPTIONS = ProblemOptions()


def interpolated_sigma(residual: Array, parameter_share: float) -> float:
    """σ̂ of a fit with a nonsmooth loss: the median of the residuals that are not interpolated.

    Such a fit makes as many residuals zero as it has parameters.
    """
    kept = np.sort(np.abs(residual))[int(parameter_share * len(residual)) :]
    return max(MAD_TO_SIGMA * float(np.median(kept)), least_noise(residual.dtype))


class Problem(Scales):
    """One set of entries to be factorized with one rank and λ, with its scales."""

    def __init__(
        self, operations: EntryOperations, rank: int, reg: float, degree: int | None = 2
    ) -> None:
        self.operations = operations
        self._sample = sampled_entries(operations.observed)
        super().__init__(
            self._sample[2],
            operations.observed.shape,
            operations.observed.n_entries,
            rank,
            reg,
            degree,
        )

    def residuals(self, U: Array, V: Array) -> Array:
        """Residuals of a sample of the entries: of all, up to ``OPTIONS.sample``."""
        i, j, values = self._sample
        return values - np.einsum("tq,tq->t", U[i], V[j])

    def is_weak(self, sigma: float, learned: bool) -> bool:
        """Whether the noise is large, or too few entries show it where it was not learned."""
        return sigma > OPTIONS.weak_signal * self.scale or not (learned or self.has_enough_entries)

    def random_factors(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Small Gaussian factors."""
        observed = self.operations.observed
        size = OPTIONS.initial_size * np.sqrt(self.factor_variance)
        U, V = (
            (size * rng.standard_normal((k, self.rank))).astype(observed.dtype)
            for k in observed.shape
        )
        return self.operations.array(U), self.operations.array(V)

    def ridge_factors(self, rng: np.random.Generator, sweeps: int) -> tuple[Array, Array]:
        """Least squares on clipped values, with a ridge that limits the effect of outliers."""
        U, V = self.random_factors(rng)
        ridge = min(
            OPTIONS.strong_ridge * self.scale * self.scale / self.factor_variance,
            OPTIONS.max_row_ridge * self.factor_variance * self.entries_per_row,
        )
        width = OPTIONS.clip * self.scale
        clip = (self.median - width, self.median + width)
        observed = self.operations.observed
        by_row = self._inlier_weights(observed.rows.values)
        by_column = self._inlier_weights(observed.columns.values)
        for _ in range(sweeps):
            self.operations.half_step(L2(), ridge, U, V, by_row, clip=clip)
            self.operations.transposed.half_step(L2(), ridge, V, U, by_column, clip=clip)
        return U, V

    def _is_inlier(self, values: Array) -> NDArray[np.bool_]:
        return np.abs(values - values.dtype.type(self.median)) <= GROSS_OUTLIER * self.scale

    def _inlier_weights(self, values: Array) -> Array | None:
        """Weight 0 for gross outliers by value, 1 for the rest; None where there are none."""
        width = GROSS_OUTLIER * self.scale
        if values.min() >= self.median - width and values.max() <= self.median + width:
            return None
        return self._is_inlier(values).astype(values.dtype)

    def sweep(
        self,
        U: Array,
        V: Array,
        ridge: float,
        sigma: float,
        operations: EntryOperations | None = None,
    ) -> None:
        """One sweep of reweighted least squares with the Welsch loss at noise level σ, in place."""
        operations = operations or self.operations
        loss = Welsch(TUNING * sigma)
        operations.half_step(loss, ridge, U, V)
        operations.transposed.half_step(loss, ridge, V, U)

    def explained(self, U: Array, V: Array, sigma: float) -> float:
        """The mean Welsch weight of the entries that are not gross outliers by value."""
        inlier = self._is_inlier(self._sample[2])
        weights = Welsch(TUNING * sigma).weight(self.residuals(U, V)[inlier])
        return float(weights.mean(dtype=np.float64))

    def objective(self, U: Array, V: Array, sigma: float) -> float:
        """The objective with the Welsch loss at noise level σ."""
        objective = Objective(Welsch(TUNING * sigma), self.reg)
        return self.operations.loss_sum(objective.loss, U, V) + objective.penalty(U, V)


def sampled_entries(observed: Observed) -> tuple[NDArray[np.int32], NDArray[np.int32], Array]:
    """Indices and values of all entries, or of ``OPTIONS.sample`` evenly spaced ones."""
    rows = observed.rows
    if observed.n_entries <= OPTIONS.sample:
        return rows.group_of_entry(), rows.indices, rows.values
    chosen = evenly_spaced(observed.n_entries, OPTIONS.sample)
    row = np.searchsorted(rows.pointers, chosen, side="right") - 1
    return row.astype(np.int32), rows.indices[chosen], rows.values[chosen]
