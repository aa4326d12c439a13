"""A start in the right valley: a cheap attempt, a check, and stronger means only where the check asks for them.

1. Least squares on clipped values, then the Welsch loss with its scale and the ridge falling together (graduated non-convexity).
2. Repair of the rows and columns whose fit is bad.
3. The check: noise well below the spread, repair settled, most entries explained. Where it fails and the problem is small
   enough, message passing and repair again, from new random starts with a slower schedule; the best objective is kept.

docs/design/initialization.md has the figures, and what each part buys.
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

_RIDGE_SWEEPS = 8
_ANNEAL = np.geomspace(0.7, 0.06, 20)

#: The cheap attempt's repair may cost about as much as its sweeps did.
_CHEAP_REPAIR = 60.0

#: Noise above this share of the spread means that the signal may not have been found.
_UNSURE = 0.25

#: Rates of message passing, one attempt each.
_RATES = (0.97, 0.985, 0.99)

#: Entries × rank² up to which stronger means are tried, and what all trials of one repair may come to then: a few seconds.
_AFFORDABLE, _STRONG_REPAIR = 4e6, 3e9


@dataclass
class Found:
    """A fit at the Welsch loss."""

    U: Array
    V: Array
    sigma: float
    sure: bool


def graduated_start(problem: Problem, rng: np.random.Generator) -> Found:
    """Factors in the right valley, and the noise level there."""
    small = problem.operations.observed.n_entries * problem.rank**2 <= _AFFORDABLE
    if small and problem.on_host() is not problem:
        # message passing has no twin on a card, and would not gain by one at this size
        found = graduated_start(problem.on_host(), rng)
        return Found(
            problem.operations.array(found.U),
            problem.operations.array(found.V),
            found.sigma,
            found.sure,
        )
    first = best = _annealed(problem, rng)
    if best.sure or not small:
        return best
    # with many outliers a wrong fit of a row has long factors: the noise's own ridge tells it from the right one less often
    firm = problem.firmer()
    for rate in _RATES:
        found = _propagated(firm, rng, rate)
        better, same = _compare(firm, found, best)
        best = found if better else best
        if same or best.sure:
            break
    if best is not first or best.sigma > _UNSURE * problem.spread:
        best.sigma = polish(problem, best.U, best.V, best.sigma)
    return best


def continued(problem: Problem, U: Array, V: Array, rng: np.random.Generator) -> Found:
    """From factors of an earlier fit, in place: what has come since may stand in a bad valley, so rows and columns are repaired."""
    sigma, settled = repair(
        problem,
        U,
        V,
        problem.sigma(problem.residuals(U, V)),
        _seed(rng),
        z=1.0,
        budget=_CHEAP_REPAIR,
    )
    return Found(U, V, sigma, settled)


def _annealed(problem: Problem, rng: np.random.Generator) -> Found:
    """The cheap attempt."""
    U, V = problem.ridge_start(rng, _RIDGE_SWEEPS)
    sigma = own = problem.spread
    for k, share in enumerate(_ANNEAL):
        sigma = share * problem.spread
        problem.sweep(U, V, problem.ridge(sigma), sigma)
        if k % 4 == 3:
            own = problem.sigma(problem.residuals(U, V))
            if own > 2 * sigma:
                break
    sigma, settled = repair(
        problem, U, V, max(own, 0.6 * sigma), _seed(rng), z=1.0, budget=_CHEAP_REPAIR
    )
    sigma = polish(problem, U, V, sigma, 10 if sigma > _UNSURE * problem.spread else 100)
    explained = problem.explained(U, V, sigma)
    return Found(
        U,
        V,
        sigma,
        settled
        and sigma <= _UNSURE * problem.spread
        and explained > 0.85
        and problem.has_enough_entries,
    )


def _propagated(problem: Problem, rng: np.random.Generator, rate: float) -> Found:
    """The strong attempt."""
    budget = _STRONG_REPAIR / (problem.operations.observed.n_entries * problem.rank**2)
    U, V = problem.ridge_start(rng, 20)
    first = propagate(problem, U, V, rate)
    sigma, settled = repair(problem, U, V, first, _seed(rng), z=0.0, budget=budget)
    lost = sigma > _UNSURE * problem.spread
    sigma = polish(problem, U, V, sigma, 10 if lost else 100)
    if sigma <= _UNSURE * problem.spread:
        # once more at the final θ, which tells right from wrong better
        sigma, settled = repair(problem, U, V, sigma, _seed(rng), z=0.0, budget=budget)
        sigma = polish(problem, U, V, sigma)
    return Found(
        U, V, sigma, settled and sigma <= _UNSURE * problem.spread and first < 0.06 * problem.spread
    )


def polish(problem: Problem, U: Array, V: Array, sigma: float, sweeps: int = 100) -> float:
    """Sweeps at the ridge of the noise, not below λ, until the fit moves by less than 1 % of σ̂. Returns σ̂.

    θ follows σ̂, at most halved in five sweeps.
    """
    residual = problem.residuals(U, V)
    for _ in range(0, sweeps, 5):
        for _ in range(5):
            problem.sweep(U, V, problem.ridge(sigma), sigma)
        before, residual = residual, problem.residuals(U, V)
        moved, last = float(np.sqrt(np.mean(np.square(residual - before, dtype=np.float64)))), sigma
        sigma = max(problem.sigma(residual), 0.5 * sigma)
        if moved < 0.01 * sigma and sigma > 0.9 * last:
            break
    return sigma


def _compare(problem: Problem, new: Found, old: Found) -> tuple[bool, bool]:
    """Whether the new fit is better, at the smaller of the two scales, and whether both say the same of most entries."""
    sigma = min(new.sigma, old.sigma)
    # a fit that passed the check beats one that did not, unless its objective is plainly worse: a wrong row costs far less than 1 %
    handicap = 1.01 if new.sure and not old.sure else 1.0
    better = problem.objective(new.U, new.V, sigma) < handicap * problem.objective(
        old.U, old.V, sigma
    )
    difference = problem.residuals(new.U, new.V) - problem.residuals(old.U, old.V)
    return better, float(np.median(np.abs(difference))) < 0.2 * sigma


def better_of(problem: Problem, one: Found, other: Found) -> Found:
    """The better of two fits."""
    return one if _compare(problem, one, other)[0] else other


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(1 << 40))
