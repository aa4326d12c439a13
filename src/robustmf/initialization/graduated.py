"""Graduated non-convexity: initial factors where the search by variational inference finds none.

1. Least squares on clipped values; then the Welsch loss, its scale and the ridge decreasing
   together.
2. Repair of the rows and columns whose fit is poor.

See docs/design/initialization.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf import phases
from robustmf.backends.ridge import Ridges
from robustmf.initialization.noise_mixture import NoiseModel
from robustmf.initialization.problem import Problem
from robustmf.initialization.resampling import repair

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class GraduatedOptions:
    """Constants of graduated non-convexity. Noise levels are in units of the values' scale.

    Attributes
    ----------
    ridge_sweeps : int
        Sweeps of least squares on clipped values.
    noise_path : (float, float, int)
        The noise level along the fast attempt: first, last, number of sweeps, in geometric
        progression.
    check_interval : int
        Sweeps of the fast attempt between two estimates of the noise level.
    max_noise_ratio : float
        The fast attempt ends early if the estimate is above this many times the level of the sweep:
        the fit does not follow.
    min_repair_noise : float
        Its repair begins at no less than this share of the last level.
    max_noise : float
        Above this noise level the signal may not have been found.
    fast_repair : float
        The budget of the repair, which costs about as much as the sweeps.
    fast_deficit : float
        How poor a row must be to be repaired, in standard deviations of its share of explained
        entries.
    polish_sweeps, rejected_polish_sweeps : int
        The largest number of sweeps that polish a fit, and one whose noise is above ``max_noise``.
    polish_interval : int
        Sweeps of polishing between two estimates of the noise level.
    polish_tol : float
        Polishing ends if residuals moved by less than this many σ̂, and
    steady_noise : float
        σ̂ is above this share of the previous estimate.
    max_noise_decrease : float
        An estimate is replaced by this share of the previous one if it is lower.
    """

    ridge_sweeps: int = 8
    noise_path: tuple[float, float, int] = (0.7, 0.06, 20)
    check_interval: int = 4
    max_noise_ratio: float = 2.0
    min_repair_noise: float = 0.6
    max_noise: float = 0.25
    fast_repair: float = 60.0
    fast_deficit: float = 1.0
    polish_sweeps: int = 100
    rejected_polish_sweeps: int = 10
    polish_interval: int = 5
    polish_tol: float = 0.01
    steady_noise: float = 0.9
    max_noise_decrease: float = 0.5


OPTIONS = GraduatedOptions()


@dataclass
class Candidate:
    """Factors that may be near the right minimum.

    Attributes
    ----------
    U, V : array
    sigma : float
        Their noise level.
    noise : NoiseModel or None, default=None
        What else is known of the noise.
    ridge : float or None, default=None
        The ridge that corresponds to the noise and to the size of the factors.
    ridges : (FactorRidge, FactorRidge) or None, default=None
        The same for each factor.
    reliability : array over the entries, or None, default=None
        The probability that an entry is no outlier, where that was learned.
    """

    U: Array
    V: Array
    sigma: float
    noise: NoiseModel | None = None
    ridge: float | None = None
    ridges: Ridges | None = None
    reliability: Array | None = None

    @property
    def rank(self) -> int:
        """The number of factors."""
        return int(self.U.shape[1])

    def padded(self, rank: int) -> Candidate:
        """The same with factors that are zero, to this rank."""
        missing = rank - self.U.shape[1]
        U, V = (np.hstack([A, np.zeros_like(A, shape=(len(A), missing))]) for A in (self.U, self.V))
        return replace(self, U=U, V=V)

    @property
    def transposed(self) -> Candidate:
        """The same for the transposed matrix."""
        noise = None if self.noise is None else self.noise.transposed
        ridges = None if self.ridges is None else (self.ridges[1], self.ridges[0])
        return replace(self, U=self.V, V=self.U, noise=noise, ridges=ridges)


def continued_factors(problem: Problem, U: Array, V: Array, rng: np.random.Generator) -> Candidate:
    """Continue from the factors of an earlier fit, in place.

    Entries that were added since may have put rows and columns into poor local minima; these are
    repaired.
    """
    sigma, _ = repair(
        problem,
        U,
        V,
        problem.noise(problem.residuals(U, V)),
        _seed(rng),
        z=OPTIONS.fast_deficit,
        budget=OPTIONS.fast_repair,
    )
    return Candidate(U, V, sigma)


def graduated_factors(problem: Problem, rng: np.random.Generator) -> Candidate:
    """Factors in the right basin of attraction, and the noise level there."""
    U, V = problem.ridge_factors(rng, OPTIONS.ridge_sweeps)
    sigma = own = problem.scale
    phases.begin("initialization, graduated", OPTIONS.noise_path[2], at_most=True)
    for k, share in enumerate(np.geomspace(*OPTIONS.noise_path), start=1):
        sigma = share * problem.scale
        problem.sweep(U, V, problem.ridge(sigma), sigma)
        phases.step(k)
        if k % OPTIONS.check_interval == 0:
            own = problem.noise(problem.residuals(U, V))
            if own > OPTIONS.max_noise_ratio * sigma:
                break
    phases.begin("initialization, repair")
    sigma, _ = repair(
        problem,
        U,
        V,
        max(own, OPTIONS.min_repair_noise * sigma),
        _seed(rng),
        z=OPTIONS.fast_deficit,
        budget=OPTIONS.fast_repair,
    )
    most = OPTIONS.max_noise * problem.scale
    sigma = polish(problem, U, V, sigma, _polish_sweeps(sigma, most))
    return Candidate(U, V, sigma)


def _polish_sweeps(sigma: float, max_sigma: float) -> int:
    return OPTIONS.rejected_polish_sweeps if sigma > max_sigma else OPTIONS.polish_sweeps


def polish(
    problem: Problem, U: Array, V: Array, sigma: float, sweeps: int = OPTIONS.polish_sweeps
) -> float:
    """Sweep with the ridge of the noise level, until residuals hardly move. Return σ̂.

    θ follows σ̂; see :class:`GraduatedOptions` for how fast it decreases and for the end.
    """
    residual = problem.residuals(U, V)
    phases.begin("initialization, polishing", sweeps, at_most=True)
    for done in range(0, sweeps, OPTIONS.polish_interval):
        phases.step(done)
        for _ in range(OPTIONS.polish_interval):
            problem.sweep(U, V, problem.ridge(sigma), sigma)
        before = residual
        residual = problem.residuals(U, V)
        moved = float(np.sqrt(np.mean(np.square(residual - before, dtype=np.float64))))
        last = sigma
        sigma = max(problem.noise(residual), OPTIONS.max_noise_decrease * sigma)
        if moved < OPTIONS.polish_tol * sigma and sigma > OPTIONS.steady_noise * last:
            break
    return sigma


def better_of(problem: Problem, one: Candidate, other: Candidate) -> Candidate:
    """The better of two fits, by the objective at the smaller noise level."""
    sigma = min(one.sigma, other.sigma)
    first = problem.objective(one.U, one.V, sigma)
    return one if first < problem.objective(other.U, other.V, sigma) else other


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(1 << 40))
