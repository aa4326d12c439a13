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
from robustmf.initialization.problem import Problem
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
    max_noise : float
        Above this noise level the signal may not have been found.
    min_explained : float
        The share of entries that a reliable fit explains.
    fast_repair : float
        The budget of the fast attempt's repair, which costs about as much as its sweeps.
    strong_repair : float
        The budget of the strong attempt's repair, in entries × rank².
    max_work : float
        Entries × rank² up to which the strong attempt is made; it takes a few seconds.
    rates : tuple of float
        Rates of message passing, one strong attempt each.
    max_message_noise : float
        The noise level below which message passing counts as converged.
    """

    ridge_sweeps: int = 8
    strong_ridge_sweeps: int = 20
    noise_path: tuple[float, float, int] = (0.7, 0.06, 20)
    max_noise: float = 0.25
    min_explained: float = 0.85
    fast_repair: float = 60.0
    strong_repair: float = 3e9
    max_work: float = 4e6
    rates: tuple[float, ...] = (0.97, 0.985, 0.99)
    max_message_noise: float = 0.06


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
        z=1.0,
        budget=OPTIONS.fast_repair,
    )
    return Candidate(U, V, sigma, converged)


def _fast_attempt(problem: Problem, rng: np.random.Generator) -> Candidate:
    U, V = problem.ridge_factors(rng, OPTIONS.ridge_sweeps)
    sigma = own = problem.scale
    for k, share in enumerate(np.geomspace(*OPTIONS.noise_path)):
        sigma = share * problem.scale
        problem.sweep(U, V, problem.ridge(sigma), sigma)
        if k % 4 == 3:
            own = problem.noise(problem.residuals(U, V))
            if own > 2 * sigma:
                break
    sigma, converged = repair(
        problem, U, V, max(own, 0.6 * sigma), _seed(rng), z=1.0, budget=OPTIONS.fast_repair
    )
    most = OPTIONS.max_noise * problem.scale
    sigma = polish(problem, U, V, sigma, 10 if sigma > most else 100)
    reliable = (
        converged
        and sigma <= most
        and problem.explained(U, V, sigma) > OPTIONS.min_explained
        and problem.has_enough_entries
    )
    return Candidate(U, V, sigma, reliable)


def _strong_attempt(problem: Problem, rng: np.random.Generator, rate: float) -> Candidate:
    work = problem.operations.observed.n_entries * problem.rank**2
    budget = OPTIONS.strong_repair / work
    most = OPTIONS.max_noise * problem.scale
    U, V = problem.ridge_factors(rng, OPTIONS.strong_ridge_sweeps)
    message_sigma = propagate(problem, U, V, rate)
    sigma, converged = repair(problem, U, V, message_sigma, _seed(rng), z=0.0, budget=budget)
    sigma = polish(problem, U, V, sigma, 10 if sigma > most else 100)
    if sigma <= most:
        # once more at the final θ, which separates right from wrong fits better
        sigma, converged = repair(problem, U, V, sigma, _seed(rng), z=0.0, budget=budget)
        sigma = polish(problem, U, V, sigma)
    reliable = (
        converged and sigma <= most and message_sigma < OPTIONS.max_message_noise * problem.scale
    )
    return Candidate(U, V, sigma, reliable)


def polish(problem: Problem, U: Array, V: Array, sigma: float, sweeps: int = 100) -> float:
    """Sweep with the ridge of the noise level, until the fit moves by less than 1 % of σ̂. Return σ̂.

    θ follows σ̂ and is at most halved every five sweeps.
    """
    residual = problem.residuals(U, V)
    for _ in range(0, sweeps, 5):
        for _ in range(5):
            problem.sweep(U, V, problem.ridge(sigma), sigma)
        before = residual
        residual = problem.residuals(U, V)
        moved = float(np.sqrt(np.mean(np.square(residual - before, dtype=np.float64))))
        last = sigma
        sigma = max(problem.noise(residual), 0.5 * sigma)
        if moved < 0.01 * sigma and sigma > 0.9 * last:
            break
    return sigma


def _compare(problem: Problem, new: Candidate, old: Candidate) -> tuple[bool, bool]:
    """Whether the new fit is better at the smaller noise level, and whether both agree."""
    sigma = min(new.sigma, old.sigma)
    # a reliable fit is preferred unless its objective is clearly worse: a wrong row costs far less
    # than 1 %
    handicap = 1.01 if new.reliable and not old.reliable else 1.0
    new_objective = problem.objective(new.U, new.V, sigma)
    better = new_objective < handicap * problem.objective(old.U, old.V, sigma)
    difference = problem.residuals(new.U, new.V) - problem.residuals(old.U, old.V)
    return better, float(np.median(np.abs(difference))) < 0.2 * sigma


def better_of(problem: Problem, one: Candidate, other: Candidate) -> Candidate:
    """The better of two fits."""
    return one if _compare(problem, one, other)[0] else other


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(1 << 40))
