"""λ and biases where the signal is weak: chosen on entries set aside.

Where noise is small beside the values, λ hardly matters and σ̂²/(variance of a factor) is right. Where it is not, as with ratings, most of
what factors can fit is noise, the size of the values says nothing of the size of the factors, and plain biases may be most of the signal.
Then a few entries are set aside, and λ is doubled until they are predicted worse, with biases and without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf.backends.base import EntryOperations
from robustmf.data.holdout import Holdout, hold_out, select_by_permutation
from robustmf.data.observed import Compressed
from robustmf.initialization.initial_point import bias_start, without_biases
from robustmf.initialization.problem import Problem
from robustmf.losses import Loss
from robustmf.solvers.irls import IRLS
from robustmf.solvers.objective import Objective

Array = NDArray[np.floating[Any]]

#: Share of the entries set aside, and how few of them can decide. (Of a sample: there are never very many.)
_ASIDE, _LEAST_ASIDE = 0.1, 200

#: Entries that the choice is made on, at most about; or this share of them all, where that is more: then it costs a few sweeps over all.
_SAMPLE, _SHARE = 1 << 18, 0.02

#: Entries × rank² up to which the trials are made on the host, wherever the fit is: a card would gain nothing, and the bits are the same.
_SMALL = 4e6

#: Sweeps of the ridge start, at the first λ (until it has overfitted: a fit that stops early predicts better than its λ), and at each
#: further one from its neighbour's factors.
_START_SWEEPS, _FIRST_SWEEPS, _SWEEPS = 8, 25, 4

#: λ is doubled at most so often, and until the error is above the lowest by this share.
_DOUBLINGS, _WORSE = 24, 0.01


@dataclass(frozen=True)
class Choice:
    """What predicted best."""

    reg: float
    bias: bool


@dataclass(frozen=True)
class Trial:
    """A model to be fitted to some entries at several λ, and the entries to measure it on.

    ``loss_at`` gives the loss for a noise level, ``least_reg`` the λ to begin with.
    """

    rank: int
    loss_at: Callable[[float], Loss]
    least_reg: Callable[[Problem], float]
    reg_by_count: bool
    bias_unit: float
    operations: EntryOperations
    weights: Array | None
    aside: Holdout
    bounds: tuple[float, float]

    def best(self, bias: bool, seed: int) -> tuple[float, float]:
        """The lowest error on what was set aside, and its λ. λ rises: no descent leaves factors that are zero."""
        problem, center = Problem(self.operations, self.rank, 0.0), None
        biases = [
            np.empty((k, 0), self.operations.observed.dtype) for k in self.operations.observed.shape
        ]
        if bias:
            center, *biases = bias_start(
                self.operations, self.least_reg(problem) / (self.bias_unit * self.bias_unit)
            )
            problem = Problem(without_biases(self.operations, center, *biases), self.rank, 0.0)
        factors = problem.ridge_start(np.random.default_rng(seed), _START_SWEEPS)
        residual = problem.residuals(*factors)
        own = [
            np.hstack([A, b / A.dtype.type(self.bias_unit)])
            for A, b in zip(factors, biases, strict=True)
        ]
        reg, found = self.least_reg(problem), []
        m, n = self.operations.observed.shape
        dtype = self.operations.observed.dtype
        nothing = self.aside.error(np.zeros((m, 1), dtype), np.zeros((n, 1), dtype), self.bounds)
        for k in range(_DOUBLINGS):
            sigma = problem.sigma(residual, problem.reg_for(2, reg, self.loss_at(1.0).degree))
            irls = IRLS.on_entries(
                self.operations, Objective(self.loss_at(sigma), reg), sigma, center, self.weights, self.reg_by_count, self.bias_unit
            )  # fmt: skip
            irls.begin(*own)
            for _ in range(_SWEEPS if k else _FIRST_SWEEPS):
                irls.step()
            own = list(irls.augmented_factors)
            found.append((self.aside.error(*irls.factors, self.bounds), reg))
            # no end is near while no factors at all would do better: then what rises is how far the first λ have overfitted
            if found[-1][0] > (1 + _WORSE) * min(found)[0] and min(found)[0] < nothing:
                break
            reg *= 2
        return min(found)


def choose(
    rank: int, loss_at: Callable[[float], Loss], least_reg: Callable[[Problem], float], reg_by_count: bool, bias_unit: float,
    operations: EntryOperations, weights: Array | None, bounds: tuple[float, float], biases: Sequence[bool], rng: np.random.Generator,
) -> Choice | None:  # fmt: skip
    """λ, and whether with biases (what ``biases`` lists is tried); None where there are too few entries to tell."""
    operations, weights = _some_rows(operations, weights)
    if operations.observed.n_entries * rank**2 <= _SMALL:
        operations, weights = operations.host(), None if weights is None else np.asarray(weights)
    observed = operations.observed
    spare = (observed.n_entries if weights is None else int((weights > 0).sum())) - sum(
        observed.shape
    )
    n_aside = round(_ASIDE * observed.n_entries)
    if not _LEAST_ASIDE <= n_aside <= spare:
        return None
    host_weights = None if weights is None else np.asarray(weights)
    selected = select_by_permutation(observed.to_host(), host_weights, _ASIDE, rng)
    seen, seen_weights, aside = hold_out(observed, weights, operations.array(selected))
    trial = Trial(
        rank,
        loss_at,
        least_reg,
        reg_by_count,
        bias_unit,
        operations.on(seen),
        seen_weights,
        aside,
        bounds,
    )
    # two models' errors, of much the same size at each entry, differ by chance by about this share in the mean
    seed, worth = int(rng.integers(1 << 40)), 0.5 * n_aside**-0.5
    best: tuple[float, Choice] | None = None
    for bias in biases:
        error, best_reg = trial.best(bias, seed)
        if best is None or error < (1 - worth) * best[0]:
            best = (error, Choice(best_reg, bias))
    return None if best is None else best[1]


def _some_rows(
    operations: EntryOperations, weights: Array | None
) -> tuple[EntryOperations, Array | None]:
    """All entries, or those of some of the rows, evenly spread, about as many as the sample may have: what a row has stays whole."""
    observed = operations.observed
    every = math.ceil(observed.n_entries / max(_SAMPLE, _SHARE * observed.n_entries))
    if every == 1:
        return operations, weights
    rows, counts = observed.rows, observed.rows.counts
    # not arange, which is on the host wherever the entries lie
    kept = np.repeat((np.cumsum(np.ones_like(counts)) - 1) % every == 0, counts)
    pointers = np.concatenate(([0], np.cumsum(counts[::every])))
    part = type(observed)(
        Compressed(pointers, rows.indices[kept], rows.values[kept]),
        (len(pointers) - 1, observed.shape[1]),
    )
    return operations.on(part), None if weights is None else weights[kept]
