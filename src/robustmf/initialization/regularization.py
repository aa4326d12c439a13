"""λ and biases for ``reg="auto"``.

Where the noise is small relative to the values, λ has little effect, and σ̂²/(variance of a factor)
is right. Where it is not, as with ratings, most of what factors can fit is noise, the size of the
values does not determine the size of the factors, and biases alone may be most of the signal. Then
a few entries are held out, and λ is doubled until they are predicted worse, with biases and
without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustmf import phases
from robustmf.backends.base import EntryOperations
from robustmf.data.factorization import Factorization
from robustmf.data.holdout import Holdout, hold_out, select_by_hash
from robustmf.data.sampling import strided_rows
from robustmf.initialization.initial_point import initial_biases, subtract_biases
from robustmf.initialization.nonnegative import nonnegative_factors, positive_parts
from robustmf.initialization.problem import Problem
from robustmf.initialization.scales import Scales, power
from robustmf.losses import Loss
from robustmf.solvers.irls import IRLS
from robustmf.solvers.objective import Objective
from robustmf.solvers.registry import may_have_biases
from robustmf.solvers.settings import Settings

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class RegularizationOptions:
    """Constants of the choice of λ.

    Attributes
    ----------
    noiseless_share : float
        The share of the paper's λ that remains where there is no noise, so that the factors of rows
        with few entries are determined.
    initial_noise : float
        The search begins with the λ of this noise level, in units of the values' scale.
    held_out : float
        The share of the entries that is held out.
    min_held_out : int
        With fewer entries held out, no search is made.
    sample : int
        The search uses about this many entries, or ``sample_share`` of all where that is more: it
        then costs a few sweeps over all.
    sample_share : float
    host_work : float
        Entries × rank² up to which the search runs on the host: a GPU would gain nothing, and the
        bits are the same on both.
    ridge_sweeps : int
        Sweeps of the initial factors.
    first_sweeps : int
        Sweeps at the first λ, until it has overfitted: a fit that stops early predicts better than
        its λ.
    sweeps : int
        Sweeps at each further λ, from the factors of the previous one.
    max_doublings : int
        The largest number of values of λ.
    worse : float
        The search ends when the error is above the lowest by this share.
    """

    noiseless_share: float = 1e-6
    initial_noise: float = 0.1
    held_out: float = 0.1
    min_held_out: int = 200
    sample: int = 1 << 18
    sample_share: float = 0.02
    host_work: float = 4e6
    ridge_sweeps: int = 8
    first_sweeps: int = 25
    sweeps: int = 4
    max_doublings: int = 24
    worse: float = 0.01


OPTIONS = RegularizationOptions()


def in_units(settings: Settings, scales: Scales, learned: bool) -> tuple[Settings, float]:
    """Settings with a first λ and the unit of biases for these data, and the paper's λ.

    ``learned`` is whether the noise is known already.
    """
    paper = _scaled_reg(settings, scales)
    share = OPTIONS.noiseless_share if _follows_noise(settings, scales, learned) else 1.0
    return replace(settings, reg=paper * share, bias_unit=float(np.sqrt(scales.scale))), paper


def _scaled_reg(settings: Settings, scales: Scales) -> float:
    """The paper's λ in units of the data."""
    degree = 1 if settings.loss.degree is None else settings.loss.degree
    return float(settings.reg * power(scales.paper_unit, degree - 1))


def _follows_noise(settings: Settings, scales: Scales, learned: bool) -> bool:
    """Whether λ will be that of the noise which the initialization finds.

    That is so for losses with a noise scale, where there are enough entries to see the noise.
    """
    graduated = settings.loss.robust and isinstance(settings.init, str) and settings.init == "auto"
    visible = learned or scales.has_enough_entries
    return graduated and settings.loss.degree == 2 and visible


def average_reg(settings: Settings, n_entries: int, shape: tuple[int, int]) -> float:
    """λ of an average row or column, of the side that has fewer entries per row."""
    return settings.reg * (n_entries / max(shape)) if settings.reg_by_count else settings.reg


@dataclass(frozen=True)
class Choice:
    """The λ that predicted best, and whether with biases."""

    reg: float
    bias: bool


def biases_are_open(settings: Settings, operations: EntryOperations) -> bool:
    """Whether the model may have biases or not."""
    return (
        settings.bias == "auto"
        and may_have_biases(settings.solver)
        and settings.certify is None
        and operations.capabilities.allows_rank(settings.rank + 1)
    )


def search_regularization(
    settings: Settings,
    operations: EntryOperations,
    weights: Array | None,
    rng: np.random.Generator,
) -> Choice | None:
    """λ, and biases where they are open, by the prediction of held-out entries.

    None where there are too few entries to decide.
    """
    phases.begin("initialization, λ on held-out entries")
    open_biases = biases_are_open(settings, operations)
    biases = (False, True) if open_biases else (settings.bias is True,)
    operations, weights = _sample_rows(operations, weights)
    if operations.observed.n_entries * settings.rank**2 <= OPTIONS.host_work:
        operations = operations.host()
        weights = None if weights is None else np.asarray(weights)
    observed = operations.observed
    n_weighted = observed.n_entries if weights is None else int((weights > 0).sum())
    n_held_out = round(OPTIONS.held_out * observed.n_entries)
    if not OPTIONS.min_held_out <= n_held_out <= n_weighted - sum(observed.shape):
        return None
    host_weights = None if weights is None else np.asarray(weights)
    seed = int(rng.integers(1 << 62))
    host = observed.to_host()
    selected = select_by_hash(host, host_weights, OPTIONS.held_out, seed, by_ids=False)
    kept, kept_weights, holdout = hold_out(observed, weights, operations.array(selected))
    search = Search(
        settings.rank,
        settings.loss_at,
        partial(least_reg, settings),
        settings.reg_by_count,
        settings.bias_unit,
        operations.on(kept),
        kept_weights,
        partial(_error, holdout, settings.bounds),
        settings.nonnegative,
    )
    return _best_model(search, biases, int(rng.integers(1 << 40)), n_held_out)


