"""Graduated non-convexity: initial factors in the right basin of attraction.

1. Least squares on clipped values; then the Welsch loss, its scale and the ridge decreasing
   together.
2. Repair of the rows and columns whose fit is poor.
3. A check: noise well below the values' scale, repair converged, most entries explained.
4. Where the check fails and the problem is small enough: message passing and repair from new
   random factors, with a slower schedule; the best objective is kept.

See docs/design/initialization.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.initialization.message_passing import propagate
from robustmf.initialization.problem import SMALL_WORK, Problem
from robustmf.initialization.resampling import repair

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class GraduatedOptions:
    """Constants of graduated non-convexity. Noise levels are in units of the values' scale.

    Attributes
    ----------
    ridge_sweeps, strong_ridge_sweeps : int
        Sweeps of least squares on clipped values, in the fast and in the strong attempt.
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
    reliable_share : float
        The share of entries that a reliable fit explains.
    fast_repair : float
        The budget of the fast attempt's repair, which costs about as much as its sweeps.
    strong_repair : float
        The budget of the strong attempt's repair, in entries × rank².
    fast_deficit, strong_deficit : float
        How poor a row must be to be repaired, in standard deviations of its share of explained
        entries, in the fast and in the strong attempt.
    max_work : float
        Entries × rank² up to which the strong attempt is made; it takes a few seconds.
    rates : tuple of float
        Rates of message passing, one strong attempt each.
    max_message_noise : float
        The noise level below which message passing counts as converged.
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
    handicap : float
        A reliable fit is preferred to an unreliable one unless its objective is this many times
        larger: a wrong row costs far less than 1 %.
    same_fit : float
        Two fits are the same if the median difference of their residuals is below this many σ̂.
    """

    ridge_sweeps: int = 8
    strong_ridge_sweeps: int = 20
    noise_path: tuple[float, float, int] = (0.7, 0.06, 20)
    check_interval: int = 4
    max_noise_ratio: float = 2.0
    min_repair_noise: float = 0.6
    max_noise: float = 0.25
    reliable_share: float = 0.85
    fast_repair: float = 60.0
    strong_repair: float = 3e9
    fast_deficit: float = 1.0
    strong_deficit: float = 0.0
    max_work: float = SMALL_WORK
    rates: tuple[float, ...] = (0.97, 0.985, 0.99)
    max_message_noise: float = 0.06
    polish_sweeps: int = 100
    rejected_polish_sweeps: int = 10
    polish_interval: int = 5
    polish_tol: float = 0.01
    steady_noise: float = 0.9
    max_noise_decrease: float = 0.5
    handicap: float = 1.01
    same_fit: float = 0.2


OPTIONS = GraduatedOptions()


@dataclass
class Candidate:
    """A fit with the Welsch loss.

    Attributes
    ----------
    U, V : array
    sigma : float
        Its noise level.
    reliable : bool
        Whether it passed the check.
    """

    U: Array
    V: Array
    sigma: float
    reliable: bool


def graduated_factors(problem: Problem, rng: np.random.Generator) -> Candidate:
    """Factors in the right basin of attraction, and the noise level there."""
    small = problem.operations.observed.n_entries * problem.rank**2 <= OPTIONS.max_work
    if small and not problem.operations.capabilities.message_passing:
        # the strong attempt needs message passing; at this size the host is fast enough
        found = graduated_factors(problem.on_host(), rng)
        return Candidate(
            problem.operations.array(found.U),
            problem.operations.array(found.V),
            found.sigma,
            found.reliable,
        )
    first = best = _fast_attempt(problem, rng)
    if best.reliable or not small:
        return best
    # with many outliers a wrong fit of a row has large factors, which a larger ridge tells from a
    # right one
    raised = problem.with_paper_reg()
    for rate in OPTIONS.rates:
        found = _strong_attempt(raised, rng, rate)
        better, same = _compare(raised, found, best)
        best = found if better else best
        if same or best.reliable:
            break
    if best is not first or best.sigma > OPTIONS.max_noise * problem.scale:
        best.sigma = polish(problem, best.U, best.V, best.sigma)
    return best


def continued_factors(problem: Problem, U: Array, V: Array, rng: np.random.Generator) -> Candidate:
    """Continue from the factors of an earlier fit, in place.

    Entries that were added since may have put rows and columns into poor local minima; these are
    repaired.
    """
    sigma, converged = repair(
        problem,
        U,
        V,
        problem.noise(problem.residuals(U, V)),
        _seed(rng),
        z=OPTIONS.fast_deficit,
        budget=OPTIONS.fast_repair,
    )
    return Candidate(U, V, sigma, converged)


def _fast_attempt(problem: Problem, rng: np.random.Generator) -> Candidate:
    U, V = problem.ridge_factors(rng, OPTIONS.ridge_sweeps)
    sigma = own = problem.scale
    for k, share in enumerate(np.geomspace(*OPTIONS.noise_path), start=1):
        sigma = share * problem.scale
        problem.sweep(U, V, problem.ridge(sigma), sigma)
        if k % OPTIONS.check_interval == 0:
            own = problem.noise(problem.residuals(U, V))
            if own > OPTIONS.max_noise_ratio * sigma:
                break
    sigma, converged = repair(
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
    reliable = (
        converged
        and sigma <= most
        and problem.explained(U, V, sigma) > OPTIONS.reliable_share
        and problem.has_enough_entries
    )
    return Candidate(U, V, sigma, reliable)


def _strong_attempt(problem: Problem, rng: np.random.Generator, rate: float) -> Candidate:
    work = problem.operations.observed.n_entries * problem.rank**2
    budget = OPTIONS.strong_repair / work
    most = OPTIONS.max_noise * problem.scale
    U, V = problem.ridge_factors(rng, OPTIONS.strong_ridge_sweeps)
    message_sigma = propagate(problem, U, V, rate)
    z = OPTIONS.strong_deficit
    sigma, converged = repair(problem, U, V, message_sigma, _seed(rng), z=z, budget=budget)
    sigma = polish(problem, U, V, sigma, _polish_sweeps(sigma, most))
    if sigma <= most:
        # once more at the final θ, which separates right from wrong fits better
        sigma, converged = repair(problem, U, V, sigma, _seed(rng), z=z, budget=budget)
        sigma = polish(problem, U, V, sigma)
    reliable = (
        converged and sigma <= most and message_sigma < OPTIONS.max_message_noise * problem.scale
    )
    return Candidate(U, V, sigma, reliable)


def _polish_sweeps(sigma: float, max_sigma: float) -> int:
    return OPTIONS.rejected_polish_sweeps if sigma > max_sigma else OPTIONS.polish_sweeps


def polish(
    problem: Problem, U: Array, V: Array, sigma: float, sweeps: int = OPTIONS.polish_sweeps
) -> float:
    """Sweep with the ridge of the noise level, until residuals hardly move. Return σ̂.

    θ follows σ̂; see :class:`GraduatedOptions` for how fast it decreases and for the end.
    """
    residual = problem.residuals(U, V)
    for _ in range(0, sweeps, OPTIONS.polish_interval):
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


def _compare(problem: Problem, new: Candidate, old: Candidate) -> tuple[bool, bool]:
    """Whether the new fit is better at the smaller noise level, and whether both agree."""
    sigma = min(new.sigma, old.sigma)
    handicap = OPTIONS.handicap if new.reliable and not old.reliable else 1.0
    new_objective = problem.objective(new.U, new.V, sigma)
    better = new_objective < handicap * problem.objective(old.U, old.V, sigma)
    difference = problem.residuals(new.U, new.V) - problem.residuals(old.U, old.V)
    return better, float(np.median(np.abs(difference))) < OPTIONS.same_fit * sigma


def better_of(problem: Problem, one: Candidate, other: Candidate) -> Candidate:
    """The better of two fits."""
    return one if _compare(problem, one, other)[0] else other


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(1 << 40))