def _best_model(search: Search, biases: Sequence[bool], seed: int, n_held_out: int) -> Choice:
    """The model with the lowest error; biases only where they are clearly better."""
    # the mean errors of two similar models differ by chance by about this share
    chance = 0.5 * n_held_out**-0.5
    best: tuple[float, Choice] | None = None
    for bias in biases:
        error, reg = search.best(bias, seed)
        if best is None or error < (1 - chance) * best[0]:
            best = (error, Choice(reg, bias))
    assert best is not None
    return best[1]


def _error(holdout: Holdout, bounds: tuple[float, float], U: Array, V: Array) -> float:
    return holdout.error(U, V, bounds)


def least_reg(settings: Settings, problem: Problem) -> float:
    """The first λ of a search: right for noise far below the values' scale."""
    if settings.loss.degree != 2:
        return settings.reg
    return float(problem.ridge(OPTIONS.initial_noise * problem.scale))


@dataclass(frozen=True)
class Search:
    """A model to be fitted to some entries with several λ.

    Attributes
    ----------
    rank : int
    loss_at : callable
        The loss for a noise level.
    least_reg : callable
        The first λ.
    reg_by_count : bool
    bias_unit : float
    operations : EntryOperations
        The entries to fit.
    weights : array over the entries, or None
    error : callable
        The error of factors on the entries held out.
    nonnegative : bool, default=False
        Whether factors are constrained to be non-negative.
    """

    rank: int
    loss_at: Callable[[float], Loss]
    least_reg: Callable[[Problem], float]
    reg_by_count: bool
    bias_unit: float
    operations: EntryOperations
    weights: Array | None
    error: Callable[[Array, Array], float]
    nonnegative: bool = False

    def best(self, bias: bool, seed: int) -> tuple[float, float]:
        """The lowest error on the held-out entries, and its λ.

        λ increases from one fit to the next, because no descent leaves factors that are zero.
        """
        observed = self.operations.observed
        m, n = observed.shape
        problem = Problem(self.operations, self.rank, 0.0)
        center = None
        row_bias: Array = np.empty(0)
        column_bias: Array = np.empty(0)
        if bias:
            reg = self.least_reg(problem) / (self.bias_unit * self.bias_unit)
            center, row_bias, column_bias = initial_biases(self.operations, reg)
            without = subtract_biases(self.operations, center, row_bias, column_bias)
            problem = Problem(without, self.rank, 0.0)
        U, V = problem.ridge_factors(np.random.default_rng(seed), OPTIONS.ridge_sweeps)
        if self.nonnegative:
            start = positive_parts(np.asarray(U), np.asarray(V), self.rank)
            U, V = nonnegative_factors(
                self.operations,
                (U, V),
                start,
                self.least_reg(problem),
                problem.noise(problem.residuals(U, V)),
                robust=False,
            )
        residual = problem.residuals(U, V)
        point = Factorization(U, V, center, row_bias, column_bias).augmented(self.bias_unit)
        reg = self.least_reg(problem)
        zero = (np.zeros((m, 1), observed.dtype), np.zeros((n, 1), observed.dtype))
        error_of_zero = self.error(*zero)
        found: list[tuple[float, float]] = []
        for k in range(OPTIONS.max_doublings):
            sigma = problem.noise(residual, problem.reg_for(2, reg, self.loss_at(1.0).degree))
            irls = IRLS.on_entries(
                self.operations,
                Objective(self.loss_at(sigma), reg),
                sigma,
                center,
                self.weights,
                self.reg_by_count,
                self.bias_unit,
                nonnegative=self.nonnegative,
            )
            irls.begin(*point)
            for _ in range(OPTIONS.sweeps if k else OPTIONS.first_sweeps):
                irls.step()
            point = irls.augmented_factors
            found.append((self.error(*irls.factors), reg))
            lowest = min(found)[0]
            # while zero factors predict better, an increase shows how far the first λ have
            # overfitted
            if found[-1][0] > (1 + OPTIONS.worse) * lowest and lowest < error_of_zero:
                break
            reg *= 2
        return min(found)


def _sample_rows(
    operations: EntryOperations, weights: Array | None
) -> tuple[EntryOperations, Array | None]:
    """All entries, or those of evenly spaced rows: about as many as the sample may have."""
    observed = operations.observed
    most = max(OPTIONS.sample, OPTIONS.sample_share * observed.n_entries)
    every = math.ceil(observed.n_entries / most)
    if every == 1:
        return operations, weights
    part, kept = strided_rows(observed, every)
    return operations.on(part), None if weights is None else weights[kept]
